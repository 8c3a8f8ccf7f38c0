"""Errors that travel: the description of an error, and the error that is raised on the other side.

Runs inside a sandbox too, so it imports only from the standard library, and little of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from . import plain

__all__ = ["LONGEST", "ProgramLeft", "describe", "library_error", "rebuild", "report", "state_of"]

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


def report(error: BaseException) -> dict[str, Any]:
    """Return what the other side receives about an error."""
    mro = plain.mro_of(type(error))[:-1]
    try:
        text = str.__str__(str(error))[:WHOLE].encode("utf-8", "backslashreplace").decode()
    except BaseException:  # its __str__ is the program's code
        text = UNREADABLE
    args = list(error.args)
    if isinstance(error, OSError) and len(args) == 2 and type(error.filename) is str:
        args.append(error.filename)
    return {
        "classes": [[str(each.__module__)[:100], str(each.__qualname__)[:100]] for each in mro],
        "text": text,
        "args": args if len(args) < 9 and all(_is_small(each, depth=0) for each in args) else None,
        "line": _program_line(error),
    }


def state_of(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an error that travel: small plain values."""
    kind = type(error)
    return {
        name: value
        for name, value in getattr(error, "__dict__", {}).items()
        if plain.is_data(kind, name) and _is_small(value)
    }


def _is_small(value: Any, depth: int = 3) -> bool:
    kind = type(value)
    if kind in (list, tuple, dict) and depth and len(value) < 100:
        items = [*value, *value.values()] if kind is dict else value
        return all(_is_small(each, depth - 1) for each in items)
    if kind is int:
        return bool(-plain.SMALL <= value < plain.SMALL)
    if kind is str:
        return len(value) <= WHOLE and bool(value.isprintable())
    return kind in plain.ATOMS


def library_error(module: Any, name: Any) -> type | None:
    """Return an exception of the standard library if its module is loaded."""
    package = module.partition(".")[0] if type(module) is str else ""
    if package not in sys.stdlib_module_names or package in RUNNERS:
        return None
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def rebuild(
    message: Any, find: Callable[[Any, Any], type | None], state: Mapping[str, Any]
) -> BaseException:
    """Return an error of the other side, to be raised here.

    Args:
        message: What `report` returned there.
        find: Returns the class here of a module and a name.
        state: The error's attributes.

    Raises:
        CodecError: The message is invalid.
    """
    fields = {"text": str, "line": int, "classes": list}
    plain.expect(
        all(type(message[key]) is kind for key, kind in fields.items()), "an invalid error"
    )
    text, classes = message["text"][:WHOLE], message["classes"][:100]
    builtin = (plain.ERRORS.get(name) for module, name in classes if module == "builtins")
    kinds = [kind for kind in builtin if kind is not None]
    plain.expect(bool(kinds), "an error without a class")
    args = message.get("args")
    if type(args) is not list or any(type(each) not in plain.ATOMS for each in args):
        args = None
    own = (find(*each) for each in classes[:9] if each[0] != "builtins")
    found = next((kind for kind in own if kind is not None), None)
    error: Any
    if not issubclass(kinds[0], Exception):
        error = ProgramLeft(text)
    elif found is not None:
        error = _of_class(found, [text] if args is None else args, state)
    else:
        error = _of_builtin(kinds, args if classes[0][0] == "builtins" else None, text)
    error._guerdon_line = message["line"]
    error._guerdon_text = _in_a_line(str(classes[0][1]).rpartition(".")[2], text)
    return error  # type: ignore[no-any-return]


def _of_class(kind: type, args: list[Any], state: Mapping[str, Any]) -> Any:
    """Return an error of a class of this side, without running the code of the class."""
    base = next(each for each in plain.mro_of(kind) if each in plain.ERRORS.values())
    try:
        error: Any = base.__new__(kind, *args)
    except TypeError:  # such as a UnicodeDecodeError
        raise plain.CodecError("an error with invalid arguments") from None
    if not issubclass(kind, OSError):  # which takes the name of a file out of them
        error.args = tuple(args)
    error.__dict__.update({name: item for name, item in state.items() if plain.is_data(kind, name)})
    return error


def _of_builtin(kinds: list[type[BaseException]], args: list[Any] | None, text: str) -> Any:
    """Return an error of the first of some classes that accepts the arguments."""
    if args is not None:
        try:
            return kinds[0](*args)
        except (TypeError, ValueError):
            args = None  # it takes others, as UnicodeDecodeError does
    for kind in kinds:
        try:
            return kind(text) if text else kind()
        except TypeError:
            continue
    return ProgramLeft(text)
