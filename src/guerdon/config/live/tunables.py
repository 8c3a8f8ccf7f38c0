"""`Tunable`: a field of a rubric that its class lets be changed while training runs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from guerdon._validation import is_finite
from guerdon._validation import shown as say
from guerdon.errors import RewardConfigError
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import fits_json

__all__ = ["Tunable", "set_config", "tunables"]

# The longest text that a tunable field may be set to; a choice is short, a template is not.
MAX_TEXT = 200
MAX_ITEMS = 10_000
MAX_DEPTH = 100

_KINDS: dict[type, str] = {
    bool: "true or false",
    str: f"a text of at most {MAX_TEXT} characters",
    list: "a list",
    tuple: "a list",
    Mapping: "an object",
}
_FORMS: dict[type, type] = {tuple: list}  # as JSON has them


@dataclass(frozen=True, slots=True)
class Tunable:
    """A field of a rubric, named in its `Rubric.tunable`: an attribute, or a field of its config.

    Attributes:
        rubric: Whose it is.
        field: Its name.
    """

    rubric: Rubric
    field: str

    def get(self) -> Any:
        """Its value; a copy."""
        return copy.deepcopy(getattr(self._home(), self.field))

    def holds(self, value: Any) -> bool:
        """Whether that is its value already; 1 and 1.0 are the same, 1 and True aren't."""
        old = _plain(getattr(self._home(), self.field))
        if _is_array(old):
            return False
        return isinstance(old, bool) == isinstance(value, bool) and bool(old == value)

    def set(self, value: Any) -> Callable[[], None]:
        """Change it.

        Returns:
            A function that gives it its old value again.

        Raises:
            RewardConfigError: The value is of another kind, or refused by the rubric.
        """
        home, old = self._home(), self.get()
        if home is not self.rubric:
            return set_config(self.rubric, {self.field: value})
        fitting = _fitting(old, value)
        with _refusals(value):
            setattr(home, self.field, fitting)
        return lambda: setattr(home, self.field, old)

    def _home(self) -> Any:
        """What holds the field: the rubric, or its config."""
        if hasattr(self.rubric, self.field):
            return self.rubric
        config = getattr(self.rubric, "config", None)
        if config is not None and hasattr(config, self.field):
            return config
        raise RewardConfigError(
            f"{type(self.rubric).__name__} declares {self.field!r} as tunable, but neither it nor "
            "its config has such a field"
        )


def set_config(rubric: Any, values: Mapping[str, Any]) -> Callable[[], None]:
    """Change fields of a rubric's config together, checked as its class checks them.

    Returns:
        A function that gives the rubric its old config again.

    Raises:
        RewardConfigError: A value is of another kind, or they are refused.
    """
    old = rubric.config
    fitting = {name: _fitting(getattr(old, name), value) for name, value in values.items()}
    with _refusals(*values.values()):
        rubric.config = _replaced(old, fitting)
    return lambda: setattr(rubric, "config", old)


def tunables(rubric: Rubric) -> dict[str, Tunable]:
    """The tunable fields of a tree by dotted name, such as ``"style.threshold"``.

    Example:
        >>> from guerdon import Gate, RegexMatch, Sequential
        >>> list(tunables(Sequential(Gate(RegexMatch("please")), RegexMatch("!"))))
        ['rubric_0.threshold']
    """
    found: dict[str, Tunable] = {}
    for path, node in [("", rubric), *rubric.named_rubrics()]:
        for field in dict.fromkeys(
            name for kind in type(node).__mro__ for name in kind.__dict__.get("tunable", ())
        ):
            found[f"{path}.{field}" if path else field] = Tunable(node, field)
    return found


@contextmanager
def _refusals(*values: Any) -> Iterator[None]:
    """What a rubric or its config raises, as a refusal of values."""
    try:
        yield
    except RewardConfigError:
        raise
    except ValidationError as error:
        said = "; ".join(each["msg"] for each in error.errors(include_url=False))
        told = ", ".join(f"{say(value)}" for value in values)
        raise RewardConfigError(f"it is {told}: {said}") from error
    except Exception as error:
        raise RewardConfigError(f"{error}") from error


def _fitting(old: Any, new: Any) -> Any:
    """A value of the kind that the field has.

    Raises:
        RewardConfigError: It can't be one.
    """
    if not fits_json(new):
        raise RewardConfigError(f"it is {say(new)}, which is no JSON, or not finite")
    if _is_array(old):
        name = type(old).__name__
        raise RewardConfigError(f"it holds a {name}, which can't be changed while training runs")
    if isinstance(old, Enum):
        return _member(type(old), new)
    if _is_number(old):
        if not is_finite(new):
            raise RewardConfigError(f"it is {say(new)}; it takes a finite number")
        return new
    wanted = next((kind for kind in _KINDS if isinstance(old, kind)), None)
    if wanted is not None and not isinstance(new, _FORMS.get(wanted, wanted)):
        raise RewardConfigError(f"it is {say(new)}; it takes {_KINDS[wanted]}")
    _check_size(new)
    return tuple(new) if wanted is tuple else copy.deepcopy(new)


def _check_size(new: Any, depth: int = 0) -> None:
    """Refuse long or deep lists and, wherever they stand, long texts and numbers."""
    if depth > MAX_DEPTH:
        raise RewardConfigError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(new, str) and len(new) > MAX_TEXT:
        raise RewardConfigError(f"it is {len(new)} characters long; it takes {_KINDS[str]}")
    if isinstance(new, (list, dict)):
        if len(new) > MAX_ITEMS:
            raise RewardConfigError(f"it has {len(new)} items; it takes at most {MAX_ITEMS}")
        for each in [*new, *new.values()] if isinstance(new, dict) else new:
            _check_size(each, depth + 1)
    if isinstance(new, int) and not isinstance(new, bool) and not is_finite(new):
        raise RewardConfigError(f"it is {say(new)}; it takes a finite number")


def _member(kind: type[Enum], value: Any) -> Enum:
    for each in kind:
        if each.value == value and isinstance(value, bool) == isinstance(each.value, bool):
            return each
    raise RewardConfigError(f"it is {say(value)}; it takes {[each.value for each in kind]}")


def _plain(value: Any) -> Any:
    """A value as it would be sent."""
    if isinstance(value, Enum):
        return value.value
    if _is_number(value) and hasattr(value, "item"):  # numpy's
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return callable(getattr(value, "tobytes", None)) and not _is_number(value)


def _key(field: FieldInfo, name: str) -> str:
    """What a field is called in what its class validates."""
    alias = field.validation_alias
    return alias if isinstance(alias, str) else field.alias or name


def _replaced(config: Any, values: Mapping[str, Any]) -> Any:
    """The same config with other values, checked as its class checks it."""
    if isinstance(config, BaseModel):
        fields = type(config).model_fields
        given = {**dict(config), **values}
        return type(config).model_validate(
            {
                _key(fields[name], name) if name in fields else name: each
                for name, each in given.items()
            }
        )
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.replace(config, **values)
    changed = copy.copy(config)
    for name, value in values.items():
        setattr(changed, name, value)
    return changed
