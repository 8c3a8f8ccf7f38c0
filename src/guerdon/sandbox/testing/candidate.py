"""The process of the program that is tested: it runs the program, then serves its entry point.

Nothing that this process says makes a test pass: it only answers the checker's questions, and the
program may as well answer them itself.

Runs inside of a sandbox: the standard library only, and little of it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections import ChainMap
from types import MappingProxyType, ModuleType, SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import link, raised, stream
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_link as link
    import guerdon_raised as raised
    import guerdon_stream as stream

if TYPE_CHECKING:
    from typing import Any

    from guerdon.sandbox.testing import codec

__all__ = ["Candidate", "main"]


class Candidate(link.Link):
    """The program's end of the link."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._here, self._getpid, self._leave = os.getpid(), os.getpid, os._exit
        self._folder = os.getcwd()

    def receive(self, largest: int = stream.LARGEST) -> dict[str, Any]:
        """The next message; a process that the program has forked gets none."""
        self._stay()
        return super().receive(largest)

    def present(self, names: dict[str, Any], job: dict[str, Any]) -> None:
        """Tell that the program is loaded, what its entry point is, and its classes."""
        entry_point = job["entry_point"]
        message, _ = self._message()
        message["classes"] = self.shared.fill(names, job["classes"])
        if entry_point in names:
            if job["is_class"] and isinstance(names[entry_point], type):
                self.stays = names[entry_point]
            # It stays here, whatever it is: ``f = sorted`` too.
            message["nodes"].append(self._export(names[entry_point], message["kinds"]))
            message["entry"] = [0]
        self.tell(message | {"loaded": True})

    def _message(self, known: dict[int, int] | None = None) -> tuple[dict[str, Any], codec.Encoder]:
        message, encoder = super()._message(known)
        export = encoder.export
        encoder.export = lambda value: _valued(encoder, value) or export(value)
        return message, encoder

    def imported(self, module: str, name: str) -> Any:
        """What the tests have given of the standard library: here it is this process's own."""
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def describe(self, error: BaseException) -> str:
        """An error in a line, without what differs from run to run."""
        return self._tidy(raised.describe(error))

    def _write(self, frame: bytes) -> None:
        self._stay()
        for stream in (sys.stdout, sys.stderr):  # it may be killed before its own end
            try:
                stream.flush()
            except BaseException:
                continue  # the program has closed or replaced it
        super()._write(frame)

    def _told(self, error: BaseException) -> dict[str, Any]:
        told = super()._told(error)
        told["text"] = self._tidy(told["text"])
        return told

    def _tidy(self, text: str) -> str:
        return text.replace(self._folder, ".") if len(self._folder) > 1 else text

    def _stay(self) -> None:
        if self._getpid() != self._here:
            self._leave(1)  # a fork that came back out of the program


def _valued(encoder: codec.Encoder, value: Any) -> list[Any] | None:
    """The node of what the tests get a copy of; handed in by them, it stays theirs."""
    kind = type(value)
    if kind in _VIEWS:
        return [_VIEWS[kind], encoder.values_of(value)]
    if kind is MappingProxyType:
        return ["mappingproxy", encoder.values_of([dict(value)])]
    if kind is ChainMap and all(isinstance(each, dict) for each in value.maps):
        return ["chainmap", encoder.values_of(value.maps)]
    if kind is SimpleNamespace:
        return [
            "namespace",
            encoder.values_of(vars(value)),
            encoder.values_of(vars(value).values()),
        ]
    if kind is memoryview and (value.ndim, value.format) == (1, "B"):
        return ["memoryview", value.hex()]
    if (kind.__module__, kind.__name__) == ("array", "array"):
        return ["array", value.typecode, value.tobytes().hex()]
    return None


_VIEWS: dict[type, str] = {
    type({}.keys()): "keys",
    type({}.items()): "items",
    type({}.values()): "values",
}


def main() -> None:
    """Run the program that stands on the standard input, and serve it on descriptor 3."""
    job = json.loads(sys.stdin.buffer.read())
    here = Candidate(3)
    leave = os._exit
    with contextlib.suppress(stream.LinkLost):  # the checker is done
        _serve(job, here)
    leave(0)  # threads and exit handlers of the program have no say


def _serve(job: dict[str, Any], here: Candidate) -> None:
    execute = exec
    try:
        code = compile(job["program"], "<program>", "exec", dont_inherit=True)
    except BaseException as error:  # also RecursionError, MemoryError: it can't be compiled
        here.tell({"compile": _syntax(error, here)})
        return
    # By its name it is no script, and dataclasses find its module.
    module = sys.modules["program"] = ModuleType("program")
    try:
        execute(code, module.__dict__)
    except BaseException as error:  # SystemExit too: leaving is not passing
        here.tell({"load": here.describe(error), "memory": isinstance(error, MemoryError)})
        return
    here.present(module.__dict__, job)
    while True:
        here.serve(here.receive())


def _syntax(error: BaseException, here: Candidate) -> str:
    if isinstance(error, SyntaxError) and error.filename == "<program>":
        return f"line {error.lineno}: {error.msg}"[: raised.LONGEST]
    return here.describe(error)
