"""One reward per step, through a tree that contains trajectory rubrics.

While an episode runs, each rubric's log keeps what it did at each step (see `recording`). When
step rewards are requested, they are combined from the trajectory rubrics up (`by_step`). Steps are
identified by stamps that only grow, so that a rubric that saw some of them stays aligned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    rewards = by_step(rubric)
    return [rewards[stamp] for stamp in sorted(rewards)]


def _is_in_episodes(rubric: Any) -> bool:
    """Whether a rubric contains a trajectory rubric, or is in a tree that does."""
    parents = list(rubric._parents.values())
    return rubric._find_traits().has_trajectory or any(map(_is_in_episodes, parents))


def stamps(rubric: Any) -> list[int]:
    """Return the steps that a rubric, or anything below it, has seen, in order."""
    return sorted({stamp for each in (rubric, *rubric.rubrics()) for stamp in each._log})


def by_step(rubric: Any) -> dict[int, float]:
    """Return the step rewards of a rubric by stamp."""
    if rubric._overrides_step_rewards:
        rewards = rubric.compute_step_rewards()
        steps = rubric._stamps if rubric._is_trajectory else stamps(rubric)
        check(rubric, rewards, len(steps))
        return dict(zip(steps, map(float, rewards), strict=True))
    if not rubric._find_traits().has_trajectory:
        return scores_at(rubric, rubric._log)
    scores_at(rubric, rubric._log)  # raises for a step at which it failed: its reward is unknown
    own: dict[int, float] = rubric._rewards_by_step()
    return own


def on(steps: Iterable[int], rewards: Mapping[int, float]) -> dict[int, float]:
    """Return rewards for the given steps; 0.0 for those that the child didn't see."""
    return {stamp: rewards.get(stamp, 0.0) for stamp in steps}


def scores_at(rubric: Any, steps: Iterable[int]) -> dict[int, float]:
    """Return the scores of a rubric as the rewards of steps."""
    return {stamp: _score(rubric, stamp) for stamp in steps}


def failed(rubric: Any, stamp: int) -> bool:
    """Whether a rubric was evaluated at a step, and raised."""
    return _outcome(rubric, stamp).error is not None


def final_score(rubric: Any) -> float | None:
    """Return the score at the end of the episode; None if it wasn't called at the last step."""
    seen = stamps(rubric)
    if rubric._is_trajectory and seen:
        final: float = rubric._final_score()
        return final
    if not seen or not _outcome(rubric, seen[-1]).called:
        return None
    return _score(rubric, seen[-1])


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
        stamp: _credited(rubric, outcome) for stamp, outcome in outcomes.items() if outcome.used
    }
    if None in credited.values():
        for each in rubric.rubrics():
            if each._dispatches and each._find_traits().has_trajectory:
                by_step(each)  # raises if several of its rubrics were called at one step
        return scores_at(rubric, outcomes)
    known = {id(child): by_step(child) for child in credited.values()}
    return {
        stamp: known[id(credited[stamp])].get(stamp, 0.0)
        if stamp in credited
        else _score(rubric, stamp)
        for stamp in outcomes
    }


def _credited(rubric: Any, outcome: Outcome) -> Any | None:
    """The child with trajectory rubrics whose score was returned, if any."""
    child = outcome.credited
    inside = child is not None and id(child) in rubric._find_traits().paths
    return child if inside and child._find_traits().has_trajectory else None  # type: ignore[union-attr]


def _outcome(rubric: Any, stamp: int) -> Outcome:
    outcome: Outcome = rubric._log.get(stamp, NOT_CALLED)
    return outcome


def _score(rubric: Any, stamp: int) -> float:
    """The score of a rubric at a step; 0.0 if it was not called."""
    outcome = _outcome(rubric, stamp)
    if outcome.error is not None and outcome.value is None:
        step = stamps(rubric).index(stamp)
        raise TrajectoryError(
            f"the reward of step {step} isn't known: {type(rubric).__name__} failed there with "
            f"{type(outcome.error).__name__}: {outcome.error}"
        ) from outcome.error
    return outcome.value if outcome.value is not None else 0.0


def check(rubric: Any, rewards: Sequence[float], steps: int) -> None:
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
    for reward in rewards:
        finite(rubric, reward)
