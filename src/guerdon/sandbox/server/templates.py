"""Calls that run a reward function: forked from a template, which has imported it once."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from time import monotonic, sleep
from typing import Any

from guerdon.sandbox.server.calls import Call, end_group, end_pids
from guerdon.sandbox.server.folders import empty
from guerdon.sandbox.server.frames import BrokenFrameError, receive, send
from guerdon.sandbox.server.locks import open_lock
from guerdon.sandbox.server.process_control import has_ended, kill_if
from guerdon.sandbox.server.started import Started
from guerdon.sandbox.server.template import serve
from guerdon.sandbox.server.tree import members, memory_of, stat_of

__all__ = ["FunctionStarter"]

# Seconds between two looks at a template that is to do nothing, and at one that answers calls.
IDLE_LOOK, STANDING_LOOK = 1.0, 0.05
# Seconds of processor time that waiting may take between two looks.
IDLE_CPU = 0.1

# What a template can sensibly tell of a call.
SIGNALS, MOST = 64, 2.0**50

# Seconds that a template has for a word that it owes.
ANSWER = 1.0


class OpeningFailedError(Exception):
    """A template that ended, or took too long, before it was ready.

    Attributes:
        report: How it ended.
    """

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__("the template ended before it was ready")
        self.report = report


class FunctionStarter:
    """Starts calls of a function, one at a time; see `Starter`.

    The template has run the function's file: nothing that it says is believed further than it
    concerns its own calls, and whom to kill is asked of the kernel.
    """

    def __init__(self, config: dict[str, Any], fds: list[int], host: socket.socket) -> None:
        self.calls: list[Call] = []
        self._ended: dict[str, Any] | None = None
        self._started: Started | None = None
        self._base = config["folder"]
        self._lock = open_lock(config)
        self._channel, theirs = socket.socketpair()
        self._group = os.fork()
        if self._group == 0:
            try:
                serve(config, theirs, fds, self._lock)
            finally:
                os._exit(70)
        theirs.close()
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(self._group, self._group)
        self._channel.settimeout(ANSWER)
        self.wakes = [self._channel.fileno()]
        self._await_opening(config["opening"], host)
        self._limits, self._reuse = config["limits"], config["reuse"]
        self.look_every: float | None = STANDING_LOOK if self._reuse else IDLE_LOOK
        self._baseline, self._cpu = memory_of(self._group), self._cpu_now()

    def _await_opening(self, limits: dict[str, Any], host: socket.socket) -> None:
        """Wait until the template is ready."""
        call = Call(limits, lambda: list(members(os.getpid())), 0)
        poller = select.poll()
        for channel in (self._channel, host):
            poller.register(channel, select.POLLIN)
        while call.cause is None:
            ready = [fd for fd, _ in poller.poll(20)]
            if host.fileno() in ready:
                said = receive(host)
                call.cause = "host" if said is None else str(said[0].get("end", "host"))
            elif ready:
                word = self._word()
                if word is not None and self._alone():
                    return
                if word is not None:
                    # What an import leaves running nobody would account for.
                    call.cause = "left_running"
                elif not self._ends():
                    call.cause = "meddled"
                break
            call.cause = call.cause or call.look()
        self._end(call)
        raise OpeningFailedError(call.report())

    def _ends(self) -> bool:
        """Whether the template ends: its stream does so a moment before it."""
        deadline = monotonic() + ANSWER
        while not (ended := has_ended(self._group)) and monotonic() < deadline:
            sleep(0.001)
        return ended

    def _others(self) -> list[int]:
        """The processes under the template, and those that have lost their parent there."""
        found = (pid for pid in members(os.getpid()) if pid != self._group)
        return [pid for pid in found if (stat := stat_of(pid)) is not None and not stat.ended]

    def _alone(self) -> bool:
        """Whether the template is one thread, and nobody else is there."""
        stat = stat_of(self._group)
        return stat is None or (stat.threads == 1 and not self._others())

    def _goes_on(self, cpu: float) -> bool:
        """Whether something runs in a template that is to wait."""
        return cpu > IDLE_CPU or not self._alone()

    def _cpu_now(self) -> float:
        stat = stat_of(self._group)
        return stat.cpu if stat is not None else 0.0

    def look_idle(self) -> None:
        """Between calls: end a template in which something goes on."""
        if not self._group:
            return
        cpu, before = self._cpu_now(), self._cpu
        self._cpu = cpu
        call = Call(self._limits, list, self._baseline)
        if memory_of(self._group) > self._baseline + self._limits["memory"]:
            call.cause = "memory"
        elif self._others() or (not self._reuse and self._goes_on(cpu - before)):
            call.cause = "left_running"
        if call.cause is not None:
            self._end(call)
            self._ended = call.report()

    def _word(self) -> dict[str, Any] | None:
        """What the template says; None where it has ended or says nothing sensible."""
        try:
            got = receive(self._channel, ANSWER)
        except (BrokenFrameError, OSError):
            return None
        if got is None:
            return None
        for fd in got[1]:
            os.close(fd)
        return got[0]

    def _end(self, call: Call | None = None) -> None:
        """End the template with all that stands under it."""

        def reaped(pid: int, status: int, used: Any) -> None:
            if call is not None and pid == self._group:
                call.ended(status, used.ru_utime + used.ru_stime, used.ru_maxrss << 10)

        if self._group:
            end_group(self._group, reaped)
            self._group = 0

    def facts(self) -> dict[str, Any]:
        """What is in force."""
        return self._lock.facts()

    def start(self, job: dict[str, Any], fds: list[int]) -> None:
        """Have the template fork a call."""
        # What it has now, its copy will share; what it had once doesn't count.
        shared = min(self._baseline, memory_of(self._group))
        call = Call(job, lambda: [self._group, *self._others()], shared)
        # The template waits meanwhile; what it does instead counts, too.
        call.meter.passes_over(self._group)
        self.calls.append(call)
        if not self._group:
            self._lost(call)
            return
        started = self._started = Started()
        try:
            send(self._channel, job, [*fds, started.writing])
        except OSError:
            self._lost(call)

    def collect(self) -> None:
        """Note whether the call has ended."""
        call = self.calls[0]
        if call.done:
            return
        if not select.select([self._channel], [], [], 0)[0] and not has_ended(self._group):
            return
        word = self._word()
        try:
            assert word is not None
            status, cpu, peak = (float(word[name]) for name in ("status", "cpu", "peak"))
            assert -SIGNALS <= status <= 255
            assert 0 <= cpu < MOST
            assert 0 <= peak < MOST
        except (AssertionError, KeyError, TypeError, ValueError, OverflowError):
            self._lost(call)
            return
        call.ended(int(status), cpu, int(peak))
        assert self._started is not None
        call.problem = self._started.heard() if call.cause is None else None
        if call.cause is not None:
            self._started.close()
        self._started = None

    def _lost(self, call: Call) -> None:
        """Note that the template is no more."""
        call.problem = "the process that holds the imported function has ended"
        self._end(call)
        call.done = True

    def stop(self, call: Call) -> None:
        """Kill what the template has forked."""
        for pid in self._others():
            kill_if(pid, lambda pid=pid: pid in self._others())  # type: ignore[misc]

    def end_all(self) -> str | None:
        """End what is left of the call."""
        if self._started is not None:
            self._started.close()
            self._started = None
        if self._group == 0:
            return "the process that holds the imported function has ended"
        if not self._lock.closed_groups:
            empty(self._base)  # where nothing else keeps it from writing
        if left := self._others():
            self.stop(self.calls[0])
            return f"{len(left)} processes were left" if self._lock.closed_groups else None
        self._cpu = self._cpu_now()
        return None

    def last_words(self) -> dict[str, Any]:
        """How the template ended, or was ended now."""
        if self._ended is not None:
            return self._ended
        call = Call({"seconds": ANSWER}, list, self._baseline)
        self._ends()
        self._end(call)
        return call.report()

    def close(self) -> None:
        """End everything."""
        self._channel.close()
        self._end()
        end_pids(os.getpid())
        self._lock.close()
