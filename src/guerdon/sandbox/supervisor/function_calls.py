"""Calls of a function: forked from a template, a locked process that has imported it once."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
from time import monotonic, sleep
from typing import Any, Protocol

from guerdon.sandbox.locking.lock import LimitsLock
from guerdon.sandbox.supervisor.call import Call, Calls
from guerdon.sandbox.supervisor.channels import (
    MOST_FDS,
    Started,
    open_streams,
    read_exactly,
    receive,
    start_call,
    take_over,
    write_all,
)
from guerdon.sandbox.supervisor.folders import empty
from guerdon.sandbox.supervisor.processes import (
    Stat,
    end_descendants,
    end_group,
    has_ended,
    kill_if,
    members,
    memory_of,
    stat_of,
)

# Seconds between two looks at a template that is to do nothing, and at one that answers calls.
IDLE_LOOK, REUSED_LOOK = 1.0, 0.05
# Seconds of processor time that waiting may take between two looks.
IDLE_CPU = 0.1

# What a template can sensibly report of a call.
SIGNALS, MOST = 64, 2.0**50

# Seconds that a template has for a report that is due.
REPORTING = 1.0

# The descriptors of a template: the standard ones, the supervisor's channel, the configuration of
# the function, where its description goes, and, if it answers calls itself, their stream.
SUPERVISOR, CONFIG, DESCRIPTION, JOBS = 3, 4, 5, 6

# Those of a call: the standard ones, where the answer goes, the job, and last the pipe on which it
# reports that it has started.
ANSWER = 3

# What it reports to the supervisor: that it is ready, and of each call its exit code, the seconds
# of processor time, and the bytes of memory at most. No more is done between two forks than must
# be: each page of memory that is touched here is copied.
READY, ENDED = b"ready", struct.Struct("!idQ")

_LENGTH = struct.Struct("!Q")


class Callee(Protocol):
    """A function in a template, as the loader of a `FunctionPool` returns it.

    Attributes:
        description: What the host receives of it.
    """

    description: bytes

    def answer(self, job: bytes) -> bytes:
        """Answer a job, whatever the function does."""
        ...

    def warm_up(self) -> None:
        """Do what a call does, so that its copies find what is made on the way."""
        ...


# Why a call fails whose template has ended.
LOST = "the process that has imported the function has ended"


class OpeningFailedError(Exception):
    """A template that ended, or took too long, before it was ready.

    Attributes:
        report: How it ended.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__("the template ended before it was ready")
        self.report = report


class FunctionCalls(Calls):
    """Starts calls of a function, one at a time, and ends them; see `ProgramCalls`.

    The template has run the function's file: its reports are believed no further than they concern
    its own calls, and which processes to kill is asked of the kernel.
    """

    def __init__(self, config: dict[str, Any], fds: list[int], host: socket.socket) -> None:
        super().__init__(config, "function_call")
        self._final: dict[str, Any] | None = None
        self._channel, theirs = socket.socketpair()
        self._group = os.fork()
        if self._group == 0:
            try:
                serve(config, theirs, fds, self.lock)
            finally:
                os._exit(70)
        theirs.close()
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(self._group, self._group)
        self._channel.setblocking(False)
        self.wakes = [self._channel.fileno()]
        self._await_opening(config["opening"], host)
        self._limits, self._reuse = config["limits"], config["reuse"]
        self.look_every = REUSED_LOOK if self._reuse else IDLE_LOOK
        self._looked, self._called = monotonic(), False
        self._baseline, self._stat = memory_of(self._group), stat_of(self._group)

    def _await_opening(self, limits: dict[str, Any], host: socket.socket) -> None:
        """Wait until the template is ready."""
        call = Call(limits, lambda: list(members(os.getpid())), 0)
        poller = select.poll()
        for channel in (self._channel, host):
            poller.register(channel, select.POLLIN)
        ended = False
        while call.cause is None and not ended:
            ready = [fd for fd, _ in poller.poll(20)]
            if host.fileno() in ready:
                try:
                    call.cause = receive(host)[0]["end"]
                except EOFError:
                    call.cause = "host"
            elif not ready:
                call.cause = call.exceeded()
            elif self._report() != READY:
                ended = self._ends()
                call.cause = None if ended else "meddled"
            elif self._alone():
                return
            else:  # no limit would count what an import leaves running
                call.cause = "left_running"
        self._end(call)
        raise OpeningFailedError(call.report())

    def _ends(self) -> bool:
        """Whether the template ends: its stream does so a moment before it."""
        deadline = monotonic() + REPORTING
        while not (ended := has_ended(self._group)) and monotonic() < deadline:
            sleep(0.001)
        return ended

    def _others(self) -> list[int]:
        """The processes under the template, and those that have lost their parent there."""
        found = (pid for pid in members(os.getpid()) if pid != self._group)
        return [pid for pid in found if (stat := stat_of(pid)) is not None and not stat.ended]

    def _pids(self) -> list[int]:
        return [self._group, *self._others()]

    def _alone(self) -> bool:
        """Whether the template is one thread, without other processes."""
        stat = stat_of(self._group)
        return stat is None or (stat.threads == 1 and not self._others())

    def look_idle(self) -> None:
        """Between requests: end a template in which something runs."""
        if not self._group:
            return
        before, self._stat = self._stat, stat_of(self._group)
        memory, self._looked = memory_of(self._group), monotonic()
        call = Call(self._limits, list, self._baseline)
        if memory > self._baseline + self._limits["memory"]:
            call.cause = "memory"
        elif self._others() or (not self._reuse and self._is_active(before)):
            call.cause = "left_running"
        # Its copies share what it has now; what it had once doesn't count.
        self._baseline = min(self._baseline, memory)
        self._called = False
        if call.cause is not None:
            self._end(call)
            self._final = call.report()

    def _is_active(self, before: Stat | None) -> bool:
        """Whether something runs in a template that is to wait, or to fork and wait."""
        if before is None or self._stat is None:
            return False
        idle = not self._called and self._stat.cpu - before.cpu > IDLE_CPU
        return idle or self._stat.threads > 1

    def _report(self) -> bytes | None:
        """What the template reports; None if it has ended."""
        try:
            return self._channel.recv(ENDED.size) or None
        except OSError:
            return None

    def _end(self, call: Call | None = None) -> None:
        """End the template with all that runs under it."""

        def reaped(pid: int, status: int, used: Any) -> None:
            if call is not None and pid == self._group:
                call.ended(status, used.ru_utime + used.ru_stime, used.ru_maxrss << 10)

        if self._group:
            end_group(self._group, reaped)
            self._group = 0

    def start(self, job: dict[str, Any], fds: list[int]) -> None:
        """Make the template fork a call."""
        if monotonic() - self._looked > IDLE_LOOK:
            self.look_idle()
        self._called = True
        # The template waits meanwhile; what it does instead counts, too.
        stat = stat_of(self._group)
        before = {} if stat is None else {self._group: stat}
        started = Started()
        call = Call(job, self._pids, self._baseline, started=started, before=before)
        self.calls.append(call)
        try:
            socket.send_fds(self._channel, [b"\0"], [*fds, started.writing])
        except OSError:
            self._lost(call)

    def collect(self) -> None:
        """Record whether the call has ended."""
        call = self.calls[0]
        if call.done:
            return
        report = self._report()
        if report is None and not has_ended(self._group):
            return
        try:
            status, cpu, peak = ENDED.unpack(report or b"")
            assert -SIGNALS <= status <= 255
            assert 0 <= cpu < MOST
            assert 0 <= peak < MOST
        except (AssertionError, struct.error):
            self._lost(call)
        else:
            call.ended(status, cpu, peak)

    def _lost(self, call: Call) -> None:
        """Record that the template has ended."""
        self._end(call)
        call.problem, call.done = LOST, True

    def stop(self, call: Call) -> None:
        """Kill what the template has forked."""
        for pid in self._others():
            kill_if(pid, lambda pid=pid: pid in self._others())  # type: ignore[misc]

    def end_all(self) -> str | None:
        """End what is left of the call, and return what failed."""
        for call in self.calls:
            if call.started is not None:
                call.started.close()
                call.started = None
        if self._group == 0:
            return LOST
        if not self.lock.closed_groups:  # elsewhere a call can neither fork nor write
            self.stop(self.calls[0])
            empty(self.folder)
        return None

    def last_report(self) -> dict[str, Any]:
        """How the template ended, or was ended now; it has closed its stream."""
        if self._final is not None:
            return self._final
        call = Call({"seconds": REPORTING}, list, self._baseline)
        self._ends()
        self._end(call)
        return call.report()

    def close(self) -> None:
        """End everything."""
        self._channel.close()
        self._end()
        end_descendants(os.getpid())
        self.lock.close()


# In the template ----------------------------------------------------------------------------------


def serve(config: dict[str, Any], channel: socket.socket, fds: list[int], lock: LimitsLock) -> None:
    """Be the template, until the supervisor closes its end.

    Args:
        config: Where modules are found, what loads the function, and what it may use.
        channel: The stream to the supervisor.
        fds: The configuration of the function, standard output and error, where its description
            goes, and the stream of jobs if calls are answered here.
        lock: What it is locked with, before any code of the user's is imported.
    """
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(config["folder"])
    sys.path[:] = config["path"] + sys.path
    # The loader is the host's own code, and often large: it is imported before the lock.
    module, _, name = config["loader"].partition(":")
    load = getattr(importlib.import_module(module), name)
    lock.lock_template(config["opening"])  # needs descriptors that are closed next
    nothing = os.open(os.devnull, os.O_RDONLY)
    given = [nothing, *fds[1:3], channel.detach(), fds[0], *fds[3:]]
    kept = lock.descriptors
    last = take_over([*given, *kept])
    lock.descriptors = list(range(last + 1 - len(kept), last + 1))
    supervisor = socket.socket(fileno=SUPERVISOR)
    open_streams()
    with open(CONFIG, "rb") as file:
        callee: Callee = load(file.read())
    with open(DESCRIPTION, "wb") as file:
        file.write(callee.description)
    lock.limit_calls(config["limits"])
    if config["reuse"]:
        lock.lock_reused()
        supervisor.send(READY)
        with contextlib.suppress(EOFError), open(JOBS, "r+b", buffering=0) as stream:
            while True:
                (length,) = _LENGTH.unpack(read_exactly(stream, _LENGTH.size))
                answer = callee.answer(read_exactly(stream, length))
                write_all(JOBS, _LENGTH.pack(len(answer)) + answer)
    else:
        callee.warm_up()
        gc.disable()  # a call is over before there is much to collect
        gc.collect()
        gc.freeze()  # nothing of it is visited, and so copied, in the calls
        supervisor.send(READY)
        while fds := socket.recv_fds(supervisor, 1, MOST_FDS)[1]:
            _fork(callee, supervisor, fds, lock, config["limits"])
    os._exit(0)


def _fork(
    callee: Callee,
    supervisor: socket.socket,
    fds: list[int],
    lock: LimitsLock,
    limits: dict[str, Any],
) -> None:
    """Fork a call, wait for it, and report how it ended."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            given = [os.open(os.devnull, os.O_RDONLY), *fds]
            job = start_call(given, lambda: lock.lock_function_call(limits), _content)
            write_all(ANSWER, callee.answer(job))
            code = 0
        except BaseException:  # it answers whatever the function does: this is not its doing
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, used = os.wait4(pid, 0)  # first: what is touched before it has ended is copied
    for fd in fds:
        os.close(fd)
    code = os.waitstatus_to_exitcode(status)
    supervisor.send(ENDED.pack(code, used.ru_utime + used.ru_stime, used.ru_maxrss << 10))


def _content(fd: int) -> bytes:
    with open(fd, "rb", buffering=0) as file:
        return file.read()
