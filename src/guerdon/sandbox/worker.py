"""`Worker`: the host's side of a supervisor's process."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from guerdon.errors import SandboxError
from guerdon.sandbox.levels import executable_paths, own_paths, unavailable, wrapped
from guerdon.sandbox.locking.canaries import Finding
from guerdon.sandbox.locking.privileges import ReservedUser
from guerdon.sandbox.protocol import Execution, Limits
from guerdon.sandbox.supervisor.channels import receive, send
from guerdon.sandbox.supervisor.folders import empty
from guerdon.sandbox.supervisor.function_calls import JOB, LENGTH
from guerdon.sandbox.supervisor.processes import end_session
from guerdon.sandbox.task import Stream, Task, limits_message

# Seconds that a supervisor has for starting, and, beyond the time of a call, for reporting how the
# call ended. After that the sandbox has failed.
GRACE = 10.0

# If this is root, calls run as a user who may have no access to its folders.
NO_BUBBLEWRAP = "not installed, or it doesn't work for the user that calls run as"

# Seconds during which only the end of a call wakes the host, not its output.
SOON = 0.02

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

# The report of a job that was answered, while its call continues.
ANSWERED: dict[str, Any] = {"status": 0}

# Bytes of an answer, and of a description.
MAX_ANSWER = 64 << 20

# The time limit of a call that is kept, and the seconds between two measurements of it.
KEPT_SECONDS, KEPT_EVERY = 1e9, 0.05

CLOSED = "the sandbox was closed, or the call was cancelled"


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
        self.broken = self._aborted = False
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
            message = {"failed": self._failure(f"its worker is gone: {error}")}
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
        return {"failed": self._failure("its worker doesn't answer")}

    def _receive(self) -> dict[str, Any]:
        try:
            return receive(self._channel)[0]
        except EOFError:
            return {"failed": self._failure("its worker was killed")}
        except (ValueError, OSError) as error:
            return {"failed": self._failure(f"its worker is gone: {error}")}

    def _failure(self, why: str) -> str:
        """Return the reason for a missing report."""
        return CLOSED if self._aborted else why

    def abort(self) -> None:
        """End it from any thread; `run` then returns."""
        self.broken = self._aborted = True
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a job.

    Attributes:
        content: The function's answer; None if it ended before it had answered.
        execution: How it ended, and what it printed.
    """

    content: bytes | None
    execution: Execution


class FunctionWorker(Worker):
    """A worker whose calls answer the jobs of a function.

    Args:
        config: Its configuration.
        task: Captures the output of its setup, and has the descriptors for it.
        seconds: How long its setup may take.
        limits: What each job may use.
        keep: Whether a call is kept after its jobs, for those of the next `run`.
    """

    def __init__(
        self, config: dict[str, Any], *, task: Task, seconds: float, limits: Limits, keep: bool
    ) -> None:
        self._limits, self._keep = limits, keep
        self._kept: Task | None = None
        super().__init__(config, task=task, seconds=seconds)

    def run(self, jobs: Sequence[bytes]) -> list[Answer]:  # type: ignore[override]
        """Answer jobs, one after the other in the same call.

        A job that ends its call, or reaches a limit, is repeated as the first one of another call,
        unless it was the first: so it fails alone, and never because of those before it.

        Returns:
            The answers; fewer if this worker broke.
        """
        self._check_owner()
        if self._kept is not None:
            self._kept.read()  # what was printed since the last job is dropped
        answers: list[Answer] = []
        try:
            while len(answers) < len(jobs) and not self.broken:
                first = self._kept is None
                answer = self._answer(jobs[len(answers)], len(jobs) - len(answers))
                if first or answer.content is not None:
                    answers.append(answer)
        except BaseException:  # such as ctrl-C: the call still runs
            self.broken = True
            raise
        return answers

    def _answer(self, job: bytes, left: int) -> Answer:
        """Answer a job in the call that is kept, or in a new one.

        Args:
            job: The job.
            left: How many jobs there are, from this one on.
        """
        last = left == 1 and not self._keep
        try:
            task = self._kept or self._begin(left)
            for capture in task.captures:
                capture.content.clear()
            report = self._exchange(task, job, last=last)
        except OSError as error:  # also of `_begin`
            self.broken = True
            self._end_call()
            why = self._failure(f"its worker is gone: {error}")
            return Answer(None, Execution("sandbox_error", detail=why))
        execution = task.execution(report)
        whole = execution.ending == "ok" and _missing(task.answer.content) == 0
        content = bytes(task.answer.content[LENGTH.size :]) if whole else None
        if last or content is None:
            self._end_call()
        return Answer(content, execution)

    def _end_call(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _begin(self, jobs: int) -> Task:
        """Start a call."""
        self._kept = task = Task(self._limits, answer_bytes=MAX_ANSWER, answer=Stream())
        message = limits_message(self._limits)
        if self._keep:
            message = message | {"seconds": KEPT_SECONDS, "cpu": None, "every": KEPT_EVERY}
        else:
            message = message | {name: jobs * message[name] for name in ("seconds", "cpu")}
        self._send({"jobs": [message]}, [task])
        return task

    def _exchange(self, task: Task, job: bytes, *, last: bool) -> dict[str, Any]:
        """Send a job, and read its answer and what is printed meanwhile.

        Args:
            task: The call.
            job: The job.
            last: Whether to end the call with it.

        Returns:
            The report of the call's end, or `ANSWERED`.
        """
        stream = task.answer
        assert isinstance(stream, Stream)
        began = monotonic()
        give_up_at = began + task.limits.seconds + GRACE
        deadline = began + task.limits.seconds
        stream.send(JOB.pack(len(job), last) + job)
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        if last and not stream.unsent:
            poller.poll(SOON * 1000)  # as in `_listen`
        while True:
            _register(poller, task)
            ready = poller.poll(max(0.0, deadline - monotonic()) * 1000)
            if stream.unsent:
                stream.flush()
            exceeded = task.read()
            if self._channel.fileno() in dict(ready):
                return self._ended(task)
            if task.cause is None:
                missing = _missing(stream.content)
                if missing == 0 and not last:
                    return ANSWERED | {"seconds": monotonic() - began}
                task.cause = _cause(missing, task.answer_bytes, late=not ready)
                exceeded = task.cause is not None
            elif not ready:
                self.broken = True
                return {"problem": self._failure("its worker doesn't answer")}
            if exceeded:
                send(self._channel, {"end": task.cause, "call": 0})
                deadline = give_up_at

    def _ended(self, task: Task) -> dict[str, Any]:
        """Return the supervisor's report of a call that has ended."""
        message = self._receive()
        self.broken |= "failed" in message or bool(message["problem"])
        task.read()  # what was still in the pipes
        reports = message.get("ended") or [{"problem": message["failed"]}]
        return dict(reports[0])

    def close(self) -> None:
        """End all its processes."""
        self._end_call()
        super().close()


def _register(poller: select.poll, task: Task) -> None:
    """Register what a call writes, and its stream while a job is not completely sent."""
    for capture in task.captures:
        if capture.ended:
            with contextlib.suppress(KeyError):
                poller.unregister(capture.reading)
        else:
            room = select.POLLOUT if isinstance(capture, Stream) and capture.unsent else 0
            poller.register(capture.reading, select.POLLIN | room)


def _cause(missing: int, most: int, *, late: bool) -> str | None:
    """Return why a job is ended; None if it isn't.

    Args:
        missing: How many bytes of its answer haven't come.
        most: How many it may have.
        late: Whether its time is up.
    """
    if missing < 0:
        return "meddled"
    if missing > most:
        return "answer"
    return "timeout" if late else None


def _missing(answer: bytearray) -> int:
    """Return how many bytes of an answer haven't come: of its length, then of its content."""
    if len(answer) < LENGTH.size:
        return LENGTH.size - len(answer)
    length: int = LENGTH.unpack_from(answer)[0]
    return length - (len(answer) - LENGTH.size)
