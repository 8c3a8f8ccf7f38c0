"""`Worker`: a keeper's process, from the host's side."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from time import monotonic
from typing import Any

from guerdon.errors import SandboxError
from guerdon.sandbox.execution import Execution
from guerdon.sandbox.finding import Finding
from guerdon.sandbox.local.bubblewrap import wrapped
from guerdon.sandbox.local.captures import Capture
from guerdon.sandbox.local.endings import execution_of, terms_of
from guerdon.sandbox.local.levels import unavailable
from guerdon.sandbox.local.places import executable_places, own_places
from guerdon.sandbox.local.sessions import end_session
from guerdon.sandbox.local.task import Task
from guerdon.sandbox.locking.privileges import ReservedUser
from guerdon.sandbox.server.folders import empty
from guerdon.sandbox.server.frames import BrokenFrameError, receive, send

__all__ = ["Worker"]

# Seconds that a keeper has, beyond what a call may take, for telling how it ended; and for
# starting. After that it is the sandbox that failed.
GRACE = 10.0

# Mostly one of these; where this is root, calls run as somebody who may be shut out of its folders.
NO_BUBBLEWRAP = "not installed, or it doesn't work for who calls run as"

# Seconds for which only the end of a call is waited for.
SOON = 0.005

# Seconds that it has for ending by itself.
LEAVING = 0.5

_STUB = (
    "import sys; own = {path!r}; sys.path[:0] = own; "
    "from guerdon.sandbox.server.keeper import main; main({fd}, own)"
)

# All that the processes of a worker know of the host's environment.
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


class Worker:
    """A process that keeps calls; used by one thread at a time, but for `abort`.

    Args:
        config: What it keeps.
        task: Where what happens when it is set up goes, with descriptors for it.
        seconds: How long setting it up may take, beside what the keeper itself needs.

    Raises:
        SandboxUnavailableError: An attack on its lock got through.
        SandboxError: It can't be started.

    Attributes:
        folder: Where its calls have their folders.
        made_of: What its lock is made of.
        findings: What attacks on its lock came to.
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
                self._last_words = stack.enter_context(tempfile.TemporaryFile())
                self.folder = tempfile.mkdtemp(prefix="guerdon-")
            except OSError as error:
                raise SandboxError(f"a worker can't be started: {error}") from error
            stack.pop_all()
        try:
            with theirs:
                os.chmod(self.folder, 0o711)  # a call passes through here into its own
                if config.get("bubblewrap") and os.geteuid() == 0:
                    self._user = ReservedUser()
                    os.chown(self.folder, self._user.uid, self._user.uid)
                self._process = self._start(config, theirs)
            send(self._channel, config | {"folder": self.folder}, task.descriptors if task else ())
            facts = self._open(task, monotonic() + seconds + GRACE)
            around = "around it" if config["bubblewrap"] else NO_BUBBLEWRAP
            self.made_of = facts.get("lock", {}) | {"bubblewrap": around}
            if self._user is not None:
                self.made_of["calls run as"] = str(self._user.uid)
            self.findings = tuple(Finding(*each) for each in facts.get("canaries", ()))
            if ways := [f"{each.name}: {each.said}" for each in self.findings if not each.held]:
                raise unavailable(config["level"], ways, self.findings)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SandboxError(f"a worker can't be started: {error}") from error
            raise

    def _start(self, config: dict[str, Any], theirs: socket.socket) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise SandboxError("this Python doesn't know which program it is (sys.executable)")
        path = own_places()
        stub = _STUB.format(path=path, fd=theirs.fileno())
        # Without site-packages and the working directory on the path.
        command = [sys.executable, "-s", "-P", "-S", "-B", "-c", stub]
        uid = self._user.uid if self._user is not None else None
        if config.get("bubblewrap"):
            read = [*config["read"], *config["optional_read"], *path, *config.get("path", ())]
            read += executable_places()
            command = [*wrapped(config["bubblewrap"], read, self.folder), *command]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._last_words,
            cwd="/",
            env=ENVIRONMENT
            | {name: os.environ[name] for name in INTERPRETERS if name in os.environ},
            start_new_session=True,  # ctrl-C is the host's to deal with
            pass_fds=(theirs.fileno(),),
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )

    def _open(self, task: Task | None, deadline: float) -> dict[str, Any]:
        told = self._listen([task] if task else [], deadline)
        if "ready" in told:
            return dict(told["ready"])
        execution = None
        if task is not None and "ended" in told:
            execution = execution_of(told["ended"][0], task)
        said = self._said()
        raise SandboxError(f"a worker can't be set up: {told['failed']}{said}", execution=execution)

    def _said(self) -> str:
        """What the keeper itself has printed, which is only where it couldn't begin."""
        end = self._last_words.seek(0, os.SEEK_END)
        self._last_words.seek(max(0, end - 500))
        text = self._last_words.read().decode("utf-8", "replace").strip()
        return f" ({text})" if text else ""

    def run(self, tasks: Sequence[Task]) -> list[Execution]:
        """Run calls at the same time; the last one decides when all are over.

        Raises:
            SandboxError: The worker is used in another process than the one that made it.
        """
        self._check_owner()
        limit = max(task.limits.seconds for task in tasks)
        descriptors = [fd for task in tasks for fd in task.descriptors]
        try:
            send(self._channel, {"jobs": [terms_of(task.limits) for task in tasks]}, descriptors)
            told = self._listen(tasks, monotonic() + limit + GRACE)
        except OSError as error:
            told = {"failed": f"its worker is gone: {error}"}
        except BaseException:  # ctrl-C: whatever runs there isn't wanted any more
            self.broken = True
            raise
        if "ended" not in told or told.get("problem"):
            self.broken = True
        reports = told.get("ended")
        if reports is None:
            reports = [{"problem": told.get("failed", "its worker is gone")} for _ in tasks]
        return [execution_of(*each) for each in zip(reports, tasks, strict=True)]

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise SandboxError(
                "this sandbox was opened before the process was forked; open one in each process"
            )

    def _listen(self, tasks: Sequence[Task], deadline: float) -> dict[str, Any]:  # noqa: C901
        """Read what calls write, until the keeper tells how they ended."""
        for task in tasks:
            task.handed_over()
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        owners: dict[int, tuple[Task, Capture]] = {}
        # Most calls are over soon, and what they write has room in a pipe until then.
        if not poller.poll(SOON * 1000):
            for task in tasks:
                for capture in task.captures:
                    poller.register(capture.reading, select.POLLIN)
                    owners[capture.reading] = task, capture
        while True:
            left = deadline - monotonic()
            if left <= 0:
                return {"failed": "its worker doesn't answer"}
            for fd, _ in poller.poll(left * 1000):
                if fd == self._channel.fileno():
                    told = self._word()
                    for task in tasks:  # what was still in the pipes
                        task.cause = task.cause or task.read()
                    return told
                task, capture = owners[fd]
                too_much = task.read()
                if too_much and task.cause is None:
                    task.cause = too_much
                    send(self._channel, {"end": too_much, "call": tasks.index(task)})
                if capture.ended or too_much:
                    poller.unregister(fd)

    def _word(self) -> dict[str, Any]:
        try:
            got = receive(self._channel)
        except (BrokenFrameError, OSError) as error:
            return {"failed": f"its worker is gone: {error}"}
        return {"failed": "its worker was killed"} if got is None else got[0]

    def abort(self) -> None:
        """End it, from another thread than the one that waits for it."""
        self.broken = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all its processes, and remove what they have written."""
        if os.getpid() != self._owner:  # the processes are another's children
            self._channel.close()
            self._last_words.close()
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
            # that it has started, can be nobody else's.
            self._process.kill()
            end_session(self._process.pid)
            self._process.wait()
        self._channel.close()
        self._last_words.close()
        if self._user is not None:
            self._user.close()
        with contextlib.suppress(OSError):  # mostly the keeper has removed it already
            empty(self.folder)
            os.rmdir(self.folder)
