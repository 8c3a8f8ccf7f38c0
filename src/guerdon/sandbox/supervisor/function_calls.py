"""Calls of a function: forked from a template, a locked process that has imported it once."""

from __future__ import annotations

import contextlib
import functools
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

# Seconds between two checks of a template that should be idle.
IDLE_LOOK = 1.0
# Seconds of processor time that an idle template may use between two checks.
IDLE_CPU = 0.1

# The highest numbers that a template can report of a call.
SIGNALS, MOST = 64, 2.0**50

# Seconds that a template has for a report.
REPORTING = 1.0

# The descriptors of a template: the standard ones, the supervisor's channel, the configuration of
# the function, and where its description goes.
SUPERVISOR, CONFIG, DESCRIPTION = 3, 4, 5

# Those of a call: the standard ones, the stream of jobs and answers, and last the pipe on which it
# reports that it has started.
JOBS = 3

# What a template reports to the supervisor: that it is ready, and for each call its exit code,
# seconds of processor time, and peak bytes of memory. Little is done between two forks, since each
# page of memory that is written then is copied.
READY, ENDED = b"ready", struct.Struct("!idQ")

# What comes before a job: its length, and whether it is the last one. Before an answer: its length.
JOB, LENGTH = struct.Struct("!Q?"), struct.Struct("!Q")


class Callee(Protocol):
    """A function in a template, as the loader of a `FunctionPool` returns it.

    Attributes:
        description: What the host receives of it.
    """

    description: bytes

    def answer(self, job: bytes) -> bytes:
        """Answer a job; exceptions of the function are part of the answer."""
        ...

    def warm_up(self) -> None:
        """Do what a call does, so that its copies share what is created then."""
        ...


# The error of a call whose template has ended.
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

    The template has run the function's file, so it isn't trusted: its reports concern its own calls
    alone, and the kernel determines which processes are killed.
    """

    def __init__(self, config: dict[str, Any], fds: list[int], host: socket.socket) -> None:
        super().__init__(config, "function_call")
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
        self._limits, self.look_every = config["limits"], IDLE_LOOK
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
            else:  # the limits of a call don't include what an import leaves running
                call.cause = "left_running"
        self._end(call)
        raise OpeningFailedError(call.report())

    def _ends(self) -> bool:
        """Return whether the template ends within a moment, as its stream has ended."""
        deadline = monotonic() + REPORTING
        while not (ended := has_ended(self._group)) and monotonic() < deadline:
            sleep(0.001)
        return ended

    def _others(self) -> list[int]:
        """Return the other processes, of calls and of what they have started."""
        found = (pid for pid in members(os.getpid()) if pid != self._group)
        return [pid for pid in found if (stat := stat_of(pid)) is not None and not stat.ended]

    def _pids(self) -> list[int]:
        return [self._group, *self._others()]

    def _alone(self) -> bool:
        """Return whether the template has one thread and no other process runs."""
        stat = stat_of(self._group)
        return stat is None or (stat.threads == 1 and not self._others())

    def look_idle(self) -> None:
        """End a template that should be idle and isn't."""
        if not self._group:
            return
        before, self._stat = self._stat, stat_of(self._group)
        memory, self._looked = memory_of(self._group), monotonic()
        call = Call(self._limits, list, self._baseline)
        if memory > self._baseline + self._limits["memory"]:
            call.cause = "memory"
        elif self._others() or self._is_active(before):
            call.cause = "left_running"
        # Its copies share what it has now.
        self._baseline = min(self._baseline, memory)
        self._called = False
        if call.cause is not None:
            self._end(call)

    def _is_active(self, before: Stat | None) -> bool:
        """Return whether something runs in a template that should only wait, or fork and wait."""
        if before is None or self._stat is None:
            return False
        idle = not self._called and self._stat.cpu - before.cpu > IDLE_CPU
        return idle or self._stat.threads > 1

    def _report(self) -> bytes | None:
        """Return what the template reports; None if it has ended."""
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
        # The template should wait now; what else it does counts for the call.
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
        if not self.lock.closed_groups:  # at strict, a call can neither fork nor write
            for call in self.calls:  # none if it could not be started
                self.stop(call)
            empty(self.folder)
        return None

    def close(self) -> None:
        """End everything."""
        self._channel.close()
        self._end()
        end_descendants(os.getpid())
        self.lock.close()


# In the template ----------------------------------------------------------------------------------


def serve(config: dict[str, Any], channel: socket.socket, fds: list[int], lock: LimitsLock) -> None:
    """Run the template, until the supervisor closes its end.

    Args:
        config: The configuration of the worker.
        channel: The stream to the supervisor.
        fds: The configuration of the function, standard output and error, and where its description
            goes.
        lock: How it is locked, before any user code is imported.
    """
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(config["folder"])
    sys.path[:] = config["path"] + sys.path
    # The loader is trusted, and often large: it is imported before the lock.
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
    # The kernel counts the template with its calls.
    lock.limit_calls(config["limits"] | {"others": 1})
    callee.warm_up()
    gc.disable()  # most calls are short
    gc.collect()
    gc.freeze()  # a collection would write to, and so copy, pages in the calls
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
            start_call(given, lambda: lock.lock_function_call(limits), lambda _: None)
            code = _answer_jobs(callee)
        except BaseException:  # not of the function: `answer` returns those
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, used = os.wait4(pid, 0)  # first: what is touched before it has ended is copied
    for fd in fds:
        os.close(fd)
    code = os.waitstatus_to_exitcode(status)
    supervisor.send(ENDED.pack(code, used.ru_utime + used.ru_stime, used.ru_maxrss << 10))


def _answer_jobs(callee: Callee) -> int:
    """In a call: answer jobs until there are no more, and return the exit code."""
    read, last = functools.partial(os.read, JOBS), False
    try:
        while not last:
            length, last = JOB.unpack(read_exactly(read, JOB.size))
            answer = callee.answer(read_exactly(read, length))
            write_all(JOBS, LENGTH.pack(len(answer)) + answer)
            gc.enable()
        return 0
    except EOFError:  # a call that was kept is no longer needed
        return 0
    except MemoryError:  # a job or an answer itself exceeds the limit
        os.write(2, b"MemoryError\n")
        return 1
