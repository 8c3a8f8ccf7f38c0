"""What a tree is configured with: `state_dict` and `load_state_dict`."""

from __future__ import annotations

import copy
import enum
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from guerdon.errors import StateError

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = [
    "NO_STATE",
    "configuring_names",
    "fits_json",
    "load_state_dict",
    "own_state",
    "state_dict",
]


# How many values one attribute may hold to count as configuration.
MAX_VALUES = 100_000

# What says how to read a rubric, or what it last gave, configures nothing.
NO_STATE = {"last_score", "score_range", "reads", "state_names", "tunable"}


def own_state(rubric: Rubric) -> dict[str, Any]:
    """A rubric's public attributes that JSON can hold, and those its classes name."""
    state = {
        name: copy.deepcopy(value)
        for name, value in rubric.__dict__.items()
        if not name.startswith("_") and name not in NO_STATE and fits_json(value)
    }
    for name in _state_names(rubric):
        state[name] = copy.deepcopy(getattr(rubric, name))
    return state


def _state_names(rubric: Rubric) -> list[str]:
    return [name for kind in reversed(type(rubric).__mro__)
            for name in kind.__dict__.get("state_names", ())]  # fmt: skip


def configuring_names(kind: type[Rubric]) -> frozenset[str]:
    """The attributes that a class declares as configuration."""
    return frozenset(
        name
        for each in kind.__mro__
        for what in ("state_names", "tunable")
        for name in each.__dict__.get(what, ())
        if name not in kind._measured
    ) | {"score_range"}


def fits_json(value: Any) -> bool:
    """Whether JSON can hold a value, and gives it back as it was (but for tuples).

    What holds itself, or more than `MAX_VALUES`, doesn't fit.
    """
    waiting = [value]
    seen = 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > MAX_VALUES:
            return False
        if isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            waiting.extend(item.values())
        elif isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif not (item is None or isinstance(item, (str, int))) or isinstance(item, enum.Enum):
            return False
    return True


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
        if not fits_json(value):
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
