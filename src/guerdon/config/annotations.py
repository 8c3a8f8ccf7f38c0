"""The types of a config: arguments of callables, fields of config classes, and conversion."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    RootModel,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from guerdon._problems import Problem, problems_of, unknown_key

_EMPTY = Parameter.empty
_LENIENT = ConfigDict(arbitrary_types_allowed=True)
_FLAG = re.compile("must be (a finite number|an integer), got (false|true)")


def arguments_of(make: Callable[..., Any]) -> tuple[list[Parameter], bool]:
    """Return the parameters of a class or function, and whether it accepts any keyword.

    The annotations of those that can't be resolved are left out.

    Example:
        >>> def brief(action, observation, *, longest: int = 100): ...
        >>> [argument.name for argument in arguments_of(brief)[0]]
        ['action', 'observation', 'longest']
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return [], True
    found = hints(make)
    arguments = [
        each.replace(annotation=found.get(each.name, _EMPTY))
        for each in parameters
        if each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    return arguments, any(each.kind is Parameter.VAR_KEYWORD for each in parameters)


def hints(make: Any) -> dict[str, Any]:
    """Return the types of the parameters of a callable, without those that can't be resolved.

    Example:
        >>> def brief(text, longest: "int" = 100, judge: "OnlyForTypeCheckers" = None): ...
        >>> hints(brief)
        {'longest': <class 'int'>}
    """
    while isinstance(make, functools.partial):
        make = make.func
    if isinstance(make, type):
        own = make.__init__ is not object.__init__  # type: ignore[misc]
        make = make.__init__ if own else make.__new__  # type: ignore[misc]
    elif not hasattr(make, "__annotations__"):
        make = type(make).__call__
    names = dict(getattr(inspect.unwrap(make), "__globals__", {}))
    found: dict[str, Any] = {}
    for name, annotation in getattr(make, "__annotations__", {}).items():
        holder = type("", (), {"__annotations__": {name: annotation}})
        try:
            found |= typing.get_type_hints(holder, names, include_extras=True)
        except Exception:  # a name that only a type checker can resolve
            continue
    return found


# Config classes ------------------------------------------------------------------------------


def config_class(annotation: Any) -> Any:
    """Return the config class of an annotation, or None.

    A config class is a dataclass or a pydantic model.

    Example:
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int
        >>> config_class(Limits | None) is Limits, config_class(dict[str, int]) is None
        (True, True)
    """
    kinds = (kind for kind in _members(annotation) if _is_config_class(_origin(kind)))
    return next(kinds, None)


def fields_of(kind: Any) -> dict[str, Any] | None:
    """Return the types of a config class by key; None if it accepts any key, or isn't one.

    Example:
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int
        >>> fields_of(Limits)
        {'longest': <class 'int'>}
    """
    kind = _origin(kind)
    if not _is_config_class(kind):
        return None
    if issubclass(kind, BaseModel):
        is_open = kind.model_config.get("extra") == "allow" or issubclass(kind, RootModel)
        return None if is_open else _keys_of_model(kind)
    return {each.name: each.annotation for each in arguments_of(kind)[0]}


def unknown_keys(
    annotation: Any, value: Any, place: tuple[str | int, ...] = ()
) -> Iterator[Problem]:
    """Yield a problem for each key in a value, at any depth, that no config class has.

    Pydantic itself ignores such keys in classes that don't forbid them.

    Example:
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int = 100
        >>> print(*unknown_keys(list[Limits], [{"longst": 3}]))
        [0].longst: unknown key; did you mean 'longest'?
    """
    kinds = _members(annotation)
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, Mapping):
        kinds = [each for each in kinds if _has_tag(each, value)] or kinds
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    known = _keys_of_all(kinds)
    for part, each in parts:
        here = (*place, part)
        if known is not None and isinstance(part, str) and part not in known:
            yield Problem(here, unknown_key(part, known))
        elif len(kinds) == 1:
            yield from unknown_keys(_inner(kinds[0], known, part), each, here)


def _keys_of_all(kinds: Sequence[Any]) -> dict[str, Any] | None:
    """The types of config classes by key; None if one of the types accepts any key."""
    known: dict[str, Any] = {}
    for fields in map(fields_of, kinds):
        if fields is None:
            return None
        known |= fields
    return known if kinds else None


def _members(annotation: Any) -> list[Any]:
    """The types that an annotation allows beside None."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [kind for each in typing.get_args(annotation) for kind in _members(each)]
    return [] if annotation is types.NoneType else [annotation]


def _origin(kind: Any) -> Any:
    return typing.get_origin(kind) or kind


def _is_config_class(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    if issubclass(kind, BaseModel):
        return True
    return dataclasses.is_dataclass(kind) and not hasattr(kind, "__get_pydantic_core_schema__")


def _has_tag(kind: Any, value: Mapping[str, Any]) -> bool:
    """Whether a model of a tagged union is the one that a value names."""
    tag = getattr(kind, "model_fields", {}).get("type")
    return tag is not None and "type" in value and tag.default == value["type"]


def _inner(kind: Any, fields: Mapping[str, Any] | None, part: str | int) -> Any:
    """The type of the items of a container type, at a key or a position."""
    if fields is not None:
        return fields.get(str(part), Any)
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if not given or not isinstance(origin, type):
        return Any
    if isinstance(part, str):
        return given[1] if issubclass(origin, Mapping) and len(given) == 2 else Any
    if origin is tuple and given[-1] is not ...:
        return given[part] if part < len(given) else Any
    return Any if issubclass(origin, Mapping) else given[0]


def _keys_of_model(kind: type[BaseModel]) -> dict[str, Any]:
    config = kind.model_config
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    keys: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        alias = field.validation_alias if config.get("validate_by_alias") is not False else None
        for each in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            key = each.path[0] if isinstance(each, AliasPath) else each
            keys[name if key is None else str(key)] = field.annotation
        if by_name:
            keys.setdefault(name, field.annotation)
    return keys


# Conversion ----------------------------------------------------------------------------------


def adapter_of(annotation: Any) -> TypeAdapter[Any] | None:
    """Return what validates values of a type; None if pydantic knows nothing of it."""
    if annotation is _EMPTY:
        return None
    attempts: tuple[tuple[Any, ConfigDict | None], ...] = (
        (annotation, _LENIENT),
        (annotation, None),  # a class that has a config itself
        (typing.Optional[annotation], _LENIENT),  # noqa: UP045  such a class with arbitrary types
    )
    for kind, config in attempts:
        try:
            return TypeAdapter(kind, config=config)
        except (PydanticUserError, SchemaError, TypeError, NameError):
            continue
    return None


def convert(annotation: Any, value: Any, *, strict: bool = True) -> tuple[Any, list[Problem]]:
    """Return a value as an annotation specifies, and what is wrong with it.

    Example:
        >>> convert(tuple[int, ...], [1, 2])
        ((1, 2), [])

    Args:
        annotation: The type.
        value: What JSON can represent, or any object.
        strict: Whether "3" is refused where a number is expected.
    """
    adapter = adapter_of(annotation)
    if adapter is None:
        return value, []
    problems = list(unknown_keys(annotation, value))
    try:
        made = _validated(adapter, value, strict)
    except ValidationError as error:
        places = {each.place for each in problems}
        found = problems_of(error, value)
        return value, problems + [each for each in found if each.place not in places]
    if not strict:
        problems += _flags(adapter, value)
    # Pydantic converts an Iterable to an iterator, which could be read only once.
    return value if type(made).__module__.startswith("pydantic_core") else made, problems


def checked_arguments(
    arguments: list[Parameter], config: Mapping[str, Any], *, takes_all: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of arguments in a config, and what is wrong with it.

    Example:
        >>> def brief(longest: int): ...
        >>> print(*checked_arguments(arguments_of(brief)[0], {"longest": "many"})[1])
        longest: must be an integer, got "many"

    Args:
        arguments: The arguments.
        config: Their values.
        takes_all: Whether other keys are accepted.
    """
    known = {each.name: each for each in arguments}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in config.items():
        if key in known:
            annotation, default = known[key].annotation, known[key].default
            if annotation is _EMPTY and bool in (type(default), type(value)):
                # else pydantic accepts "no" as true, and false as 0
                annotation = type(default) if isinstance(default, bool | int | float) else Any
            values[key], found = convert(annotation, value)
            problems += [each.within(key) for each in found]
        elif takes_all:
            values[key] = value
        else:
            problems.append(Problem((key,), unknown_key(key, known)))
    problems += [
        Problem((each.name,), "is required")
        for each in arguments
        if each.default is _EMPTY and each.name not in config
    ]
    return values, problems


def _flags(adapter: TypeAdapter[Any], value: Any) -> list[Problem]:
    """The problems of booleans where a number is expected: pydantic converts them."""
    try:
        _validated(adapter, value, strict=True)
    except ValidationError as error:
        return [each for each in problems_of(error, value) if _FLAG.fullmatch(each.message)]
    return []


def _validated(adapter: TypeAdapter[Any], value: Any, strict: bool) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return adapter.validate_python(value)
    # In strict mode, pydantic converts a list to a tuple only if it reads JSON.
    return adapter.validate_json(text, strict=True if strict else None)
