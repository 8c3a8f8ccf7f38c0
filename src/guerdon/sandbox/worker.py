"""`Worker`: a supervisor's process, from the host's side."""

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
from guerdon.sandbox.supervisor.channels import BrokenFrameError, receive, send
from guerdon.sandbox.supervisor.folders import empty
from guerdon.sandbox.supervisor.processes import end_session
from guerdon.sandbox.task import Capture, Task, limits_message

# Seconds that a supervisor has, beyond what a call may take, for reporting how it ended; and for
# starting. After that it is the sandbox that failed.
GRACE = 10.0

# Usually one of these; if this is root, calls run as a user who may have no access to its folders.
NO_BUBBLEWRAP = "not installed, or it doesn't work for the user that calls run as"

# Seconds for which only the end of a call is waited for.
SOON = 0.005

# Seconds that it has for ending by itself.
LEAVING = 0.5

_STUB = (
    "import sys; own = {path!r}; sys.path[:0] = own; "
    "from guerdon.sandbox.supervisor.main import main; main({fd}, own)"
)

# All that the processes of a worker see of the host's environment.
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",  # sets come in the same order in each run
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

# What an interpreter outside of the system's folders needs for being started; calls don't see it.
INTERPRETERS = {"LD_LIBRARY_PATH"}

_LENGTH = struct.Struct("!Q")


class Worker:
    """A process that runs calls; used by one thread at a time, but for `abort`.

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
        broken: Whether it is of no use any more.
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
            send(self._channel, config | {"folder": self.folder}, task.descriptors if task else ())
            self._read_facts(config, self._open(task, monotonic() + seconds + GRACE))
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
            read = [*config["read"], *config["optional_read"], *path, *config.get("path", ())]
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

    def _open(self, task: Task | None, deadline: float) -> dict[str, Any]:
        message = self._listen([task] if task else [], deadline)
        if "ready" in message:
            return dict(message["ready"])
        execution = None
        if task is not None and "ended" in message:
            execution = task.execution(message["ended"][0])
        raise SandboxError(
            f"a worker can't be set up: {message['failed']}{self._printed()}", execution=execution
        )

    def _printed(self) -> str:
        """What the supervisor itself has printed, which it does only if it couldn't begin."""
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, end - 500))
        text = self._stderr.read().decode("utf-8", "replace").strip()
        return f" ({text})" if text else ""

    def _read_facts(self, config: dict[str, Any], ready: dict[str, Any]) -> None:
        self.facts: dict[str, str] = dict(ready.get("lock", {}))
        self.facts["bubblewrap"] = "around it" if config["bubblewrap"] else NO_BUBBLEWRAP
        if self._user is not None:
            self.facts["calls run as"] = str(self._user.uid)
        self.findings = tuple(Finding(*each) for each in ready.get("canaries", ()))
        broken = [f"{each.name}: {each.detail}" for each in self.findings if not each.held]
        if broken:
            raise unavailable(config["level"], broken, self.findings)

    def run(self, tasks: Sequence[Task]) -> list[Execution]:
        """Run calls at the same time; when the last one of `tasks` ends, all are ended.

        Raises:
            SandboxError: The worker is used in another process than the one that made it.
        """
        self._check_owner()
        limit = max(task.limits.seconds for task in tasks)
        jobs = {"jobs": [limits_message(task.limits) for task in tasks]}
        try:
            send(self._channel, jobs, [fd for task in tasks for fd in task.descriptors])
            message = self._listen(tasks, monotonic() + limit + GRACE)
        except OSError as error:
            message = {"failed": f"its worker is gone: {error}"}
        except BaseException:  # ctrl-C: whatever runs there isn't wanted any more
            self.broken = True
            raise
        reports = message.get("ended")
        if reports is None:
            reports = [{"problem": message.get("failed", "its worker is gone")}] * len(tasks)
            self.broken = True
        self.broken |= bool(message.get("problem"))
        return [task.execution(report) for task, report in zip(tasks, reports, strict=True)]

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise SandboxError(
                "this sandbox was opened before the process was forked; open one in each process"
            )

    def _listen(self, tasks: Sequence[Task], deadline: float) -> dict[str, Any]:
        """Read what calls write, until the supervisor reports how they ended."""
        for task in tasks:
            task.close_sent()
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        owners: dict[int, tuple[Task, Capture]] = {}
        # Most calls are over soon, and what they write has room in a pipe until then.
        if not poller.poll(SOON * 1000):
            owners = {each.reading: (task, each) for task in tasks for each in task.captures}
        for fd in owners:
            poller.register(fd, select.POLLIN)
        while (left := deadline - monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                if fd not in owners:
                    message = self._receive()
                    for task in tasks:  # what was still in the pipes
                        task.cause = task.cause or task.read()
                    return message
                task, capture = owners[fd]
                too_much = task.read()
                if too_much and task.cause is None:
                    task.cause = too_much
                    send(self._channel, {"end": too_much, "call": tasks.index(task)})
                if capture.ended or too_much:
                    poller.unregister(fd)
        return {"failed": "its worker doesn't answer"}

    def _receive(self) -> dict[str, Any]:
        try:
            frame = receive(self._channel)
        except (BrokenFrameError, OSError) as error:
            return {"failed": f"its worker is gone: {error}"}
        return {"failed": "its worker was killed"} if frame is None else frame[0]

    def abort(self) -> None:
        """End it, from another thread than the one that waits for it."""
        self.broken = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all its processes, and remove what they have written."""
        if os.getpid() != self._owner:  # the processes are another's children
            self._channel.close()
            self._stderr.close()
            if self._process is not None:
                self._process.returncode = 0  # or it would be missed here
            return
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)  # at which it ends by itself
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
    """A worker with one process, in which the function was imported, that answers all jobs.

    What a call leaves behind, the next one finds. A call that reaches a limit ends the worker.

    Args:
        config: Its configuration.
        task: Captures the output of its setup and of all calls; it is closed with the worker.
        seconds: How long its setup may take.
    """

    def __init__(self, config: dict[str, Any], *, task: Task, seconds: float) -> None:
        self._stream, theirs = socket.socketpair()
        self._outputs = task
        with theirs:
            task.after.append(theirs.fileno())
            try:
                super().__init__(config, task=task, seconds=seconds)
            except BaseException:
                self._stream.close()
                raise
        self._stream.setblocking(False)

    def run(self, tasks: Sequence[Task]) -> list[Execution]:
        """Have a job answered."""
        self._check_owner()
        [task] = tasks
        began = monotonic()
        report: dict[str, Any] = {"status": 0}
        try:
            self._forget_outputs()
            if not self._exchange(task, began + task.limits.seconds):
                self.broken = True
                report = self._how_it_ended()
                task.cause = task.cause or self._too_much(task)  # what was still in the pipes
        except OSError as error:
            report = {"problem": f"its worker is gone: {error}"}
        except BaseException:  # ctrl-C: whatever runs there isn't wanted any more
            self.broken = True
            raise
        self.broken |= task.cause is not None or "problem" in report
        task.out.content = self._outputs.out.content
        task.err.content = self._outputs.err.content
        return [task.execution(report | {"seconds": monotonic() - began})]

    def _forget_outputs(self) -> None:
        """Start new captures of what is printed; what came between two calls is dropped."""
        for capture in (self._outputs.out, self._outputs.err):
            capture.read(self._outputs.limits.output_bytes)
            capture.content = bytearray()

    def _exchange(self, task: Task, deadline: float) -> bool:
        """Send the job, and read the answer and what is printed meanwhile.

        Returns:
            Whether the process is still there; why the call was ended is recorded in the task.
        """
        job = memoryview(_LENGTH.pack(len(task.job)) + task.job)
        reader = _AnswerReader(task)
        poller = select.poll()
        poller.register(self._stream, select.POLLIN | select.POLLOUT)
        captures = (self._outputs.out, self._outputs.err)
        for capture in captures:
            poller.register(capture.reading, select.POLLIN)
        while not reader.whole:
            left = deadline - monotonic()
            events = dict(poller.poll(left * 1000)) if left > 0 else {}
            happened = events.get(self._stream.fileno(), 0)
            if not events:
                task.cause = "timeout"
            if happened & select.POLLOUT:
                job = job[self._stream.send(job) :]
                if not job:
                    poller.modify(self._stream, select.POLLIN)
            if happened & (select.POLLIN | select.POLLHUP) and not reader.read(self._stream):
                return False
            task.cause = task.cause or self._too_much(task)
            for capture in captures:
                if capture.reading in events and capture.ended:
                    poller.unregister(capture.reading)  # the function has closed it
            if task.cause is not None:
                return True
        task.cause = self._too_much(task)
        return True

    def _too_much(self, task: Task) -> str | None:
        """Read what was printed, and return which limit it exceeds, if any."""
        self._outputs.limits = task.limits
        return self._outputs.read_printed()

    def _how_it_ended(self) -> dict[str, Any]:
        """The supervisor's report of the process, which has closed its stream."""
        send(self._channel, {"ask": "template"})
        message = self._listen([], monotonic() + GRACE)
        reports = message.get("ended")
        return dict(reports[0]) if reports else {"problem": message.get("failed")}

    def close(self) -> None:
        """End all its processes."""
        self._stream.close()
        super().close()
        self._outputs.close()


class _AnswerReader:
    """Reads an answer as it comes: its length, then its content."""

    def __init__(self, task: Task) -> None:
        assert task.answer is not None
        self._task, self._content, self._length = task, task.answer.content, -1

    @property
    def whole(self) -> bool:
        """Whether all of it is there."""
        return self._length >= 0 and len(self._content) >= self._length

    def read(self, stream: socket.socket) -> bool:
        """Read what is there; False if nothing more will come."""
        part = stream.recv(1 << 20)
        self._content += part
        if self._length < 0 and len(self._content) >= _LENGTH.size:
            (self._length,) = _LENGTH.unpack_from(self._content)
            del self._content[: _LENGTH.size]
            if self._length > (self._task.answer_bytes or 0):
                self._task.cause = "answer"
        return bool(part)
