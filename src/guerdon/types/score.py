"""`Score`: the result of one evaluation of a tree of rubrics, node by node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from guerdon._validation import did_you_mean

__all__ = ["Score", "Status"]

Status = Literal["scored", "skipped", "failed"]


def is_generic(name: str) -> bool:
    """Whether the name of a rubric is only that of its place, such as ``rubric_0``.

    Example:
        >>> is_generic("rubric"), is_generic("rubric_0#2"), is_generic("brief")
        (True, True, False)
    """
    return re.fullmatch(r"rubric(_\d+)?(#\d+)?", str(name)) is not None


def named_path(path: str, rubrics: Mapping[str, str]) -> str:
    """Return the path of a rubric, with its class if the name is only that of its place.

    Example:
        >>> named_path("code.rubric_0", {"code.rubric_0": "ValidJson"})
        'code.rubric_0 (ValidJson)'

    Args:
        path: The dotted path.
        rubrics: The names of classes by path.
    """
    kind = rubrics.get(re.sub(r"#\d+", "", path))
    return f"{path} ({kind})" if kind and is_generic(path.rpartition(".")[2]) else path


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one rubric in one evaluation, with those of its children.

    It belongs to that evaluation alone and never changes. A failure is not a 0: a rubric that
    raised has the status ``failed``, and no value unless a `Guarded` substitutes one; a rubric that
    was not reached has the status ``skipped`` and no value.

    Example:
        >>> from guerdon import Gate, Rubric, Sequential
        >>> class Short(Rubric):
        ...     '''The text has at most 5 characters.'''
        ...     def forward(self, action, observation):
        ...         return float(len(action) <= 5)
        >>> class Polite(Rubric):
        ...     '''The text contains please.'''
        ...     def forward(self, action, observation):
        ...         return float("please" in action)
        >>> score = Sequential(Gate(Short()), Polite()).score("give me that", None)
        >>> score.value, score.status
        (0.0, 'scored')
        >>> score["rubric_1"].status, score["rubric_1"].reason
        ('skipped', 'rubric_0 scored 0')
        >>> score.components()
        {'rubric_0': 0.0, 'rubric_0.rubric': 0.0}

    Attributes:
        name: The rubric's name in its parent; ``""`` for the root.
        value: A finite float, or None.
        status: ``scored``, ``skipped`` or ``failed``.
        weight: Its weight in its parent; None if the parent has no weights.
        seconds: Its duration, including its children; 0.0 if it was skipped.
        reason: The reason for the value, if `Rubric.explain` was called.
        error: The error message; None if it didn't fail.
        exception: The exception behind ``error``.
        hook_errors: What the rubric's forward hooks raised; the value doesn't depend on it.
        details: Further texts that explain the value: the ``prompt`` and the ``answer`` of a judge.
        children: The scores of its children, in their order in the tree.
        rubric: The name of the rubric's class; of a function, its own.
    """

    name: str = ""
    value: float | None = None
    status: Status = "scored"
    weight: float | None = None
    seconds: float = 0.0
    reason: str | None = None
    error: str | None = None
    exception: Exception | None = field(default=None, repr=False, compare=False)
    hook_errors: tuple[str, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Score, ...] = ()
    rubric: str = ""

    @property
    def label(self) -> str | None:
        """The name that its author gave it; None for one such as ``rubric_0``, and the root."""
        return None if not self.name or is_generic(self.name) else self.name

    def components(self) -> dict[str, float]:
        """Return every value below this node by dotted name.

        Skipped and failed rubrics are absent, not 0.

        Returns:
            Dotted names, such as ``"code.syntax"``, to finite floats.
        """
        return {name: node.value for name, node in self.walk() if name and node.value is not None}

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Score]]:
        """Iterate over this node and all below it, depth first, with their dotted names."""
        yield prefix, self
        for child in self.children:
            yield from child.walk(f"{prefix}.{child.name}" if prefix else child.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the score as JSON data, without fields that are None, empty or not finite.

        Example:
            >>> from guerdon import RegexMatch
            >>> data = RegexMatch("please").score("please", None).to_dict()
            >>> data["value"], data["status"]
            (1.0, 'scored')
        """
        data: dict[str, Any] = {"name": self.name, "rubric": self.rubric, "status": self.status}
        if self.status != "skipped":
            data["seconds"] = round(self.seconds, 6)
        for name in ("value", "weight", "reason", "error"):
            if (value := getattr(self, name)) is not None:
                data[name] = value
        if self.weight is not None and not isfinite(self.weight):  # times its factor
            del data["weight"]
        if self.hook_errors:
            data["hook_errors"] = list(self.hook_errors)
        if self.details:
            data["details"] = dict(self.details)
        if self.children:
            data["children"] = [child.to_dict() for child in self.children]
        return data

    def __getitem__(self, path: str) -> Score:
        for name, node in self.walk():
            if name == path:
                return node
        raise KeyError(
            f"no score at {path!r}; {did_you_mean(path, (name for name, _ in self.walk()))}"
        )
