"""What a rubric takes of its entry's config: its arguments, or an instance of a config class."""

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from guerdon.rewards.config.documents import Problem
from guerdon.rewards.config.mistakes import problems_of, unknown_key
from guerdon.rewards.making.config_classes import (
    config_class,
    hints,
    hints_of_class,
    is_model,
    keys_of_model,
    members,
)

__all__ = [
    "Argument",
    "accepted_by",
    "arguments_of",
    "checked",
    "config_of",
    "fields_of",
    "unknown_keys",
]

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


def _fields(kind: Any) -> list[Argument]:
    """What a config class takes that is no model."""
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
        return [each.name for each in _fields(kind)]
    if kind.model_config.get("extra") == "allow" or issubclass(kind, RootModel):
        return None
    return list(keys_of_model(kind))


def fields_of(kind: Any) -> dict[str, Any]:
    """The annotations of what a config class takes, by their keys.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class Limits:
        ...     longest: int
        >>> fields_of(Limits)
        {'longest': <class 'int'>}
    """
    if is_model(kind):
        return {
            key: kind.model_fields[name].annotation for key, name in keys_of_model(kind).items()
        }
    return {each.name: each.annotation for each in _fields(kind)}


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
    values, problems = checked(_fields(kind), config)
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
        inner = fields_of(classes[0]) if len(classes) == len(kinds) == 1 else {}
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
