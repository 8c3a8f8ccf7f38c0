"""Problems of data from outside: where they are, what is wrong, and what is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from guerdon._validation import did_you_mean, shown
from guerdon.errors import StateError

ModelT = TypeVar("ModelT", bound=BaseModel)

#: Keys and positions that lead to a value, such as ``("per_turn", 2, "weight")``.
Place = tuple[str | int, ...]

# What is accepted where pydantic reports one of these types of errors.
_EXPECTED = {
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a finite number"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
        "a mapping",
    ),
    "string_type": "a string",
    "none_required": "null",
}

REQUIRED, UNKNOWN = "is required", "unknown key"

_EXACT = {
    **dict.fromkeys(("missing", "union_tag_not_found"), REQUIRED),
    **dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), UNKNOWN),
}

# Fields of services that may contain a secret, if only by mistake: no message repeats their values.
_SECRET = frozenset(("api_key_env", "command", "env", "extra_body", "headers_env", "token_env"))

_OBJECTS = ("needs_python_object", "is_instance_of")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a configuration.

    Example:
        >>> print(Problem(("per_turn", 2, "weight"), "must be a finite number, got true"))
        per_turn[2].weight: must be a finite number, got true

    Attributes:
        place: Where it is; the empty place is the whole configuration.
        message: What is wrong, and what is accepted.
        line: The line, from 1, if it differs from that of the place.
    """

    place: Place
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{place_text(self.place)}: {self.message}" if self.place else self.message

    def within(self, *outer: str | int) -> Problem:
        """Return the same problem with a longer place.

        Example:
            >>> Problem(("weight",), REQUIRED).within("per_turn", 2).place
            ('per_turn', 2, 'weight')
        """
        return Problem((*outer, *self.place), self.message, self.line)


def place_text(place: Place) -> str:
    """Return a place as text.

    Example:
        >>> place_text(("per_turn", 2, "weight"))
        'per_turn[2].weight'
    """
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif isinstance(part, str) and re.fullmatch(r"[\w-]{1,100}", part):
            text += f".{part}"
        else:
            text += f"[{part!r:.100}]"
    return text.removeprefix(".")


def written(value: Any) -> str:
    """Return a value as a file has it, for messages.

    Example:
        >>> written("no"), written(None), written([1])
        ('"no"', 'null', 'a list')
    """
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # no JSON, or an integer of thousands of digits
        return shown(value)
    text = text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate as an escape
    return text if len(text) <= 60 else text[:59] + "…"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the message for a key that isn't accepted.

    Example:
        >>> unknown_key("lenght", ["length"])
        "unknown key; did you mean 'length'?"
    """
    known = list(known)
    return f"unknown key; {did_you_mean(key, known) if known else 'no key is accepted'}"


def problems_of(error: ValidationError, data: Any) -> list[Problem]:
    """Return the problems that pydantic found, in the words of this package.

    Example:
        >>> class Limits(BaseModel):
        ...     longest: int
        >>> try:
        ...     Limits.model_validate({"longest": "many"})
        ... except ValidationError as error:
        ...     print(*problems_of(error, {"longest": "many"}))
        longest: must be an integer, got "many"

    Args:
        error: What pydantic raised.
        data: What was validated, for the places.
    """
    errors = error.errors(include_url=False)
    # A file contains no Python objects: report the alternatives that it can contain.
    errors = [each for each in errors if each["type"] not in _OBJECTS] or errors
    inner = {each["loc"][:depth] for each in errors for depth in range(len(each["loc"]))}
    found = [
        Problem(_place(each, data), _message(each))
        for each in errors
        # A list is also reported as too short when its items are invalid.
        if each["type"] != "too_short" or each["loc"] not in inner
    ]
    return list(dict.fromkeys(found))  # the alternatives of a union may be reported alike


def validated_state(model: type[ModelT], state: Any) -> ModelT:
    """Return a state as an instance of its model.

    Raises:
        StateError: It is invalid.
    """
    try:
        return model.model_validate(dict(state) if isinstance(state, Mapping) else state)
    except ValidationError as error:
        problems = problems_of(error, state)
        raise StateError(
            f"the state is invalid: {'; '.join(map(str, problems))}",
            missing=[place_text(each.place) for each in problems if each.message == REQUIRED],
            unexpected=[place_text(each.place) for each in problems if each.message == UNKNOWN],
        ) from None


def validation_error(title: str, problems: Iterable[Problem], given: Any) -> ValidationError:
    """Return the error with which a validator reports several problems at their places.

    Args:
        title: What is invalid.
        problems: At least one.
        given: What was validated.
    """
    return ValidationError.from_exception_data(
        title,
        [
            {
                "type": PydanticCustomError("invalid", "{message}", {"message": each.message}),
                "loc": each.place,
                "input": given,
            }
            for each in problems
        ],
    )


def _message(error: ErrorDetails) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    # Pydantic writes all digits of a bound such as 1e100.
    message = re.sub(r"\d{18,}$", lambda digits: f"{float(digits[0]):g}", error["msg"])
    if kind in _EXACT:
        return _EXACT[kind]
    got = "" if _SECRET.intersection(error["loc"]) else f", got {written(given)}"
    if kind in _OBJECTS:
        return f"must be a Python object, which a file can't contain{got}"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("too_short", "too_long"):
        limit = (
            f"at least {context['min_length']}"
            if kind == "too_short"
            else f"at most {context['max_length']}"
        )
        return f"must have {limit} items, got {context['actual_length']}"
    if kind == "union_tag_invalid":
        tags = str(context["expected_tags"]).replace("'", "").split(", ")
        return f"unknown type {written(context['tag'])}; {did_you_mean(context['tag'], tags)}"
    if kind in _EXPECTED:
        quote = "; write it in quotes" if kind == "string_type" and _is_number(given) else ""
        return f"must be {_EXPECTED[kind]}{got}{quote}"
    if message.startswith("Input should"):
        return f"must{message.removeprefix('Input should')}{got}"
    return message


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place(error: ErrorDetails, data: Any) -> Place:
    """The keys that lead to the problem: those of pydantic without the tags of unions."""
    place: list[str | int] = []
    last = len(error["loc"]) - 1
    for number, part in enumerate(error["loc"]):
        if isinstance(data, BaseModel):
            data = dict(data)
        if isinstance(part, int) and isinstance(data, list | tuple):
            data = data[part] if part < len(data) else None
        elif isinstance(data, Mapping) and part in data:
            data = data[part]
        elif number != last or error["type"] not in ("missing", "invalid"):
            continue
        place.append(part)
    if error["type"].startswith("union_tag"):
        place.append(str(error["ctx"]["discriminator"]).strip("'"))
    return tuple(place)
