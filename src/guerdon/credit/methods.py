"""The estimators by name."""

from __future__ import annotations

from collections.abc import Callable

from guerdon.credit.credit import Credit
from guerdon.credit.group_in_group import gigpo, hgpo
from guerdon.credit.outcome import dr_grpo, grpo, reinforce_pp, rloo
from guerdon.credit.process import gae, group_normalized_returns, mt_grpo, pure

__all__ = ["METHODS"]

METHODS: dict[str, Callable[..., Credit]] = {
    "gigpo": gigpo,
    "hgpo": hgpo,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "group_normalized_returns": group_normalized_returns,
    "gae": gae,
    "mt_grpo": mt_grpo,
    "pure": pure,
}
"""Every estimator that gives a `Credit`, by its name."""
