"""`Worker`: the host's side of a supervisor's process."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from time import monotonic
from typing import Any

from guerdon.errors import SandboxError
from guerdon.sandbox.levels import executable_paths, own_paths, unavailable, wrapped
from guerdon.sandbox.locking.canaries import Finding
from guerdon.sandbox.locking.privileges import ReservedUser
from guerdon.sandbox.protocol import Execution
from guerdon.sandbox.supervisor.channels import receive, send
from guerdon.sandbox.supervisor.folders import empty
from guerdon.sandbox.supervisor.processes import end_session
from guerdon.sandbox.task import Task, limits_message

# Seconds that a supervisor has for starting, and, beyond the time of a call, for reporting how the
# call ended. After that the sandbox has failed.
GRACE = 10.0

# If this is root, calls run as a user who may have no access to its folders.
NO_BUBBLEWRAP = "not installed, or it doesn't work for the user that calls run as"

# Seconds during which only the end of a call wakes the host, not its output.
SOON = 0.005

# Seconds that a supervisor has for ending by itself.
LEAVING = 0.5

_STUB = (
    "import sys; own = {path!r}; sys.path[:0] = own; "
    "from guerdon.sandbox.supervisor.main import main; main({fd}, own)"
)

# The environment of the processes of a worker.
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",  # sets come in the same order in each run
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

# What an interpreter outside of the system's folders needs to start; calls don't see it.
INTERPRETERS = {"LD_LIBRARY_PATH"}

_LENGTH = struct.Struct("!Q")

# The report of a reused process on a call that it has answered.
ANSWERED = {"status": 0}


class Worker:
    """A process that runs calls. One thread at a time may use it, except for `abort`.

    Args:
        config: Its configuration.
        task: Captures the output of its setup, and has the descriptors for it.
        seconds: How long its setup may take, beside what the supervisor itself needs.

    Raises:
        SandboxUnavailableError: An attack on its lock succeeded.
        SandboxError: It can't be started.

    Attributes:
        folder: Where its calls have their folders.
        facts: What its lock consists of.
        findings: The results of the attacks on its lock.
        description: What was answered at its setup.
        broken: Whether it must be replaced.
    """

    def __init__(
        self, config: dict[str, Any], *, task: Task | None = None, seconds: float = 0.0
    ) -> None:
        self._owner = os.getpid()
        self.broken = False
        self._process: subprocess.Popen[bytes] | None = None
        self._user: ReservedUser | None = None
        with contextlib.ExitStack() as stack:
            try:
                self._channel, theirs = map(stack.enter_context, socket.socketpair())
                self._stderr = stack.enter_context(tempfile.TemporaryFile())
                self.folder = tempfile.mkdtemp(prefix="guerdon-")
            except OSError as error:
                raise SandboxError(f"a worker can't be started: {error}") from error
            stack.pop_all()
        try:
            with theirs:
                os.chmod(self.folder, 0o711)  # a call passes through here into its own
                if config["bubblewrap"] and os.geteuid() == 0:
                    self._user = ReservedUser()
                    os.chown(self.folder, self._user.uid, self._user.uid)
                self._process = self._start(config, theirs)
            tasks = [task] if task else []
            self._send(config | {"folder": self.folder}, tasks)
            self._open(config, tasks, monotonic() + seconds + GRACE)
            self.description = bytes(task.answer.content) if task else b""
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SandboxError(f"a worker can't be started: {error}") from error
            raise

    def _start(self, config: dict[str, Any], theirs: socket.socket) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise SandboxError("the path of this Python is unknown (sys.executable)")
        path = own_paths()
        stub = _STUB.format(path=path, fd=theirs.fileno())
        # Without site-packages and the working directory on the path.
        command = [sys.executable, "-s", "-P", "-S", "-B", "-c", stub]
        uid = self._user.uid if self._user is not None else None
        if config["bubblewrap"]:
            read = [*config["read"], *path, *config.get("path", ())]
            read += executable_paths()
            command = [*wrapped(config["bubblewrap"], read, self.folder), *command]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            cwd="/",
            env=ENVIRONMENT
            | {name: os.environ[name] for name in INTERPRETERS if name in os.environ},
            start_new_session=True,  # the host handles ctrl-C
            pass_fds=(theirs.fileno(),),
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )

    def _open(self, config: dict[str, Any], tasks: Sequence[Task], deadline: float) -> None:
        message = self._listen(tasks, deadline)
        if "ready" not in message:
            ended = message.get("ended")
            # What the supervisor itself has printed, which it does only if it couldn't begin.
            end = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, end - 500))
            text = self._stderr.read().decode("utf-8", "replace").strip()
            printed = f" ({text})" if text else ""
            raise SandboxError(
                f"a worker can't be set up: {message['failed']}{printed}",
                execution=tasks[0].execution(ended[0]) if ended else None,
            )
        ready = message["ready"]
        self.facts: dict[str, str] = ready.get("lock", {})
        self.facts["bubblewrap"] = "around it" if config["bubblewrap"] else NO_BUBBLEWRAP
        if self._user is not None:
            self.facts["calls run as"] = str(self._user.uid)
        self.findings = tuple(Finding(*each) for each in ready.get("canaries", ()))
        broken = [f"{each.name}: {each.detail}" for each in self.findings if not each.blocked]
        if broken:
            raise unavailable(config["level"], broken, self.findings)

    def run(self, tasks: Sequence[Task]) -> list[Execution]:
        """Run calls at the same time. When the last one of `tasks` ends, the others are ended.

        Raises:
            SandboxError: The worker is used in another process than the one that made it.
        """
        self._check_owner()
        deadline = monotonic() + max(task.limits.seconds for task in tasks) + GRACE
        try:
            self._send({"jobs": [limits_message(task.limits) for task in tasks]}, tasks)
            message = self._listen(tasks, deadline)
        except OSError as error:
            message = {"failed": f"its worker is gone: {error}"}
        except BaseException:  # such as ctrl-C: the calls still run
            self.broken = True
            raise
        reports = message.get("ended") or [{"problem": message["failed"]}] * len(tasks)
        self.broken |= "failed" in message or bool(message["problem"])
        return [task.execution(report) for task, report in zip(tasks, reports, strict=True)]

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise SandboxError(
                "this sandbox was opened before the process was forked; open one in each process"
            )

    def _send(self, message: dict[str, Any], tasks: Sequence[Task]) -> None:
        """Send a message with the descriptors of calls, and close them here."""
        send(self._channel, message, [fd for task in tasks for fd in task.descriptors])
        for task in tasks:
            task.close_sent()

    def _listen(self, tasks: Sequence[Task], deadline: float) -> dict[str, Any]:
        """Read what calls write, until the supervisor reports how they ended."""
        captures = {each.reading: each for task in tasks for each in task.captures}
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        # Most calls end soon, and a pipe has room for their output until then.
        poller.poll(SOON * 1000)
        for fd in captures:
            poller.register(fd, select.POLLIN)
        while (left := deadline - monotonic()) > 0:
            ready = dict(poller.poll(left * 1000))
            exceeded = [number for number, task in enumerate(tasks) if task.read()]
            if self._channel.fileno() in ready:
                return self._receive()
            for number in exceeded:
                send(self._channel, {"end": tasks[number].cause, "call": number})
            for fd in ready:
                if captures[fd].ended:
                    poller.unregister(fd)
        return {"failed": "its worker doesn't answer"}

    def _receive(self) -> dict[str, Any]:
        try:
            return receive(self._channel)[0]
        except EOFError:
            return {"failed": "its worker was killed"}
        except (ValueError, OSError) as error:
            return {"failed": f"its worker is gone: {error}"}

    def abort(self) -> None:
        """End it from any thread; `run` then returns."""
        self.broken = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all its processes, and remove what they have written."""
        if os.getpid() != self._owner:  # the children of another process
            self._channel.close()
            self._stderr.close()
            if self._process is not None:
                self._process.returncode = 0  # `Popen` would wait for it
            return
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)  # then it ends by itself
                self._channel.settimeout(LEAVING)
                while self._channel.recv(1 << 16):
                    continue
            # Killed before it is waited for: until then its number, which is the session of all
            # that it has started, can't belong to another.
            self._process.kill()
            end_session(self._process.pid)
            self._process.wait()
        self._channel.close()
        self._stderr.close()
        if self._user is not None:
            self._user.close()
        with contextlib.suppress(OSError):  # usually the supervisor has removed it already
            empty(self.folder)
            os.rmdir(self.folder)


class ReusedWorker(Worker):
    """A worker whose one process, which imported the function, answers all jobs.

    Each call sees the state that earlier ones left. A call that reaches a limit ends the worker.

    Args:
        config: Its configuration.
        task: Captures the output of its setup and of all calls; it is closed with the worker.
        seconds: How long its setup may take.
    """

    def __init__(self, config: dict[str, Any], *, task: Task, seconds: float) -> None:
        self._stream, theirs = socket.socketpair()
        self._outputs = task
        with theirs:
            task.after = [theirs.fileno()]
            try:
                super().__init__(config, task=task, seconds=seconds)
            except BaseException:
                self._stream.close()
                task.close()
                raise
        self._stream.setblocking(False)

    def run(self, tasks: Sequence[Task]) -> list[Execution]:
        """Run one call."""
        self._check_owner()
        [task] = tasks
        # What was printed between two calls is dropped.
        self._outputs.read()
        for capture in (self._outputs.out, self._outputs.err):
            capture.content, capture.ended = bytearray(), False
        task.out, task.err = self._outputs.out, self._outputs.err
        task.answer.reading, task.answer.ended = self._stream.fileno(), False
        task.answer_bytes += _LENGTH.size  # its length comes before the answer
        began = monotonic()
        try:
            report = self._exchange(task, began + task.limits.seconds)
        except OSError as error:
            report = {"problem": f"its worker is gone: {error}"}
        except BaseException:  # such as ctrl-C: the calls still run
            self.broken = True
            raise
        self.broken |= task.cause is not None or report != ANSWERED
        return [task.execution(report | {"seconds": monotonic() - began})]

    def _exchange(self, task: Task, deadline: float) -> dict[str, Any]:
        """Send the job, and read the answer and what is printed meanwhile.

        Returns:
            The report of the call; why it was ended is recorded in the task.
        """
        captures = {each.reading: each for each in task.captures}
        poller = select.poll()
        for fd in captures:
            poller.register(fd, select.POLLIN)
        self._stream.settimeout(task.limits.seconds)
        try:
            self._stream.sendall(_LENGTH.pack(len(task.job)) + task.job)
        except TimeoutError:
            deadline = 0.0
        except OSError:
            return self._how_it_ended(task)
        self._stream.setblocking(False)
        while (missing := _missing(task.answer.content)) > 0:
            if task.answer.ended:
                return self._how_it_ended(task)
            ready = _ready(poller, deadline)
            if not ready or missing > task.answer_bytes:
                task.cause = "answer" if ready else "timeout"
            if task.read() or task.cause is not None:
                return ANSWERED
            for fd in ready:
                if captures[fd].ended:
                    poller.unregister(fd)  # the function has closed it
        del task.answer.content[: _LENGTH.size]
        return ANSWERED

    def _how_it_ended(self, task: Task) -> dict[str, Any]:
        """The supervisor's report of the process, which has closed its stream."""
        send(self._channel, {"ask": "template"})
        message = self._listen([], monotonic() + GRACE)
        task.read()  # what was still in the pipes
        return message["ended"][0] if "ended" in message else {"problem": message["failed"]}

    def close(self) -> None:
        """End all its processes."""
        self._stream.close()
        super().close()
        self._outputs.close()


def _ready(poller: select.poll, deadline: float) -> list[int]:
    """Return the descriptors that can be read; none after the deadline."""
    left = deadline - monotonic()
    return [fd for fd, _ in poller.poll(left * 1000)] if left > 0 else []


def _missing(answer: bytearray) -> int:
    """Return how many bytes of an answer haven't come: of its length, then of its content."""
    if len(answer) < _LENGTH.size:
        return _LENGTH.size - len(answer)
    length: int = _LENGTH.unpack_from(answer)[0]
    return length - (len(answer) - _LENGTH.size)
