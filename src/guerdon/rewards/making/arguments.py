"""What a rubric takes of its entry's config: its arguments, or an instance of a config class."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from guerdon.rewards.config.documents import Problem
from guerdon.rewards.config.mistakes import problems_of, unknown_key

__all__ = ["Argument", "accepted_by", "arguments_of", "checked", "config_class", "config_of"]

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
    hints = _hints(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]
    arguments = [
        Argument(each.name, hints.get(each.name, _typed(each.annotation)), each.default)
        for each in parameters
        if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    return arguments, any(each.kind is Parameter.VAR_KEYWORD for each in parameters)


def _typed(annotation: Any) -> Any:
    """An annotation; none of one that is text, whose names weren't found."""
    return _NONE if isinstance(annotation, str) else annotation


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # names that only a type checker knows, and whatever they raise
        return {}


def config_class(annotation: Any) -> type | None:
    """The config class that an annotation names: a dataclass or a model; None where it is none.

    Example:
        >>> config_class(dict[str, int]) is None
        True
    """
    around = typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType)
    for kind in typing.get_args(annotation) if around else (annotation,):
        if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or _is_model(kind)):
            return kind
    return None


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def accepted_by(kind: type | None) -> list[str] | None:
    """The keys that a config class takes; None where it takes any."""
    if kind is None:
        return None
    if not issubclass(kind, BaseModel):
        return [each.name for each in _fields(kind)]
    if kind.model_config.get("extra") == "allow":
        return None
    return [field.alias or name for name, field in kind.model_fields.items()]


def config_of(kind: type | None, config: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """A config as an instance of its class, and what is wrong with it.

    Example:
        >>> config_of(None, {"longest": 9})
        ({'longest': 9}, [])
    """
    if kind is None:
        return dict(config), []
    if issubclass(kind, BaseModel):
        return _model(kind, config)
    values, problems = checked(_fields(kind), config)
    return (None if problems else kind(**values)), problems


def _fields(kind: Any) -> list[Argument]:
    """What a dataclass takes."""
    hints = _hints(kind)
    return [
        Argument(each.name, hints.get(each.name, _NONE), _default(each))
        for each in dataclasses.fields(kind)
        if each.init
    ]


def _model(kind: type[BaseModel], config: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    accepted = accepted_by(kind)
    problems = []
    if accepted is not None:
        names = {*accepted, *kind.model_fields}
        unknown = [key for key in config if key not in names]
        problems = [Problem((key,), unknown_key(key, accepted)) for key in unknown]
    try:
        made = kind.model_validate(dict(config))
    except ValidationError as error:
        told = {each.place for each in problems}
        found = problems_of(error, config, kind)
        return None, problems + [each for each in found if each.place not in told]
    return made, problems


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is not dataclasses.MISSING else _NONE


def checked(
    arguments: list[Argument], config: Mapping[str, Any], *, takes_all: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """The values that a config gives to arguments, and what is wrong with it.

    Example:
        >>> checked([Argument("longest", int)], {"longest": "many"})[1][0].said
        'it is the text "many"; a whole number is needed'

    Args:
        arguments: What there is to say.
        config: What is said.
        takes_all: Whether other keys are accepted.
    """
    known = {each.name: each for each in arguments}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in config.items():
        if key in known:
            values[key] = _value(known[key], value, problems)
        elif takes_all:
            values[key] = value
        else:
            problems.append(Problem((key,), unknown_key(key, list(known))))
    for each in arguments:
        if each.is_required and each.name not in config:
            problems.append(Problem((each.name,), "it is missing, and has no default"))
    return values, problems


def _value(argument: Argument, value: Any, problems: list[Problem]) -> Any:
    adapter = argument.adapter()
    if adapter is None:
        return value
    try:
        made = _validated(adapter, value)
    except ValidationError as error:
        found = problems_of(error, value, argument.annotation)
        problems += [each.within(argument.name) for each in found]
        return value
    # Of an iterable, pydantic makes one that can be gone through once.
    return value if type(made).__module__.startswith("pydantic_core") else made


def _validated(adapter: TypeAdapter[Any], value: Any) -> Any:
    """Strictly, as JSON has it: text is no number, but a list may become a tuple."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return adapter.validate_python(value)
    return adapter.validate_json(text, strict=True)
