"""The names that the program of a case can use: the source of this module precedes it.

It runs inside the sandbox, so it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

#: System calls by name, with their number on x86-64 and on arm64. They are not imported from the
#: lock, where a wrong number would go unnoticed.
NUMBERS: dict[str, tuple[int, int]] = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "capget": (125, 90),
    "capset": (126, 91),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fanotify_init": (300, 262),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "mount": (165, 40),
    "mq_notify": (244, 184),
    "mq_open": (240, 180),
    "mq_timedsend": (242, 182),
    "mq_unlink": (241, 181),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "timer_create": (222, 107),
    "timer_settime": (223, 110),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}

host: dict[str, Any] = {}  # facts about the host
libc = ctypes.CDLL(None, use_errno=True)
IS_X86 = os.uname().machine == "x86_64"

#: What a sandbox answers: that it isn't allowed, or that there is no such thing.
_NAMES = (
    "EACCES EADDRNOTAVAIL EAFNOSUPPORT ECONNREFUSED EHOSTUNREACH ENETUNREACH ENOENT ENOSYS EPERM "
    "EPROTONOSUPPORT EROFS ESOCKTNOSUPPORT ESRCH"
)
DENIALS = frozenset(_NAMES.split())


def start() -> None:
    """Read the facts about the host, and take the name by which the host finds leftovers."""
    host.update(json.loads(sys.stdin.read() or "{}"))
    libc.prctl(15, host.get("mark", "").encode(), 0, 0, 0)  # PR_SET_NAME


# Results -----------------------------------------------------------------------------------------


def trying() -> None:
    """Announce an attempt that may end this process."""
    print("trying", flush=True)


def passed(evidence: object) -> None:
    """Report what stopped the attack."""
    print("passed:", evidence, flush=True)


def failed(what: object) -> NoReturn:
    """Report that the attack succeeded, and exit."""
    print("FAILED:", what, flush=True)
    sys.exit(1)


def skip(reason: str) -> NoReturn:
    """Report why the attack can't be tried, and exit."""
    print("skipped:", reason)
    sys.exit()


def denied(reason: str) -> NoReturn:
    """Raise what a refused attempt raises, for one that succeeded and reached nothing."""
    raise PermissionError(errno.EPERM, reason)


def name_of(error: BaseException) -> str:
    """Return the name of an error's number, such as ``EPERM``."""
    if isinstance(error, TimeoutError):
        return "ETIMEDOUT"
    return errno.errorcode.get(getattr(error, "errno", None) or 0, f"{error!r:.60}")


def refused(also: str = "", /, **attempts: Callable[[], object]) -> None:
    """Make attempts, each of which must be denied, with one of `DENIALS` or of `also`."""
    answers = []
    for name, attempt in attempts.items():
        try:
            result = attempt()
        except OSError as error:
            answers.append(f"{name} {name_of(error)}")
            if name_of(error) not in DENIALS.union(also.split()):
                failed(f"{name} failed, but not because it was denied: {name_of(error)}")
        else:
            failed(f"{name} gave {result!r:.80}")
    passed(", ".join(answers))


def survived(**attempts: Callable[[], object]) -> None:
    """Make attempts to end this process, which may end it or leave it alone."""
    trying()
    answers = []
    for name, attempt in attempts.items():
        try:
            attempt()
            answers.append(f"{name} returned")
        except OSError as error:
            answers.append(f"{name} {name_of(error)}")
    passed(", ".join(answers))


def bounded(
    take: Callable[[int], object],
    times: int,
    *,
    errors: type[Exception] | tuple[type[Exception], ...] = OSError,
    wait: float = 0.0,
) -> None:
    """Take a resource again and again: one of the errors must come before the last time.

    Args:
        take: Takes a part, given how many were taken.
        times: How many parts are too many.
        errors: What a refusal raises.
        wait: Seconds in which a watchdog may notice.
    """
    trying()
    for count in range(times):
        try:
            take(count)
        except errors as error:
            passed(f"{name_of(error)} after {count}")
            return
    time.sleep(wait)
    failed(f"{times} parts were taken")


def clean(**findings: object) -> None:
    """Check that none of the findings is true."""
    found = [name for name, is_found in findings.items() if is_found]
    if found:
        failed("found: " + ", ".join(found))
    passed("found nothing")


# Attempts ----------------------------------------------------------------------------------------


def each(attempt: Callable[[Any], object], targets: Iterable[Any]) -> dict[str, Any]:
    """Return one attempt for each target, by the target or by its name in a dictionary."""
    named = targets if isinstance(targets, dict) else {str(target): target for target in targets}
    return {name: partial(attempt, target) for name, target in named.items()}


def call(name: str | int, *arguments: Any) -> int:
    """Make a raw system call.

    Raises:
        OSError: It failed.
    """
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in padded]
    number = NUMBERS[name][0 if IS_X86 else 1] if isinstance(name, str) else name
    ctypes.set_errno(0)
    result = int(libc.syscall(ctypes.c_long(number), *words))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def in_child(work: Callable[[], object]) -> int:
    """Run a function in a child, which exits after it; return the child's process ID."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


def end_clone(child: int) -> int:
    """Exit if this is the new process of a clone; otherwise return its process ID."""
    if not child:
        os._exit(0)
    return child


def parent() -> int:
    """Return the parent's process ID, or the host's for a first process."""
    return os.getppid() or host["pid"]


def others() -> dict[str, int]:
    """Return the IDs of processes outside of the call."""
    return {"sleeper": host["sleeper"], "host": host["pid"], "parent": parent()}


def signals(pid: int) -> dict[str, Callable[[], object]]:
    """Return attempts to signal a process. Signal 0 asks for permission, and sends nothing."""
    no_signal = (ctypes.c_int * 32)(0, 0, -1)
    return {
        "kill": lambda: os.kill(pid, 0),
        "tkill": lambda: call("tkill", pid, 0),
        "tgkill": lambda: call("tgkill", pid, pid, 0),
        "queue": lambda: call("rt_sigqueueinfo", pid, 0, no_signal),
        "pidfd": lambda: call("pidfd_send_signal", call("pidfd_open", pid, 0), 0, 0, 0),
    }


def vectors() -> tuple[Any, Any]:
    """Return what `process_vm_readv` takes: a buffer here, and an unmapped address elsewhere.

    A call that has the permission fails with EFAULT.
    """
    buffer = ctypes.create_string_buffer(8)
    return (ctypes.c_long * 2)(ctypes.addressof(buffer), 8), (ctypes.c_long * 2)(4096, 8)


def read(path: str) -> bytes:
    """Return the beginning of a file."""
    with open(path, "rb") as file:
        return file.read(200)


def change(path: str, attempt: Callable[[], object]) -> None:
    """Make an attempt to change a file; one that succeeds and does nothing is denied as well."""
    before = os.stat(path).st_ctime_ns
    attempt()
    if os.stat(path).st_ctime_ns == before:
        denied("it did nothing")


def bind(line: socket.socket, address: object) -> NoReturn:
    """Bind a socket to the address of a server of the host, which must not be in use here."""
    try:
        line.bind(address)  # type: ignore[arg-type]  # as the family has it
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            failed("the address is in use: this is the host's network")
        raise
    raise PermissionError(errno.EADDRNOTAVAIL, "this is a separate network")


def own(namespace: str) -> bool:
    """Return whether this process is in a namespace apart from the host's."""
    try:
        return bool(os.readlink(f"/proc/self/ns/{namespace}") != host["namespaces"].get(namespace))
    except OSError:
        return False
