"""Opening a sandbox by the name of its level, and checking whether a level works here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from guerdon._registry import Registry
from guerdon._validation import check_choice, check_list, check_type
from guerdon.errors import SandboxError, SandboxUnavailableError
from guerdon.sandbox.levels import LEVELS, local_level
from guerdon.sandbox.local_sandbox import LocalSandbox
from guerdon.sandbox.locking.canaries import Finding
from guerdon.sandbox.locking.lock import facts
from guerdon.sandbox.protocol import Limits, Sandbox

__all__ = ["Probe", "open_sandbox", "probe"]

#: What opens the sandboxes of other packages, by level.
PLUG_INS: Registry[Callable[..., Sandbox]] = Registry("sandbox level", "guerdon.sandboxes")


def open_sandbox(
    level: str = "auto",
    *,
    workers: int | None = None,
    limits: Limits | None = None,
    packages: Sequence[str] = (),
    allow_read: Sequence[str | Path] = (),
) -> Sandbox:
    """Open a sandbox for programs.

    Example:
        >>> from guerdon import Limits, open_sandbox
        >>> with open_sandbox("process", limits=Limits(seconds=1)) as sandbox:
        ...     sandbox.run("while True: pass", limits=Limits(seconds=0.2)).ending
        'timeout'

    Args:
        level: ``strict``; ``auto``, which is ``strict`` or an error; ``process``, which stops
            accidents but no malice; or the name of a plug-in.
        workers: How many programs run at the same time. The default is one for each processor.
        limits: What a call may use by default.
        packages: Installed packages that programs may import, as ``pip list`` names them, with
            those that they require; the others are hidden. They are trusted: a worker imports them
            once, before it is locked, and its calls share them.
        allow_read: Files and folders that programs may read beside Python's own.

    Raises:
        SandboxUnavailableError: The level doesn't work on this machine; it lists what is missing.
        InvalidArgumentError: There is no such level, or an argument is invalid.
        LoadError: A plug-in can't be imported.
        SandboxError: A worker can't be started.
    """
    count = workers if workers is not None else os.cpu_count() or 1
    given = check_type("limits", Limits() if limits is None else limits, Limits)
    read = [str(each) for each in check_list("allow_read", allow_read)]
    if level in LEVELS:
        return LocalSandbox(
            local_level(level), workers=count, limits=given, packages=packages, allow_read=read
        )
    return open_plug_in(level, workers=count, limits=given, packages=packages, allow_read=read)


def open_plug_in(
    level: str,
    *,
    workers: int,
    limits: Limits,
    packages: Sequence[str] = (),
    allow_read: Sequence[str],
) -> Sandbox:
    """Open the sandbox of another package.

    Args:
        level: The name of its entry point.
        workers: How many programs run at the same time.
        limits: What a call may use by default.
        packages: Packages that programs may import.
        allow_read: Files and folders that programs may read beside Python's own.

    Raises:
        InvalidArgumentError: There is none of that name.
        LoadError: It can't be imported.
    """
    check_choice("level", level, [*LEVELS, *PLUG_INS.names()])
    return PLUG_INS[level](workers=workers, limits=limits, packages=packages, allow_read=allow_read)


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a level works on this machine.

    Example:
        >>> from guerdon.sandbox import probe
        >>> probe("process").missing
        ()

    Attributes:
        level: Its name.
        works: Whether it works.
        missing: What is missing, a line each, with how to fix it.
        findings: The results of attacks on it, if they could be tried.
        facts: What it consists of on this machine.
    """

    level: str
    works: bool
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def probe(level: str = "strict") -> Probe:
    """Check whether a level works here, as this user.

    A process is locked as a program is, and tries to get out: the attacks do no harm if they
    succeed.

    Example:
        >>> from guerdon.sandbox import probe
        >>> found = probe("process")
        >>> found.works, found.findings
        (True, ())

    Args:
        level: ``strict`` or ``process``.

    Raises:
        InvalidArgumentError: It is another one.
    """
    check_choice("level", level, ("strict", "process"))
    machine = facts() if level == "strict" else {}
    try:
        with LocalSandbox(local_level(level), workers=1, limits=Limits()) as sandbox:
            works = sandbox.run("print(6 * 7)").stdout == "42\n"
    except SandboxUnavailableError as error:
        attacked = {f"{each.name}: {each.detail}" for each in error.findings}
        missing = tuple(each for each in error.missing if each not in attacked)
        return Probe(level, False, missing, error.findings, machine)
    except SandboxError as error:
        return Probe(level, False, (str(error),), facts=machine)
    missing = () if works else ("a program did not run",)
    return Probe(level, works, missing, sandbox.findings, dict(sandbox.facts))
