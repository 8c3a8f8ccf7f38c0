"""Validating a config: against the arguments of a rubric, or as an instance of a config class."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from guerdon.config.documents import Problem
from guerdon.config.making.arguments import Argument, accepted_by, fields_of, types_of_fields
from guerdon.config.making.config_classes import config_class, is_model, members
from guerdon.config.mistakes import problems_of, unknown_key

__all__ = ["checked", "config_of", "unknown_keys"]


def config_of(annotation: Any, config: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """A config as what an annotation says, and what is wrong with it.

    An instance of its config class; a dictionary where it names none.

    Example:
        >>> config_of(dict[str, int], {"longest": 9})
        ({'longest': 9}, [])
        >>> config_of(dict[str, int], {"longest": "nine"})[1][0].said
        'it is the text "nine"; a whole number is needed'
    """
    kind = config_class(annotation)
    if kind is None:
        return _mapping(annotation, dict(config))
    if is_model(kind):
        return _model(kind, config)
    values, problems = checked(fields_of(kind), config)
    return (None if problems else (typing.get_origin(kind) or kind)(**values)), problems


def _mapping(annotation: Any, config: dict[str, Any]) -> tuple[Any, list[Problem]]:
    origin = typing.get_origin(annotation)
    if not isinstance(origin, type) or not issubclass(dict, origin):
        return config, []
    problems: list[Problem] = []
    made = _value(Argument("config", annotation), config, problems)
    return made, [Problem(each.place[1:], each.said) for each in problems]


def _model(kind: type[BaseModel], config: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    problems = unknown_keys(kind, config)
    try:
        made = kind.model_validate(dict(config))
    except ValidationError as error:
        told = {each.place for each in problems}
        found = problems_of(error, config, kind)
        return None, problems + [each for each in found if each.place not in told]
    return made, problems


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
    unknown = unknown_keys(argument.annotation, value)
    problems += [each.within(argument.name) for each in unknown]
    try:
        made = _validated(adapter, value)
    except ValidationError as error:
        told = {each.place for each in unknown}
        found = problems_of(error, value, argument.annotation)
        problems += [each.within(argument.name) for each in found if each.place not in told]
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


def unknown_keys(annotation: Any, value: Any) -> list[Problem]:
    """The keys in a value, however deep, that no config class at their place takes.

    Of a class within a config, pydantic lets go by what it doesn't know.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int = 100
        >>> [each.said for each in unknown_keys(list[Limits], [{"longst": 3}])]
        ["there is no such key; did you mean 'longest'?"]
    """
    kinds = list(members(annotation))
    problems: list[Problem] = []
    if isinstance(value, Mapping):
        classes = [each for each in kinds if config_class(each) is not None]
        accepted = [accepted_by(each) for each in classes]
        if classes and len(classes) == len(kinds) and None not in accepted:
            known = list(dict.fromkeys(key for keys in accepted for key in keys or ()))
            problems += [Problem((key,), unknown_key(key, known)) for key in value
                         if isinstance(key, str) and key not in known]  # fmt: skip
        inner = types_of_fields(classes[0]) if len(classes) == len(kinds) == 1 else {}
        values = _of_values(kinds)
        for key, each in value.items():
            problems += [found.within(key) for found in unknown_keys(inner.get(key, values), each)]
    elif isinstance(value, list) and len(kinds) == 1:
        for number, each in enumerate(value):
            item = _item(kinds[0], number)
            problems += [found.within(number) for found in unknown_keys(item, each)]
    return problems


def _of_values(kinds: list[Any]) -> Any:
    """What a mapping holds, where that is all it can be."""
    given = typing.get_args(kinds[0]) if len(kinds) == 1 else ()
    origin = typing.get_origin(kinds[0]) if given else None
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return given[1] if is_mapping and len(given) == 2 else Any


def _item(kind: Any, number: int) -> Any:
    """What stands at a position of a list or tuple."""
    given, origin = typing.get_args(kind), typing.get_origin(kind)
    if not given or not isinstance(origin, type) or issubclass(origin, Mapping):
        return Any
    if origin is tuple and given[-1] is not ...:
        return given[number] if number < len(given) else Any
    return given[0]
