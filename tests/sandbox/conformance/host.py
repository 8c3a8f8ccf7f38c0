"""`Host`: the targets of cases on this machine, and what happens to them."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from guerdon.errors import SandboxError
from guerdon.sandbox.supervisor.processes import members, stat_of

_NAMESPACES = ("user", "net", "ipc", "pid", "mnt", "uts")
_SETUID = ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/sudo", "/bin/su")
_SHARED = ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run", "/")
#: A blocked signal stays pending, and /proc lists it in the status of the process.
_SLEEPER = """
import signal, sys
if hasattr(signal, "SIGURG"):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
print("ready", flush=True)
sys.stdin.read()
"""
#: Of /proc/<pid>/status: what others can change about a process.
_STATUS = ("TracerPid", "Uid", "SigPnd", "ShdPnd", "Cpus_allowed:")
#: Seconds in which processes and descriptors may still go after a call.
_GRACE = 1.0


class Host:
    """The targets of cases: files, servers, a process, a variable and a descriptor of its own.

    It is opened before the sandbox, which might inherit them, and removes all of it at the end.

    Raises:
        SandboxError: This isn't Linux or macOS (when it is entered).

    Attributes:
        facts: What programs receive about it, as JSON types.
        secret: What no program may print.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._listeners: list[socket.socket] = []
        self._mark = "gn" + secrets.token_hex(5)
        self.secret = secrets.token_hex(16)
        self.facts: dict[str, Any] = {"mark": self._mark}

    def __enter__(self) -> Self:
        if not hasattr(os, "getpgid"):
            raise SandboxError(f"the cases run on Linux and macOS, not on {sys.platform}")
        with self._stack as stack:
            self._make_files(stack)
            self._start_servers(stack)
            self._start_sleeper(stack)
            variable = f"GUERDON_{self._mark.upper()}_TOKEN"
            os.environ[variable] = self.secret
            stack.callback(os.environ.pop, variable, None)
            self.facts |= {
                "variable": variable,
                "pid": os.getpid(),
                "group": os.getpgid(0),
                "sleeper": self._sleeper.pid,
                "namespaces": {name: _namespace(name) for name in _NAMESPACES},
                "devices": {path: os.stat(path).st_dev for path in _SHARED if os.path.isdir(path)},
                "setuid": [path for path in _SETUID if os.path.exists(path)],
                "streams": [_identity(descriptor) for descriptor in (0, 1, 2)],
            }
            self._state = self._observe()
            self._before = (_descendants(), _open_descriptors())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _make_files(self, stack: ExitStack) -> None:
        """Make a folder that everyone may write, so that only the sandbox protects it."""
        temporary = tempfile.TemporaryDirectory(prefix="guerdon-conformance-")
        self._folder = Path(stack.enter_context(temporary))
        self._folder.chmod(0o777)
        self._file = self._folder / "secret"
        self._file.write_text(self.secret)
        self._file.chmod(0o666)
        descriptor = os.open(self._file, os.O_RDWR)
        stack.callback(os.close, descriptor)
        os.set_inheritable(descriptor, True)
        at_home = Path.home() / f".guerdon-{self._mark}"
        stack.callback(at_home.unlink, missing_ok=True)
        with suppress(OSError):
            at_home.write_text(self.secret)
        here = Path.cwd()
        names = sorted(path for path in here.iterdir() if path.is_file())
        self.facts |= {
            "folder": str(self._folder),
            "secret": str(self._file),
            "descriptor": descriptor,
            "home": str(Path.home()),
            "at_home": str(at_home) if at_home.exists() else None,
            "project": str(here),
            "project_file": str(names[0]) if names else None,
        }

    def _start_servers(self, stack: ExitStack) -> None:
        """Start servers that no program may reach; the kernel accepts their connections."""

        def listen(family: int, kind: int, address: Any) -> Any:
            listener = stack.enter_context(socket.socket(family, kind))
            listener.bind(address)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            self._listeners.append(listener)
            return listener.getsockname()

        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        abstract = f"guerdon-{self._mark}"
        paths = {"stream": str(self._folder / "stream"), "datagram": str(self._folder / "datagram")}
        self.facts |= {**paths, "abstract": abstract, "tcp6": None}
        self.facts["tcp"] = listen(socket.AF_INET, stream, ("127.0.0.1", 0))[1]
        self.facts["udp"] = listen(socket.AF_INET, datagram, ("127.0.0.1", 0))[1]
        with suppress(OSError):  # without IPv6
            self.facts["tcp6"] = listen(socket.AF_INET6, stream, ("::1", 0))[1]
        for kind, path in zip((stream, datagram), paths.values(), strict=True):
            listen(socket.AF_UNIX, kind, path)
            os.chmod(path, 0o777)
        if sys.platform == "linux":
            listen(socket.AF_UNIX, stream, "\0" + abstract)

    def _start_sleeper(self, stack: ExitStack) -> None:
        """Start a process that has the secret in its environment, and ends with this one."""
        self._sleeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SLEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"GUERDON_WITNESS": self.secret},
            start_new_session=True,
        )
        stack.enter_context(self._sleeper)
        stack.callback(self._sleeper.kill)
        if self._sleeper.stdout is not None:
            self._sleeper.stdout.readline()

    def disturbed(self) -> str | None:
        """Return what has changed here since the last call; None if nothing has."""
        for listener in self._listeners:
            if _was_reached(listener):
                return f"something came to the host's server at {listener.getsockname()!r}"
        if self._sleeper.poll() is not None:
            return f"the host's process was ended ({self._sleeper.returncode})"
        before, self._state = self._state, self._observe()
        changed = [name for name, state in self._state.items() if before[name] != state]
        return f"the host's {', '.join(changed)} changed" if changed else None

    def _observe(self) -> Mapping[str, object]:
        # Everything that can be done to a file but reading it moves its change time.
        stat = self._file.stat()
        return {
            "file": (stat.st_mode, stat.st_size, stat.st_nlink, stat.st_uid, stat.st_ctime_ns),
            "folder": sorted(os.listdir(self._folder)),
            "process": _status(self._sleeper.pid),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
        }

    def left_running(self) -> str | None:
        """Return which processes of a case still run; None if all have ended."""
        left = _leftovers(lambda: set(_processes_named(self._mark)))
        return f"left running: {left}" if left else None

    def left_open(self) -> str | None:
        """Return what a closed sandbox has left; None if it has left nothing."""
        processes, descriptors = self._before
        if left := _leftovers(lambda: _descendants() - processes):
            return f"processes are left: {left}"
        if left := _leftovers(lambda: _open_descriptors() - descriptors):
            return f"descriptors are left: {left}"
        return None


def _leftovers(look: Callable[[], set[int]]) -> str:
    """Return the numbers that are still there after `_GRACE`."""
    until = time.monotonic() + _GRACE
    while (left := look()) and time.monotonic() < until:
        time.sleep(0.01)
    return ", ".join(map(str, sorted(left)))


def _was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True


def _namespace(name: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return None


def _identity(descriptor: int) -> list[int]:
    try:
        stat = os.fstat(descriptor)
    except OSError:
        return []
    return [stat.st_dev, stat.st_ino]


def _runs(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and not stat.ended


def _descendants() -> set[int]:
    """Return the running children of this process, theirs, and so on."""
    return set(filter(_runs, members(os.getpid())))


def _processes_named(name: str) -> Iterator[int]:
    """Yield the running processes of a name, whatever their parents."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            pid = int(path.parent.name)
            if path.read_text(errors="replace") == f"{name}\n" and _runs(pid):
                yield pid


def _status(pid: int) -> tuple[object, ...]:
    """Return what others can change about a process; nothing if it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text().splitlines()
        return (
            *(line for line in lines if line.startswith(_STATUS)),
            (folder / "limits").read_text(),
            os.getpriority(os.PRIO_PROCESS, pid),
            os.sched_getscheduler(pid),
        )
    except OSError:
        return ()


def _open_descriptors() -> set[int]:
    """Return the open descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the one that lists them is closed by now
            os.fstat(int(name))
            found.add(int(name))
    return found
