"""`Score`: what one evaluation of a tree of rubrics gave, node by node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Score", "Status"]

Status = Literal["scored", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one rubric in one evaluation, with those of its children.

    It belongs to that evaluation alone and never changes. A failure is no zero: a rubric that
    raised has the status ``failed``, and no value unless a `Guarded` was told to put one in its
    place; a rubric that was not reached has the status ``skipped`` and no value.

    Example:
        >>> from guerdon import Gate, Rubric, Sequential
        >>> class Short(Rubric):
        ...     '''The text has at most 5 characters.'''
        ...     def forward(self, action, observation):
        ...         return float(len(action) <= 5)
        >>> class Polite(Rubric):
        ...     '''The text says please.'''
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
        value: A finite float, or None where there is none.
        status: ``scored``, ``skipped`` or ``failed``.
        weight: The weight that its parent gave it; None where the parent has no weights.
        seconds: How long it took, its children included; 0.0 where it was skipped.
        reason: Why the value is what it is, in words, where somebody said so.
        error: What went wrong, in words; None where nothing did.
        exception: The exception behind ``error``.
        hook_errors: What this rubric's forward hooks raised; the value doesn't depend on it.
        children: The scores of the rubric's children, in their order in the tree.
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
    children: tuple[Score, ...] = ()

    def components(self) -> dict[str, float]:
        """Every value below this node, by dotted name.

        Rubrics that were skipped or failed are absent, not 0.

        Returns:
            Dotted names, such as ``"code.syntax"``, to finite floats.
        """
        return {name: node.value for name, node in self.walk() if name and node.value is not None}

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Score]]:
        """This node and all below it, depth first, with their dotted names (``""`` is itself)."""
        yield prefix, self
        for child in self.children:
            yield from child.walk(f"{prefix}.{child.name}" if prefix else child.name)

    def __getitem__(self, path: str) -> Score:
        for name, node in self.walk():
            if name == path:
                return node
        raise KeyError(f"no score at {path!r}; there are {[name for name, _ in self.walk()]}")
