"""What `process` and `strict` are made of here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from guerdon.errors import InvalidArgumentError, SandboxUnavailableError
from guerdon.sandbox.finding import Finding
from guerdon.sandbox.local.bubblewrap import bubblewrap_here
from guerdon.sandbox.local.places import (
    executable_places,
    interpreter_places,
    own_places,
    system_places,
)

__all__ = ["LocalLevel", "PROCESS", "STRICT", "local_level", "unavailable"]


@dataclass(frozen=True, slots=True)
class LocalLevel:
    """A level of isolation that this machine's own means make.

    Attributes:
        name: ``process`` or ``strict``.
        promise: What it promises, in a line.
    """

    name: Literal["process", "strict"]
    promise: str

    def config(self, *, read: Sequence[str]) -> dict[str, Any]:
        """What a worker is told of it.

        Args:
            read: What may be read beside Python's own.

        Raises:
            InvalidArgumentError: One of these isn't there.
        """
        given = [str(Path(each).resolve()) for each in read]
        for path in given:
            if not Path(path).exists():
                raise InvalidArgumentError(f"allow_read: there is no {path}")
        needed = list(dict.fromkeys([*interpreter_places(), *given]))
        return {
            "level": self.name,
            "probe": True,
            "read": needed,
            "optional_read": system_places(),
            "bubblewrap": _bubblewrap(needed) if self.name == "strict" else None,
        }


PROCESS = LocalLevel(
    "process",
    "accidents: loops, leaks, crashes and floods are ended; files and the network are open, "
    "malice is not held",
)
STRICT = LocalLevel(
    "strict",
    "no network, no files beyond those that are listed, no other process seen or signalled, no "
    "new privileges, nothing outlives a call; the kernel is shared",
)


def local_level(name: str) -> LocalLevel | None:
    """The level of a name, if it is one of this machine's own and can be had.

    Args:
        name: ``process``, ``strict``, or ``auto``, which is ``strict`` or nothing.

    Raises:
        SandboxUnavailableError: It can't, for these reasons.
    """
    level = {"auto": STRICT, "strict": STRICT, "process": PROCESS}.get(name)
    if level is None:
        return None
    missing: list[str] = []
    if sys.platform == "win32":
        missing.append(f"{level.name} needs fork, which Windows doesn't have")
    elif level is STRICT:
        from guerdon.sandbox.locking.lock import requirements

        missing = requirements()
    if missing:
        raise unavailable(level.name, missing)
    return level


def _bubblewrap(read: Sequence[str]) -> str | None:
    """Where bubblewrap is, if it works here with what must be read."""
    from guerdon.sandbox.locking.privileges import ReservedUser, unreachable

    places = [*read, *own_places(), *executable_places()]
    if os.geteuid() != 0:
        return bubblewrap_here(places, None)
    if unreachable(places):
        return None  # who it would have to run as can't get there
    with ReservedUser() as user:
        return bubblewrap_here(places, user.uid)


def unavailable(
    name: str, missing: Sequence[str], findings: Sequence[Finding] = ()
) -> SandboxUnavailableError:
    """The error of a level that can't be had."""
    told = "; ".join(missing)
    return SandboxUnavailableError(
        f"the sandbox level {name!r} doesn't work here: {told}. Nothing weaker is taken instead; "
        "a sandbox against accidents alone is `process`, if you say so (--sandbox process)",
        level=name,
        missing=missing,
        findings=findings,
    )
