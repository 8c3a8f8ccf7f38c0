"""The lock of `strict`: files, user and system calls, beside the limits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from guerdon.sandbox.locking.canaries import Profile, release
from guerdon.sandbox.locking.lock import LockPlan, facts
from guerdon.sandbox.locking.privileges import ReservedUser
from guerdon.sandbox.server.amounts import MemoryMeter, limit

if TYPE_CHECKING:
    from landlockpy import Ruleset

__all__ = ["StrictLock"]


class StrictLock:
    """Shuts a process off; see `Lock`."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.closed_groups = True
        self._user = ReservedUser() if os.geteuid() == 0 else None
        self.uid = self._user.uid if self._user is not None else None
        self._plan = LockPlan.prepare(
            config["read"], optional_read=config["optional_read"], uid=self.uid
        )
        profile: Profile = "program" if config["kind"] == "programs" else "function_call"
        # Not a line of anybody's code is run before the lock has held.
        self._canaries = release(self._plan, profile) if config["probe"] else ()
        self.descriptors: list[int] = []
        self._built: Ruleset | None = None

    def facts(self) -> dict[str, Any]:
        """What is in force, and how it held."""
        canaries = [[each.name, each.held, each.said] for each in self._canaries]
        return {"lock": facts(self._plan), "canaries": canaries}

    @contextlib.contextmanager
    def fork(self, folder: str | None) -> Iterator[None]:
        """Build the file rules of the process that is forked meanwhile."""
        with self._plan.build(folder) as self._built:
            yield
        self._built = None

    def lock_program(self, limits: dict[str, Any], folder: str | None) -> None:
        """Limit it, then shut it off."""
        limit(limits, uid=self.uid)
        self._plan.lock_program(folder, self._built)

    def lock_template(self, limits: dict[str, Any]) -> None:
        """Limit it, then shut it off."""
        limit(limits, uid=self.uid)
        self.descriptors = [MemoryMeter.open()]
        self._plan.lock_template()

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """Limit the memory of the template, and so that of its copies."""
        MemoryMeter(self.descriptors[0]).limit(limits["memory"], limits["processes"])

    def lock_function_call(self) -> None:
        """Leave it nothing but itself."""
        self._plan.lock_function_call()

    def lock_standing(self, limits: dict[str, Any]) -> None:
        """The same in the template itself."""
        MemoryMeter(self.descriptors[0]).limit(limits["memory"], limits["processes"])
        self._plan.lock_standing()

    def close(self) -> None:
        """Give the user back."""
        if self._user is not None:
            self._user.close()
