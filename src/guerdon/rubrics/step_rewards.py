"""One reward a step, through a tree that holds trajectory rubrics.

While an episode runs, the outermost rubric keeps in each node's log what the node did at each
step (`record`). When somebody asks, rewards flow up from the trajectory rubrics (`by_step`).
Steps are told apart by stamps that only grow, so that a node that saw some of them stays aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon.errors import TrajectoryError
from guerdon.rubrics.call import finite, trace
from guerdon.rubrics.frames import Frame, Step

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = [
    "Outcome",
    "by_step",
    "check",
    "compute",
    "failed",
    "final_score",
    "given",
    "handed_on",
    "of_hand_written",
    "on",
    "record",
    "stamps",
    "was_called",
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rubric did at one step.

    Attributes:
        called: Whether it was evaluated.
        value: The score that it gave; None where it was not called or failed.
        error: What it raised.
        handed_on: The child whose very score it returned.
        used: Whether it called a child that holds a trajectory rubric.
    """

    called: bool = False
    value: float | None = None
    error: Exception | None = None
    handed_on: Rubric | None = None
    used: bool = False


NOT_CALLED = Outcome()


# While the episode runs ------------------------------------------------------------------------


def handed_on(frame: Frame, value: float) -> Rubric | None:
    """The one child whose very score a rubric returned, if it did.

    Every score in such a tree is an object of its own, so that being the same one tells
    `return self.child(a, o)` from a formula that happens to give an equal number.
    """
    same = {id(entry[0]): entry[0] for entry in frame.entries if entry[1] is value}
    return next(iter(same.values())) if len(same) == 1 else None


def record(frame: Frame, step: Step) -> None:
    """Keep what every rubric of the tree did at this step; show it to those that must see it.

    Raises:
        TrajectoryError: A rubric that was not called refused to record the step.
    """
    outcomes: dict[int, Outcome] = {}
    _collect(frame, outcomes)
    refused: Exception | None = None
    for rubric in _concerned(step.root, outcomes):
        outcome = outcomes.get(id(rubric), NOT_CALLED)
        if rubric._is_trajectory and not outcome.called:
            try:
                rubric._see(step.stamp, step.action, step.observation)  # type: ignore[attr-defined]
            except Exception as error:
                trace(rubric, error)
                refused = refused or error
        rubric._log[step.stamp] = outcome
    if refused is not None:
        raise refused


def _collect(frame: Frame, outcomes: dict[int, Outcome]) -> None:
    assert frame.rubric is not None
    used = any(entry[0]._look().holds_trajectory for entry in frame.entries)
    outcomes[id(frame.rubric)] = Outcome(True, frame.value, frame.error, frame.handed_on, used)
    for _, value, _, below in frame.entries:
        below.value = value
        _collect(below, outcomes)


def _concerned(rubric: Rubric, outcomes: Mapping[int, Outcome]) -> Iterable[Rubric]:
    """The rubrics that the step concerns: all but those that a dispatcher passed by."""
    seen: dict[int, Rubric] = {}

    def visit(rubric: Rubric) -> None:
        if id(rubric) in seen:
            return
        seen[id(rubric)] = rubric
        for child in rubric._children.values():
            if not rubric._dispatches or _reached(child, outcomes):
                visit(child)

    visit(rubric)
    return seen.values()


def _reached(rubric: Rubric, outcomes: Mapping[int, Outcome]) -> bool:
    return any(id(each) in outcomes for each in (rubric, *rubric.rubrics()))


# When somebody asks ----------------------------------------------------------------------------


def compute(rubric: Rubric) -> list[float]:
    """See `Rubric.compute_step_rewards`."""
    if not rubric._look().holds_trajectory:
        raise TrajectoryError(
            f"{type(rubric).__name__} holds no trajectory rubric: "
            "the rewards of its steps are the scores that it gave"
        )
    rewards = by_step(rubric)
    return [rewards[stamp] for stamp in sorted(rewards)]


def stamps(rubric: Rubric) -> list[int]:
    """The steps that a rubric, or anything below it, has seen, in order."""
    return sorted({stamp for each in (rubric, *rubric.rubrics()) for stamp in each._log})


def by_step(rubric: Rubric) -> dict[int, float]:
    """The step rewards of a rubric, by stamp."""
    if rubric._credits:
        return _written(rubric)
    if not rubric._look().holds_trajectory:
        return {stamp: _given(rubric, stamp) for stamp in rubric._log}
    return rubric._rewards_by_step()


def on(steps: Iterable[int], rewards: Mapping[int, float]) -> dict[int, float]:
    """Rewards on the steps asked for; 0.0 on those that the child didn't see."""
    return {stamp: rewards.get(stamp, 0.0) for stamp in steps}


def failed(rubric: Rubric, stamp: int) -> bool:
    """Whether a rubric was evaluated at a step, and raised."""
    return _outcome(rubric, stamp).error is not None


def given(rubric: Rubric, steps: Iterable[int]) -> dict[int, float]:
    """The scores that a rubric gave, as the rewards of the steps."""
    return {stamp: _given(rubric, stamp) for stamp in steps}


def final_score(rubric: Rubric) -> float | None:
    """The score that the episode ended with; None where it was not reached at its last step."""
    seen = stamps(rubric)
    if rubric._is_trajectory and seen:
        return rubric._final_score()  # type: ignore[attr-defined, no-any-return]
    if not seen or not _outcome(rubric, seen[-1]).called:
        return None
    return _given(rubric, seen[-1])


def was_called(rubric: Rubric, stamp: int) -> bool:
    """Whether a rubric, or anything below it, was evaluated at a step."""
    return any(_outcome(each, stamp).called for each in (rubric, *rubric.rubrics()))


def of_hand_written(rubric: Rubric) -> dict[int, float]:
    """The step rewards of a parent whose `forward` an author wrote."""
    outcomes = {stamp: _outcome(rubric, stamp) for stamp in stamps(rubric)}
    chosen = {stamp: _credited(outcome) for stamp, outcome in outcomes.items() if outcome.used}
    if None in chosen.values():
        for each in rubric.rubrics():
            if each._dispatches and each._look().holds_trajectory:
                by_step(each)  # refuses steps at which several of its rubrics were called
        return {stamp: _given(rubric, stamp) for stamp in outcomes}
    known = {id(child): by_step(child) for child in chosen.values() if child is not None}
    return {
        stamp: known[id(chosen[stamp])].get(stamp, 0.0)
        if stamp in chosen
        else _given(rubric, stamp)
        for stamp in outcomes
    }


def _credited(outcome: Outcome) -> Rubric | None:
    """The child with trajectory rubrics whose very score a rubric returned, if it did."""
    child = outcome.handed_on
    return child if child is not None and child._look().holds_trajectory else None


def _outcome(rubric: Rubric, stamp: int) -> Outcome:
    outcome: Outcome = rubric._log.get(stamp, NOT_CALLED)
    return outcome


def _given(rubric: Rubric, stamp: int) -> float:
    """The score that a rubric gave at a step; 0.0 where it was not called."""
    outcome = _outcome(rubric, stamp)
    if outcome.error is not None and outcome.value is None:
        step = stamps(rubric).index(stamp)
        raise TrajectoryError(
            f"the reward of step {step} isn't known: {type(rubric).__name__} failed there with "
            f"{type(outcome.error).__name__}: {outcome.error}"
        ) from outcome.error
    return outcome.value if outcome.value is not None else 0.0


def _written(rubric: Rubric) -> dict[int, float]:
    """The step rewards of an author's own `compute_step_rewards`, checked."""
    rewards = rubric.compute_step_rewards()
    steps = rubric._stamps if rubric._is_trajectory else stamps(rubric)  # type: ignore[attr-defined]
    check(rubric, rewards, len(steps))
    return dict(zip(steps, map(float, rewards), strict=True))


def check(rubric: Rubric, rewards: Sequence[float], steps: int) -> None:
    """Check an author's step rewards.

    Raises:
        TrajectoryError: There isn't one a step.
        InvalidScoreError: One is no finite float.
    """
    if len(rewards) != steps:
        raise TrajectoryError(
            f"{type(rubric).__name__}.compute_step_rewards gave {len(rewards)} rewards for "
            f"{steps} steps; it gives one a step"
        )
    for reward in rewards:
        finite(rubric, reward)
