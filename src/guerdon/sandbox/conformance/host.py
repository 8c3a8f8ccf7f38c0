"""`Host`: what the suite puts up on this side, for the cases to aim at, and watches."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from guerdon.errors import SandboxError
from guerdon.sandbox.conformance.processes import descendants, marked, open_descriptors, status

__all__ = ["Host"]

_NAMESPACES = ("user", "net", "ipc", "pid", "mnt", "uts")
_SETUID = ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/sudo", "/bin/su")
_SHARED = ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run", "/")
#: A signal that is blocked stays to be seen, in what /proc tells of the process.
_LISTENING = """
import signal, sys
if hasattr(signal, "SIGURG"):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
print("listening", flush=True)
sys.stdin.read()
"""
#: How long what a call leaves behind may take to go.
_GRACE = 1.0


class Host:
    """What cases aim at: files, servers, a process, a variable and a descriptor, all its own.

    It is opened before the sandbox is, so that what leaks is there to leak. All of it is gone
    when it is closed.

    Raises:
        SandboxError: This isn't Linux or macOS (when it is entered).

    Attributes:
        facts: What programs receive about it, as JSON types.
        secret: What must never be seen in what a program prints.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._listeners: list[socket.socket] = []
        self.secret = secrets.token_hex(16)
        self.facts: dict[str, object] = {}

    def __enter__(self) -> Self:
        if not hasattr(os, "getpgid"):
            raise SandboxError(f"the cases are aimed at Linux and macOS, not at {sys.platform}")
        with ExitStack() as stack:
            self._before = (descendants(os.getpid()), open_descriptors())
            self._mark = "gn" + secrets.token_hex(5)
            folder = self._files(stack)
            self._servers(stack, folder)
            self._sleeper = self._process(stack)
            self._variable(stack)
            self.facts |= {
                "mark": self._mark,
                "pid": os.getpid(),
                "group": os.getpgid(0),
                "sleeper": self._sleeper.pid,
                "namespaces": {name: _namespace(name) for name in _NAMESPACES},
                "devices": {path: os.stat(path).st_dev for path in _SHARED if os.path.isdir(path)},
                "setuid": [path for path in _SETUID if os.path.exists(path)],
                "streams": [_identity(descriptor) for descriptor in (0, 1, 2)],
            }
            self._seen = self._look()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _files(self, stack: ExitStack) -> Path:
        """A folder that all may write, so that nothing but the sandbox stands before it."""
        folder = Path(tempfile.mkdtemp(prefix="guerdon-conformance-"))
        stack.callback(shutil.rmtree, folder)
        folder.chmod(0o777)
        secret = folder / "secret"
        secret.write_text(self.secret)
        secret.chmod(0o666)
        descriptor = os.open(secret, os.O_RDWR)
        stack.callback(os.close, descriptor)
        os.set_inheritable(descriptor, True)
        self._folder, self._secret = folder, secret
        here = Path.cwd()
        names = sorted(path for path in here.iterdir() if path.is_file())
        self.facts |= {
            "folder": str(folder),
            "secret": str(secret),
            "descriptor": descriptor,
            "home": str(Path.home()),
            "at_home": self._file_at_home(stack),
            "project": str(here),
            "project_file": str(names[0]) if names else None,
        }
        return folder

    def _file_at_home(self, stack: ExitStack) -> str | None:
        try:
            descriptor, path = tempfile.mkstemp(prefix=".guerdon-", dir=Path.home())
        except OSError:
            return None
        stack.callback(os.unlink, path)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.secret)
        return path

    def _servers(self, stack: ExitStack, folder: Path) -> None:
        """Start servers that no program may reach; the kernel accepts their connections."""

        def listen(family: int, kind: int, address: object) -> socket.socket:
            listener = stack.enter_context(socket.socket(family, kind))
            listener.bind(address)  # type: ignore[arg-type]  # as the family has it
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            self._listeners.append(listener)
            return listener

        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        abstract = f"guerdon-{self._mark}"
        local = ("127.0.0.1", 0)
        self.facts["tcp"] = listen(socket.AF_INET, stream, local).getsockname()[1]
        self.facts["udp"] = listen(socket.AF_INET, datagram, local).getsockname()[1]
        try:
            self.facts["tcp6"] = listen(socket.AF_INET6, stream, ("::1", 0)).getsockname()[1]
        except OSError:
            self.facts["tcp6"] = None
        for name, kind in (("stream", stream), ("datagram", datagram)):
            path = folder / name
            listen(socket.AF_UNIX, kind, str(path))
            path.chmod(0o777)
            self.facts[name] = str(path)
        if sys.platform == "linux":
            listen(socket.AF_UNIX, stream, "\0" + abstract)
        self.facts["abstract"] = abstract

    def _process(self, stack: ExitStack) -> subprocess.Popen[bytes]:
        """A process that holds the secret in its environment, and ends with this one."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LISTENING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"GUERDON_WITNESS": self.secret},
            start_new_session=True,
        )
        stack.enter_context(process)
        stack.callback(process.kill)
        if process.stdout is not None:
            process.stdout.readline()
        return process

    def _variable(self, stack: ExitStack) -> None:
        name = f"GUERDON_{self._mark.upper()}_TOKEN"
        os.environ[name] = self.secret
        stack.callback(os.environ.pop, name, None)
        self.facts["variable"] = name

    def disturbed(self) -> str | None:
        """What a case did to this side; None where nothing is changed."""
        for listener in self._listeners:
            if _was_reached(listener):
                return f"something came to the host's server at {listener.getsockname()!r}"
        if self._sleeper.poll() is not None:
            return f"the host's process was ended ({self._sleeper.returncode})"
        now = self._look()
        changed = [name for name, seen in self._seen.items() if now[name] != seen]
        self._seen = now
        return f"the host's {', '.join(changed)} changed" if changed else None

    def _look(self) -> Mapping[str, object]:
        # All that can be done to a file but reading it moves its change time.
        seen = self._secret.stat()
        return {
            "file": (seen.st_mode, seen.st_size, seen.st_nlink, seen.st_uid, seen.st_ctime_ns),
            "folder": sorted(os.listdir(self._folder)),
            "process": status(self._sleeper.pid),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
        }

    def left_running(self) -> str | None:
        """Which processes of a case are still there; None where all are gone."""
        left = _until_empty(lambda: marked(self._mark))
        return f"left running: {', '.join(map(str, left))}" if left else None

    def left_open(self) -> str | None:
        """What the sandbox left when it was closed; None where nothing is left."""
        processes, descriptors = self._before
        own = {self._sleeper.pid}
        left = _until_empty(lambda: descendants(os.getpid()) - processes - own)
        if left:
            return f"processes are left: {', '.join(map(str, left))}"
        mine = {listener.fileno() for listener in self._listeners}
        mine |= {pipe.fileno() for pipe in (self._sleeper.stdin, self._sleeper.stdout) if pipe}
        mine |= {int(str(self.facts["descriptor"]))}
        more = _until_empty(lambda: open_descriptors() - descriptors - mine)
        return f"descriptors are left: {', '.join(map(str, more))}" if more else None


def _until_empty(look: Callable[[], set[int]]) -> list[int]:
    until = time.monotonic() + _GRACE
    while (left := look()) and time.monotonic() < until:
        time.sleep(0.01)
    return sorted(left)


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
        seen = os.fstat(descriptor)
    except OSError:
        return []
    return [seen.st_dev, seen.st_ino]
