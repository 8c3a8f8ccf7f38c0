"""What runs in the process of its own: a keeper, and under it the program with its tests.

Started by `examples.coding_env.runner` as a script, never imported by the program's side. The
keeper stays outside the limits and does two things: it waits for the program, and it ends all
that the program has started. On Linux it adopts orphans for that, so that also those are found
which have left the process group.

It imports little, because every submission pays for it: the job comes in as `marshal` of the very
same interpreter, and what is told goes out as lines of text.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

__all__: list[str] = []

LONGEST = 300  # characters of an error's text
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
WAKING = (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM)


def main() -> None:
    """Read the job from standard input, run it under a keeper, and tell how it ended."""
    with open(0, "rb", closefd=False) as paper:
        job = marshal.loads(paper.read())
    tests = [compile(test, f"<test {n}>", "exec", dont_inherit=True) for n, test in job["tests"]]
    os.set_inheritable(job["channel"], False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may ignore it
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKING)
    # Should whoever started this be killed, nobody else ends a program that sleeps.
    signal.alarm(int(job["seconds"]) + 30)
    family = f"/proc/self/task/{os.getpid()}/children"
    control = process_control() if os.path.exists(family) else None
    if control is not None:
        control(PR_SET_CHILD_SUBREAPER, 1)
        control(PR_SET_PDEATHSIG, signal.SIGTERM)
    worker = os.fork()
    if worker == 0:
        signal.alarm(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKING)
        if control is not None:
            control(PR_SET_PDEATHSIG, signal.SIGKILL)
        work(job, tests, teller(job))
        os._exit(0)
    status = wait_for(worker)
    if control is not None:
        kill_all(family)
    elif status is None:
        os.kill(worker, signal.SIGKILL)
    teller(job)("ended", "" if status is None else str(status))
    os._exit(0)


def process_control() -> Callable[[int, int], Any] | None:
    """Linux's ``prctl``, where it can be had."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return lambda option, value: prctl(option, value, 0, 0, 0)


def wait_for(worker: int) -> int | None:
    """The worker's exit code, negative for a signal; None where it was to be ended before."""
    while signal.sigwait(WAKING) == signal.SIGCHLD:
        while True:  # one signal may stand for many children
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == worker:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                break
    return None


def kill_all(family: str) -> None:
    """Kill the children until there are none; a dead child's own children become ours."""
    while True:
        with open(family) as listed:
            children = [int(pid) for pid in listed.read().split()]
        for child in children:
            os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0 if children else os.WNOHANG)
        except ChildProcessError:
            return


def teller(job: dict[str, Any]) -> Callable[..., None]:
    """What tells the parent a line; silent in a process that the program has forked."""
    here, getpid, write, leave = os.getpid(), os.getpid, os.write, os._exit
    channel, token = job["channel"], job["token"]

    def tell(kind: str, *words: str) -> None:
        if getpid() != here:
            leave(1)  # a fork that came back out of the program must not run the tests as well
        line = "\t".join((token, kind, *(" ".join(word.split()) for word in words)))
        write(channel, line.encode("utf-8", "backslashreplace") + b"\n")

    return tell


def work(job: dict[str, Any], tests: list[CodeType], tell: Callable[..., None]) -> None:
    """Run the program, then each test in a copy of its names."""
    limit(job)
    execute, text = exec, job["program"]
    tell("started")
    try:
        code = compile(text, "<program>", "exec", dont_inherit=True)
    except BaseException as error:  # also RecursionError, MemoryError: it can't be compiled
        tell("syntax", describe(error))
        return
    tell("compiled")
    # By its name it is no script, and dataclasses find its module.
    module = sys.modules["program"] = ModuleType("program")
    try:
        execute(code, module.__dict__)
    except BaseException as error:  # SystemExit too: leaving is not passing
        failed(tell, "", error)
        tests = []
    else:
        tell("loaded")
    for number, test in enumerate(tests, start=1):
        try:
            execute(test, dict(module.__dict__))
        except BaseException as error:
            failed(tell, str(number), error)
        else:
            tell("passed", str(number))
    tell("finished")
    with contextlib.suppress(BaseException):  # the program may have closed or replaced it
        sys.stdout.flush()


def failed(tell: Callable[..., None], number: str, error: BaseException) -> None:
    """Tell of a test that failed, or of the program itself."""
    if isinstance(error, MemoryError):
        tell("memory")
    tell("failed", number, describe(error))


def limit(job: dict[str, Any]) -> None:
    """Set the limits on this process, which its children inherit, and close its input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    cpu = int(job["seconds"]) + 1
    for what, soft, hard in (
        (resource.RLIMIT_AS, job["memory"], job["memory"]),
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_FSIZE, job["file_size"], job["file_size"]),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    ):
        resource.setrlimit(what, (soft, hard))


def describe(error: BaseException) -> str:
    """An error in a line, with the program's line where it happened."""
    try:
        name, text = type(error).__name__, str(error)[: 4 * LONGEST]
        if isinstance(error, SyntaxError) and error.filename == "<program>":
            return f"line {error.lineno}: {error.msg}"[:LONGEST]
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<program>":
                line = trace.tb_lineno
            trace = trace.tb_next
        told = f"{name}: {text}" if text else name
        return told[:LONGEST] + (f" (line {line} of the program)" if line else "")
    except BaseException:  # its __str__ is the program's code
        return "an error that can't be told"


if __name__ == "__main__":
    main()
