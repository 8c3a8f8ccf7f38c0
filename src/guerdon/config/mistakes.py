"""What pydantic finds wrong, in the words of this library: where, what, and what is accepted."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, core_schema

from guerdon.config.documents import Place, Problem, near

__all__ = ["problems_of", "told_value", "unknown_key"]

# What is accepted, by the type of pydantic's error.
_ACCEPTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_parsing": "a finite number",
    "float_type": "a finite number",
    "frozen_set_type": "a list",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "none_required": "nothing (null)",
    "set_type": "a list",
    "string_type": "text",
    "tuple_type": "a list",
}

_NO_MEMBER = ("union_tag_invalid", "union_tag_not_found")

_NEEDED = {str: "text", float: "a finite number", int: "a whole number", bool: "true or false"}

# What pydantic itself finds; errors of other types are our own, and said in full.
_PYDANTICS = frozenset(get_args(core_schema.ErrorType))


def problems_of(error: ValidationError, data: Any, model: Any = None) -> list[Problem]:
    """The problems that a validation found.

    Example:
        >>> from pydantic import BaseModel
        >>> class Limits(BaseModel, extra="forbid"):
        ...     longest: int
        >>> try:
        ...     Limits.model_validate({"longst": 3})
        ... except ValidationError as error:
        ...     for each in problems_of(error, {"longst": 3}, Limits):
        ...         print(each.place, each.said)
        ('longest',) it is missing; a whole number is needed
        ('longst',) there is no such key; did you mean 'longest'?

    Args:
        error: What pydantic raised.
        data: What it validated.
        model: As what: a model or a type, for the keys that there are.
    """
    errors = _of_files(error.errors(include_url=False))
    found: list[Problem] = []
    for each in errors:
        place = _place(each, data)
        if each["type"] in _NO_MEMBER:
            found += _of_tag(place, each["input"], _members(model, each["loc"]))
        # A list that is told to be too short may be so for what is wrong within it.
        elif each["type"] != "too_short" or not _is_around(each["loc"], errors):
            found.append(Problem(place, _said(each, model)))
    return list(dict.fromkeys(found))  # members of a union may say the same


def _of_files(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """The errors without those that what a file can't hold at all is missing, where others are."""
    own = [each for each in errors if each["type"] not in ("needs_python_object", "is_instance_of")]
    return own or errors


def unknown_key(key: str, known: Sequence[str]) -> str:
    """What there is to say of a key that nobody knows.

    Example:
        >>> unknown_key("lenght", ["length"])
        "there is no such key; did you mean 'length'?"
    """
    return "there is no such key; " + (near(key, known) if known else "none is accepted")


def told_value(value: Any) -> str:
    """A value as a file has it, with what it is.

    Example:
        >>> told_value("no"), told_value(None)
        ('the text "no"', 'empty (null)')
    """
    if value is None:
        return "empty (null)"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    kind = {bool: "", int: "the number ", float: "the number ", str: "the text "}.get(type(value))
    if kind is None:
        return f"{value!r:.60}"
    said = json.dumps(value, ensure_ascii=False)
    return kind + (said if len(said) <= 60 else said[:57] + "…")


def _said(error: ErrorDetails, model: Any) -> str:
    kind, given = error["type"], error["input"]
    if kind == "missing":
        needed = [_NEEDED[each] for each in _at(model, error["loc"]) if each in _NEEDED]
        return "it is missing" + (f"; {needed[0]} is needed" if needed else "")
    if kind == "extra_forbidden":
        return unknown_key(str(error["loc"][-1]), _keys(model, error["loc"][:-1]))
    if kind in _ACCEPTED:
        quote = _ACCEPTED[kind] == "text" and isinstance(given, int | float)
        said = f"it is {told_value(given)}; {_ACCEPTED[kind]} is needed"
        return said + ("; write it in quotes" if quote else "")
    if kind in ("literal_error", "enum"):
        return f"it is {told_value(given)}; it takes {error['ctx']['expected']}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind not in _PYDANTICS:
        return error["msg"]
    return f"it is {told_value(given)}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _of_tag(place: Place, given: Any, members: list[Any]) -> list[Problem]:
    """What is wrong with what should be one of several models, told apart by ``type``."""
    tags = [str(each.model_fields["type"].default) for each in members]
    if not isinstance(given, Mapping):
        return [Problem(place, f"it is {told_value(given)}; a mapping is needed")]
    if "type" in given:
        said = f"it is {told_value(given['type'])}; {near(str(given['type']), tags)}"
        return [Problem((*place, "type"), said)]
    known = list(dict.fromkeys(key for each in members for key in each.model_fields))
    unknown = [
        Problem((*place, key), unknown_key(str(key), known)) for key in given if key not in known
    ]
    return [
        Problem(place, f"its type is missing; it takes {' or '.join(map(repr, tags))}"),
        *unknown,
    ]


def _is_around(place: Place, errors: list[ErrorDetails]) -> bool:
    """Whether something is wrong within a place."""
    return any(each["loc"][: len(place)] == place != each["loc"] for each in errors)


def _place(error: ErrorDetails, data: Any) -> Place:
    """The keys that lead to what is wrong: pydantic's own, less the tags of unions."""
    place: list[str | int] = []
    last = len(error["loc"]) - 1
    for number, part in enumerate(error["loc"]):
        if _has(data, part):
            data = data[part]
        elif isinstance(data, BaseModel) and part in type(data).model_fields:
            data = getattr(data, str(part))
        elif number != last or error["type"] != "missing":
            continue
        place.append(part)
    return tuple(place)


def _has(data: Any, part: str | int) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)


# What a model has ------------------------------------------------------------------------------


def _at(model: Any, place: Sequence[str | int]) -> list[Any]:
    """The types that are accepted at a place."""
    for part in place:
        model = [inner for kind in _kinds(model) for inner in _within(kind, part)]
    return list(_kinds(model))


def _keys(model: Any, place: Sequence[str | int]) -> list[str]:
    """The keys that are accepted at a place."""
    return [key for kind in _at(model, place) for key in getattr(kind, "model_fields", ())]


def _members(model: Any, place: Sequence[str | int]) -> list[Any]:
    """The models of the union at a place."""
    return [kind for kind in _at(model, place) if "type" in getattr(kind, "model_fields", ())]


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, without what is around them."""
    if isinstance(annotation, list):
        for each in annotation:
            yield from _kinds(each)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    elif annotation is not None:
        yield annotation


def _within(kind: Any, part: str | int) -> Iterator[Any]:
    """The annotations of what a type holds under a key, or as its member of a tag."""
    fields = getattr(kind, "model_fields", None)
    if fields is not None:
        if part in fields:
            yield fields[part].annotation
        elif "type" in fields and fields["type"].default == part:
            yield kind
    elif get_origin(kind) is dict:
        yield get_args(kind)[1]
    elif get_origin(kind) in (list, tuple):
        yield get_args(kind)[0]
