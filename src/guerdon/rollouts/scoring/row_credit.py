"""Credit for the result rows of one group: an advantage for each assistant turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon._loading import load_object
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.alignment import AlignedRollout
from guerdon.rollouts.crediting import StateKey, apply_credit, check_options
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rubrics.failure import say_failure
from guerdon.types.rollout import Rollout

if TYPE_CHECKING:
    from guerdon.credit import Credit

__all__ = ["CreditSettings", "RowCredit"]

# Estimators that require what a file of rollouts doesn't have.
_NOT_OF_FILES = {
    "gae": "requires the value estimates of the policy, which recorded conversations don't have",
    "reinforce_pp": "compares with the whole batch, but a file is scored a group at a time",
}


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """How credit is assigned.

    Example:
        >>> CreditSettings("gigpo", options={"gamma": 0.95}).state_key
        'last'

    Attributes:
        method: The name of an estimator of `guerdon.credit`.
        state_key: What makes two steps the same state: ``last``, ``last-K``, ``history``, or
            ``file.py:function``.
        options: The options of the estimator, such as ``gamma``.
    """

    method: str
    state_key: str = "last"
    options: Mapping[str, Any] = field(default_factory=dict)


class RowCredit:
    """Assigns credit to the rows of a group.

    Args:
        settings: How credit is assigned.

    Raises:
        InvalidArgumentError: There is no such estimator, option or state key.
        LoadError: The function of the state key can't be loaded.
    """

    def __init__(self, settings: CreditSettings) -> None:
        self.settings = settings
        if settings.method in _NOT_OF_FILES:
            raise InvalidArgumentError(
                f"{settings.method} {_NOT_OF_FILES[settings.method]}; call "
                "guerdon.apply_credit(…) in the trainer instead"
            )
        self._key: StateKey | str = settings.state_key
        if ":" in settings.state_key:
            self._key = load_object(settings.state_key)
        # Check the settings before anything is scored.
        check_options(settings.method, settings.options)
        apply_credit([], settings.method, state_key=self._key, **settings.options)

    @property
    def identity(self) -> list[Any]:
        """What a fingerprint covers."""
        return [self.settings.method, self._key, dict(self.settings.options)]

    def add(self, scored: Sequence[tuple[Rollout, ResultRow]]) -> None:
        """Add advantages to the rows of one group; failures are reported in their notes."""
        aligned = [_aligned(*pair, place) for place, pair in enumerate(scored)]
        rows = [row for _, row in scored]
        try:
            credit = apply_credit(
                aligned,
                self.settings.method,
                state_key=self._key,
                group=lambda rollout: "",
                **self.settings.options,
            )
        except Exception as error:  # a user's state key may raise anything
            for row in rows:
                row.setdefault("notes", []).append(f"no credit: {say_failure(error)}")
            return
        anchors = iter(credit.anchor.tolist())
        ids = Counter(str(row["id"]) for row in rows)
        for rollout, row in zip(aligned, rows, strict=True):
            row["steps"] = list(_steps(rollout, row, anchors))
            row.setdefault("notes", []).extend(self._notes(row, credit))
            if ids[str(row["id"])] > 1 and row["id"] is not None:
                row["notes"].append("another rollout of its group has the same id")

    def _notes(self, row: ResultRow, credit: Credit) -> Iterator[str]:
        if self.settings.method == "pure":  # which compares with nothing
            return
        if row["group"] is None:
            yield "it has no group, so that nothing compares with it"
        elif credit.diagnostics.singletons:
            yield "its group has no other valid score, so that nothing compares with it"
        rewards = [reward for reward in row["step_rewards"] or () if reward is not None]
        if rewards and row["score"] and not any(rewards):
            yield "all its base rewards are 0, so that no return contains its score"


def _aligned(rollout: Rollout, row: ResultRow, place: int) -> AlignedRollout:
    steps = rollout.to_step_data()
    for step, reward in zip(steps, row["step_rewards"] or (), strict=False):
        step.base_reward = reward
    return AlignedRollout(place, steps, row["score"], row["is_score_valid"])


def _steps(
    rollout: AlignedRollout, row: ResultRow, anchors: Iterator[int]
) -> Iterator[dict[str, Any]]:
    """The steps of a row with their advantages, and what the reward returned about them."""
    outputs = {each["step_index"]: each for each in row.get("steps", ())}
    for step in rollout.steps:
        turn = step.step_info["assistant_turn_index"]
        data = {
            "step_index": turn,
            "base_reward": step.base_reward,
            "advantage": step.advantage,
            "return_to_go": step.return_to_go,
        }
        anchor = next(anchors)
        if anchor >= 0:
            data["anchor"] = anchor
        output = outputs.get(turn, {})
        yield data | {name: output[name] for name in ("reason", "metrics") if name in output}
