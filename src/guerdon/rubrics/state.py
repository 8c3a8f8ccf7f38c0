"""What a tree is configured with: `state_dict`, `load_state_dict` and the fingerprint."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import math
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from guerdon.errors import GuerdonError, StateError

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["fingerprint", "load_state_dict", "own_state", "state_dict"]


# What says how to read a rubric, or what it last gave, configures nothing.
_NO_STATE = {"last_score", "score_range", "reads", "state_names"}


# State -----------------------------------------------------------------------------------------


def own_state(rubric: Rubric) -> dict[str, Any]:
    """A rubric's public attributes that JSON can hold, and those its classes name."""
    state = {
        name: copy.deepcopy(value)
        for name, value in rubric.__dict__.items()
        if not name.startswith("_") and name not in _NO_STATE and _fits_json(value)
    }
    for name in _state_names(rubric):
        state[name] = copy.deepcopy(getattr(rubric, name))
    return state


def _state_names(rubric: Rubric) -> list[str]:
    return [name for kind in reversed(type(rubric).__mro__)
            for name in kind.__dict__.get("state_names", ())]  # fmt: skip


def _fits_json(value: Any) -> bool:
    if value is None or isinstance(value, (str, bool, int)):
        return not isinstance(value, enum.Enum)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, (list, tuple)):
        return all(map(_fits_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_fits_json, value.values()))
    return False


def state_dict(rubric: Rubric) -> dict[str, Any]:
    """See `Rubric.state_dict`."""
    state = rubric._own_state()
    for name, child in rubric._children.items():
        for key, value in child.state_dict().items():
            state[f"{name}.{key}"] = value
    return state


def load_state_dict(rubric: Rubric, state: Mapping[str, Any], strict: bool) -> None:
    """See `Rubric.load_state_dict`."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a mapping of names to values, not {type(state).__name__}")
    before = rubric.state_dict()
    missing = [key for key in before if key not in state]
    unexpected = [key for key in state if key not in before]
    if strict and (missing or unexpected):
        raise StateError(
            f"the state doesn't fit {type(rubric).__name__}: "
            f"missing {missing}, unexpected {unexpected}; strict=False loads those that fit",
            missing=missing, unexpected=unexpected,
        )  # fmt: skip
    fitting = {key: value for key, value in state.items() if key in before}
    for key, value in fitting.items():
        if not _fits_json(value):
            raise StateError(f"{key!r} is {value!r:.80}; a state holds what JSON can hold")
    try:
        _load(rubric, fitting)
    except Exception as error:
        _load(rubric, before)
        raise StateError(f"nothing was loaded: {error}") from error


def _load(rubric: Rubric, state: Mapping[str, Any]) -> None:
    below: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        name, dot, rest = key.partition(".")
        if dot and name in rubric._children:
            below.setdefault(name, {})[rest] = value
        else:
            setattr(rubric, key, _like(getattr(rubric, key, None), copy.deepcopy(value)))
    for name, part in below.items():
        child = rubric._children[name]
        if child._loads:
            child.load_state_dict(part)
        else:
            _load(child, part)


def _like(old: Any, new: Any) -> Any:
    """A list in the place of a tuple becomes one: JSON knows no tuples."""
    return tuple(new) if isinstance(old, tuple) and isinstance(new, list) else new


# Fingerprint -----------------------------------------------------------------------------------


def fingerprint(rubric: Rubric) -> str:
    """See `Rubric.fingerprint`."""
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts("", rubric):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(path: str, rubric: Rubric) -> Iterator[str]:
    yield path
    described = rubric._described()
    if described is not type(rubric):
        yield _source(described)
    for kind in type(rubric).__mro__:
        root = kind.__module__.split(".")[0]
        if root == "guerdon":
            yield f"{kind.__module__}.{kind.__qualname__}:{_own_module(kind.__module__)}"
        elif root not in {"builtins", "abc", "typing"}:
            yield _source(kind)
    for name, value in sorted(rubric._own_state().items()):
        yield f"{name}={_stable(value)}"
    for name, value in sorted(rubric.__dict__.items()):
        if not name.startswith("_") and name not in rubric._children and not _fits_json(value):
            yield f"{name}={_stable(value)}"
    for name, child in rubric._children.items():
        yield from _parts(f"{path}.{name}", child)


@functools.cache
def _own_module(name: str) -> str:
    """A digest of one of guerdon's own modules; looking up single classes is slow."""
    file = sys.modules[name].__file__
    assert file is not None
    return hashlib.blake2b(pathlib.Path(file).read_bytes(), digest_size=8).hexdigest()


def _source(thing: Any) -> str:
    """The source of a class or a function; its bytecode where there is no source."""
    target = thing
    while hasattr(target, "func"):
        target = target.func
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        target = type(target)
    name = f"{target.__module__}.{target.__qualname__}"
    if target.__module__.split(".")[0] == "__main__":
        name = target.__qualname__
    try:
        text = textwrap.dedent(inspect.getsource(target))
    except (OSError, TypeError, IndentationError):
        code = getattr(target, "__code__", None)
        text = _code(code) if code is not None else ""
    return f"{name}:{text}{_closure(thing)}"


def _code(code: Any) -> str:
    constants = [_code(c) if inspect.iscode(c) else _stable(c) for c in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names}{constants}"


def _closure(function: Any) -> str:
    """What a function was given beside its source: defaults, closed-over and bound values."""
    parts = [_stable(value) for value in getattr(function, "__defaults__", None) or ()]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            parts.append(_stable(cell.cell_contents))
        except ValueError:  # not filled yet
            parts.append("?")
    if hasattr(function, "func"):
        parts += [_source(function.func), _stable(function.args), _stable(function.keywords)]
    return f"{parts}" if parts else ""


def _stable(value: Any) -> str:
    """A text that is the same in every process; the bare type where no more can be said."""
    if _fits_json(value):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"re:{value.flags}:{value.pattern!r}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, (bytes, pathlib.PurePath, complex)):
        return repr(value)
    if isinstance(value, Mapping):
        return repr(sorted((_stable(key), _stable(item)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(_stable, value)))
    if isinstance(value, (list, tuple)):
        return repr([_stable(item) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return f"{type(value).__qualname__}({_stable(fields)})"
    if inspect.isroutine(value) or inspect.isclass(value) or hasattr(value, "func"):
        try:
            return _source(value)
        except (AttributeError, GuerdonError):
            return type(value).__qualname__
    return type(value).__qualname__
