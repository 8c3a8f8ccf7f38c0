"""The one seam behind which programs run: `run_tests`.

A program runs in a Python process of its own: limits on time, memory, output and file size, an
empty working directory, no environment variables, no input, nothing installed but the standard
library. When it is over, that process and all that it has started are killed.

What this doesn't do is isolate. A program still reads the files and reaches the network that the
user can reach; it shares a process with the tests, so that one written to cheat can find them in
memory, speak in their name, or return objects that are equal to everything; memory and processor
time are limited for each process and not for all together, and the number of processes isn't; one
that kills its keeper can leave processes behind. For programs of a model under training, put a
sandbox behind this seam.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from examples.coding_env.tasks import Task
from examples.coding_env.verdict import Ended, Limits, Verdict

__all__ = ["Limits", "RunnerError", "Verdict", "run_tests"]

CHILD = Path(__file__).with_name("child.py")
STARTING = 20.0  # seconds until the process must have started; not the program's fault
ENDING = 5.0  # seconds that the keeper has for ending everything
TOLD = 1 << 20  # bytes on the channel; a program that floods it isn't reporting tests


class RunnerError(RuntimeError):
    """Programs can't be run: the fault is not the program's."""


def run_tests(program: str, task: Task, limits: Limits | None = None) -> Verdict:
    """Run a program against a task's tests; several threads may do so at the same time.

    Example:
        >>> from examples.coding_env.runner import run_tests
        >>> from examples.coding_env.tasks import load_tasks
        >>> task = load_tasks()[0]
        >>> verdict = run_tests(task.solution, task)
        >>> verdict.passed == verdict.total, verdict.ended
        (True, 'ok')

    Args:
        program: Python source, which may be anything.
        task: Whose tests.
        limits: What it may use.

    Returns:
        The verdict; what the program did wrong is in there.

    Raises:
        RunnerError: The program couldn't be run, or the task's tests are no Python.
    """
    limits = limits or Limits()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="program-", ignore_cleanup_errors=True) as folder:
        run = _Run(limits)
        with _process(program, task, limits, run.token, folder) as (process, channel):
            run.listen(process, channel)
        return run.verdict(task, folder, monotonic() - began)


@contextlib.contextmanager
def _process(
    program: str, task: Task, limits: Limits, token: str, folder: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that runs the job, and the end of the pipe on which it tells; ended on leaving."""
    channel, theirs = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, channel)
        job: dict[str, Any] = {
            "program": program,
            "tests": list(enumerate(task.tests, start=1)),
            "channel": theirs,
            "token": token,
            "seconds": limits.seconds,
            "memory": limits.memory_bytes,
            "file_size": limits.file_bytes,
        }
        try:
            with tempfile.TemporaryFile() as paper:
                paper.write(marshal.dumps(job))
                paper.seek(0)
                process = subprocess.Popen(
                    # Without site-packages and without the working directory on the path.
                    [sys.executable, "-s", "-S", "-P", "-B", str(CHILD)],
                    stdin=paper,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    # Sets come in the same order in each run; nothing else is inherited.
                    env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "HOME": folder},
                    start_new_session=True,
                    pass_fds=(theirs,),
                )
        except OSError as error:
            raise RunnerError(f"no process for the program could be started: {error}") from error
        finally:
            os.close(theirs)
        stack.enter_context(process)
        stack.callback(_end, process, channel)
        yield process, channel


def _end(process: subprocess.Popen[bytes], channel: int) -> None:
    """End the process and all that it has started, whatever they are doing."""
    # It isn't waited for before its group is killed, or the number might be another's by then.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)  # the keeper ends the others first
    deadline = monotonic() + ENDING
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while (left := deadline - monotonic()) > 0 and selector.select(left):
            if not os.read(channel, 1 << 16):
                break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Run:
    """What is heard from one process, and what it means."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # With each line, so that what a program writes there by accident counts for nothing.
        self.token = secrets.token_hex(8)
        self.output = bytearray()
        self.told = bytearray()
        self.cut: Ended | None = None

    def listen(self, process: subprocess.Popen[bytes], channel: int) -> None:
        """Read both pipes until the end is told, or until a limit is reached."""
        assert process.stdout is not None
        pipes = {process.stdout.fileno(): self.output, channel: self.told}
        deadline, started = monotonic() + STARTING, False
        with selectors.DefaultSelector() as selector:
            for pipe in pipes:
                os.set_blocking(pipe, False)
                selector.register(pipe, selectors.EVENT_READ)
            while channel in selector.get_map() and not self.lines("ended", 1):
                if not started and self.lines("started"):
                    deadline, started = monotonic() + self.limits.seconds, True
                ready = selector.select(max(0.0, deadline - monotonic()))
                for key, _ in ready:
                    if not self.read(key.fd, pipes[key.fd]):
                        selector.unregister(key.fd)
                if not ready:
                    self.cut = "timeout"
                if self.cut or self.too_much():
                    return
        while not self.too_much() and self.read(process.stdout.fileno(), self.output):
            pass  # what was still in the pipe

    def read(self, pipe: int, into: bytearray) -> bool:
        """Read some; False where there is no more now."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        into += chunk
        return bool(chunk)

    def too_much(self) -> bool:
        """Whether it has written more than it may."""
        if len(self.output) > self.limits.output_bytes or len(self.told) > TOLD:
            self.cut = "output_limit"
        return self.cut == "output_limit"

    def lines(self, kind: str, words: int = 0) -> list[list[str]]:
        """The words of the lines of a kind that have so many."""
        start = [self.token, kind]
        said = [line.split("\t") for line in self.told.decode("utf-8", "replace").split("\n")[:-1]]
        return [line[2:] for line in said if line[:2] == start and len(line) == 2 + words]

    def verdict(self, task: Task, folder: str, seconds: float) -> Verdict:
        """What it all means."""
        total = len(task.tests)
        output = self.output[: self.limits.output_bytes].decode("utf-8", "replace")
        if not self.lines("started"):
            raise RunnerError(f"the process for the program didn't start: {output[-500:] or '?'}")
        syntax, ended = self.lines("syntax", 1), self.ended()
        if not self.lines("compiled"):
            error = _tidy(syntax[0][0], folder) if syntax else self.how(ended)
            return Verdict(False, 0, total, ended, error, None, seconds, output)
        # How far it came before it had printed too much depends on the machine.
        passed = 0 if ended == "output_limit" else len(self.passed(total))
        failure = self.failure(ended, total)
        failure = failure and _tidy(failure, folder)
        return Verdict(True, passed, total, ended, None, failure, seconds, output)

    def passed(self, total: int) -> set[str]:
        """The numbers of the tests that were passed."""
        return {number for (number,) in self.lines("passed", 1)} & {*map(str, range(1, total + 1))}

    def failure(self, ended: Ended, total: int) -> str | None:
        """What was wrong first, in a line."""
        if ended == "output_limit":
            return self.how(ended)
        for number, said in self.lines("failed", 2):
            where = f"test {number} of {total}" if number else "before the first test"
            return f"{where}: {said}"
        if ended == "ok":
            return None
        if not self.lines("loaded"):
            return f"before the first test: {self.how(ended)}"
        return f"test {len(self.passed(total)) + 1} of {total}: {self.how(ended)}"

    def ended(self) -> Ended:
        """How the program ended."""
        if self.cut:
            return self.cut
        status = self.status()
        if status == str(-signal.SIGXCPU):
            return "timeout"
        if status != "0" or not (self.lines("finished") or self.lines("syntax", 1)):
            return "crashed"
        return "memory" if self.lines("memory") else "ok"

    def status(self) -> str:
        """The exit code of the program's process; negative for a signal, empty if unknown."""
        return next((code for (code,) in self.lines("ended", 1)), "")

    def how(self, ended: Ended) -> str:
        """In words, what a program did that didn't come to its end."""
        if ended == "timeout":
            return f"it was not done within {self.limits.seconds:g} s"
        if ended == "output_limit":
            return f"it printed more than {self.limits.output_bytes} bytes"
        code = self.status()
        by = f"signal {code[1:]}" if code.startswith("-") else f"exit code {code or 'unknown'}"
        return f"its process ended by itself ({by})"


def _tidy(text: str, folder: str) -> str:
    """A message without what differs from run to run."""
    return re.sub(r"\b0x[0-9a-f]{6,}", "0x…", text.replace(folder, "."))
