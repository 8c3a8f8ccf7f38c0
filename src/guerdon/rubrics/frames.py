"""What one evaluation records while it runs: a `Frame` for each rubric.

The frame that is being filled travels in a context variable, so that two threads or tasks that
evaluate one tree never see each other's numbers, and hand-written parents need to know nothing
of it. Where nobody records, there is no frame and a call costs next to nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import anyio

    from guerdon.rubrics.rubric import Rubric

__all__ = ["EntryTuple", "Frame", "Step", "any_not_yet", "current", "enter", "leave"]


# One evaluation of one rubric, as its parent's frame keeps it: the rubric, its score, the seconds
# it took, and its own frame.
EntryTuple: TypeAlias = "tuple[Rubric, float | None, float, Frame]"


class Step:
    """One step of an environment, as the outermost rubric that holds trajectory rubrics sees it."""

    __slots__ = ("action", "observation", "root", "stamp")

    # Stamps only grow, so that the steps that siblings saw apart can be put in order.
    _stamps = itertools.count()

    def __init__(self, root: Rubric, action: Any, observation: Any) -> None:
        self.root = root
        self.action = action
        self.observation = observation
        self.stamp = next(Step._stamps)


class Frame:
    """What one evaluation of one rubric has recorded so far.

    Defaults stand on the class: most frames set only the first two fields.
    """

    value: float | None = None
    error: Exception | None = None
    reason: str | None = None
    hook_errors: tuple[tuple[str, Exception], ...] = ()  # with the names of the hooks
    step: Step | None = None
    not_yet: bool = False  # a 0.0 that only means that the episode isn't over
    handed_on: Rubric | None = None  # the child whose very score this rubric returned
    super_calls: int = 0  # how deep super().__call__() is, for authors who write __call__
    limiter: anyio.CapacityLimiter | None = None  # set where sync leaves go to worker threads
    observed: Any = None  # of a recorder: the observation on which the last evaluation failed
    told: dict[str, Any] | None = None  # of a recorder: what the last scoring told of itself
    owner: Any = None  # of a recorder: the environment around whose step it was entered
    unawaited: list[tuple[Rubric, Coroutine[Any, Any, float]]] | None = None

    def __init__(self, rubric: Rubric | None) -> None:
        self.rubric = rubric
        self.entries: list[EntryTuple] = []

    def explain(self, text: str) -> None:
        """Keep why the rubric scores as it does."""
        self.reason = f"{self.reason}; {text}" if self.reason else text


def any_not_yet(entries: Iterable[EntryTuple]) -> bool:
    """Whether one of the scores only means that the episode isn't over."""
    return any(below.not_yet for _, _, _, below in entries)


_frame: ContextVar[Frame | None] = ContextVar("guerdon_frame", default=None)

current = _frame.get
enter = _frame.set
leave = _frame.reset
