"""What processes are locked with, by level."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from guerdon.sandbox.server.amounts import limit, limit_memory
from guerdon.sandbox.server.process_control import die_with_parent

__all__ = ["Lock", "open_lock"]


class Lock(Protocol):
    """What a process does to itself before it runs anybody's code.

    Attributes:
        uid: Who it is then; None for whoever it was.
        closed_groups: Whether nobody can leave its process group.
        descriptors: What a locked template must keep open, for locking its calls.
    """

    uid: int | None
    closed_groups: bool
    descriptors: list[int]

    def facts(self) -> dict[str, Any]:
        """What is in force."""
        ...

    def fork(self, folder: str | None) -> contextlib.AbstractContextManager[None]:
        """In the keeper, around the fork of a program's call that may write into a folder."""
        ...

    def lock_program(self, limits: dict[str, Any], folder: str | None) -> None:
        """In a call that runs a program and may write into a folder."""
        ...

    def lock_template(self, limits: dict[str, Any]) -> None:
        """In a template, before it imports anything of a person's."""
        ...

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """In a locked template, before it is copied for its calls, which have these limits."""
        ...

    def lock_function_call(self) -> None:
        """In a copy of a locked template."""
        ...

    def lock_standing(self, limits: dict[str, Any]) -> None:
        """In a locked template that answers calls itself."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def open_lock(config: dict[str, Any]) -> Lock:
    """The lock of a level."""
    if config["level"] == "process":
        return LimitsAlone()
    from guerdon.sandbox.server.strict_lock import StrictLock

    return StrictLock(config)


class LimitsAlone:
    """Limits, and nothing else: what a process may use, not what it may do."""

    def __init__(self) -> None:
        self.uid: int | None = None
        self.closed_groups = False
        self.descriptors: list[int] = []
        self._limits: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        """Nothing is in force but limits."""
        return {}

    def fork(self, folder: str | None) -> contextlib.AbstractContextManager[None]:
        """Nothing to do."""
        return contextlib.nullcontext()

    def lock_program(self, limits: dict[str, Any], folder: str | None) -> None:
        """Set the limits."""
        die_with_parent()
        limit(limits, uid=None)

    def lock_template(self, limits: dict[str, Any]) -> None:
        """Nothing to do: the calls are limited."""
        die_with_parent()

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """Note them: each call limits itself."""
        self._limits = limits

    def lock_function_call(self) -> None:
        """Set the limits."""
        die_with_parent()
        limit(self._limits, uid=None)

    def lock_standing(self, limits: dict[str, Any]) -> None:
        """Set the limits that don't add up over calls."""
        limit_memory(limits)

    def close(self) -> None:
        """Nothing is held."""
