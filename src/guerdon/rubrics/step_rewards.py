"""One reward per step, through a tree that contains trajectory rubrics.

While an episode runs, each rubric's log keeps what it did at each step (see `recording`). When
step rewards are requested, they are combined from the trajectory rubrics up (`by_step`). Steps are
identified by stamps that only grow, so that a rubric that saw some of them stays aligned.

The reward of a step at which a rubric failed is unknown: NaN, until a `Guarded` or a hand-written
parent that handled the failure replaces it. One that remains is a `TrajectoryError` (`compute`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from guerdon.errors import TrajectoryError
from guerdon.rubrics.failure import finite
from guerdon.rubrics.recording import NOT_CALLED, Outcome


def exact_sum(values: Iterable[float]) -> float:
    """Return the sum, rounded once: it doesn't depend on the order; infinite if too large.

    Example:
        >>> exact_sum([0.7, 0.2, 0.1])
        1.0
    """
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def compute(rubric: Any) -> list[float]:
    """See `Rubric.compute_step_rewards`."""
    if not _is_in_episodes(rubric):
        raise TrajectoryError(
            f"{type(rubric).__name__} contains no trajectory rubric: "
            "the rewards of its steps are its scores"
        )
    for stamp in rubric._log:
        check_known(rubric, stamp)
    rewards = by_step(rubric)
    for stamp, reward in rewards.items():
        if math.isnan(reward):  # a rubric that is shared failed elsewhere
            for each in rubric.rubrics():
                check_known(each, stamp)
    return [finite(rubric, rewards[stamp]) for stamp in sorted(rewards)]


def checked(written: Callable[[Any], Any]) -> Callable[[Any], list[float]]:
    """Make an author's `compute_step_rewards` raise if a step failed or its result is invalid."""

    @functools.wraps(written)
    def compute_step_rewards(self: Any) -> list[float]:
        is_super = type(self).compute_step_rewards is not compute_step_rewards
        if is_super or not _is_in_episodes(self):
            return written(self)  # type: ignore[no-any-return]
        return compute(self)

    return compute_step_rewards


def _is_in_episodes(rubric: Any) -> bool:
    """Whether a rubric contains a trajectory rubric, or is in a tree that does."""
    parents = list(rubric._parents.values())
    return rubric._find_traits().has_trajectory or any(map(_is_in_episodes, parents))


def stamps(rubric: Any) -> list[int]:
    """Return the steps that a rubric, or anything below it, has seen, in order."""
    return sorted({stamp for each in (rubric, *rubric.rubrics()) for stamp in each._log})


def by_step(rubric: Any) -> dict[int, float]:
    """Return the step rewards of a rubric by stamp; NaN for those that are unknown."""
    if rubric._overrides_step_rewards:
        written = type(rubric).compute_step_rewards.__wrapped__(rubric)
        steps = rubric._stamps if rubric._is_trajectory else stamps(rubric)
        rewards = dict(zip(steps, _checked(rubric, written, len(steps)), strict=True))
    elif rubric._find_traits().has_trajectory:
        rewards = rubric._rewards_by_step()
    else:
        rewards = scores_at(rubric, rubric._log)
    unknown = [stamp for stamp in rubric._log if _is_unknown(rubric, stamp)]
    return {**rewards, **dict.fromkeys(unknown, math.nan)}


def on(steps: Iterable[int], rewards: Mapping[int, float]) -> dict[int, float]:
    """Return rewards for the given steps; 0.0 for those that the child didn't see."""
    return {stamp: rewards.get(stamp, 0.0) for stamp in steps}


def scores_at(rubric: Any, steps: Iterable[int]) -> dict[int, float]:
    """Return the scores of a rubric as the rewards of steps: 0.0 if it was not called."""
    outcomes = {stamp: _outcome(rubric, stamp) for stamp in steps}
    return {
        stamp: math.nan if _is_unknown(rubric, stamp) else outcome.value or 0.0
        for stamp, outcome in outcomes.items()
    }


def failed(rubric: Any, stamp: int) -> bool:
    """Whether a rubric failed at a step, also if it has returned a substitute."""
    return _outcome(rubric, stamp).error is not None


def _is_unknown(rubric: Any, stamp: int) -> bool:
    """Whether a rubric failed at a step, or was cancelled, and returned nothing."""
    outcome = _outcome(rubric, stamp)
    return outcome.value is None and (outcome.called or outcome.error is not None)


def check_known(rubric: Any, stamp: int) -> None:
    """Check that a rubric didn't fail at a step.

    Raises:
        TrajectoryError: It failed; the message names the step and the cause.
    """
    if _is_unknown(rubric, stamp):
        error = _outcome(rubric, stamp).error
        cause = "was cancelled there"
        if error is not None:
            cause = f"failed there with {type(error).__name__}: {error}"
        raise TrajectoryError(
            f"the reward of step {stamps(rubric).index(stamp)} isn't known: "
            f"{type(rubric).__name__} {cause}"
        ) from error


def final_score(rubric: Any) -> float | None:
    """Return the score at the end of the episode; None if it wasn't called at the last step."""
    seen = stamps(rubric)
    if rubric._is_trajectory and seen:
        final: float = rubric._final_score()
        return final
    if not seen:
        return None
    check_known(rubric, seen[-1])
    return _outcome(rubric, seen[-1]).value


def was_called(rubric: Any, stamp: int) -> bool:
    """Whether a rubric, or anything below it, was evaluated at a step."""
    return any(_outcome(each, stamp).called for each in (rubric, *rubric.rubrics()))


def of_hand_written(rubric: Any) -> dict[int, float]:
    """Return the step rewards of a parent whose `forward` an author wrote.

    If at each step at which it called a child with trajectory rubrics it returned the score of one
    of them, those children's step rewards; else its own scores.
    """
    outcomes = {stamp: _outcome(rubric, stamp) for stamp in stamps(rubric)}
    credited = {
        stamp: _credited(rubric, outcome)
        for stamp, outcome in outcomes.items()
        if outcome.used and not _is_unknown(rubric, stamp)
    }
    if None in credited.values():
        for each in rubric.rubrics():
            if each._dispatches and each._find_traits().has_trajectory:
                by_step(each)  # raises if several of its rubrics were called at one step
        return scores_at(rubric, outcomes)
    known = {id(child): by_step(child) for child in credited.values()}
    of_children = {stamp: known[id(child)][stamp] for stamp, child in credited.items()}
    return {**scores_at(rubric, outcomes), **of_children}


def _credited(rubric: Any, outcome: Outcome) -> Any | None:
    """The child with trajectory rubrics whose score was returned, if any."""
    child = outcome.credited
    inside = child is not None and id(child) in rubric._find_traits().paths
    return child if inside and child._find_traits().has_trajectory else None  # type: ignore[union-attr]


def _outcome(rubric: Any, stamp: int) -> Outcome:
    outcome: Outcome = rubric._log.get(stamp, NOT_CALLED)
    return outcome


def _checked(rubric: Any, rewards: Sequence[float], steps: int) -> list[float]:
    """Check the step rewards of an author's rubric.

    Raises:
        TrajectoryError: There isn't one per step.
        InvalidScoreError: One is not a finite float.
    """
    if len(rewards) != steps:
        raise TrajectoryError(
            f"{type(rubric).__name__}.compute_step_rewards returned {len(rewards)} rewards for "
            f"{steps} steps; it must return one per step"
        )
    return [finite(rubric, reward) for reward in rewards]
