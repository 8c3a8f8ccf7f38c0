"""Configuring a tree: its weights, their factors, and the fields that its rubrics let change."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

from pydantic import BaseModel, ValidationError

from guerdon._problems import Problem, problems_of
from guerdon._validation import is_finite, shown
from guerdon.errors import GuerdonError, RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import fits_json

# The longest string that a field may be set to: enough for a choice, not for a template.
MAX_TEXT = 200
MAX_ITEMS = 10_000
MAX_DEPTH = 100

# The type of a field, the type that JSON has for it, and its name in messages.
_KINDS: tuple[tuple[Any, Any, str], ...] = (
    (bool, bool, "true or false"),
    (str, str, "a string"),
    ((list, tuple), list, "a list"),
    (Mapping, Mapping, "an object"),
)


@dataclass(frozen=True, slots=True)
class TunableField:
    """A field that a rubric names in `Rubric.tunable`: its attribute, or a field of its config.

    Attributes:
        rubric: The rubric.
        name: The name of the field.
    """

    rubric: Any
    name: str

    @property
    def is_in_config(self) -> bool:
        """Whether it is a field of the rubric's config."""
        if hasattr(self.rubric, self.name):
            return False
        if hasattr(getattr(self.rubric, "config", None), self.name):
            return True
        raise RewardConfigError(
            f"{type(self.rubric).__name__}.tunable contains {self.name!r}, but neither the rubric "
            "nor its config has that field"
        )

    @property
    def value(self) -> Any:
        """Its value."""
        return getattr(self.rubric.config if self.is_in_config else self.rubric, self.name)

    def has(self, value: Any) -> bool:
        """Return whether it has that value; 1 and 1.0 are the same, 1 and True aren't."""
        own = self.value
        if _is_array(own):
            return False
        own = own.value if isinstance(own, Enum) else own
        own = own.item() if _is_number(own) and hasattr(own, "item") else own  # a number of numpy
        own, value = (list(each) if isinstance(each, tuple) else each for each in (own, value))
        return isinstance(own, bool) == isinstance(value, bool) and bool(own == value)


def tunable_fields(rubric: Rubric) -> dict[str, TunableField]:
    """Return the tunable fields of a tree by dotted name, such as ``"style.threshold"``.

    Example:
        >>> from guerdon import Gate, RegexMatch, Sequential
        >>> list(tunable_fields(Sequential(Gate(RegexMatch("please")), RegexMatch("!"))))
        ['rubric_0.threshold']
    """
    return {
        f"{path}.{name}" if path else name: TunableField(node, name)
        for path, node in [("", rubric), *rubric.named_rubrics()]
        for kind in type(node).__mro__
        for name in kind.__dict__.get("tunable", ())
    }


def configure(
    rubric: Rubric,
    *,
    weights: Mapping[str, float] | None = None,
    factors: Mapping[str, float] | None = None,
    tuned: Mapping[str, Any] | None = None,
) -> Callable[[], None]:
    """Configure a tree as a whole; what isn't given stays unchanged.

    Args:
        rubric: The tree.
        weights: Weights by the names of a composer's components.
        factors: All factors other than 1.
        tuned: Values of tunable fields by dotted name.

    Returns:
        A function that restores the former configuration.

    Raises:
        RewardConfigError: A field doesn't exist, or a value is refused; ``problems`` names each.
            The tree is unchanged.
    """
    with ExitStack() as undo:
        if tuned:
            _tune(rubric, tuned, undo)
        if isinstance(rubric, RubricComposer):
            _weigh(rubric, weights or {}, factors, undo)
        elif weights or factors:
            kind = type(rubric).__name__
            raise _refusal({"weights": f"{kind} has no weights; a RubricComposer is required"})
        return undo.pop_all().close


def _weigh(
    rubric: RubricComposer,
    weights: Mapping[str, float],
    factors: Mapping[str, float] | None,
    undo: ExitStack,
) -> None:
    before, factors_before = rubric.weights, rubric.factors
    try:
        if {**before, **weights} != before:
            rubric.update_weights(weights)
            undo.callback(rubric.update_weights, before)
        if factors is not None:
            moved = {name: each for name, each in factors.items() if each != 1.0}
            if moved != factors_before:
                rubric.factors = moved
                undo.callback(setattr, rubric, "factors", factors_before)
    except GuerdonError as error:
        raise _refusal({"weights": str(error)}) from error


def _tune(rubric: Rubric, tuned: Mapping[str, Any], undo: ExitStack) -> None:
    fields = tunable_fields(rubric)
    unknown = [path for path in tuned if path not in fields]
    if unknown:
        message = f"{type(rubric).__name__} has no such tunable field"
        raise _refusal(dict.fromkeys(unknown, message))
    waiting = [path for path in tuned if not fields[path].has(tuned[path])]
    while waiting:  # a setter may reject a value until another is set, such as a lower bound
        refused: dict[str, str] = {}
        for paths in _groups(fields, waiting):
            refused |= _set({path: (fields[path], tuned[path]) for path in paths}, undo)
        if len(refused) == len(waiting):
            raise _refusal(refused)
        waiting = list(refused)


def _refusal(messages: Mapping[str, str]) -> RewardConfigError:
    lines = [f"{path}: {message}" for path, message in messages.items() if message]
    return RewardConfigError("; ".join(lines), problems=lines)


def _groups(fields: Mapping[str, TunableField], paths: list[str]) -> list[list[str]]:
    """Paths that are set together: those of one config; every attribute by itself."""
    groups: dict[Any, list[str]] = {}
    for path in paths:
        key = id(fields[path].rubric) if fields[path].is_in_config else path
        groups.setdefault(key, []).append(path)
    return list(groups.values())


def _set(values: Mapping[str, tuple[TunableField, Any]], undo: ExitStack) -> dict[str, str]:
    """Set fields of one config, or one attribute.

    Returns:
        Why they are refused, by path; empty for a field that is refused because of another.
    """
    messages = dict.fromkeys(values, "")
    checked: dict[str, Any] = {}
    for path, (field, value) in values.items():
        try:
            checked[field.name] = _checked(field.value, value)
        except RewardConfigError as error:
            messages[path] = str(error)
    if any(messages.values()):
        return messages
    field = next(iter(values.values()))[0]
    try:
        if field.is_in_config:
            name, before = "config", field.rubric.config
            setattr(field.rubric, name, _replaced(before, checked))
        else:
            name, before = field.name, copy.deepcopy(field.value)
            setattr(field.rubric, name, checked[name])
    except ValidationError as error:
        return _messages(values, problems_of(error, checked))
    except Exception as error:  # of the user's own code
        return dict.fromkeys(values, str(error) or type(error).__name__)
    undo.callback(setattr, field.rubric, name, before)
    return {}


def _messages(
    values: Mapping[str, tuple[TunableField, Any]], problems: list[Problem]
) -> dict[str, str]:
    """The messages of problems by path: at the field that a problem names, or at all of them."""
    messages = {
        path: "; ".join(each.message for each in problems if each.place[:1] == (field.name,))
        for path, (field, _) in values.items()
    }
    if any(messages.values()):
        return messages
    return dict.fromkeys(values, "; ".join(each.message for each in problems))


def _replaced(config: Any, values: Mapping[str, Any]) -> Any:
    """A config with other values, checked by its class."""
    if isinstance(config, BaseModel):
        data = {}
        for name, field in type(config).model_fields.items():
            alias = field.validation_alias
            key = alias if isinstance(alias, str) else name
            data[key] = values.get(name, getattr(config, name))
        return type(config).model_validate({**(config.model_extra or {}), **data})
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.replace(config, **values)
    changed = copy.copy(config)
    for name, value in values.items():
        setattr(changed, name, value)
    return changed


def _checked(old: Any, new: Any) -> Any:
    """A value of the same type as that of the field.

    Raises:
        RewardConfigError: It is of another type, or too large.
    """
    if not fits_json(new):
        raise RewardConfigError(f"must be JSON with finite numbers, got {shown(new)}")
    if _is_array(old):
        raise RewardConfigError(
            f"can't be changed while training runs: it is a {type(old).__name__}"
        )
    if isinstance(old, Enum):
        for each in type(old):
            if each.value == new and isinstance(new, bool) == isinstance(each.value, bool):
                return each
        choices = [each.value for each in type(old)]
        raise RewardConfigError(f"must be one of {choices}, got {shown(new)}")
    if _is_number(old):
        if not is_finite(new):
            raise RewardConfigError(f"must be a finite number, got {shown(new)}")
        return new
    for kind, accepted, name in _KINDS:
        if isinstance(old, kind) and not isinstance(new, accepted):
            raise RewardConfigError(f"must be {name}, got {shown(new)}")
    _check_size(new)
    return tuple(new) if isinstance(old, tuple) else copy.deepcopy(new)


def _check_size(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise RewardConfigError(f"must not be nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise RewardConfigError(
            f"a string must have at most {MAX_TEXT} characters, got {len(value)}"
        )
    if isinstance(value, list | dict):
        if len(value) > MAX_ITEMS:
            raise RewardConfigError(f"must have at most {MAX_ITEMS} items, got {len(value)}")
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_size(each, depth + 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return callable(getattr(value, "tobytes", None)) and not _is_number(value)
