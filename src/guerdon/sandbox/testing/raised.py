"""Errors that travel: the description of an error, and the error that is raised on the other side.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import containers, plain

LONGEST = 300  # characters of an error in a verdict
WHOLE = 4 * LONGEST  # characters of its text that the tests receive
RUNNERS = frozenset({"bdb", "doctest", "unittest"})  # an error of theirs could skip a test
UNREADABLE = "an error without a readable text"


class ProgramLeft(BaseException):
    """The program raised a `BaseException` that would end its process."""


def describe(error: BaseException) -> str:
    """Return an error in a line, with the program's line where it happened."""
    try:
        text = getattr(error, "_guerdon_text", None) or _in_a_line(type(error).__name__, str(error))
        line = getattr(error, "_guerdon_line", None) or _program_line(error)
        return text + (f" (line {line} of the program)" if line else "")
    except (Exception, ProgramLeft, SystemExit):  # its __str__ is the program's code
        return UNREADABLE


def _in_a_line(name: str, text: str) -> str:
    text = " ".join(text[:WHOLE].split())
    return (f"{name}: {text}" if text else name)[:LONGEST]


def _program_line(error: BaseException) -> int:
    """Return the line of the program where an error happened; 0 if it is unknown."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


class ErrorClass(type):
    """The class of the exception classes that the other process has defined."""

    _guerdon_handle: Any

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        """Return an error that the other process makes."""
        if "_guerdon_handle" not in vars(cls):  # a class that a test derives
            return super().__call__(*args, **kwargs)
        return cls._guerdon_handle(*args, **kwargs)


class Errors:
    """The exceptions and exception classes that travel over a link.

    Each side has classes of its own for those that the other side has defined, with the same names
    and bases, so that ``except`` finds them.

    Args:
        link: The link.
    """

    def __init__(self, link: Any) -> None:
        self._link = link
        self._classes: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}  # those of the other side, by its numbers
        self._numbers: dict[int, int] = {}

    def node(self, encoder: Any, value: Any) -> list[Any] | None:
        """Return the node of an exception or of an exception class; None for other objects."""
        kind = type(value)
        if kind is ErrorClass:
            return ["yours", value._guerdon_handle._guerdon_number]
        if issubclass(kind, type) and BaseException in plain.mro_of(value):
            return ["errors", self._chain(value)]
        if BaseException not in plain.mro_of(kind):
            return None
        if id(value) in self._numbers:
            return ["yours", self._numbers[id(value)]]
        args = value.args
        if isinstance(value, OSError) and len(args) == 2 and type(value.filename) is str:
            args = (*args, value.filename)
        if isinstance(value, BaseExceptionGroup):
            args = (value.message, value.exceptions)
        state = _state_of(value)
        notes = tuple(getattr(value, "__notes__", ()))
        linked = (value.__cause__, value.__context__, value.__suppress_context__, notes)
        parts = encoder.references([args, linked, tuple(state), tuple(state.values())])
        facts = [self._link.without_folder(_text_of(value)), _program_line(value)]
        return ["error", self._link.number(value), self._chain(kind), facts, parts]

    def _chain(self, kind: type) -> list[Any]:
        """Return what the other side receives about an exception class and its bases."""
        return [
            [str(each.__module__)[:100], str(each.__qualname__)[:100], self._number_of(each)]
            for each in plain.mro_of(kind)[:-1]
        ]

    def classes(self, kind: Any) -> Any:
        """Return what `of_classes` needs for an exception class; None for other objects."""
        is_error = isinstance(kind, type) and BaseException in plain.mro_of(kind)
        return self._chain(kind) if is_error else None

    def _number_of(self, kind: Any) -> int:
        return -1 if kind.__module__ == "builtins" else int(self._link.number(kind))

    def accept(self, decoder: Any, tag: str, *data: Any) -> Any:
        """Return the exception or the exception class of a node."""
        if tag == "errors":
            return self.of_classes(data[0])
        number, chain, facts, parts = data
        if number not in self._errors:
            args, linked, names, values = decoder.values(parts)
            text, line = facts
            are_tuples = all(type(each) is tuple for each in (args, linked, names, values))
            plain.expect(are_tuples and type(text) is str, "an invalid error")
            plain.expect(type(line) is int and type(number) is int, "an invalid error")
            state = dict(zip(names, values, strict=True))
            error = _made(self.of_classes(chain), args, text[:WHOLE], state)
            error.__cause__, error.__context__, error.__suppress_context__, notes = linked
            for note in notes:
                error.add_note(note)
            error._guerdon_line = line
            error._guerdon_text = _in_a_line(str(chain[0][1]).rpartition(".")[2], text)
            self._errors[number], self._numbers[id(error)] = error, number
        return self._errors[number]

    def of_classes(self, chain: Any) -> Any:
        """Return the class here for an exception class there."""
        plain.expect(type(chain) is list and 0 < len(chain) < 100, "an error without a class")
        bases: list[Any] = []
        for module, name, number in reversed(chain):
            found = self._known(module, name, number)
            if found is None:
                is_number = type(number) is int and number >= 0
                plain.expect(bool(bases) and is_number, "an error without a base")
                found = self._classes[number] = self._mirrored(module, name, number, bases)
            bases = [found, *(each for each in bases if not issubclass(found, each))]
        return bases[0]

    def _known(self, module: Any, name: Any, number: Any) -> Any:
        if module == "builtins":
            found = plain.ERRORS.get(name)
            # Any other would end the process.
            is_usual = found is None or issubclass(found, (Exception, SystemExit))
            return found if is_usual or found is BaseException else ProgramLeft
        if number in self._classes:
            return self._classes[number]
        if module in ("program", "tests"):
            return self._link.shared.get(name, "error")
        return _library_error(module, name)

    def _mirrored(self, module: Any, name: Any, number: int, bases: Sequence[Any]) -> Any:
        are_texts = type(module) is str and type(name) is str
        plain.expect(are_texts, "an error without a name")
        if bases[0] is BaseException:
            bases = [ProgramLeft]
        body = {
            "__module__": module,
            "__str__": lambda error: error._guerdon_message,
            "__getattr__": lambda error, name: self._attribute(error, name),
            "_guerdon_handle": self._link.remote(number, ["type", ["__call__"], [], []]),
            "_guerdon_message": "",
        }
        return ErrorClass(name.rpartition(".")[2], tuple(bases), body)

    def _attribute(self, error: BaseException, name: str) -> Any:
        """Ask for an attribute that didn't travel with an error, such as a method."""
        number = self._numbers.get(id(error))
        if number is None or name.startswith("_"):
            raise AttributeError(f"{type(error).__name__!r} object has no attribute {name!r}")
        return self._link.attribute(self._link.remote(number, ["error", [], [], []]), name)


def _text_of(error: BaseException) -> str:
    try:
        return str.__str__(str(error))[:WHOLE].encode("utf-8", "backslashreplace").decode()
    except BaseException:  # its __str__ is the program's code
        return UNREADABLE


def _state_of(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an error that travel."""
    kind = type(error)
    return {
        name: value
        for name, value in getattr(error, "__dict__", {}).items()
        if containers.is_data(kind, name)
    }


def _library_error(module: Any, name: Any) -> type | None:
    """Return an exception of the standard library if its module is loaded."""
    package = module.partition(".")[0] if type(module) is str else ""
    if package not in sys.stdlib_module_names or package in RUNNERS:
        return None
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    is_usual = isinstance(found, type) and issubclass(found, Exception)
    return found if is_usual or (module, name) == ("asyncio.exceptions", "CancelledError") else None


def _made(kind: Any, args: tuple[Any, ...], text: str, state: dict[str, Any]) -> Any:
    """Return an error of a class of this side, without running the code of the class."""
    base = next(
        each for each in plain.mro_of(kind) if each in (*plain.ERRORS.values(), ProgramLeft)
    )
    if kind is not base:
        error: Any = base.__new__(kind, *args)
        if type(kind) is ErrorClass:
            error._guerdon_message = text
    else:
        try:
            error = kind(*args)
        except (TypeError, ValueError):  # the program has replaced them
            error = ProgramLeft(text)
    error.__dict__.update({n: each for n, each in state.items() if containers.is_data(kind, n)})
    return error
