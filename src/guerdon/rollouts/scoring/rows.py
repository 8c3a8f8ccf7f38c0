"""`ResultRow`: what comes out for one rollout, whatever scored it."""

from __future__ import annotations

from typing import Any, TypedDict

from guerdon.errors import RolloutError

__all__ = [
    "ResultRow",
    "failed_row",
    "invalid_row",
]


class _Always(TypedDict):
    id: Any
    group: Any
    score: float | None
    is_score_valid: bool
    components: dict[str, float]
    step_rewards: list[float] | list[float | None] | None
    error: str | None
    fingerprint: str


class ResultRow(_Always, total=False):
    """What comes out for one rollout.

    Example:
        >>> from guerdon import NumericAnswer, Rollout, score_rollouts
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]})
        >>> [row] = score_rollouts(NumericAnswer(), [rollout])
        >>> row["id"], row["score"], row["is_score_valid"], row["step_rewards"], row["error"]
        ('q7', 1.0, True, [1.0], None)

    Attributes:
        id: The rollout's.
        group: The rollout's.
        score: Of a rubric, the sum of the step values; None where the row is invalid.
        is_score_valid: Whether the score counts.
        components: Of a rubric, those of the last step, by dotted name; where there are several
            steps, beside each ``name`` also ``name/mean``, its mean over the steps at which it
            has a value. Of a function, its metrics that are numbers.
        step_rewards: One for each assistant turn: of a rubric a finite float; of a function a
            float or None where it gave none. None where there are no step rewards at all.
        error: What failed, in words. Beside a valid score it tells of failures that the reward
            itself dealt with, such as a `Guarded` with ``on_error="zero"``.
        fingerprint: That of the reward, with its parameters and the credit that was asked for.
        reason: Why, in the words of a reward function.
        notes: What a reader of the score should know: what is odd about the conversation, what a
            function said about steps that aren't there, what credit says of the group.
        metrics: Those of a reward function that are no finite numbers.
        steps: What is known of single steps, each with its ``step_index``, the number of the
            assistant turn from 0: ``base_reward``, ``reason``, ``advantage``, ``return_to_go``.
        log: What a reward in a sandbox printed; of a batch it stands in its first row.
        sandbox: The level of the sandbox that the reward ran in; not there where it ran in none.
    """

    reason: str | None
    notes: list[str]
    metrics: dict[str, Any]
    steps: list[dict[str, Any]]
    log: str
    sandbox: str


def failed_row(error: RolloutError, fingerprint: str) -> ResultRow:
    """The row of a rollout that could not be read."""
    where = f"line {error.line}: " if error.line is not None else ""
    row = error.row if isinstance(error.row, dict) else None
    said = f"{where}{type(error).__name__}: {error}"
    found = None if row is None else row.get("id", error.line)
    group = None if row is None else row.get("group")
    return invalid_row(found, group, fingerprint, error=said)


def invalid_row(
    found: Any,
    group: Any,
    fingerprint: str,
    *,
    error: str,
    components: dict[str, float] | None = None,
) -> ResultRow:
    """The row of a rollout that has no score."""
    return {
        "id": found,
        "group": group,
        "score": None,
        "is_score_valid": False,
        "components": components or {},
        "step_rewards": None,
        "error": error,
        "fingerprint": fingerprint,
    }
