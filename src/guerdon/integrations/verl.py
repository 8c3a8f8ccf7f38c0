"""verl: rewards for its reward managers, estimators for its registry, and credit for steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from guerdon.credit.batch import StepBatch
from guerdon.credit.credit import Credit
from guerdon.credit.estimators import ESTIMATORS, dr_grpo, grpo, rloo
from guerdon.errors import RewardFunctionError
from guerdon.integrations.conversation_reward import (
    ConversationReward,
    OnInvalid,
    or_nan,
    score_of,
    substitute,
)
from guerdon.integrations.framework import import_framework
from guerdon.rubrics.function import RubricLike
from guerdon.types.evaluate_result import EvaluateResult

__all__ = ["compute_score", "register", "step_advantages"]

Estimate: TypeAlias = Callable[[StepBatch], Credit]


def compute_score(reward: RubricLike, *, on_invalid: OnInvalid = "raise") -> Callable[..., Any]:
    """Return the function of the file that ``reward.custom_reward_function.path`` names.

    The conversation that is scored has one message, the response, from the assistant: verl doesn't
    pass the prompt. The entries of ``extra_info`` and the ``data_source`` are the further columns.
    With an async reward the function is async.

    The result has the same keys in every row, as verl requires: each component of the tree, NaN if
    it was not reached, ``reward_failed``, 0 or 1, and ``score``. A reward function has no component
    names that are known before it is called, so its metrics are left out. The fingerprint of the
    reward is logged once.

    Example:
        >>> from guerdon import NumericAnswer
        >>> from guerdon.integrations.verl import compute_score
        >>> function = compute_score(NumericAnswer())
        >>> function(data_source="gsm8k", solution_str="A: 42", ground_truth="42", extra_info={})
        {'reward_failed': 0.0, 'score': 1.0}

    Args:
        reward: A rubric, or a pointwise reward function.
        on_invalid: What a failed reward does: ``"raise"``, with which verl leaves the rollout out
            of its group, or a number that is the reward instead. With NaN, the estimators of
            `register` give the rollout the advantage 0; verl's own give NaN to its whole group.

    Raises:
        RewardFunctionError: It is a reward function that scores batches.
    """
    scoring = ConversationReward(reward)

    def evaluate(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        columns = {**(extra_info or {}), "data_source": data_source, "ground_truth": ground_truth}
        return scoring.evaluate([{"role": "assistant", "content": solution_str}], columns)

    def row(result: EvaluateResult) -> dict[str, float]:
        components = scoring.components(result) if scoring.names else {}
        try:
            score, failed = score_of(result), 0.0
        except RewardFunctionError as error:
            score, failed = substitute(error, on_invalid, "verl"), 1.0
        return or_nan(components) | {"reward_failed": failed, "score": score}

    def function(*args: Any, **kwargs: Any) -> dict[str, float]:
        return row(evaluate(*args, **kwargs))

    async def function_async(*args: Any, **kwargs: Any) -> dict[str, float]:
        return row(await evaluate(*args, **kwargs))

    return function_async if scoring.is_async else function


# Advantages --------------------------------------------------------------------------------------


def _token_advantages(estimate: Estimate, rewards: Any, mask: Any, **columns: Any) -> Any:
    """The advantage of each row, at the tokens of its mask; rewards that are NaN don't count."""
    scores = rewards.sum(-1).double().cpu().numpy()
    batch = StepBatch.from_arrays(scores, valid=~np.isnan(scores), **columns)
    return rewards.new_tensor(estimate(batch).advantage)[:, None] * mask


def _estimated(
    estimate: Estimate, *, token_level_rewards: Any, response_mask: Any, index: Any, **kwargs: Any
) -> tuple[Any, Any]:
    rows = np.arange(len(index))
    advantages = _token_advantages(
        estimate, token_level_rewards, response_mask, trajectory=rows, step=rows, group=index
    )
    return advantages, advantages


_REGISTERED = {
    f"guerdon_{name}": partial(_estimated, estimate)
    for name, estimate in {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}.items()
}


def register() -> tuple[str, ...]:
    """Register the estimators that fit in verl's registry, for ``algorithm.adv_estimator``.

    verl passes an estimator the reward and the group of each row, not its step or state; for
    estimators that need those, see `step_advantages`. A row whose reward is NaN has advantage 0 and
    takes part in no statistic; so does a group of one, where verl's own take the reward itself.

    Example:
        >>> from guerdon.integrations.verl import register
        >>> def extend_verl():
        ...     register()  # in a module that VERL_USE_EXTERNAL_MODULES names

    Returns:
        Their names: ``guerdon_grpo``, ``guerdon_dr_grpo``, ``guerdon_rloo``.

    Raises:
        MissingExtraError: verl is not installed.
    """
    registry = import_framework("verl.trainer.ppo.core_algos", "pip install verl")
    for name, function in _REGISTERED.items():
        registry.register_adv_est(name)(function)
    return tuple(_REGISTERED)


def step_advantages(data: Any, *, method: str | Estimate = "gigpo") -> Any:
    """Return an advantage for each token of a `DataProto` whose rows are steps.

    The reward of a step is the sum of its ``token_level_rewards``; a trajectory with a reward that
    is NaN has advantage 0 and takes part in no statistic. ``non_tensor_batch`` has these columns:

    - ``uid``: the group, which is the prompt.
    - ``trajectory``: the trajectory, with an id that is unique in the batch.
    - ``step``: the number of the step in its trajectory.
    - ``state``: what the policy saw before the step, for GiGPO and HGPO.

    Example:
        >>> from guerdon.integrations.verl import step_advantages
        >>> def with_step_credit(data):
        ...     data.batch["advantages"] = step_advantages(data)

    Args:
        data: A `DataProto`, or anything with its ``batch`` and ``non_tensor_batch``.
        method: The name of an estimator, or a function of a `StepBatch`, such as
            ``functools.partial(gigpo, gamma=0.95)``.

    Returns:
        A tensor (rows, tokens), 0 where ``response_mask`` is 0.

    Raises:
        InvalidArgumentError: No estimator has this name.
        CreditError: A column is invalid, or missing for this estimator.
    """
    columns = data.non_tensor_batch
    return _token_advantages(
        ESTIMATORS[method] if isinstance(method, str) else method,
        data.batch["token_level_rewards"],
        data.batch["response_mask"],
        trajectory=columns["trajectory"],
        step=columns["step"],
        group=columns["uid"],
        state=columns.get("state"),
    )
