"""Canaries: harmless attacks from inside a locked process, to check whether the lock holds.

They are worth more than any version number.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from guerdon.sandbox.locking.lock import LockPlan
from guerdon.sandbox.locking.syscalls import syscall, this_architecture

__all__ = ["Finding"]

Profile = Literal["program", "template", "function_call"]
# The errors of a refusal; another error would mean that the attack was only impossible.
FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSYS)
CLONE_NEWUSER = 0x1000_0000
# After that long it hangs; it takes a few milliseconds.
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one attack on a sandbox.

    Example:
        >>> from guerdon.sandbox import Finding
        >>> Finding("read /etc/passwd", held=True, detail="Permission denied").held
        True

    Attributes:
        name: What was tried.
        held: Whether the sandbox refused it.
        detail: The error that refused it, or what the attack achieved.
    """

    name: str
    held: bool
    detail: str


def release(plan: LockPlan, profile: Profile = "program") -> tuple[Finding, ...]:
    """Lock a process, let it attack, and collect the results.

    Args:
        plan: How to lock it, made by this process.
        profile: As what.
    """
    foreign = os.memfd_create("canary")
    os.fchmod(foreign, 0o600)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _child(plan, profile, foreign, writing)
    os.close(writing)
    os.close(foreign)
    try:
        text = _until_closed(reading)
    finally:
        os.close(reading)
        # It has ended, or hangs.
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    lines = [line.split("\t", 2) for line in text.decode("utf-8", "replace").splitlines()]
    findings = {name: Finding(name, held == "held", detail) for name, held, detail in lines}
    ended = f"the attacker ended first, with status {status}"
    missing = (name for name in _attacks(profile, foreign=-1) if name not in findings)
    return (*findings.values(), *(Finding(name, False, ended) for name in missing))


def _child(plan: LockPlan, profile: Profile, foreign: int, writing: int) -> None:
    """Lock, attack and end; it never returns."""
    try:
        if profile == "program":
            plan.lock_program()
        else:
            plan.lock_template()
            if profile == "function_call":
                call = os.fork()
                if call:
                    os.waitpid(call, 0)
                    os._exit(0)
                plan.lock_function_call()
        for name, attack in _attacks(profile, foreign).items():
            finding = _tried(name, attack)
            held = "held" if finding.held else "broke"
            os.write(writing, f"{name}\t{held}\t{finding.detail}\n".encode())
    except BaseException as error:
        os.write(writing, f"locking\tbroke\t{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def _tried(name: str, attack: Callable[[], object]) -> Finding:
    try:
        result = attack()
    except OSError as error:
        return Finding(name, error.errno in FORBIDDEN, os.strerror(error.errno or 0))
    except Exception as error:
        return Finding(name, False, type(error).__name__)
    detail = "it changed nothing" if result is None else f"it got {result}"
    return Finding(name, result is None, detail)


def _attacks(profile: Profile, foreign: int) -> dict[str, Callable[[], object]]:
    """What is tried: each raises if it is refused, and returns None if it changed nothing."""
    parent = os.getppid()
    attacks: dict[str, Callable[[], object]] = {
        "read /etc/passwd": lambda: _opened("/etc/passwd"),
        "write outside": _write_outside,
        "read the parent's environment": lambda: _opened(f"/proc/{parent}/environ"),
        "make a TCP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "make a Unix socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        "signal the parent": lambda: _through(os.kill, parent, 0),
        "read the parent's memory": lambda: _called("process_vm_readv", parent, 0, 0, 0, 0, 0),
        "leave the session": lambda: _through(os.setsid),
        "make a user namespace": lambda: _called("unshare", CLONE_NEWUSER),
        "change a file's mode": lambda: _change_mode(foreign),
        "start a program": lambda: os.execv("/bin/true", ["true"]),
        # The last: nothing more would be reported.
        "kill itself": lambda: _through(os.kill, os.getpid(), signal.SIGKILL),
    }
    if profile == "function_call":
        attacks = {"fork": _fork, **attacks}
    return attacks


def _through(call: Callable[..., object], *arguments: object) -> str:
    call(*arguments)
    return "through"


def _opened(path: str) -> str:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return "it open"


def _write_outside() -> str:
    path = f"/tmp/guerdon-canary-{os.getpid()}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)
    return "it written"


def _change_mode(descriptor: int) -> str | None:
    before = os.fstat(descriptor).st_mode
    os.fchmod(descriptor, 0o640)
    return None if os.fstat(descriptor).st_mode == before else "it changed"


def _fork() -> str:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return "a process"


def _called(name: str, *arguments: int) -> str:
    architecture = this_architecture()
    number = architecture.number(name) if architecture is not None else None
    if number is None:
        raise OSError(errno.EINVAL, f"{name} isn't known here")
    return _through(syscall, number, *arguments)


def _until_closed(descriptor: int) -> bytes:
    text = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(PATIENCE_SECONDS * 1000):
        part = os.read(descriptor, 1 << 16)
        if not part:
            break
        text += part
    return text
