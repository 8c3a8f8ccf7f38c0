"""Scoring recorded rollouts with a reward function, pointwise or a group at a time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, Self

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.own_loop import LoopRunningError, OwnLoop
from guerdon.rollouts.scoring.rows import ResultRow, failed_row
from guerdon.rubrics.fingerprint import (
    fingerprint_of,
)
from guerdon.rubrics.functions.conversation import oddities
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.rubrics.functions.placement import place_outputs, places_of
from guerdon.rubrics.functions.results import failed
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.rollout import Rollout

__all__ = ["FunctionScorer"]

# What is no failure of a reward.
_PASSED_ON = (LoopRunningError, KeyboardInterrupt, GeneratorExit)

# Columns that have arguments of their own.
_OWN = frozenset(("messages", "rollouts_messages", "ground_truth", "ground_truths"))


class FunctionScorer:
    """Scores rollouts with one reward function.

    Use it as a context manager, so that the event loop of an async function is closed at the end.

    Example:
        >>> from guerdon import Rollout, reward_function
        >>> from guerdon.rollouts import FunctionScorer
        >>> @reward_function
        ... def answered(messages, ground_truth, *, bonus=0.0):
        ...     return float(ground_truth in messages[-1].text) + bonus
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> with FunctionScorer(answered, {"bonus": 0.5}) as scorer:
        ...     scorer.score(rollout)["score"]
        1.5

    Args:
        function: The function.
        parameters: What it is given by name beside the columns of a rollout, and before them.

    Raises:
        InvalidArgumentError: The function takes no parameter of such a name.
    """

    def __init__(self, function: RewardFunction, parameters: dict[str, Any] | None = None) -> None:
        self.function = function
        self.parameters = dict(parameters or {})
        for name in self.parameters:
            if name in _OWN or not function.parameters.takes(name):
                takes = ", ".join(sorted(function.parameters.named)) or "none"
                raise InvalidArgumentError(
                    f"{function.__name__} takes no parameter {name!r}; it takes {takes}"
                )
        self.fingerprint = self._fingerprint()
        self._loop = OwnLoop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.close()

    @property
    def takes_groups(self) -> bool:
        """Whether it scores the rollouts of a group together."""
        return self.function.mode == "batch"

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout; with a function of batches, as one that is alone in its group.

        Raises:
            AsyncRubricError: The function is async and an event loop is running here already.
        """
        return self.score_group([rollout])[0]

    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score rollouts; with a function of batches, against each other.

        What fails is told in the rows, not raised.

        Raises:
            AsyncRubricError: The function is async and an event loop is running here already.
        """
        for rollout in rollouts:
            if not isinstance(rollout, Rollout):
                raise InvalidArgumentError(
                    f"{rollout!r:.60} is no Rollout; of a record, record.to_rollout() is one"
                )
        if not self.takes_groups:
            return [self._row(rollout, self._result(rollout)) for rollout in rollouts]
        messages = [rollout.messages for rollout in rollouts]
        truths = [rollout.columns.get("ground_truth") for rollout in rollouts]
        try:
            results = self._evaluate(messages, truths, _columns(rollouts) | self.parameters)
        except _PASSED_ON:
            raise
        except BaseException as error:
            results = [failed(error) for _ in rollouts]
        return [self._row(*pair) for pair in zip(rollouts, results, strict=True)]

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that could not be read."""
        return failed_row(error, self.fingerprint) | {"reason": None, "notes": []}

    def _result(self, rollout: Rollout) -> EvaluateResult:
        others = {name: value for name, value in rollout.columns.items() if name not in _OWN}
        if self.parameters:
            others |= self.parameters
        try:
            found: EvaluateResult = self._evaluate(
                rollout.messages, rollout.columns.get("ground_truth"), others
            )
        except _PASSED_ON:
            raise
        except BaseException as error:  # also a cancellation: here it is the function's own
            found = failed(error)
        return found

    def _fingerprint(self) -> str:
        return fingerprint_of(self.function.fingerprint, self.function.mode, self.parameters)

    def _evaluate(self, messages: Any, ground_truth: Any, others: dict[str, Any]) -> Any:
        result = self.function.evaluate(messages, ground_truth, others)
        return self._loop.run(result, self.function.__name__) if self.function.is_async else result

    def _row(self, rollout: Rollout, result: EvaluateResult) -> ResultRow:
        valid = result.is_score_valid
        row: ResultRow = {
            "id": rollout.id,
            "group": rollout.group,
            "score": result.score if valid else None,
            "is_score_valid": valid,
            "components": {},
            "step_rewards": None,
            "error": result.error or (None if valid else result.reason or "it was marked invalid"),
            "fingerprint": self.fingerprint,
            "reason": result.reason,
            "notes": oddities(rollout.messages),
        }
        if result.metrics:
            row["components"] = dict(_numbers(result.metrics))
            rest = {k: v for k, v in result.metrics.items() if k not in row["components"]}
            if rest:
                row["metrics"] = rest
        if result.step_outputs is not None:
            _add_steps(row, rollout, result)
        if result.log:
            row["log"] = result.log
        return row


def _add_steps(row: ResultRow, rollout: Rollout, result: EvaluateResult) -> None:
    """Put what is said of steps on the assistant turns; what doesn't fit is noted."""
    turns = [action.turn for action, _ in rollout.steps]
    places = places_of((action.turn, action.step_id) for action, _ in rollout.steps)
    placed, misfits = place_outputs(result.step_outputs or (), places)
    row["step_rewards"] = [
        placed[place].base_reward if place in placed else None for place in range(len(turns))
    ]
    row["notes"] += [str(misfit) for misfit in misfits]
    row["steps"] = [
        {"step_index": turns[place], "base_reward": output.base_reward}
        | ({"reason": output.reason} if output.reason is not None else {})
        | ({"metrics": output.metrics} if output.metrics else {})
        for place, output in sorted(placed.items())
    ]


def _numbers(metrics: dict[str, Any]) -> Iterable[tuple[str, float]]:
    """The metrics that are finite numbers."""
    for name, value in metrics.items():
        if isinstance(value, Real):
            with contextlib.suppress(OverflowError):  # an int beyond every float
                if math.isfinite(value):
                    yield str(name), float(value)


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """The columns of several rollouts, each as a list with one value for each rollout."""
    names = dict.fromkeys(name for rollout in rollouts for name in rollout.columns)
    return {
        name: [rollout.columns.get(name) for rollout in rollouts]
        for name in names
        if name not in _OWN
    }
