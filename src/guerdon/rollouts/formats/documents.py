"""What the formats share: checked documents, and the data of a rollout that a format lacks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.types.rollout import INVALID, Rollout
from guerdon.types.turn_tokens import TurnTokens

T = TypeVar("T")

# The key in ``metadata`` or ``extra`` of what guerdon writes beside a format's own fields.
OWN = "guerdon"


def check_document(kind: TypeAdapter[T], given: Any, *, place: str = "") -> T:
    """Return a checked part of a document.

    Args:
        kind: Its type.
        given: The part.
        place: Where it is, for the message.

    Raises:
        RolloutError: It isn't of that type.
    """
    try:
        return kind.validate_python(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
    location = list(problem["loc"])
    if location[:1] == ["steps"] and len(location) > 1:  # of ATIF, whose steps have numbers
        place, location = f"step_id {int(location[1]) + 1}", location[2:]
    where = ": ".join(filter(None, [place, ".".join(map(str, location))]))
    raise RolloutError(
        f"{where or 'the document'}: {problem['msg']}, got {shown(problem['input'])}"
    )


_tokens = TypeAdapter(TurnTokens)


def check_tokens(given: dict[str, Any], *, place: str) -> dict[str, Any] | None:
    """Return the tokens of a turn, without those that are None; None if there are none.

    Args:
        given: The fields of `TurnTokens`.
        place: Where they are, for the message.

    Raises:
        RolloutError: They are invalid.
    """
    known = {name: each for name, each in given.items() if each is not None}
    if not known:
        return None
    return check_document(_tokens, known, place=place).model_dump(exclude_none=True)


def invalid_row(error: Exception, **columns: Any) -> dict[str, Any]:
    """Return the row of a document that isn't a rollout; the columns that are None are left out."""
    known = {name: each for name, each in columns.items() if each is not None}
    return known | {"ended": INVALID, "error": str(error)}


def as_dict(document: Any) -> Any:
    """Return a document that is a model of pydantic as a dict; any other unchanged."""
    return document.model_dump() if isinstance(document, BaseModel) else document


def other_columns(rollout: Rollout, known: Collection[str]) -> dict[str, Any]:
    """Return the columns of a rollout that a format has no field for."""
    if isinstance(rollout.columns.get("tools"), list):
        known = {*known, "tools"}
    return {name: each for name, each in rollout.columns.items() if name not in known}


def tools_of(rollout: Rollout) -> list[Any] | None:
    """Return the tools that the model was offered, in OpenAI's format, if they are known."""
    tools = rollout.columns.get("tools")
    return tools if isinstance(tools, list) else None


def by_turn(rollout: Rollout, name: str) -> list[dict[str, Any]]:
    """Return a column that has a dict for each played turn; ``{}`` for turns without one.

    Raises:
        InvalidArgumentError: The column isn't a list with a dict or None for each turn.
    """
    turns = len(rollout.steps)
    given = rollout.columns.get(name)
    if given is None:
        return [{} for _ in range(turns)]
    entries = given if isinstance(given, list) else []
    if len(entries) != turns or not all(isinstance(each, dict | None) for each in entries):
        raise InvalidArgumentError(
            f"`{name}` must be a list with an object or null for each of the {turns} played "
            f"turns, got {shown(given)}"
        )
    return [dict(each or {}) for each in entries]
