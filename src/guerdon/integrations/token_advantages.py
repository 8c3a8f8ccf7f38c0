"""Advantages of tokens, for trainers that pass estimators tensors of token rewards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from guerdon.credit.batch import StepBatch
from guerdon.credit.credit import Credit
from guerdon.credit.estimators import dr_grpo, grpo, rloo

Estimate: TypeAlias = Callable[[StepBatch], Credit]


def token_advantages(estimate: Estimate, rewards: Any, mask: Any, **columns: Any) -> Any:
    """Return the advantage of each row at the tokens of its mask; rewards of NaN don't count.

    Args:
        estimate: An estimator.
        rewards: A tensor (rows, tokens), whose sums are the rewards of the rows.
        mask: A tensor (rows, tokens).
        **columns: Further columns of `StepBatch`, such as ``group``.
    """
    scores = rewards.sum(-1).double().cpu().numpy()
    batch = StepBatch.from_arrays(scores, valid=~np.isnan(scores), **columns)
    return rewards.new_tensor(estimate(batch).advantage)[:, None] * mask


def _of_outcomes(
    estimate: Estimate, *, token_level_rewards: Any, response_mask: Any, index: Any, **kwargs: Any
) -> tuple[Any, Any]:
    rows = np.arange(len(index))
    advantages = token_advantages(
        estimate, token_level_rewards, response_mask, trajectory=rows, step=rows, group=index
    )
    return advantages, advantages


# In the form of the registries of verl and SkyRL: they return the advantages and the returns.
ESTIMATORS_OF_OUTCOMES = {
    f"guerdon_{name}": partial(_of_outcomes, estimate)
    for name, estimate in {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}.items()
}
