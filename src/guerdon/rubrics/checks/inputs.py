"""The inputs of checks: the text of an action, the ground truth.

The two readers run once per check in a hot loop, so each has a fast path for the usual shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon._validation import shown
from guerdon.errors import MissingInputError
from guerdon.types.content import is_text_part, joined_text, text_or_parts


def field_of(holder: object, name: str) -> Any:
    """Return the value of a mapping's key or of an object's attribute; None if there is none."""
    if isinstance(holder, Mapping) and name in holder:
        return holder[name]
    return getattr(holder, name, None)


def text_of(action: object, field: str = "content") -> str:
    """Return the text of an action.

    A string is its own text, whatever the field. Otherwise the text is an attribute or, in a
    mapping, the value of a key. If an action has no `content`, its `message` is returned. The text
    of a list of parts is that of its text parts, ``{"type": "text", "text": …}``.

    Args:
        action: A string, an object with attributes, or a mapping.
        field: The attribute or key that contains the text.

    Raises:
        MissingInputError: The action has no such field, or its value is neither a string nor a list
            with a text part.

    Example:
        >>> text_of({"message": "42"})
        '42'
    """
    if isinstance(action, str):
        return action
    value = getattr(action, field, None)
    if type(value) is str:
        return value
    names = ("content", "message") if field == "content" else (field,)
    for name in names:
        value = text_or_parts(field_of(action, name))
        if isinstance(value, str) or (isinstance(value, list) and any(map(is_text_part, value))):
            return joined_text(value)
    value = field_of(action, field)
    problem = f"{field!r} " + ("is missing" if value is None else f"is {type(value).__name__}")
    if isinstance(value, list) and value:
        problem = f"{field!r} has no text part: {shown(value)}"
    raise MissingInputError(
        f"the action ({type(action).__name__}) has no text: {problem}; it must be a "
        f"string, or an object or mapping whose {' or '.join(map(repr, names))} is a string"
    )


def ground_truth_of(observation: object) -> Any:
    """Return the ground truth of an observation.

    It is `observation.metadata["ground_truth"]` or `observation.ground_truth`; in a mapping, the
    values of these keys.

    Args:
        observation: An object with attributes, or a mapping.

    Returns:
        The ground truth, of any type but None.

    Raises:
        MissingInputError: There is no ground truth, or it is None.

    Example:
        >>> ground_truth_of({"metadata": {"ground_truth": "42"}})
        '42'
    """
    metadata = getattr(observation, "metadata", None)
    if type(metadata) is dict and metadata.get("ground_truth") is not None:
        return metadata["ground_truth"]
    for holder in (field_of(observation, "metadata"), observation):
        value = field_of(holder, "ground_truth")
        if value is not None:
            return value
    raise MissingInputError(
        f"the observation ({type(observation).__name__}) has no ground truth: set "
        "observation.metadata['ground_truth'] or observation.ground_truth"
    )
