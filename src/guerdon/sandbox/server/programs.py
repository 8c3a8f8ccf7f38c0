"""Calls that run a program: forked from the keeper, one process group each."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import signal
import socket
import sys
from typing import Any

from guerdon.sandbox.server.calls import Call, end_group, end_pids
from guerdon.sandbox.server.descriptors import take_over
from guerdon.sandbox.server.folders import empty, empty_folder, remove_tree
from guerdon.sandbox.server.locks import open_lock
from guerdon.sandbox.server.process_control import has_ended
from guerdon.sandbox.server.script import read_script, run_script
from guerdon.sandbox.server.started import Started, say_started
from guerdon.sandbox.server.tree import children, members, memory_of, stat_of

__all__ = ["ProgramStarter"]

# What most programs import: loaded once, so that nobody waits for it.
COMMON = (
    "abc",
    "bisect",
    "collections.abc",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "json",
    "linecache",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "traceback",
    "typing",
)


class ProgramStarter:
    """Starts programs; see `Starter`."""

    def __init__(self, config: dict[str, Any], fds: list[int], host: socket.socket) -> None:
        self.calls: list[Call] = []
        self.wakes: list[int] = []
        self.look_every: float | None = None
        self._groups: dict[int, tuple[Call, Started]] = {}
        self._base = config["folder"]
        self._lock = open_lock(config)
        for name in COMMON:
            importlib.import_module(name)
        for name, path in config["preload"].items():
            _load(name, path)
        self._pid = os.getpid()
        gc.collect()
        gc.freeze()  # nothing of it is looked at, and so copied, in the calls
        self._baseline = memory_of(self._pid)

    def facts(self) -> dict[str, Any]:
        """What is in force."""
        return self._lock.facts()

    def look_idle(self) -> None:
        """Nothing is there between two programs."""

    def start(self, job: dict[str, Any], fds: list[int]) -> None:
        """Fork, and run the program there."""
        with contextlib.ExitStack() as unused:
            folder = empty_folder(self._base, self._lock.uid)
            unused.callback(remove_tree, self._base, folder)
            started = Started()
            unused.callback(started.close)
            with self._lock.fork(folder if job["files"] else None):
                pid = os.fork()
                if pid == 0:
                    code = 70  # where it couldn't even be set up
                    try:
                        code = self._run(job, [*fds, started.writing], folder)
                    finally:
                        os._exit(code)
            unused.pop_all()
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # it does so itself, too: whoever comes first
        call = Call(job, lambda: self._pids(pid), self._baseline, folder)
        self._groups[pid] = call, started
        self.calls.append(call)

    def _run(self, job: dict[str, Any], fds: list[int], folder: str) -> int:
        """In the child: be locked, then run the program.

        The descriptors are the three standard ones, in a pair the stream, the job, and where it
        says that it has started.
        """
        told = fds[-1]
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir(folder)
            # Before the descriptors are closed, some of which it needs.
            self._lock.lock_program(job, folder if job["files"] else None)
            told = take_over(fds)
            script = read_script(told - 1, folder)
        except MemoryError:  # the program itself is larger than it may be
            say_started(told)
            os.write(2, b"MemoryError\n")
            return 1
        except BaseException as error:
            say_started(told, error)
            raise
        say_started(told)
        return run_script(script)

    def _pids(self, group: int) -> list[int]:
        """The processes of a call, those that have lost their parent included."""
        found = []
        for child in children(self._pid):
            stat = stat_of(child) if child != group else None
            if child == group or (stat is not None and stat.group == group):
                found += [child, *members(child)]
        return found

    def collect(self) -> None:
        """Wait for the calls that have ended, and end what they have left."""
        for group, (call, _) in self._groups.items():
            if not call.done and has_ended(group):
                self._finish(group)

    def stop(self, call: Call) -> None:
        """Kill a call's group."""
        for group, (each, _) in self._groups.items():
            if each is call:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    def _finish(self, group: int) -> bool:
        call, started = self._groups[group]

        def reaped(pid: int, status: int, used: Any) -> None:
            cpu = used.ru_utime + used.ru_stime
            if pid == group:
                call.ended(status, cpu, used.ru_maxrss << 10)
            else:
                call.cpu += cpu

        ended = end_group(group, reaped)
        if call.done:
            call.problem = started.heard()
            # What was killed for a limit was maybe not yet set up: then the limit is the reason.
            call.problem = None if call.cause else call.problem
        return ended

    def end_all(self) -> str | None:
        """End what is left, and remove what was written."""
        problem = None
        for group, (call, started) in self._groups.items():
            if not call.done and not self._finish(group):
                problem = f"process group {group} can't be ended"
                started.close()
        self._groups.clear()
        if not self._lock.closed_groups:
            end_pids(self._pid)
        try:
            for call in self.calls:
                if call.folder is not None:
                    remove_tree(self._base, call.folder)
            if not self._lock.closed_groups:
                empty(self._base)  # it may have moved its folder
        except OSError as error:
            problem = f"what a call has written can't be removed: {error}"
        return problem

    def last_words(self) -> dict[str, Any]:
        """Nothing but the keeper itself is what calls are made of."""
        raise NotImplementedError("programs are forked from the keeper")

    def close(self) -> None:
        """End everything."""
        self.end_all()
        end_pids(self._pid)
        self._lock.close()


def _load(name: str, path: str) -> None:
    """Load a file as a module of that name, which calls then find loaded."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
