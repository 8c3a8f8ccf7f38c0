"""The process of the program that is tested: it runs the program, then serves its entry point.

Nothing that this process sends makes a test pass: it only answers the checker's questions, and the
program could answer them itself.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from types import ModuleType
from typing import Any

from . import link, raised

__all__ = ["Candidate", "main"]


class Candidate(link.Link):
    """The program's end of the link."""

    copies = True

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        # Kept here, where the program can't replace them by accident.
        self._pid, self._getpid, self._exit = os.getpid(), os.getpid, os._exit
        self._folder = os.getcwd()

    def receive(self, largest: int = link.LARGEST) -> dict[str, Any]:
        """Return the next message; a process that the program has forked gets none."""
        self._end_forks()
        return super().receive(largest)

    def present(self, names: dict[str, Any], job: dict[str, Any]) -> None:
        """Report that the program is loaded, with its entry point and its classes."""
        entry_point = job["entry_point"]
        message, _ = self._message()
        message["classes"] = self.shared.fill(names, job["classes"])
        if entry_point in names:
            if job["is_class"] and isinstance(names[entry_point], type):
                self.stays = names[entry_point]
            # It doesn't travel, whatever it is: ``f = sorted`` too.
            message["nodes"].append(self._export(names[entry_point], message["kinds"]))
            message["entry"] = [0]
        self.send(message | {"loaded": True})

    def imported(self, module: str, name: str) -> Any:
        """Return this process's own object of the standard library."""
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def describe(self, error: BaseException) -> str:
        """Return an error in a line, without the folder, which differs from run to run."""
        return self._without_folder(raised.describe(error))

    def _write(self, frame: bytes) -> None:
        self._end_forks()
        for stream in (sys.stdout, sys.stderr):  # the process may be killed before they are flushed
            try:
                stream.flush()
            except BaseException:
                continue  # the program has closed or replaced it
        super()._write(frame)

    def _report(self, error: BaseException) -> dict[str, Any]:
        report = super()._report(error)
        return report | {"text": self._without_folder(report["text"])}

    def _without_folder(self, text: str) -> str:
        return text.replace(self._folder, ".") if len(self._folder) > 1 else text

    def _end_forks(self) -> None:
        if self._getpid() != self._pid:
            self._exit(1)  # a fork that has returned from the program


def main() -> None:
    """Run the program of the job on standard input, and serve it on descriptor 3."""
    job = json.loads(sys.stdin.buffer.read())
    candidate = Candidate(3)
    leave = os._exit
    with contextlib.suppress(link.LinkLost):  # the checker has ended
        _serve(job, candidate)
    leave(0)  # without the program's threads and exit handlers


def _serve(job: dict[str, Any], candidate: Candidate) -> None:
    execute = exec
    try:
        code = compile(job["program"], "<program>", "exec", dont_inherit=True)
    except BaseException as error:  # also RecursionError and MemoryError
        text = candidate.describe(error)
        if isinstance(error, SyntaxError) and error.filename == "<program>":
            text = f"line {error.lineno}: {error.msg}"[: raised.LONGEST]
        candidate.send({"compile": text})
        return
    # A name other than __main__; dataclasses find its module.
    module = sys.modules["program"] = ModuleType("program")
    try:
        execute(code, module.__dict__)
    except BaseException as error:  # SystemExit too: a program that exits doesn't pass
        memory = isinstance(error, MemoryError)
        candidate.send({"load": candidate.describe(error), "memory": memory})
        return
    candidate.present(module.__dict__, job)
    while True:
        candidate.serve(candidate.receive())
