"""Calls that run a reward function: forked from a template, which has imported it once."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from time import monotonic, sleep
from typing import Any

from guerdon.sandbox.server.calls import Call, end_group, end_pids
from guerdon.sandbox.server.folders import empty
from guerdon.sandbox.server.frames import receive
from guerdon.sandbox.server.locks import open_lock
from guerdon.sandbox.server.process_control import has_ended, kill_if
from guerdon.sandbox.server.started import Started
from guerdon.sandbox.server.template import ENDED, READY, serve
from guerdon.sandbox.server.tree import Stat, members, memory_of, stat_of

__all__ = ["FunctionStarter", "OpeningFailedError"]

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
        self._channel.setblocking(False)
        self.wakes = [self._channel.fileno()]
        self._await_opening(config["opening"], host)
        self._limits, self._reuse = config["limits"], config["reuse"]
        self.look_every: float | None = STANDING_LOOK if self._reuse else IDLE_LOOK
        self._looked, self._called = monotonic(), False
        self._baseline, self._stat = memory_of(self._group), stat_of(self._group)

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
                if word == READY and self._alone():
                    return
                if word == READY:
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

    def look_idle(self) -> None:
        """Between calls: end a template in which something goes on."""
        if not self._group:
            return
        before, self._stat = self._stat, stat_of(self._group)
        memory, self._looked = memory_of(self._group), monotonic()
        call = Call(self._limits, list, self._baseline)
        if memory > self._baseline + self._limits["memory"]:
            call.cause = "memory"
        elif self._others() or (not self._reuse and self._goes_on(before)):
            call.cause = "left_running"
        # What it has now, its copies will share; what it had once doesn't count.
        self._baseline = min(self._baseline, memory)
        self._called = False
        if call.cause is not None:
            self._end(call)
            self._ended = call.report()

    def _goes_on(self, before: Stat | None) -> bool:
        """Whether something runs in a template that is to wait, or to fork and wait."""
        if before is None or self._stat is None:
            return False
        idle = not self._called and self._stat.cpu - before.cpu > IDLE_CPU
        return idle or self._stat.threads > 1

    def _word(self) -> bytes | None:
        """What the template says; None where it has ended."""
        try:
            return self._channel.recv(ENDED.size) or None
        except OSError:
            return None

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
        if monotonic() - self._looked > IDLE_LOOK:
            self.look_idle()
        self._called = True
        call = Call(job, lambda: [self._group, *self._others()], self._baseline)
        # The template waits meanwhile; what it does instead counts, too.
        if (stat := stat_of(self._group)) is not None:
            call.meter.passes_over(self._group, stat)
        self.calls.append(call)
        if not self._group:
            self._lost(call)
            return
        started = self._started = Started()
        try:
            socket.send_fds(self._channel, [b"\0"], [*fds, started.writing])
        except OSError:
            self._lost(call)

    def collect(self) -> None:
        """Note whether the call has ended."""
        call = self.calls[0]
        if call.done:
            return
        word = self._word()
        if word is None and not has_ended(self._group):
            return
        try:
            status, cpu, peak = ENDED.unpack(word or b"")
            assert -SIGNALS <= status <= 255
            assert 0 <= cpu < MOST
            assert 0 <= peak < MOST
        except (AssertionError, struct.error):
            self._lost(call)
            return
        call.ended(status, cpu, peak)
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
        if not self._lock.closed_groups:  # elsewhere a call can neither fork nor write
            self.stop(self.calls[0])
            empty(self._base)
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
