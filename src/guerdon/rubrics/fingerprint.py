"""The fingerprint of a tree: the same for the same structure, configuration and source."""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import json
import pathlib
import re
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from guerdon._loading import DIGEST, file_digest
from guerdon.errors import RubricError
from guerdon.rubrics.state import NO_STATE, fits_json

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["MADE_WITH", "fingerprint", "fingerprint_of"]

# Where a rubric says what else it was made with, as digests: the services of a pipeline.
MADE_WITH = "_made_with"

# How deep attributes may be nested in each other.
MAX_DEPTH = 100


def fingerprint(rubric: Rubric) -> str:
    """See `Rubric.fingerprint`."""
    return _digest(_Reader().tree("", rubric))


def fingerprint_of(*values: Any) -> str:
    """A digest of functions, with their source, and of values.

    Example:
        >>> fingerprint_of("limit", 5) == fingerprint_of("limit", 5) != fingerprint_of("limit", 6)
        True
    """
    reader = _Reader()
    return _digest([reader.value(value) for value in values])


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


class _Reader:
    """Turns what a tree is made of into text that is the same in every process.

    Memory addresses, hash order and the places of files stay out of it. Everything is read once,
    however often it comes.
    """

    def __init__(self) -> None:
        self._read: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no identity is used twice
        self._depth = 0

    def tree(self, path: str, rubric: Rubric) -> Iterator[str]:
        """The parts of a rubric and of all below it."""
        yield path
        described = rubric._described()
        if described is not type(rubric):
            yield self.value(described)
        yield from rubric.__dict__.get(MADE_WITH, ())
        for kind in type(rubric).__mro__:
            yield self.value(kind)
        for name, value in sorted(rubric._own_state().items()):
            if name not in rubric._measured:
                yield f"{name}={self.value(value)}"
        for name, value in sorted(rubric.__dict__.items()):
            public = not name.startswith("_") and name not in NO_STATE
            if public and name not in rubric._children and not fits_json(value):
                yield f"{name}={self.value(value)}"
        for name, child in rubric._children.items():
            yield from self.tree(f"{path}.{name}", child)

    def value(self, value: Any) -> str:
        """Any value; its bare type where no more can be said."""
        if fits_json(value):
            return json.dumps(value, sort_keys=True)
        if id(value) in self._read:
            return self._read[id(value)]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RubricError(
                f"the fingerprint can't be taken: attributes are nested more than {MAX_DEPTH} deep"
            )
        self._read[id(value)] = "…"  # while it is being read: it holds itself
        self._kept.append(value)
        parts = self._data(value) or self._code(value) or self._object(value)
        self._depth -= 1
        digest = self._read[id(value)] = _digest(parts)
        return digest

    def _data(self, value: Any) -> list[str] | None:
        kind = type(value).__qualname__
        if isinstance(value, enum.Enum):
            return [kind, value.name]
        if isinstance(value, (complex, bytes, int, float, str)):
            return [kind, repr(value)]
        if isinstance(value, pathlib.PurePath):
            return [value.as_posix()]
        if isinstance(value, re.Pattern):
            return ["re", str(value.flags), repr(value.pattern)]
        if isinstance(value, (list, tuple)):
            return [kind, *map(self.value, value)]
        if isinstance(value, Mapping):  # in the order of its keys, which a set has none of
            items = sorted(value.items(), key=lambda item: _Reader().value(item[0]))
            return [kind, *(self.value(part) for item in items for part in item)]
        if isinstance(value, (set, frozenset)):
            return [kind, *sorted(_Reader().value(item) for item in value)]
        return None

    def _code(self, value: Any) -> list[str] | None:
        """The parts of something that runs."""
        if isinstance(value, functools.partial):
            return ["partial", *map(self.value, (value.func, value.args, value.keywords))]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._kind(value)
        if isinstance(value, CodeType):
            constants = map(self.value, value.co_consts)
            return [value.co_code.hex(), repr(value.co_names), *constants]
        if hasattr(value, "__wrapped__"):  # such as functools.lru_cache
            return [type(value).__qualname__, self.value(value.__wrapped__)]
        if inspect.isroutine(value):  # a method, or from C
            owner = getattr(value, "__self__", None)
            bound = None if inspect.ismodule(owner) else owner
            function = getattr(value, "__func__", None)
            return [value.__qualname__, self.value(function), self.value(bound)]
        return None

    def _object(self, value: Any) -> list[str]:
        kind = type(value)
        parts = [self.value(kind)]
        if callable(getattr(value, "tobytes", None)):  # an array
            shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
            return [*parts, repr(shape), str(dtype), repr(value.tobytes())]
        if not _is_own(kind.__module__):  # of others, as of loggers, no more than the name
            return [*parts, str(getattr(value, "name", ""))]
        names = {name for each in kind.__mro__ for name in _slots(each) if hasattr(value, name)}
        names |= set(getattr(value, "__dict__", ()))
        return [*parts, *(f"{name}={self.value(getattr(value, name))}" for name in sorted(names))]

    def _kind(self, kind: type) -> list[str]:
        """A class: where it stands, and what its source was given."""
        own = kind.__module__.partition(".")[0] == "guerdon"
        if own or not _is_own(kind.__module__):
            return [kind.__qualname__, kind.__module__, _module(kind.__module__) if own else ""]
        parts = [kind.__qualname__, _module(kind.__module__), _source(kind)]
        for name, member in sorted(vars(kind).items()):
            parts += [self.value(function) for function in _functions_of(member)]
            if not name.startswith("__") and not callable(member) and fits_json(member):
                parts.append(f"{name}={self.value(member)}")
        return parts

    def _function(self, function: FunctionType) -> list[str]:
        """A function: its code, its module, and the defaults and values that it was given."""
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # not filled yet
                cells.append(None)
        return [
            function.__qualname__,
            # Of its code: inspect would look through decorators that say what they wrap.
            _source(function.__code__) or self.value(function.__code__),
            _module(function.__module__) if _is_own(function.__module__) else "",
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            # A class that is closed over is the one that is being read, for super().
            *(self.value(cell) for cell in cells if not isinstance(cell, type)),
        ]


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _functions_of(member: Any) -> Iterator[FunctionType]:
    """The functions behind a member of a class."""
    if isinstance(member, property):
        found = [member.fget, member.fset, member.fdel]
    else:
        found = [getattr(member, "__func__", member)]  # static and class methods
    for function in found:
        if isinstance(function, FunctionType):
            yield function


# Python 3.11 counts how deep it parses in one place for all threads, and then raises SystemError.
_parsing = threading.Lock()
TRIES = 10


@functools.lru_cache(maxsize=1024)  # looking for a class parses its whole file
def _source(thing: type | CodeType) -> str:
    with _parsing:
        for tried in range(TRIES):
            try:
                return textwrap.dedent(inspect.getsource(thing))
            except (OSError, TypeError, IndentationError):
                return ""
            except SystemError:  # somebody else parses, too
                if tried == TRIES - 1:
                    raise
    return ""


@functools.cache
def _module(name: str) -> str:
    """A digest of a module's file, helpers and constants included; empty where there is none."""
    module = sys.modules.get(name)
    said = getattr(module, DIGEST, None)
    if isinstance(said, str):  # it was made of text, and its file need not be in reach
        return said
    file = getattr(module, "__file__", None)
    if file is None or not pathlib.Path(file).is_file():
        return ""
    return file_digest(pathlib.Path(file).read_bytes())


@functools.cache
def _is_own(name: str) -> bool:
    """Whether a module is a person's own: neither Python's nor installed."""
    if name.partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or not {"site-packages", "dist-packages"} & set(pathlib.Path(file).parts)
