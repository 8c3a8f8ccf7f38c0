"""Opening a sandbox by the name of its level."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.limits import Limits
from guerdon.sandbox.protocol import Sandbox

__all__ = ["open_sandbox"]

PLUG_INS = "guerdon.sandboxes"


def open_sandbox(
    level: str = "auto",
    *,
    workers: int | None = None,
    limits: Limits | None = None,
    allow_read: Sequence[str | Path] = (),
) -> Sandbox:
    """Open a sandbox for programs.

    Example:
        >>> from guerdon import Limits, open_sandbox
        >>> with open_sandbox("process", limits=Limits(seconds=1)) as sandbox:
        ...     sandbox.run("while True: pass", limits=Limits(seconds=0.2)).ending
        'timeout'

    Args:
        level: ``strict``; ``auto``, which is ``strict`` or an error; ``process``, which holds
            accidents but no malice; or a plug-in's name.
        workers: How many programs run at the same time; None is one for each processor.
        limits: What a call may use unless it says otherwise.
        allow_read: Files and folders that programs may read beside Python's own.

    Raises:
        SandboxUnavailableError: The level doesn't work on this machine; it says what is missing.
        InvalidArgumentError: There is no such level, or an argument is none.
        SandboxError: A worker can't be started.
    """
    from guerdon.sandbox.local.levels import local_level

    count = workers if workers is not None else os.cpu_count() or 1
    given = limits or Limits()
    if not isinstance(given, Limits):
        raise InvalidArgumentError(f"limits is {given!r:.60}; it takes Limits")
    if isinstance(allow_read, (str, bytes, Path)):
        raise InvalidArgumentError(f"allow_read is {allow_read!r:.60}; it takes a list of paths")
    read = [str(each) for each in allow_read]
    local = local_level(level)
    if local is None:
        return plug_in(level)(workers=count, limits=given, allow_read=read)
    from guerdon.sandbox.local.programs import LocalSandbox

    return LocalSandbox(local, workers=count, limits=given, allow_read=read)


def plug_in(name: str) -> Callable[..., Sandbox]:
    """What opens the sandbox of a plug-in.

    Args:
        name: That of its entry point.

    Raises:
        InvalidArgumentError: There is none.
    """
    found = {each.name: each for each in entry_points(group=PLUG_INS)}
    if name in found:
        return cast(Callable[..., Sandbox], found[name].load())
    levels = ", ".join(["auto", "strict", "process", *sorted(found)])
    why = "; programs don't run in process" if name == "none" else ""
    raise InvalidArgumentError(f"there is no sandbox level {name!r:.60}; it takes {levels}{why}")
