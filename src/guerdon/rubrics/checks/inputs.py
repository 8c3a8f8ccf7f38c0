"""The inputs of checks: the text of an action, the ground truth.

The two readers run once per check in a hot loop, so each has a fast path for the usual shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from guerdon._validation import shown
from guerdon.errors import MissingInputError
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked
from guerdon.types.content import is_text_part, joined_text, text_or_parts
from guerdon.types.reasoning import REASONING_TAGS, check_reasoning_tags, split_reasoning


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
        The ground truth, of any type but None; a number of numpy is one of Python.

    Raises:
        MissingInputError: There is no ground truth, or it is None.

    Example:
        >>> ground_truth_of({"metadata": {"ground_truth": "42"}})
        '42'
    """
    metadata = getattr(observation, "metadata", None)
    if type(metadata) is dict and metadata.get("ground_truth") is not None:
        return plain_value(metadata["ground_truth"])
    for holder in (field_of(observation, "metadata"), observation):
        value = field_of(holder, "ground_truth")
        if value is not None:
            return plain_value(value)
    columns = ", ".join(map(str, metadata)) if isinstance(metadata, dict) else "nothing"
    raise MissingInputError(
        f"the observation ({type(observation).__name__}) has no ground truth: set "
        "observation.metadata['ground_truth'] or observation.ground_truth, or name the column of "
        f"recorded rollouts with --ground-truth; its metadata has {columns}"
    )


def plain_value(value: Any) -> Any:
    """Return a scalar of numpy, or its array of one value, as a value of Python; others unchanged.

    A float is the one that numpy shows: `numpy.float32(0.1)` is 0.1.

    Example:
        >>> import numpy as np
        >>> plain_value(np.float32(0.1)), plain_value(np.array(18)), plain_value("18")
        (0.1, 18, '18')
    """
    if type(value) is str or getattr(value, "shape", None) != ():
        return value
    is_float = type(value).__module__ == "numpy" and value.dtype.kind == "f"
    return float(str(value)) if is_float else value.item()


class AnswerCheck(Rubric):
    """The base of checks that look for an answer, which reasoning never is.

    A subclass sets `field`, the attribute or key of the action that contains the text.

    Args:
        reasoning_tags: The tags around reasoning, as for `split_reasoning`.
    """

    field: str
    reasoning_tags = Checked(check_reasoning_tags)

    def __init__(self, reasoning_tags: Sequence[str]) -> None:
        super().__init__()
        self.reasoning_tags = reasoning_tags

    def answer_of(self, action: Any) -> str:
        """Return the text of an action without its reasoning."""
        return split_reasoning(text_of(action, self.field), self.reasoning_tags)[1]

    def __repr__(self) -> str:
        # The usual tags would fill the line.
        return super().__repr__().replace(f"reasoning_tags={REASONING_TAGS!r:.60}, ", "")


class ExpectedAnswer(AnswerCheck):
    """The base of checks that compare an answer with `expected`, or else with the ground truth."""

    reads: tuple[str, ...] = ("ground_truth",)
    state_names: ClassVar[tuple[str, ...]] = ("expected",)

    @property
    def expected(self) -> Any:
        """The right answer; None for the ground truth."""
        return self._expected

    @expected.setter
    def expected(self, value: Any) -> None:
        self._expected = self.checked(plain_value(value))
        self.reads = () if value is not None else type(self).reads

    def checked(self, value: Any) -> Any:
        """Return `expected` as it is stored, or raise InvalidArgumentError; None stays None."""
        return value
