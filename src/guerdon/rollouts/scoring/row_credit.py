"""Credit for the result rows of one group: an advantage for each assistant turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guerdon._loading import (
    load_object,
)
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts import keys
from guerdon.rollouts.alignment import AlignedRollout
from guerdon.rollouts.crediting import apply_credit, check_options
from guerdon.rollouts.keys import StateKey
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rubrics.failure import say_failure
from guerdon.types.rollout import Rollout

if TYPE_CHECKING:
    from guerdon.credit import Credit

__all__ = ["CreditSettings", "RowCredit"]

# Estimators that ask for what a file doesn't have.
_NOT_OF_FILES = {
    "gae": "takes the policy's value estimates, which a recorded conversation has none of",
    "reinforce_pp": (
        "compares with the whole batch that is trained on, and a file is scored a group at a time"
    ),
}


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """How credit is assigned.

    Example:
        >>> CreditSettings("gigpo", options={"gamma": 0.95}).state_key
        'last'

    Attributes:
        method: The estimator, by its name in `guerdon.credit`.
        state_key: What makes two steps the same state: ``last``, ``last-K``, ``history``, or
            ``file.py:function``.
        options: The estimator's own, such as ``gamma``.
    """

    method: str
    state_key: str = "last"
    options: Mapping[str, Any] = field(default_factory=dict)


# Estimators that compare with nothing.
_ALONE = frozenset(("pure",))


class RowCredit:
    """Assigns credit to the rows of a group.

    Args:
        settings: How.

    Raises:
        InvalidArgumentError: There is no such method, option or state key.
        LoadError: The function of the state key can't be loaded.
    """

    def __init__(self, settings: CreditSettings) -> None:
        self.settings = settings
        if settings.method in _NOT_OF_FILES:
            raise InvalidArgumentError(
                f"{settings.method} {_NOT_OF_FILES[settings.method]}; call it in the trainer: "
                "guerdon.apply_credit(…)"
            )
        check_options(settings.method, settings.options)
        # Of no rollouts: what the options can't be is said before anything is scored.
        apply_credit([], settings.method, **settings.options)
        self._key: StateKey | str = settings.state_key
        if ":" in settings.state_key:
            self._key = load_object(settings.state_key)
            if not callable(self._key):
                raise InvalidArgumentError(
                    f"--state-key {settings.state_key} is {type(self._key).__name__}; it takes a "
                    "function of a step"
                )
        keys.state_key(self._key)

    @property
    def identity(self) -> list[Any]:
        """What the fingerprint is taken of."""
        return [self.settings.method, self._key, dict(self.settings.options)]

    def add(self, rollouts: Sequence[Rollout], rows: Sequence[ResultRow]) -> None:
        """Add advantages to the rows of one group; what stands in the way is told in them."""
        pairs = enumerate(zip(rollouts, rows, strict=True))
        aligned = [_aligned(*pair, place) for place, pair in pairs]
        try:
            credit = apply_credit(
                aligned,
                self.settings.method,
                state_key=self._key,
                group=lambda rollout: "",
                **self.settings.options,
            )
        except Exception as error:  # also that of a person's own state key
            said = f"no credit: {say_failure(error)}"
            for row in rows:
                row.setdefault("notes", []).append(said)
            return
        anchors = iter(credit.anchor.tolist())
        ids = Counter(str(row["id"]) for row in rows)
        for rollout, row in zip(aligned, rows, strict=True):
            _add(rollout, row, anchors)
            row.setdefault("notes", []).extend(self._notes(row, credit))
            if ids[str(row["id"])] > 1 and row["id"] is not None:
                row["notes"].append("another rollout of its group has the same id")

    def _notes(self, row: ResultRow, credit: Credit) -> Iterator[str]:
        if self.settings.method in _ALONE:
            return
        if row["group"] is None:
            yield "it has no group, so that nothing compares with it"
        elif credit.diagnostics.singletons:
            yield "its group has no other valid score, so that nothing compares with it"
        given = [reward for reward in row["step_rewards"] or () if reward is not None]
        if given and row["score"] and not any(given):
            yield "all base rewards that it gives are 0, so that no return sees its score"


def _aligned(rollout: Rollout, row: ResultRow, place: int) -> AlignedRollout:
    steps = rollout.to_step_data()
    for step, reward in zip(steps, row["step_rewards"] or (), strict=False):
        step.base_reward = reward
    return AlignedRollout(place, steps, row["score"], row["is_score_valid"])


def _add(rollout: AlignedRollout, row: ResultRow, anchors: Iterator[int]) -> None:
    said = {each["step_index"]: each for each in row.get("steps", ())}
    row["steps"] = steps = []
    for step in rollout.steps:
        turn = step.step_info["assistant_turn_index"]
        told = {
            "step_index": turn,
            "base_reward": step.base_reward,
            "advantage": step.advantage,
            "return_to_go": step.return_to_go,
        }
        anchor = next(anchors)
        if anchor >= 0:
            told["anchor"] = anchor
        more = said.get(turn, {})
        steps.append(told | {name: more[name] for name in ("reason", "metrics") if name in more})
