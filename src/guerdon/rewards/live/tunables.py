"""`Tunable`: a field of a rubric that its class lets be changed while training runs."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from guerdon.errors import ConfigUpdateError
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import fits_json

__all__ = ["Tunable", "tunables"]

# The longest text that a tunable field may be set to; a choice is short, a template is not.
MAX_TEXT = 200
MAX_ITEMS = 10_000

_KINDS = {bool: "true or false", str: f"a text of at most {MAX_TEXT} characters", list: "a list"}


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
        home = self._home()
        return copy.deepcopy(getattr(home, self.field))

    def set(self, value: Any) -> None:
        """Change it.

        Raises:
            ConfigUpdateError: The value is of another kind, or refused by the rubric.
        """
        _check_kind(self.get(), value)
        value = copy.deepcopy(value)
        home = self._home()
        try:
            if home is self.rubric:
                setattr(home, self.field, value)
            else:
                self.rubric.config = _replaced(home, self.field, value)
        except ConfigUpdateError:
            raise
        except ValidationError as error:
            said = "; ".join(each["msg"] for each in error.errors(include_url=False))
            raise ConfigUpdateError(f"it is {value!r:.80}: {said}") from error
        except Exception as error:
            raise ConfigUpdateError(f"{error}") from error

    def _home(self) -> Any:
        """What holds the field: the rubric, or its config."""
        if hasattr(self.rubric, self.field):
            return self.rubric
        config = getattr(self.rubric, "config", None)
        if config is not None and hasattr(config, self.field):
            return config
        raise ConfigUpdateError(
            f"{type(self.rubric).__name__} declares {self.field!r} as tunable, but neither it nor "
            "its config has such a field"
        )


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


def _check_kind(old: Any, new: Any) -> None:
    """Refuse a value that isn't of the kind that the field has."""
    if not fits_json(new):
        raise ConfigUpdateError(f"it is {new!r:.80}, which is no JSON, or not finite")
    if _is_number(old):
        if not _is_number(new):
            raise ConfigUpdateError(f"it is {new!r:.80}; it takes a finite number")
        return
    wanted = next((kind for kind in (bool, str, list) if isinstance(old, kind)), None)
    if wanted is not None and not isinstance(new, wanted):
        raise ConfigUpdateError(f"it is {new!r:.80}; it takes {_KINDS[wanted]}")
    if isinstance(new, str) and len(new) > MAX_TEXT:
        raise ConfigUpdateError(f"it is {len(new)} characters long; it takes {_KINDS[str]}")
    if isinstance(new, (list, dict)) and len(new) > MAX_ITEMS:
        raise ConfigUpdateError(f"it has {len(new)} items; it takes at most {MAX_ITEMS}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _replaced(config: Any, field: str, value: Any) -> Any:
    """The same config with another value, checked as its class checks it."""
    if isinstance(config, BaseModel):
        return type(config).model_validate({**dict(config), field: value})
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return dataclasses.replace(config, **{field: value})
    changed = copy.copy(config)
    setattr(changed, field, value)
    return changed
