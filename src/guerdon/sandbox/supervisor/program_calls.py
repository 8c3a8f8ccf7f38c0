"""Calls that run a program: forked from the supervisor, one process group each."""

from __future__ import annotations

import _thread
import atexit
import builtins
import contextlib
import functools
import gc
import importlib
import importlib.util
import linecache
import marshal
import os
import signal
import site
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from guerdon.sandbox.supervisor.allowed_packages import import_packages
from guerdon.sandbox.supervisor.call import Call, Calls
from guerdon.sandbox.supervisor.channels import Started, open_streams, start_call
from guerdon.sandbox.supervisor.folders import empty, empty_folder, remove_tree
from guerdon.sandbox.supervisor.processes import (
    children,
    end_descendants,
    end_group,
    has_ended,
    members,
    memory_of,
    stat_of,
)

# What most programs import: once, before the calls.
COMMON = """
abc bisect collections.abc copy dataclasses datetime decimal enum fractions functools heapq
itertools json linecache math operator random re statistics string traceback typing
"""

# The file name of a program in tracebacks, and in its folder, where it is not written.
NAME, FILE = "<program>", "program.py"
# Packages that are hidden from programs.
OURS = ("guerdon", "landlockpy")

_hidden: list[ModuleType] = []


class ProgramCalls(Calls):
    """Starts programs, each in a fork of the supervisor, and ends them."""

    def __init__(self, config: dict[str, Any], fds: list[int], host: socket.socket) -> None:
        super().__init__(config, "program")
        for name in COMMON.split():
            importlib.import_module(name)
        for name, path in config["preload"].items():
            _load(name, path)
        if config["packages"]["modules"]:
            import_packages(config["packages"])
        site.setquit()  # `exit` and `quit`, which programs have unless Python runs with -S
        sys.set_int_max_str_digits(0)  # the limit on time bounds what long integers cost
        self._pid = os.getpid()
        gc.collect()
        gc.freeze()  # a collection would write to, and so copy, pages in the calls
        self._baseline = memory_of(self._pid)

    def start(self, job: dict[str, Any], fds: list[int]) -> None:
        """Start a program in a fork.

        Args:
            job: Its limits.
            fds: Its descriptors: the three standard ones, in a pair the stream, and the job. The
                caller closes them.
        """
        with contextlib.ExitStack() as unused:
            if self.calls and self.calls[0].folder is not None:
                folder = self.calls[0].folder  # the checker of a pair has that of the program
            else:
                folder = empty_folder(self.folder, self.lock.uid)
                unused.callback(remove_tree, self.folder, folder)
            started = Started()
            unused.callback(started.close)
            with self.lock.fork(folder if job["files"] else None):
                pid = os.fork()
                if pid == 0:
                    code = 70  # if it couldn't even be set up
                    try:
                        code = self._run(job, [*fds, started.writing], folder)
                    finally:
                        os._exit(code)
            unused.pop_all()
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # both processes do it, in any order
        pids = functools.partial(self._pids, pid)
        self.calls.append(Call(job, pids, self._baseline, pid, started, folder))

    def _run(self, job: dict[str, Any], fds: list[int], folder: str) -> int:
        """In the child: lock it, then run the program."""

        def lock() -> None:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir(folder)
            self.lock.lock_program(job)
            limited = _stack_size_up_to(job["memory"] // 2)
            threading.stack_size = _thread.stack_size = limited

        return run_program(start_call(fds, lock, lambda fd: read_program(fd, folder)))

    def _pids(self, group: int) -> list[int]:
        """Return the processes of a call, orphans included."""
        found = []
        for child in children(self._pid):
            stat = stat_of(child) if child != group else None
            if child == group or (stat is not None and stat.group == group):
                found += [child, *members(child)]
        return found

    def collect(self) -> None:
        """Record which calls have ended, and end the processes that they left."""
        for call in self.calls:
            if not call.done and has_ended(call.group):
                self._finish(call)

    def stop(self, call: Call) -> None:
        """Kill a call's group; `collect` records its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(call.group, signal.SIGKILL)

    def _finish(self, call: Call) -> bool:
        def reaped(pid: int, status: int, used: Any) -> None:
            cpu = used.ru_utime + used.ru_stime
            if pid == call.group:
                call.ended(status, cpu, used.ru_maxrss << 10)
            else:
                call.cpu += cpu

        return end_group(call.group, reaped)

    def end_all(self) -> str | None:
        """End all calls, remove their files, and return what failed."""
        problem = None
        for call in self.calls:
            if not call.done and not self._finish(call):
                problem = f"process group {call.group} can't be ended"
        if not self.lock.closed_groups:
            end_descendants(self._pid)
        try:
            for call in self.calls:
                if call.folder is not None:
                    remove_tree(self.folder, call.folder)
            if not self.lock.closed_groups:
                empty(self.folder)  # a call may have moved its folder
        except OSError as error:
            problem = f"what a call has written can't be removed: {error}"
        return problem

    def close(self) -> None:
        """End everything."""
        self.end_all()
        end_descendants(self._pid)
        self.lock.close()


def _load(name: str, path: str) -> None:
    """Import a file as a module, for all calls."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


# In the child -------------------------------------------------------------------------------------


def read_program(job: int, folder: str) -> str:
    """Read a job, and write its files.

    Args:
        job: The descriptor that it is read from: its source and its files.
        folder: The call's own folder, where it runs.

    Returns:
        The program's source.
    """
    with open(job, "rb") as file:
        source, files = marshal.loads(file.read())
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    # As in an interpreter that was started here.
    os.environ.update(HOME=folder, TMPDIR=folder)
    os.environ.pop("LD_LIBRARY_PATH", None)  # the interpreter's own
    sys.path[:] = [folder, *(each for each in sys.path if each)]
    sys.argv = [NAME]
    open_streams()  # those of the supervisor use other descriptors
    # A program doesn't need our modules. They are kept, since freeing them takes time.
    ours = [name for name in sys.modules if name.partition(".")[0] in OURS]
    _hidden.extend(sys.modules.pop(name) for name in ours)
    return str(source).removeprefix("\ufeff")  # a byte order mark


def _stack_size_up_to(most: int) -> Callable[..., int]:
    """Return `threading.stack_size` for programs, which ask for more than they use.

    A stack is reserved in full when its thread starts.
    """
    choose = threading.stack_size

    @functools.wraps(choose)
    def stack_size(*size: int) -> int:
        return choose(*(min(each, most) for each in size))

    return stack_size


def run_program(source: str) -> int:
    """Run a program as Python would, and return its exit code."""
    streams = sys.stdout, sys.stderr
    code = _execute(source)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does at its end
        atexit._run_exitfuncs()
    except BaseException as error:
        _print_traceback(error)
    # The program may have replaced or removed the streams.
    for stream in (*streams, getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            code = code or 120  # Python's code if output can't be written
    return code


def _execute(source: str) -> int:
    module = ModuleType("__main__")
    file = os.path.join(os.getcwd(), FILE)
    module.__dict__.update(__builtins__=builtins, __file__=file)
    sys.modules["__main__"] = module
    lines = (len(source), None, source.splitlines(keepends=True), NAME)
    linecache.cache[NAME] = linecache.cache[file] = lines
    try:
        exec(compile(source, NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as leaving:
        return _exit_code(leaving.code)
    except BaseException as error:
        _print_traceback(error)
        return 1
    return 0


def _exit_code(code: object) -> int:
    """Return the exit code for an argument of `sys.exit`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print a traceback of the program's frames."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
    except BaseException:  # raised by the error's own __str__
        with contextlib.suppress(OSError):  # it may be closed
            os.write(2, f"{type(error).__name__}\n".encode("utf-8", "backslashreplace"))
