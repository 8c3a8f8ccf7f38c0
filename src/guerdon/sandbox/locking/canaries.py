"""Canaries: harmless attacks from inside a locked process, which check that its lock works."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from guerdon.sandbox.locking.lock import StrictLock
from guerdon.sandbox.locking.syscalls import call

__all__ = ["Finding"]

Profile = Literal["program", "template", "function_call"]
# The errors of a refusal; with another error, the attack was only impossible.
FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSYS)
CLONE_NEWUSER = 0x1000_0000
# All attacks together take a few milliseconds; after this time they hang.
PATIENCE_SECONDS = 10
LIMITS = {"cpu": PATIENCE_SECONDS, "memory": 256 << 20, "processes": 16, "file_bytes": 1 << 20}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one attack on a sandbox.

    Example:
        >>> from guerdon.sandbox import Finding
        >>> Finding("read /etc/passwd", blocked=True, detail="Permission denied").blocked
        True

    Attributes:
        name: The attack.
        blocked: Whether the sandbox refused it.
        detail: The error that refused it, or what the attack achieved.
    """

    name: str
    blocked: bool
    detail: str


def release(lock: StrictLock, profile: Profile = "program") -> tuple[Finding, ...]:
    """Lock a process, let it attack, and collect the results.

    Args:
        lock: The lock, made by this process.
        profile: Which policy applies.
    """
    foreign = os.memfd_create("canary")
    os.fchmod(foreign, 0o600)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            _attack(lock, profile, foreign, writing)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(foreign)
    with open(reading, encoding="utf-8", errors="replace") as lines:
        found = [Finding(*json.loads(line)) for line in lines]
    _, status = os.waitpid(child, 0)
    ended = f"the attacker ended first, with status {status}"
    missing = _attacks(profile, foreign=-1).keys() - {each.name for each in found}
    return (*found, *(Finding(name, False, ended) for name in sorted(missing)))


def _attack(lock: StrictLock, profile: Profile, foreign: int, writing: int) -> None:
    """Lock this process and try everything."""

    def report(name: str, blocked: bool, detail: str) -> None:
        os.write(writing, json.dumps([name, blocked, detail]).encode() + b"\n")

    try:
        signal.alarm(PATIENCE_SECONDS)
        if profile == "program":
            lock.lock_program(LIMITS)
        else:
            lock.lock_template(LIMITS)
        if profile == "function_call":
            if copy := os.fork():
                os.waitpid(copy, 0)
                return
            signal.alarm(PATIENCE_SECONDS)
            lock.lock_function_call(LIMITS)
        for name, attack in _attacks(profile, foreign).items():
            try:
                result = attack()
                report(name, result is None, f"it got {result}" if result else "it changed nothing")
            except OSError as error:
                report(name, error.errno in FORBIDDEN, os.strerror(error.errno or 0))
            except Exception as error:
                report(name, False, type(error).__name__)
    except BaseException as error:
        report("locking", False, f"{type(error).__name__}: {error}")


def _attacks(profile: Profile, foreign: int) -> dict[str, Callable[[], object]]:
    """Return attacks: each raises if it is refused, and returns None if it changed nothing."""
    parent = os.getppid()
    attacks: dict[str, Callable[[], object]] = {
        "read /etc/passwd": lambda: _opened("/etc/passwd"),
        "write outside": _write_outside,
        "read the parent's environment": lambda: _opened(f"/proc/{parent}/environ"),
        "make a TCP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "make a Unix socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        "signal the parent": lambda: _through(os.kill, parent, 0),
        "read the parent's memory": lambda: _through(
            call, "process_vm_readv", parent, 0, 0, 0, 0, 0
        ),
        "leave the session": lambda: _through(os.setsid),
        "make a user namespace": lambda: _through(call, "unshare", CLONE_NEWUSER),
        "change a file's mode": lambda: _change_mode(foreign),
        "start a program": lambda: os.execv("/bin/true", ["true"]),
        # The last: nothing more would be reported.
        "kill itself": lambda: _through(os.kill, os.getpid(), signal.SIGKILL),
    }
    if profile == "function_call":
        attacks = {"fork": _fork, **attacks}
    return attacks


def _through(function: Callable[..., object], *arguments: object) -> str:
    function(*arguments)
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
