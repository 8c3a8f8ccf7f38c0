"""The keeper: a small process that starts calls, watches over them and ends them.

It runs no code but its own. What calls are given, and what they print, goes past it by descriptor,
so that no call finds in its memory, which it is a copy of, what another one had.
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

from guerdon.sandbox.server.calls import ENDING, Call
from guerdon.sandbox.server.folders import empty
from guerdon.sandbox.server.frames import receive, send
from guerdon.sandbox.server.process_control import adopt_orphans, start_afresh, wakes_on_child
from guerdon.sandbox.server.programs import ProgramStarter
from guerdon.sandbox.server.starter import Starter
from guerdon.sandbox.server.templates import FunctionStarter, OpeningFailedError

__all__ = ["main"]

# What is imported on the way, to be there when nothing can be found any more.
NEEDED = ("landlockpy",) if sys.platform == "linux" else ()

# Seconds between two looks at what the processes of a call use.
LOOK_EVERY = 0.02


def main(fd: int, own: Sequence[str]) -> None:
    """Keep calls until the host closes its end.

    Args:
        fd: The end of a stream socket; the first message says what is kept.
        own: Where modules of ours are found, and those that we need; calls don't see them.
    """
    start_afresh()
    for name in NEEDED:
        importlib.import_module(name)
    sys.path[:] = [each for each in sys.path if each not in own]
    channel = socket.socket(fileno=fd)
    channel.set_inheritable(False)
    first = receive(channel)
    if first is None:
        return
    config, fds = first
    base = config["folder"]
    adopt_orphans()
    kinds: dict[str, type[Starter]] = {"programs": ProgramStarter, "functions": FunctionStarter}
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, base)  # the host does it, too, but it may be gone
        keep(channel, kinds[config["kind"]], config, fds)


def keep(
    channel: socket.socket, kind: type[Starter], config: dict[str, Any], fds: list[int]
) -> None:
    """Start what calls are made of, and serve the host until it goes."""
    try:
        starter = kind(config, fds, channel)
    except OpeningFailedError as error:
        tell(channel, {"failed": str(error), "ended": [error.report]})
        return
    except Exception as error:
        tell(channel, {"failed": f"{type(error).__name__}: {error}"})
        return
    with contextlib.ExitStack() as stack:
        stack.callback(starter.close)
        woken = stack.enter_context(wakes_on_child())
        send(channel, {"ready": starter.facts()})
        keeper = Keeper(channel, starter, woken)
        while keeper.serve_one():
            pass


def tell(host: socket.socket, message: dict[str, Any]) -> None:
    """Send the host a message, if it is still there."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        send(host, message)


def _remove(base: str) -> None:
    with contextlib.suppress(OSError):  # where it is mounted it can only be emptied
        empty(base)
        os.rmdir(base)


class HostGoneError(Exception):
    """The host has closed its end."""


class StuckError(Exception):
    """A process that nothing ends."""


class Keeper:
    """Serves one request after the other.

    Args:
        channel: The stream to the host.
        starter: What starts and ends calls.
        woken: What is readable when a child has ended.
    """

    def __init__(self, channel: socket.socket, starter: Starter, woken: int) -> None:
        self.channel, self.starter, self.woken = channel, starter, woken
        self.poller = select.poll()
        self.poller.register(channel, select.POLLIN)
        self.poller.register(woken, select.POLLIN)
        for fd in starter.wakes:
            self.poller.register(fd, select.POLLIN)

    def serve_one(self) -> bool:
        """Serve a request; False where the host has gone."""
        self.wait_for_request()
        request = receive(self.channel)
        if request is None:
            return False
        message, fds = request
        if "end" in message:
            return True  # said of a call that had ended meanwhile
        if "ask" in message:
            tell(self.channel, {"ended": [self.starter.last_words()]})
            return False
        try:
            self.start(message["jobs"], fds)
        except (OSError, EOFError, MemoryError) as error:
            self.starter.end_all()
            tell(self.channel, {"failed": f"{type(error).__name__}: {error}"})
            return True
        finally:
            for fd in fds:
                os.close(fd)
        try:
            self.watch()
        except HostGoneError:
            return False
        except StuckError as error:
            tell(self.channel, {"failed": str(error)})
            return False
        finally:
            problem = self.starter.end_all()
        told: dict[str, Any] = {"ended": [call.report() for call in self.starter.calls]}
        if problem:
            told["problem"] = problem
        tell(self.channel, told)
        return problem is None

    def wait_for_request(self) -> None:
        """Wait until the host says something, looking now and then at what should be still."""
        every = self.starter.look_every
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        while every is not None and not poller.poll(every * 1000):
            self.starter.look_idle()

    def start(self, jobs: Sequence[dict[str, Any]], fds: list[int]) -> None:
        """Start the calls of a request, which share its descriptors out among them."""
        self.starter.calls.clear()
        each = len(fds) // len(jobs)
        for number, job in enumerate(jobs):
            # Their processes are counted together. The last one checks the others, and has room
            # for its own whatever they do.
            others = sum(other["processes"] for other in jobs[:-1])
            job["others"] = others if number == len(jobs) - 1 else 1
            self.starter.start(job, fds[number * each : (number + 1) * each])

        for call in self.starter.calls:
            call.began = self.starter.calls[0].began  # the time is for all of them

    def watch(self) -> None:
        """Wait until the last call has ended; it decides when the others are over."""
        calls = self.starter.calls
        looked = monotonic()
        while not calls[-1].done:
            running = [call for call in calls if not call.done]
            left = min(call.left for call in running)
            wait = max(0.001, min(LOOK_EVERY, left)) if left > 0 else LOOK_EVERY
            ready = [fd for fd, _ in self.poller.poll(wait * 1000)]
            if self.channel.fileno() in ready:
                self.heed()
            if self.woken in ready:
                os.read(self.woken, 512)
            self.starter.collect()
            if (now := monotonic()) - looked >= LOOK_EVERY or left <= 0.002:
                looked = now
                self.look(running)
        for call in calls:
            if not call.done and call.cause is None:
                call.cause = "over"

    def heed(self) -> None:
        """Do what the host says in the middle of a call: end it."""
        word = receive(self.channel)
        if word is None:
            raise HostGoneError
        self.stop(self.starter.calls[word[0]["call"]], word[0]["end"])

    def look(self, running: list[Call]) -> None:
        """End what has reached a limit."""
        for call in running:
            if call.done:
                continue
            if call.stopped and monotonic() - call.stopped > ENDING:
                raise StuckError("a call that was killed does not end")
            if call.stopped:
                self.starter.stop(call)  # it may have been forked since
            elif (cause := call.look()) is not None:
                self.stop(call, cause)

    def stop(self, call: Call, cause: str) -> None:
        """End a call before its time."""
        if not call.done and not call.stopped:
            call.cause, call.stopped = cause, monotonic()
            self.starter.stop(call)
