"""The fingerprint of a tree: the same for the same structure, configuration and source."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from guerdon.rubrics.state import NO_STATE, fits_json

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["fingerprint"]

# Modules whose classes are the same wherever the same Python is.
PLAIN = {"abc", "builtins", "typing"}


def fingerprint(rubric: Rubric) -> str:
    """See `Rubric.fingerprint`."""
    digest = hashlib.blake2b(digest_size=8)
    for part in _Reader().tree("", rubric):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


class _Reader:
    """Turns what a tree is made of into text that is the same in every process.

    Memory addresses, hash order and the places of files stay out of it. What refers to itself is
    read once.
    """

    def __init__(self) -> None:
        self._reading: set[int] = set()

    def tree(self, path: str, rubric: Rubric) -> Iterator[str]:
        yield path
        described = rubric._described()
        if described is not type(rubric):
            yield self.value(described)
        for kind in type(rubric).__mro__:
            yield self._kind(kind)
        for name, value in sorted(rubric._own_state().items()):
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
        if id(value) in self._reading:
            return "…"
        self._reading.add(id(value))
        try:
            return self._data(value) or self._code_or_object(value)
        finally:
            self._reading.discard(id(value))

    def _data(self, value: Any) -> str | None:
        if isinstance(value, enum.Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, (float, complex, bytes)):
            return repr(value)
        if isinstance(value, pathlib.PurePath):
            return value.as_posix()
        if isinstance(value, re.Pattern):
            return f"re:{value.flags}:{value.pattern!r}"
        if isinstance(value, Mapping):
            items = sorted((self.value(key), self.value(item)) for key, item in value.items())
            return f"{type(value).__qualname__}{items}"
        if isinstance(value, (set, frozenset)):
            return f"{type(value).__qualname__}{sorted(map(self.value, value))}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__qualname__}{[self.value(item) for item in value]}"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return f"{type(value).__qualname__}({self.value(fields)})"
        return None

    def _code_or_object(self, value: Any) -> str:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return self.value(value.__func__) + self.value(value.__self__)
        if isinstance(value, functools.partial):
            given = (value.func, value.args, value.keywords)
            return "partial" + "".join(map(self.value, given))
        if isinstance(value, type):
            return self._kind(value)
        if isinstance(value, CodeType):
            return self._bytecode(value)
        if inspect.isroutine(value):  # from C
            return f"{value.__module__}.{value.__qualname__}"
        state = self.value(vars(value)) if hasattr(value, "__dict__") else ""
        return self._kind(type(value)) + state

    def _kind(self, kind: type) -> str:
        """A class: its source, and what its source was given."""
        root = kind.__module__.partition(".")[0]
        if root == "guerdon":
            return f"{kind.__module__}.{kind.__qualname__}:{_own_module(kind.__module__)}"
        if root in PLAIN or root in sys.stdlib_module_names - {"__main__"}:
            return f"{kind.__module__}.{kind.__qualname__}"
        source = _source(kind)
        parts = [kind.__qualname__, source or ""]
        for name, member in sorted(vars(kind).items()):
            for function in _functions_of(member):
                parts.append(self._given(function) if source else self._function(function))
            if not name.startswith("__") and not callable(member) and fits_json(member):
                parts.append(f"{name}={self.value(member)}")
        return "|".join(parts)

    def _function(self, function: FunctionType) -> str:
        # Of its code: inspect would look through decorators that say what they wrap.
        source = _source(function.__code__) or self._bytecode(function.__code__)
        return f"{function.__qualname__}:{source}{self._given(function)}"

    def _given(self, function: FunctionType) -> str:
        """What a function was given beside its source: defaults and closed-over values."""
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # not filled yet
                cells.append("…")
        # A class that is closed over is the one that is being read, for super().
        cells = [cell for cell in cells if not isinstance(cell, type)]
        return "".join(map(self.value, (function.__defaults__, function.__kwdefaults__, cells)))

    def _bytecode(self, code: CodeType) -> str:
        constants = [self.value(constant) for constant in code.co_consts]
        return f"{code.co_code.hex()}{code.co_names}{constants}"


def _functions_of(member: Any) -> Iterator[FunctionType]:
    """The functions behind a member of a class."""
    if isinstance(member, property):
        found = [member.fget, member.fset, member.fdel]
    else:
        found = [getattr(member, "__func__", member)]  # static and class methods
    for function in found:
        if isinstance(function, FunctionType):
            yield function


@functools.lru_cache(maxsize=1024)  # looking for a class parses its whole file
def _source(thing: type | CodeType) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError, IndentationError):
        return None


@functools.cache
def _own_module(name: str) -> str:
    """A digest of one of guerdon's own modules; looking up single classes is slow."""
    file = sys.modules[name].__file__
    assert file is not None
    return hashlib.blake2b(pathlib.Path(file).read_bytes(), digest_size=8).hexdigest()
