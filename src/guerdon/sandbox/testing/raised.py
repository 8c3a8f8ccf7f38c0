"""Errors that travel: what is told of one, and how it is raised on the other side.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __name__.startswith("guerdon."):
    from guerdon.sandbox.testing import plain
else:  # inside of a sandbox, where there is no guerdon
    import guerdon_plain as plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = [
    "LONGEST",
    "ProgramLeft",
    "describe",
    "library_error",
    "rebuild",
    "state_of",
    "told_of",
    "where",
]

LONGEST = 300  # characters of an error's text
RUNNERS = frozenset({"bdb", "doctest", "unittest"})  # an error of theirs could skip a test
WHOLE = 4 * LONGEST  # characters that the tests see of it


class ProgramLeft(BaseException):
    """The program raised what is no `Exception`: it wanted to end its process."""


def describe(error: BaseException) -> str:
    """An error in a line, with the program's line where it happened."""
    try:
        said = getattr(error, "_guerdon_said", None) or _said(type(error).__name__, str(error))
        line = getattr(error, "_guerdon_line", None) or _program_line(error)
        return said + (f" (line {line} of the program)" if line else "")
    except (Exception, ProgramLeft, SystemExit):  # its __str__ is the program's code
        return "an error that can't be told"


def _said(name: str, text: str) -> str:
    text = " ".join(text[:WHOLE].split())
    return (f"{name}: {text}" if text else name)[:LONGEST]


def _program_line(error: BaseException) -> int:
    """The line of the program where an error happened; 0 where none is known."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def told_of(error: BaseException) -> dict[str, Any]:
    """What the other side is told of an error."""
    kind = type(error)
    names = [plain.NAMED[id(each)] for each in plain.mro_of(kind) if id(each) in plain.NAMED]
    own = "" if id(kind) in plain.NAMED else str(kind.__name__)[:100]
    classes = [where(each) for each in plain.mro_of(kind) if id(each) not in plain.NAMED][:-1]
    try:
        text = str.__str__(str(error))[:WHOLE].encode("utf-8", "backslashreplace").decode()
    except BaseException:  # its __str__ is the program's code
        text = "an error that can't be told"
    args = list(error.args)
    if isinstance(error, OSError) and len(args) == 2 and type(error.filename) is str:
        args.append(error.filename)
    known = len(args) < 9 and all(map(_is_short, args))
    return {
        "names": names,
        "own": own,
        "classes": classes if own else [],
        "text": text,
        "args": args if known else None,
        "line": _program_line(error),
    }


def where(kind: type) -> list[str]:
    """The module and the name of a class."""
    return [str(kind.__module__)[:100], str(kind.__qualname__)[:100]]


def state_of(error: BaseException) -> dict[str, Any]:
    """The attributes of an error that go along: small plain values."""
    found = getattr(error, "__dict__", {})
    kind = type(error)
    return {
        name: value
        for name, value in found.items()
        if plain.is_data(kind, name) and _is_small(value)
    }


def _is_small(value: Any, depth: int = 3) -> bool:
    if type(value) in (list, tuple, dict) and depth and len(value) < 100:
        items = [*value, *value.values()] if type(value) is dict else value
        return all(_is_small(each, depth - 1) for each in items)
    return _is_short(value)


def library_error(module: Any, name: Any) -> type | None:
    """An exception of the standard library, where its module is loaded."""
    package = module.partition(".")[0] if type(module) is str else ""
    if package not in sys.stdlib_module_names or package in RUNNERS:
        return None
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _is_short(value: Any) -> bool:
    """Whether an error's argument goes along as it is."""
    kind = type(value)
    if kind is int:
        return bool(-plain.SMALL <= value < plain.SMALL)
    if kind is str:
        return len(value) <= WHOLE and bool(value.isprintable())
    return kind in plain.ATOMS


def rebuild(
    told: Any, find: Callable[[Any, Any], type | None], state: Mapping[str, Any]
) -> BaseException:
    """An error of the other side, as it is raised here.

    Args:
        told: What `told_of` tells.
        find: Gives the class that a module and a name stand for here.
        state: The error's attributes.

    Raises:
        CodecError: It is none.
    """
    text, own, line, names = (told[key] for key in ("text", "own", "line", "names"))
    plain.expect(type(text) is str and type(own) is str and type(line) is int, "no error's words")
    plain.expect(type(names) is list and 0 < len(names) < 100, "an error of no kind")
    kinds = [plain.ERRORS[name] for name in names if type(name) is str and name in plain.ERRORS]
    plain.expect(bool(kinds), "an error of no kind")
    said = _said(own[:100] or kinds[0].__name__, text)
    args = told.get("args")
    if type(args) is not list or any(type(each) not in plain.ATOMS for each in args):
        args = None
    found = [find(*each) for each in list(told.get("classes") or ())[:9]] if own else []
    kind = next((each for each in found if each is not None), None)
    error: Any
    if kind is not None and issubclass(kinds[0], Exception):
        error = _made_of(kind, [text[:WHOLE]] if args is None else args, state)
    else:
        error = _made(kinds, None if own else args, text[:WHOLE])
    error._guerdon_line, error._guerdon_said = line, said
    return error  # type: ignore[no-any-return]


def _made_of(kind: type, args: list[Any], state: Mapping[str, Any]) -> Any:
    """An error of a class of this side, without a call of what the class defines."""
    base = next(each for each in plain.mro_of(kind) if each in plain.ERRORS.values())
    try:
        error: Any = base.__new__(kind, *args)
    except TypeError:  # as a UnicodeDecodeError
        raise plain.CodecError("an error that can't be") from None
    if not issubclass(kind, OSError):  # which takes the name of a file out of them
        error.args = tuple(args)
    for name, value in state.items():
        if plain.is_data(kind, name):
            error.__dict__[name] = value
    return error


def _made(kinds: list[type[BaseException]], args: Any, text: str) -> Any:
    """An error of the first of some kinds that can be made."""
    if not issubclass(kinds[0], Exception):
        return ProgramLeft(text)
    if type(args) is list and all(type(each) in plain.ATOMS for each in args):
        try:
            return kinds[0](*args)
        except (TypeError, ValueError):
            args = None  # it takes other arguments, as UnicodeDecodeError does
    for kind in kinds:
        try:
            return kind(text) if text else kind()
        except TypeError:
            continue
    return ProgramLeft(text)
