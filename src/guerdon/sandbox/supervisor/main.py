"""The supervisor: a small process that starts calls, monitors them and ends them.

It runs trusted code alone. Calls are copies of it, so the input and output of other calls must not
be in its memory: the host passes them by descriptor.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

from guerdon.sandbox.supervisor.call import Call
from guerdon.sandbox.supervisor.channels import receive, send
from guerdon.sandbox.supervisor.folders import empty
from guerdon.sandbox.supervisor.function_calls import FunctionCalls, OpeningFailedError
from guerdon.sandbox.supervisor.processes import (
    ENDING,
    adopt_orphans,
    is_exiting,
    reset_signals,
    wakes_on_child,
)
from guerdon.sandbox.supervisor.program_calls import ProgramCalls

# Imported first, since its folder leaves the path.
NEEDED = ("landlockpy",) if sys.platform == "linux" else ()

# Seconds between two measurements of the processes of a call.
LOOK_EVERY = 0.02
# Seconds that a process may take from closing its descriptors to its end.
EXITING = 0.5


def main(fd: int, own: Sequence[str]) -> None:
    """Run calls until the host closes its end.

    Args:
        fd: The end of a stream socket; the first message contains the configuration.
        own: The folders of guerdon and of what it imports here; calls don't see them.
    """
    reset_signals()
    for name in NEEDED:
        importlib.import_module(name)
    sys.path[:] = [each for each in sys.path if each not in own]
    channel = socket.socket(fileno=fd)
    channel.set_inheritable(False)
    config, fds = receive(channel)
    adopt_orphans()
    try:
        supervise(channel, config, fds)
    finally:  # the host does it too, if it still runs
        with contextlib.suppress(OSError):  # a mounted folder can only be emptied
            empty(config["folder"])
            os.rmdir(config["folder"])


def supervise(channel: socket.socket, config: dict[str, Any], fds: list[int]) -> None:
    """Prepare calls, and serve the host until it closes its end."""
    kind = ProgramCalls if config["kind"] == "programs" else FunctionCalls
    try:
        calls = kind(config, fds, channel)
    except OpeningFailedError as error:
        reply(channel, {"failed": str(error), "ended": [error.report]})
        return
    except Exception as error:
        reply(channel, {"failed": f"{type(error).__name__}: {error}"})
        return
    with contextlib.ExitStack() as stack:
        stack.callback(calls.close)
        woken = stack.enter_context(wakes_on_child())
        send(channel, {"ready": calls.facts})
        supervisor = Supervisor(channel, calls, woken)
        with contextlib.suppress(EOFError):  # the host has closed its end
            while supervisor.serve_one():
                pass


def reply(host: socket.socket, message: dict[str, Any]) -> None:
    """Send the host a message, if it still runs."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        send(host, message)


class Supervisor:
    """Serves one request after the other.

    Args:
        channel: The stream to the host.
        starter: What starts and ends calls.
        woken: A descriptor that is readable when a child has ended.
    """

    def __init__(
        self, channel: socket.socket, starter: ProgramCalls | FunctionCalls, woken: int
    ) -> None:
        self.channel, self.starter, self.woken = channel, starter, woken
        self.poller = select.poll()
        for fd in (channel.fileno(), woken, *starter.wakes):
            self.poller.register(fd, select.POLLIN)

    def serve_one(self) -> bool:
        """Serve a request; False if no other can be served.

        Raises:
            EOFError: The host has closed its end.
        """
        self.wait_for_request()
        message, fds = receive(self.channel)
        if "end" in message:
            return True  # its call has ended meanwhile
        failed = None
        try:
            self.start(message["jobs"], fds)
            self.watch()
        except (OSError, MemoryError) as error:
            failed = f"{type(error).__name__}: {error}"
        finally:
            problem = self.starter.end_all()
        if failed is not None:  # after everything has ended: the host may kill this process now
            reply(self.channel, {"failed": failed})
            return False
        reports = [call.report() for call in self.starter.calls]
        reply(self.channel, {"ended": reports, "problem": problem})
        return problem is None

    def wait_for_request(self) -> None:
        """Wait for a message of the host, and check regularly what should be idle."""
        every = self.starter.look_every
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        while every is not None and not poller.poll(every * 1000):
            self.starter.look_idle()

    def start(self, jobs: Sequence[dict[str, Any]], fds: list[int]) -> None:
        """Start the calls of a request; each takes an equal share of its descriptors."""
        self.starter.calls.clear()
        each = len(fds) // len(jobs)
        try:
            for number, job in enumerate(jobs):
                # The kernel counts the processes of all calls of a user together. The last one is
                # the checker, which must have room for its own in any case.
                others = sum(other["processes"] for other in jobs[:-1])
                job["others"] = others if number == len(jobs) - 1 else 1
                self.starter.start(job, fds[number * each : (number + 1) * each])
        finally:
            for fd in fds:
                os.close(fd)
        for call in self.starter.calls:
            call.began = self.starter.calls[0].began  # the time is for all of them

    def watch(self) -> None:
        """Wait until the last call has ended, and end the others then.

        Raises:
            TimeoutError: A call that was killed does not end.
            EOFError: The host has closed its end.
        """
        calls = self.starter.calls
        looked = monotonic()
        while not calls[-1].done:
            look_at = looked + calls[-1].limits.get("every", LOOK_EVERY)
            if looked < calls[-1].deadline < look_at:
                look_at = calls[-1].deadline
            wait = max(0.001, look_at - monotonic())
            ready = [fd for fd, _ in self.poller.poll(wait * 1000)]
            if self.channel.fileno() in ready:  # to end a call
                message, _ = receive(self.channel)
                self.stop(calls[message["call"]], message["end"])
            if self.woken in ready:
                os.read(self.woken, 512)
            self.starter.collect()
            if monotonic() >= look_at:
                looked = monotonic()
                self.look()
        for call in calls[:-1]:
            self.let_exit(call)
        for call in calls:
            if not call.done and call.cause is None:
                call.cause = "over"

    def let_exit(self, call: Call) -> None:
        """Wait for a call that is exiting: the last one may have ended because it saw that."""
        until = monotonic() + EXITING
        self.starter.collect()
        while not call.done and is_exiting(call.group) and monotonic() < until:
            if select.select([self.woken], [], [], until - monotonic())[0]:
                os.read(self.woken, 512)
            self.starter.collect()

    def look(self) -> None:
        """End calls that have reached a limit."""
        for call in self.starter.calls:
            if call.done:
                continue
            if call.stopped and monotonic() - call.stopped > ENDING:
                raise TimeoutError("a call that was killed does not end")
            if call.stopped:
                self.starter.stop(call)  # it may have forked since
            elif (cause := call.exceeded()) is not None:
                self.stop(call, cause)

    def stop(self, call: Call, cause: str) -> None:
        """End a call."""
        if not call.done and not call.stopped:
            call.cause, call.stopped = cause, monotonic()
            self.starter.stop(call)
