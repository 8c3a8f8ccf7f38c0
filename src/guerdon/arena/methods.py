"""`Method`: a way to compute the advantages that a policy is trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from guerdon._loading import load_object
from guerdon._validation import did_you_mean
from guerdon.arena.episodes import Episodes
from guerdon.arena.exact import exact_values, uniform_policy
from guerdon.arena.model import Floats, Model
from guerdon.credit import ESTIMATORS, Credit, StepBatch
from guerdon.errors import CreditError, InvalidArgumentError

__all__ = ["METHODS", "Method", "reinforce"]


def reinforce(batch: StepBatch, *, gamma: float = 1.0) -> Credit:
    """REINFORCE: the return from the step on, without a baseline (Williams, 1992).

    Example:
        >>> from guerdon.arena import reinforce
        >>> from guerdon.credit import StepBatch
        >>> batch = StepBatch.from_arrays([0.0, 1.0], trajectory=["a", "a"], step=[0, 1])
        >>> reinforce(batch).advantage.tolist()
        [1.0, 1.0]

    Args:
        batch: The batch.
        gamma: The discount, in [0, 1].
    """
    returns = batch.returns(gamma)
    return Credit.of(batch, returns, step=returns, returns=returns)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to compute advantages, with what it reads.

    Example:
        >>> from guerdon.arena import METHODS, Method
        >>> METHODS["gigpo"].options
        {'gamma': 0.95}
        >>> Method.named("rloo").rewards
        'world'

    Attributes:
        name: Its name in tables.
        estimate: The estimator; None is the exact advantage of the policy.
        options: The estimator's options.
        rewards: What the base reward of a step is: the ``world``'s own; the ``score`` that the
            episode is expected to have after it; or the ``progress``, the difference of two of
            these. The expectation is that of the uniform policy, like that of a judge who doesn't
            know the policy.
        about: What it does, in a sentence.
    """

    name: str
    estimate: Callable[..., Credit] | None
    options: Mapping[str, Any] = field(default_factory=dict)
    rewards: Literal["world", "score", "progress"] = "world"
    about: str = ""

    @classmethod
    def named(cls, name: str) -> Method:
        """Return the method of that name, a registered estimator, or that of a file.

        Args:
            name: A name of `METHODS` or of an estimator, or ``file.py:function``.

        Raises:
            InvalidArgumentError: There is no method or estimator of that name.
            LoadError: The file can't be imported, or has no such function.
        """
        if name in METHODS:
            return METHODS[name]
        if ":" in name:
            return cls(name, load_object(name))
        if name not in ESTIMATORS:
            hint = did_you_mean(name, [*METHODS, *ESTIMATORS.names()])
            raise InvalidArgumentError(f"there is no method {name!r}; {hint}")
        return cls(name, ESTIMATORS[name])

    @property
    def needs_critic(self) -> bool:
        """Whether it reads the values of a critic."""
        return "values" in getattr(self.estimate, "needs", ())

    def options_for(self, model: Model) -> dict[str, Any]:
        """Return the options: the weights of components are those of the world's rubric."""
        options = dict(self.options)
        if "components" in getattr(self.estimate, "needs", ()):
            options.setdefault("weights", model.weights)
        return options

    def base_rewards(self, episodes: Episodes) -> Floats:
        """Return the base reward of every step, (M,)."""
        if self.rewards == "world":
            return episodes.reward
        scores, before = expected_scores(episodes)
        return scores if self.rewards == "score" else scores - before

    def credit(self, batch: StepBatch, model: Model) -> Credit:
        """Return the credit of a batch.

        Raises:
            CreditError: The estimator returned something else than a finite advantage for each
                row, or changed the batch.
        """
        assert self.estimate is not None
        for array in (batch.rewards, batch.scores, batch.state, batch.values):
            if array is not None:
                array.setflags(write=False)
        try:
            credit = self.estimate(batch, **self.options_for(model))
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise CreditError(f"the estimator {self.name!r} changes the batch: {error}") from error
        advantage = getattr(credit, "advantage", None)
        shape = np.shape(advantage) if advantage is not None else None
        if not isinstance(credit, Credit) or shape != (batch.size,):
            raise CreditError(
                f"the estimator {self.name!r} must return a Credit with an advantage of the shape "
                f"({batch.size},), got {type(credit).__name__} with {shape}"
            )
        if not np.isfinite(credit.advantage).all():
            raise CreditError(f"the estimator {self.name!r} returned advantages that aren't finite")
        return credit


def expected_scores(episodes: Episodes) -> tuple[Floats, Floats]:
    """Return the score that an episode is expected to have after each step and before it, (M,).

    It is the sum of the rewards so far plus the value of the state for the uniform policy. After
    the last step it is the score.
    """
    model = episodes.model
    values = exact_values(model, uniform_policy(model)).v
    values = np.append(values, np.zeros((1, values.shape[1])), 0)
    total = np.cumsum(episodes.reward)
    earned = total - (total - episodes.reward)[episodes.starts][episodes.episode]
    to_come = np.where(episodes.is_last, 0.0, values[episodes.turn + 1, episodes.after])
    before = earned - episodes.reward + values[episodes.turn, episodes.state]
    return earned + to_come, before


def _methods() -> dict[str, Method]:
    listed = [
        Method("exact", None, about="the exact advantage of the policy: the ceiling"),
        Method("reinforce", reinforce, about="the return from the step on, without a baseline"),
        Method("grpo", ESTIMATORS["grpo"], about="the score relative to the group's"),
        Method("dr_grpo", ESTIMATORS["dr_grpo"], about="GRPO without the deviation"),
        Method("rloo", ESTIMATORS["rloo"], about="the score relative to the others'"),
        Method("gdpo", ESTIMATORS["gdpo"], about="each component relative to the group's"),
        Method("reinforce_pp", ESTIMATORS["reinforce_pp"], about="the return, whitened"),
        Method(
            "group_returns",
            ESTIMATORS["group_normalized_returns"],
            about="the return relative to all steps of the group",
        ),
        Method("gae", ESTIMATORS["gae"], {"lam": 0.95}, about="a learned critic's values"),
        Method("mt_grpo", ESTIMATORS["mt_grpo"], about="turn rewards by turn, plus the outcome"),
        Method("turn_rloo", ESTIMATORS["turn_rloo"], about="the return relative to others' turn"),
        Method(
            "state_differences",
            ESTIMATORS["state_differences"],
            rewards="score",
            about="differences of a judge's expected scores",
        ),
        Method(
            "pure", ESTIMATORS["pure"], rewards="score", about="the worst expected score to come"
        ),
        Method("gigpo", ESTIMATORS["gigpo"], {"gamma": 0.95}, about="GRPO plus anchor groups"),
        Method("hgpo", ESTIMATORS["hgpo"], {"gamma": 0.95}, about="anchor groups with history"),
        Method("rtmc", ESTIMATORS["rtmc"], {"gamma": 0.99}, about="a tree of the group's steps"),
    ]
    return {each.name: each for each in listed}


METHODS: dict[str, Method] = _methods()
"""The methods of the arena by name; `Method.named` also finds registered estimators."""
