"""GAE, MT-GRPO, PURE and group-normalised returns, compared with computed examples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.credit import discounted_returns, gae, group_normalized_returns, mt_grpo, pure
from guerdon.errors import CreditError
from tests.credit.calls import run

NAN = float("nan")


def test_group_normalized_returns_compare_all_steps_of_a_group():
    credit = run(
        group_normalized_returns,
        [1.0, 2.0, 0.0, 7.0],
        group=list("gggh"),
        trajectory=list("aabc"),
        step=[0, 1, 0, 0],
        gamma=0.5,
    )
    # returns 2, 2, 0: mean 4/3, σ² = (4/9 + 4/9 + 16/9) / 2 = 4/3; 2/3 / (1.1547005 + 1e-6)
    np.testing.assert_allclose(credit.advantage, [0.5773498, 0.5773498, -1.1546995, 0], atol=1e-7)
    np.testing.assert_array_equal(credit.step, credit.advantage)


def test_gae_is_the_discounted_sum_of_surprises():
    credit = run(
        gae,
        [0.0, 1.0, 2.0],
        trajectory=list("aab"),
        step=[0, 1, 0],
        values=[0.5, 0.25, 3.0],
        gamma=0.5,
        lam=0.5,
    )
    # δ: 0 + 0.5 · 0.25 − 0.5 = −0.375, 1 − 0.25 = 0.75, 2 − 3 = −1; −0.375 + 0.25 · 0.75 = −0.1875
    assert credit.advantage.tolist() == [-0.1875, 0.75, -1.0]
    assert credit.returns.tolist() == [0.3125, 1.0, 2.0]


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=8))
def test_gae_at_lambda_1_is_the_return_less_the_value(rows):
    rewards, values = zip(*rows, strict=True)
    table = {"trajectory": [0] * len(rows), "step": range(len(rows)), "gamma": 0.9}
    returns = run(discounted_returns, rewards, **table)
    credit = run(gae, rewards, values=values, **table)
    np.testing.assert_allclose(credit.returns, returns, atol=1e-9)
    np.testing.assert_allclose(credit.advantage, returns - values, atol=1e-9)
    # At λ = 0 it is δ.
    np.testing.assert_allclose(
        run(gae, rewards, values=values, lam=0, **table).advantage,
        np.array(rewards) + 0.9 * np.append(values[1:], 0) - values,
        atol=1e-9,
    )


def test_gae_needs_a_value_for_each_valid_row():
    table = {"trajectory": ["a", "b"], "step": [0, 0]}
    with pytest.raises(CreditError, match="`values` is not finite in row 1") as refusal:
        run(gae, [1.0, 1.0], values=[0.0, NAN], **table)
    assert refusal.value.rows == (1,)
    with pytest.raises(CreditError, match="values 1"):
        run(gae, [1.0, 1.0], values=[0.0], **table)
    with pytest.raises(CreditError, match=r"`lam` must be in \[0, 1\], got 2"):
        run(gae, [1.0, 1.0], values=[0.0, 0.0], lam=2, **table)
    assert run(gae, [1.0, 1.0], values=[0.0, NAN], valid=[1, 0], **table).advantage.tolist() == [
        1,
        0,
    ]


def test_mt_grpo_adds_the_outcome_to_the_turns_own_advantage():
    credit = run(
        mt_grpo,
        [3.0, 0.0, 1.0, 2.0, 2.0],
        group=list("ggggg"),
        trajectory=list("aabbc"),
        step=[0, 1, 4, 9, 0],
        episode_score={"a": 1.0, "b": 0.0, "c": 0.0},
        lam=0.5,
    )
    # First turns 3, 1, 2: mean 2, σ 1. Second turns 0, 2: mean 1, σ √2.
    by_turn = [1.0, -0.7071063, -1.0, 0.7071063, 0.0]
    # Outcomes 1, 0, 0: mean 1/3, σ² = (4/9 + 1/9 + 1/9) / 2 = 1/3; 2/3 / (0.5773503 + 1e-6)
    outcome = [1.1546985, 1.1546985, -0.5773493, -0.5773493, -0.5773493]
    np.testing.assert_allclose(credit.step, by_turn, atol=2e-6)
    np.testing.assert_allclose(credit.episode, outcome, atol=2e-6)
    np.testing.assert_allclose(credit.advantage, credit.step + 0.5 * credit.episode, atol=1e-12)


def test_mt_grpo_takes_no_score_for_a_turns_reward():
    credit = run(
        mt_grpo,
        [NAN] * 2,
        group=["g"] * 2,
        trajectory=["a", "b"],
        step=[0, 0],
        episode_score=[1.0, 0.0],
    )
    assert credit.step.tolist() == [0.0, 0.0]
    assert credit.returns.tolist() == [1.0, 0.0]


def test_mt_grpo_compares_turns_inside_a_group():
    credit = run(
        mt_grpo, [0.0, 1.0, 5.0], group=list("ggh"), trajectory=list("abc"), step=[0] * 3, lam=0
    )
    np.testing.assert_allclose(credit.advantage, [-0.70710578, 0.70710578, 0.0], atol=2e-6)


def test_process_estimators_without_the_standard_deviation():
    table = {"group": ["g"] * 2, "trajectory": ["a", "b"], "step": [0, 0], "normalize": "mean"}
    assert run(group_normalized_returns, [3.0, 1.0], **table).advantage.tolist() == [1.0, -1.0]
    # the turn 1, −1 and as much for the outcome
    assert run(mt_grpo, [3.0, 1.0], **table).advantage.tolist() == [2.0, -2.0]


@pytest.mark.parametrize("method", [group_normalized_returns, mt_grpo], ids=lambda m: m.__name__)
@pytest.mark.parametrize("options", [{"normalize": None}, {"gamma": -1}], ids=str)
def test_process_estimators_rejects_an_invalid_option(method, options):
    with pytest.raises(CreditError, match=next(iter(options))):
        run(method, [1.0], group=["g"], trajectory=["a"], step=[0], **options)


def test_pure_is_the_lowest_later_reward():
    credit = run(pure, [0.9, 0.2, 0.7, -1.0, 5.0], trajectory=list("aaabb"), step=[0, 1, 2, 1, 0])
    assert credit.advantage.tolist() == [0.2, 0.2, 0.7, -1.0, -1.0]


def test_pure_ignores_steps_without_a_reward():
    credit = run(
        pure, [0.9, NAN, 0.7, NAN], trajectory=["a"] * 4, step=range(4), default_step_reward=9
    )
    assert credit.advantage.tolist() == [0.7, 0.7, 0.7, 9.0]


def test_pure_needs_a_process_reward():
    with pytest.raises(CreditError, match="no process reward") as refusal:
        run(pure, [0.5, NAN], trajectory=["a", "b"], step=[0, 0], episode_score=[1.0, 1.0])
    assert refusal.value.rows == (1,)
