"""The process of the program that is tested: it runs the program, then serves its entry point.

Nothing that this process sends makes a test pass: it only answers the checker's questions, and the
program could answer them itself.

Runs inside a sandbox, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import sys
from types import FunctionType, ModuleType
from typing import Any

from . import link, plain, raised, surroundings


class Candidate(surroundings.ProgramSurroundings):
    """The program's end of the link."""

    copies = True
    first = 1

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        # Kept here, where the program can't replace them by accident.
        self._pid, self._getpid, self._exit = os.getpid(), os.getpid, os._exit
        self._folder = os.getcwd()
        self._names: dict[str, Any] = {}
        self._tested: type | None = None

    def present(self, names: dict[str, Any], job: dict[str, Any]) -> None:
        """Report that the program is loaded, with its entry point and its classes."""
        entry_point = job["entry_point"]
        self._names = names
        message, encoder = self._message()
        message["classes"] = self.shared.fill(names, job["classes"])
        if entry_point in names:
            found = names[entry_point]
            if isinstance(found, type):
                self._tested = found
            # It doesn't travel, whatever it is: ``f = sorted`` too.
            kind = self.kind_of(found)
            message["entry"] = [self.number(found), kind, self._errors.classes(found)]
        encoder.sent()
        self.send(message)

    def own(self, kind: type) -> bool:
        """Return whether a class has more than the plain value that it derives from."""
        if self._tested is not None and self._tested in plain.mro_of(kind):
            return True
        has_more = kind.__module__ == "program" or hasattr(kind, "__members__")
        if hasattr(kind, "_fields"):
            has_more = has_more and _has_methods(kind)
        is_structure = hasattr(kind, "n_sequence_fields")  # such as `time.struct_time`
        return has_more or is_structure or super().own(kind)

    def perform(self, what: str, target: Any, name: str, args: list[Any], kwargs: Any) -> Any:
        """Do what the tests ask for."""
        if what == "name":  # which none but the program defines
            return self._names[name]
        if what == "rename":
            for each in args:
                self._names[name] = each
            return None if args else self._names.pop(name)
        return super().perform(what, target, name, args, kwargs)

    def describe(self, error: BaseException) -> str:
        """Return an error in a line, without the folder, which differs from run to run."""
        return self.without_folder(raised.describe(error))

    def _write(self, frame: bytes) -> None:
        if self._getpid() != self._pid:
            self._exit(1)  # a fork that has returned from the program
        for stream in self._streams.values():  # the process may be killed before they are flushed
            try:
                stream.flush()
            except BaseException:
                continue  # the program has closed it
        super()._write(frame)

    def without_folder(self, text: str) -> str:
        """Return a text without the path of the folder."""
        return text.replace(self._folder, ".") if len(self._folder) > 1 else text


def main() -> None:
    """Run the program of the job on standard input, and serve it on descriptor 3."""
    job = json.loads(sys.stdin.buffer.read())
    candidate = Candidate(3)
    leave = os._exit
    with contextlib.suppress(link.LinkLost):  # the checker has ended
        _serve(job, candidate)
    leave(0)  # without the program's threads and exit handlers


def _serve(job: dict[str, Any], candidate: Candidate) -> None:
    # A name other than __main__; dataclasses find its module.
    module = sys.modules["program"] = ModuleType("program")
    module.__file__ = os.path.join(os.getcwd(), "program.py")
    try:
        _run(job["starter"], "<starter>", module)
        module.__dict__.pop(job["entry_point"], None)  # the program defines it itself
        source = job["program"].removeprefix("\ufeff")
        lines = source.splitlines(keepends=True)  # for `inspect`
        linecache.cache["<program>"] = (len(source), None, lines, "<program>")
        _run(source, "<program>", module)
    except _InvalidError as invalid:
        error = invalid.args[0]
        text = candidate.describe(error)
        if isinstance(error, SyntaxError) and error.filename == "<program>":
            text = f"line {error.lineno}: {error.msg}"[: raised.LONGEST]
        candidate.send({"compile": text})
        return
    except BaseException as error:  # SystemExit too: a program that exits doesn't pass
        memory = isinstance(error, MemoryError)
        candidate.send({"load": candidate.describe(error), "memory": memory})
        return
    candidate.watch_warnings()
    candidate.present(module.__dict__, job)
    while True:
        candidate.serve(candidate.receive())


class _InvalidError(Exception):
    """The program doesn't compile."""


def _run(source: str, name: str, module: ModuleType) -> None:
    execute = exec  # the program may replace it
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except BaseException as error:  # also RecursionError and MemoryError
        raise _InvalidError(error) from None
    execute(code, module.__dict__)


def _has_methods(kind: type) -> bool:
    """Return whether a class of namedtuples has methods beside those that all have."""
    return any(
        isinstance(value, (FunctionType, property)) and not name.startswith("_")
        for name, value in vars(kind).items()
    )
