"""Config classes: what the annotations of a rubric say that its config is."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel

__all__ = ["config_class", "hints", "hints_of_class", "is_model", "keys_of_model", "members"]


def config_class(annotation: Any) -> Any:
    """The config class that an annotation names; None where it is none.

    A dataclass, a model of pydantic, a class of attrs, a NamedTuple or a TypedDict, also where it
    is optional, or one of generic types with these said.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int
        >>> config_class(Limits | None) is Limits, config_class(dict[str, int]) is None
        (True, True)
    """
    for kind in members(annotation):
        origin = typing.get_origin(kind) or kind
        if isinstance(origin, type) and (
            dataclasses.is_dataclass(origin)
            or is_model(origin)
            or hasattr(origin, "__attrs_attrs__")
            or typing.is_typeddict(origin)
            or (issubclass(origin, tuple) and hasattr(origin, "_fields"))
        ):
            return kind
    return None


def members(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows beside None, without what is said around them."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from members(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for each in typing.get_args(annotation):
            yield from members(each)
    elif annotation is not types.NoneType:
        yield annotation


def is_model(kind: Any) -> bool:
    """Whether something is a model of pydantic."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def keys_of_model(kind: type[BaseModel]) -> dict[str, str]:
    """The keys that a model takes, to the names of its fields.

    Example:
        >>> from pydantic import Field
        >>> class Limits(BaseModel):
        ...     longest: int = Field(100, alias="max")
        >>> keys_of_model(Limits)
        {'max': 'longest'}
    """
    config = kind.model_config
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    keys: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        alias = field.validation_alias if config.get("validate_by_alias") is not False else None
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        for each in choices:
            key = each.path[0] if isinstance(each, AliasPath) else each
            keys[str(key) if key is not None else name] = name
        if by_name:
            keys.setdefault(name, name)
    return keys


def hints(make: Any) -> dict[str, Any]:
    """The types of what is called, by parameter; each that can be found out.

    Example:
        >>> def brief(text, longest: "int" = 100, judge: "OnlyForCheckers" = None): ...
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
    try:
        return typing.get_type_hints(make, include_extras=True)
    except Exception:  # a name that only a type checker knows, and whatever else they raise
        names = getattr(inspect.unwrap(make), "__globals__", {})
        return _one_by_one(getattr(make, "__annotations__", {}), names)


def hints_of_class(kind: type) -> dict[str, Any]:
    """The types of a class's fields; each that can be found out."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:
        found: dict[str, Any] = {}
        for each in reversed(kind.__mro__):
            names = {**getattr(sys.modules.get(each.__module__), "__dict__", {}), **vars(each)}
            found |= _one_by_one(vars(each).get("__annotations__", {}), names)
        return found


def _one_by_one(annotations: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Annotations without those that have a name in them that isn't there."""
    found: dict[str, Any] = {}
    for name, annotation in annotations.items():
        holder = type("", (), {"__annotations__": {name: annotation}})
        try:
            found |= typing.get_type_hints(holder, dict(names), include_extras=True)
        except Exception:
            continue  # nothing is known of this one
    return found
