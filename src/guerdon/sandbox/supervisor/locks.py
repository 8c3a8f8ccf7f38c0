"""How processes are limited and locked, by level."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from guerdon.sandbox.locking.rlimits import MemoryMeter, limit_call, limit_memory
from guerdon.sandbox.supervisor.processes import die_with_parent

if TYPE_CHECKING:
    from landlockpy import Ruleset


class LimitsLock:
    """What a process does to itself at the level ``process``: it limits what it may use.

    Attributes:
        uid: The user that it becomes; None for the present one.
        closed_groups: Whether no process can leave its process group.
        descriptors: What a locked template must keep open, for locking its calls.
    """

    def __init__(self) -> None:
        self.uid: int | None = None
        self.closed_groups = False
        self.descriptors: list[int] = []
        self._limits: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        """What is in force."""
        return {}

    def fork(self, folder: str | None) -> contextlib.AbstractContextManager[None]:
        """In the supervisor, around the fork of a program that may write into a folder."""
        return contextlib.nullcontext()

    def lock_program(self, limits: dict[str, Any], folder: str | None) -> None:
        """In a call that runs a program and may write into a folder."""
        die_with_parent()
        limit_call(limits, uid=None)

    def lock_template(self, limits: dict[str, Any]) -> None:
        """In a template, before it imports the user's code; here, calls are limited one by one."""
        die_with_parent()

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """In a locked template, before it is copied for its calls, which have these limits."""
        self._limits = limits

    def lock_function_call(self) -> None:
        """In a copy of a locked template."""
        die_with_parent()
        limit_call(self._limits, uid=None)

    def lock_reused(self, limits: dict[str, Any]) -> None:
        """In a locked template that answers calls itself: no limit that adds up over calls."""
        limit_memory(limits)

    def close(self) -> None:
        """Release what it has reserved."""


class StrictLock(LimitsLock):
    """The lock of the level ``strict``: files, user and system calls, beside the limits."""

    def __init__(self, config: dict[str, Any]) -> None:
        from guerdon.sandbox.locking import canaries, lock, privileges

        super().__init__()
        self.closed_groups = True
        self._user = privileges.ReservedUser() if os.geteuid() == 0 else None
        self.uid = self._user.uid if self._user is not None else None
        self._plan = lock.LockPlan.prepare(
            config["read"], optional_read=config["optional_read"], uid=self.uid
        )
        profile: canaries.Profile = "program" if config["kind"] == "programs" else "function_call"
        # No code of the user's runs before the lock has held.
        findings = canaries.release(self._plan, profile)
        self._facts = {
            "lock": lock.facts(self._plan),
            "canaries": [[each.name, each.held, each.detail] for each in findings],
        }
        self._built: Ruleset | None = None

    def facts(self) -> dict[str, Any]:
        """What is in force, and the results of the canaries."""
        return self._facts

    @contextlib.contextmanager
    def fork(self, folder: str | None) -> Iterator[None]:
        """Build the file rules of the process that is forked meanwhile."""
        with self._plan.files.build(folder) as self._built:
            yield
        self._built = None

    def lock_program(self, limits: dict[str, Any], folder: str | None) -> None:
        """Limit it, then lock it."""
        limit_call(limits, uid=self.uid)
        self._plan.lock_program(folder, self._built)

    def lock_template(self, limits: dict[str, Any]) -> None:
        """Limit it, then lock it."""
        limit_call(limits, uid=self.uid)
        self.descriptors = [MemoryMeter.open()]
        self._plan.lock_template()

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """Limit the memory of the template, and so that of its copies."""
        MemoryMeter(self.descriptors[0]).limit(limits["memory"], limits["processes"])

    def lock_function_call(self) -> None:
        """Load the filter of a call."""
        self._plan.lock_function_call()

    def lock_reused(self, limits: dict[str, Any]) -> None:
        """Limit its memory and load the filter of a call, in the template itself."""
        self.limit_calls(limits)
        self._plan.lock_function_call()

    def close(self) -> None:
        """Release the user."""
        if self._user is not None:
            self._user.close()


def open_lock(config: dict[str, Any]) -> LimitsLock:
    """The lock of a level."""
    return LimitsLock() if config["level"] == "process" else StrictLock(config)
