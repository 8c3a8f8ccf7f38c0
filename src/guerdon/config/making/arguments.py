"""What can be said in a config: the arguments of a rubric, or the fields of its config class."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from pydantic import ConfigDict, RootModel, TypeAdapter
from pydantic.errors import PydanticUserError

from guerdon.config.making.config_classes import hints, hints_of_class, is_model, keys_of_model

__all__ = ["Argument", "accepted_by", "arguments_of", "fields_of", "types_of_fields"]

_NONE = Parameter.empty


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One thing that can be said in a config.

    Attributes:
        name: Its key.
        annotation: Its type, as far as it is said.
        default: What it is where nothing is said.
    """

    name: str
    annotation: Any = _NONE
    default: Any = _NONE

    @property
    def is_required(self) -> bool:
        """Whether it must be said."""
        return self.default is _NONE

    def adapter(self) -> TypeAdapter[Any] | None:
        """What validates a value; None where anything goes, or nobody knows how."""
        if self.annotation is _NONE:
            # A flag without a type is one all the same: "no" is text, and would be true.
            return TypeAdapter(bool) if isinstance(self.default, bool) else None
        try:
            return TypeAdapter(self.annotation, config=_LENIENT)
        except (PydanticUserError, TypeError):
            pass  # a type that has a config of its own takes no other
        try:
            return TypeAdapter(self.annotation)
        except (PydanticUserError, TypeError, NameError):
            return None


_LENIENT = ConfigDict(arbitrary_types_allowed=True)


def arguments_of(make: Callable[..., Any]) -> tuple[list[Argument], bool]:
    """What a class or function takes by name, and whether it takes whatever it is given.

    Example:
        >>> def brief(action, observation, *, longest: int = 100): ...
        >>> [argument.name for argument in arguments_of(brief)[0]]
        ['action', 'observation', 'longest']
    """
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):
        return [], True
    found = hints(make)
    arguments = [
        Argument(each.name, found.get(each.name, _typed(each.annotation)), each.default)
        for each in parameters
        if each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    return arguments, any(each.kind is Parameter.VAR_KEYWORD for each in parameters)


def _typed(annotation: Any) -> Any:
    """An annotation; none of one that is text, whose names weren't found."""
    return _NONE if isinstance(annotation, str) else annotation


def fields_of(kind: Any) -> list[Argument]:
    """What a config class takes that is no model.

    Example:
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int
        >>> fields_of(Limits)[0].is_required
        True
    """
    origin = typing.get_origin(kind) or kind
    if typing.is_typeddict(origin):
        return [_entry(origin, *each) for each in hints_of_class(origin).items()]
    given = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(kind), strict=False))
    typed = hints_of_class(origin)
    return [
        dataclasses.replace(
            each, annotation=_substituted(typed.get(each.name, each.annotation), given)
        )
        for each in arguments_of(origin)[0]
    ]


def _entry(kind: Any, name: str, annotation: Any) -> Argument:
    """A key of a TypedDict."""
    said = typing.get_origin(annotation)
    if said in (typing.Required, typing.NotRequired):
        annotation = typing.get_args(annotation)[0]
    # Where annotations are texts, the class itself doesn't know what was said of its keys.
    is_needed = said is typing.Required or (
        said is not typing.NotRequired and name in kind.__required_keys__
    )
    return Argument(name, annotation, _NONE if is_needed else None)


def _substituted(annotation: Any, given: Mapping[Any, Any]) -> Any:
    """An annotation with what stands for its variables."""
    if isinstance(annotation, dataclasses.InitVar):
        annotation = annotation.type
    if isinstance(annotation, typing.TypeVar):
        return given.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if not given or not variables or isinstance(annotation, type):
        return annotation
    return annotation[tuple(given.get(each, each) for each in variables)]


def accepted_by(kind: Any) -> list[str] | None:
    """The keys that a config class takes; None where it takes any."""
    if kind is None:
        return None
    if not is_model(kind):
        return [each.name for each in fields_of(kind)]
    if kind.model_config.get("extra") == "allow" or issubclass(kind, RootModel):
        return None
    return list(keys_of_model(kind))


def types_of_fields(kind: Any) -> dict[str, Any]:
    """The annotations of what a config class takes, by their keys.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int
        >>> types_of_fields(Limits)
        {'longest': <class 'int'>}
    """
    if is_model(kind):
        return {
            key: kind.model_fields[name].annotation for key, name in keys_of_model(kind).items()
        }
    return {each.name: each.annotation for each in fields_of(kind)}
