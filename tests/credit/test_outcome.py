"""GRPO, Dr. GRPO, RLOO and REINFORCE++, compared with computed examples."""

import numpy as np
import pytest

from guerdon.credit import dr_grpo, grpo, reinforce_pp, rloo
from guerdon.errors import CreditError
from tests.credit.calls import run

# Scores of g: 4, 1, 1 (a takes two steps), and of h, alone: 5.
REWARDS = [1.0, 3.0, 1.0, 1.0, 5.0]
TABLE = {"group": list("ggggh"), "trajectory": list("aabcd"), "step": [0, 1, 0, 0, 0]}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        # mean 2, σ² = (4 + 1 + 1) / 2 = 3: 2 / (1.7320508 + 1e-6), −1 / …
        (grpo, [1.1546998, 1.1546998, -0.5773499, -0.5773499, 0.0]),
        (dr_grpo, [2.0, 2.0, -1.0, -1.0, 0.0]),
        # 4 − (1 + 1) / 2, 1 − (4 + 1) / 2
        (rloo, [3.0, 3.0, -1.5, -1.5, 0.0]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_grpo_and_relatives_a_trajectory_against_its_group(method, expected):
    credit = run(method, REWARDS, **TABLE, gamma=0.5)
    np.testing.assert_allclose(credit.advantage, expected, atol=1e-7)
    np.testing.assert_array_equal(credit.episode, credit.advantage)
    assert credit.returns.tolist() == [2.5, 3.0, 1.0, 1.0, 5.0]
    assert credit.step.tolist() == [0.0] * 5
    assert credit.anchor.tolist() == [-1] * 5
    assert credit.diagnostics.singletons == ("h",)


def test_reinforce_pp_whitens_over_the_batch():
    credit = run(reinforce_pp, [0.0, 2.0, 0.0, 4.0], trajectory=list("abcd"), step=[0] * 4)
    # mean 1.5, σ² = (2.25 + 0.25 + 2.25 + 6.25) / 3 = 11/3; σ = 1.9148542
    np.testing.assert_allclose(
        credit.advantage, [-0.7833490, 0.2611163, -0.7833490, 1.3055815], atol=1e-6
    )
    np.testing.assert_array_equal(credit.step, credit.advantage)
    assert credit.episode.tolist() == [0.0] * 4


def test_grpo_without_the_deviation_is_dr_grpo():
    by_mean = run(grpo, REWARDS, **TABLE, normalize="mean").advantage
    np.testing.assert_array_equal(by_mean, run(dr_grpo, REWARDS, **TABLE).advantage)
    with pytest.raises(CreditError, match="`normalize` must be 'mean_std' or 'mean', got 'std'"):
        run(grpo, REWARDS, **TABLE, normalize="std")


def test_reinforce_pp_takes_returns_not_scores():
    credit = run(reinforce_pp, [1.0, 1.0], trajectory=["a", "a"], step=[0, 1], gamma=0.5)
    assert credit.returns.tolist() == [1.5, 1.0]
    assert credit.advantage[0] == -credit.advantage[1] > 0


@pytest.mark.parametrize("method", [grpo, dr_grpo, rloo, reinforce_pp], ids=lambda m: m.__name__)
def test_grpo_and_relatives_reject_a_discount_above_1(method):
    with pytest.raises(CreditError, match=r"`gamma` must be in \[0, 1\], got 2"):
        run(method, REWARDS, **TABLE, gamma=2)
