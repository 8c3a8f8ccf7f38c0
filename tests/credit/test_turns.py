"""Credit of single turns: leave-one-out baselines, differences of state scores, rollout trees."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.credit import StepBatch, mt_grpo, rloo, rtmc, state_differences, turn_rloo
from guerdon.errors import CreditError
from tests.credit.calls import run

NAN = float("nan")

# turn_rloo ---------------------------------------------------------------------------------------


def test_turn_rloo_compares_with_the_others_that_reached_the_turn():
    credit = run(
        turn_rloo,
        [1.0, 2.0, 4.0, 3.0, 1.0, 5.0, 9.0],
        group=list("ggggggh"),
        trajectory=list("aaabbcd"),
        step=[0, 1, 2, 0, 1, 0, 0],
    )
    # returns: a 7, 6, 4; b 4, 1; c 5; d 9
    # a: 7 − (4 + 5)/2, 6 − 1, and alone at the third turn: 4 − (1 + 5)/2
    # b: 4 − (7 + 5)/2, 1 − 6; c: 5 − (7 + 4)/2; d is alone in its group
    assert credit.advantage.tolist() == [2.5, 5.0, 1.0, -2.0, -5.0, -0.5, 0.0]
    assert credit.returns.tolist() == [7.0, 6.0, 4.0, 4.0, 1.0, 5.0, 9.0]
    np.testing.assert_array_equal(credit.step, credit.advantage)


def test_turn_rloo_discounts_the_returns():
    credit = run(turn_rloo, [0.0, 4.0, 1.0], trajectory=list("aab"), step=[0, 1, 0], gamma=0.5)
    assert credit.advantage.tolist() == [2.0 - 1.0, 4.0 - 1.0, 1.0 - 2.0]
    with pytest.raises(CreditError, match="gamma"):
        run(turn_rloo, [0.0], trajectory=["a"], step=[0], gamma=1.5)


@settings(max_examples=20)
@given(
    scores=st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=2, max_size=5),
)
def test_turn_rloo_of_outcomes_at_the_first_turn_is_rloo(scores):
    rows = [(number, turn, score) for number, (score, turns) in enumerate(scores)
            for turn in range(turns)]  # fmt: skip
    trajectory, step, score = map(list, zip(*rows, strict=True))
    table = {"trajectory": trajectory, "step": step, "episode_score": score}
    turns = run(turn_rloo, [NAN] * len(rows), **table).advantage
    outcome = run(rloo, [NAN] * len(rows), **table).advantage
    first = np.array(step) == 0
    np.testing.assert_allclose(turns[first], outcome[first], atol=1e-12)


# A stopping problem, enumerated ------------------------------------------------------------------

# At the first turn the policy goes on with probability GO, or stops and gets STOP. At the second
# turn it chooses x with probability X and gets 1, or y and gets 0. Each probability is the logistic
# function of a parameter. J = (1 − GO) STOP + GO X.
GO, X, STOP = 0.25, 0.5, 0.25
# ∂J: GO (1 − GO) (X − STOP), GO X (1 − X)
GRADIENT = np.array([0.046875, 0.0625])
# What can happen: the probability, the rewards of the turns, ∇ log π of each turn.
EPISODES = [
    (1 - GO, [STOP], [(-GO, 0.0)]),
    (GO * X, [0.0, 1.0], [(1 - GO, 0.0), (0.0, 1 - X)]),
    (GO * (1 - X), [0.0, 0.0], [(1 - GO, 0.0), (0.0, -X)]),
]


def expected_gradient(estimator, episodes, *, of_returns=False, size=3, **options):
    """The exact expectation of (1/n) Σ_i Σ_t ∇ log π A_t over all groups of a size."""
    total = np.zeros(2)
    for group in product(episodes, repeat=size):
        rows = [
            (number, turn, sum(rewards[turn:]) if of_returns else reward, score, sum(rewards))
            for number, (_, rewards, scores) in enumerate(group)
            for turn, (reward, score) in enumerate(zip(rewards, scores, strict=True))
        ]
        trajectory, step, rewards, scores, outcome = map(list, zip(*rows, strict=True))
        batch = StepBatch.from_arrays(
            rewards, trajectory=trajectory, step=step, episode_score=outcome
        )
        advantage = estimator(batch, **options).advantage
        total += prod(each[0] for each in group) * (advantage @ np.array(scores)) / size
    return total


def test_turn_rloo_is_unbiased_where_the_policy_decides_when_to_stop():
    for size in (2, 3, 4):
        found = expected_gradient(turn_rloo, EPISODES, size=size)
        np.testing.assert_allclose(found, GRADIENT, atol=1e-15)


def test_mt_grpo_is_biased_where_the_policy_decides_when_to_stop():
    # Its baseline alone, with returns in place of the turns' own rewards. Of the two others k reach
    # the second turn with probability 9/16, 6/16, 1/16: the factor (n − 1) / n of a turn is 2/3 at
    # the first, and 0 · 9/16 + 1/2 · 6/16 + 2/3 · 1/16 = 11/48 at the second.
    found = expected_gradient(mt_grpo, EPISODES, of_returns=True, lam=0, normalize="mean")
    np.testing.assert_allclose(found, GRADIENT * [2 / 3, 11 / 48], atol=1e-15)
    # As published, with the turns' own rewards, of which the first turn has one only if it stops.
    # λ = 0 pushes it to stop, though going on is worth twice as much; λ = 1 adds 2/3 of the
    # gradient of the outcome, which cancels it.
    for lam, expected in (0, [-0.03125, 11 / 768]), (1, [0.0, 11 / 768 + 1 / 24]):
        found = expected_gradient(mt_grpo, EPISODES, lam=lam, normalize="mean")
        np.testing.assert_allclose(found, expected, atol=1e-15)


def test_mt_grpo_of_episodes_of_equal_length_is_unbiased_up_to_a_factor():
    # The same problem, where the second turn follows whatever was chosen, and J = GO · 0 +
    # (1 − GO) STOP + X: ∂J = −GO (1 − GO) STOP, X (1 − X).
    episodes = [
        (first * second, [reward, own], [score, last])
        for first, reward, score in ((GO, 0.0, (1 - GO, 0.0)), (1 - GO, STOP, (-GO, 0.0)))
        for second, own, last in ((X, 1.0, (0.0, 1 - X)), (1 - X, 0.0, (0.0, -X)))
    ]
    gradient = np.array([-0.046875, 0.25])
    found = expected_gradient(mt_grpo, episodes, lam=0, normalize="mean")
    np.testing.assert_allclose(found, gradient * 2 / 3, atol=1e-15)
    np.testing.assert_allclose(expected_gradient(turn_rloo, episodes), gradient, atol=1e-15)


# state_differences -------------------------------------------------------------------------------


def test_state_differences_give_a_turn_what_it_changed():
    credit = run(
        state_differences,
        [0.5, 0.25, 1.0, 0.25, 0.0, 0.75],
        group=list("gggggh"),
        trajectory=list("aaabbc"),
        step=[0, 1, 2, 0, 1, 0],
    )
    # a: the start is b's first score, 0.25; b: a's, 0.5; c: its own
    assert credit.advantage.tolist() == [0.25, -0.25, 0.75, -0.25, -0.25, 0.0]
    assert credit.returns.tolist() == [0.75, 0.5, 0.75, -0.5, -0.25, 0.0]
    np.testing.assert_array_equal(credit.step, credit.advantage)


def test_state_differences_share_a_difference_where_scores_are_unknown():
    credit = run(
        state_differences,
        [NAN, 0.5, NAN, NAN, 0.0, NAN, NAN],
        trajectory=list("aaaabbb"),
        step=[0, 1, 2, 3, 0, 1, 2],
        episode_score={"a": 1.0, "b": 0.5},
    )
    # a starts at 0, b's first score, and is at 0.5 after two turns, at 1 after four
    # b starts at 0.5, is at 0 after one turn, and at 0.5 after three
    assert credit.advantage.tolist() == [0.25, 0.25, 0.25, 0.25, -0.5, 0.25, 0.25]


def test_state_differences_without_base_rewards_share_what_rloo_gives():
    table = {"trajectory": list("aab"), "step": [0, 1, 0], "episode_score": {"a": 1.0, "b": 0.0}}
    assert run(state_differences, [NAN] * 3, **table).advantage.tolist() == [0.5, 0.5, -1.0]
    assert run(rloo, [NAN] * 3, **table).advantage.tolist() == [1.0, 1.0, -1.0]


def test_state_differences_discount_the_later_state():
    credit = run(state_differences, [0.5, 1.0], trajectory=["a", "a"], step=[0, 1], gamma=0.5)
    assert credit.advantage.tolist() == [0.25 - 0.5, 0.5 - 0.5]
    assert credit.returns.tolist() == [-0.25, 0.0]
    with pytest.raises(CreditError, match="gamma"):
        run(state_differences, [0.0], trajectory=["a"], step=[0], gamma=1.5)


walks = st.lists(
    st.lists(st.sampled_from([NAN, -1.0, 0.1, 0.3, 2.0]), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


@settings(max_examples=50)
@given(walks=walks)
def test_state_differences_add_up_to_the_last_score_less_the_first(walks):
    rows = [(number, turn, score) for number, walk in enumerate(walks)
            for turn, score in enumerate(walk)]  # fmt: skip
    trajectory, step, rewards = map(list, zip(*rows, strict=True))
    credit = run(
        state_differences, rewards, trajectory=trajectory, step=step,
        episode_score=dict.fromkeys(trajectory, 5.0),
    )  # fmt: skip
    known = [[score for score in walk if score == score] for walk in walks]
    firsts = np.array([(scores or [5.0])[0] for scores in known])
    others = (firsts.sum() - firsts) / max(len(walks) - 1, 1)
    last = [5.0 if walk[-1] != walk[-1] else walk[-1] for walk in walks]
    start = others if len(walks) > 1 else firsts
    np.testing.assert_allclose(np.bincount(trajectory, credit.advantage), last - start, atol=1e-12)


# rtmc --------------------------------------------------------------------------------------------

TREE = {
    "group": list("ggggggh"),
    "trajectory": list("aabbccd"),
    "step": [0, 1, 0, 1, 0, 1, 0],
    "state": ["hall", "left", "hall", "left", "hall", "right", "hall"],
    "action": ["l", "up", "l", "down", "r", "up", "l"],
    "episode_score": {"a": 3.0, "b": 0.0, "c": 6.0, "d": 5.0},
}


def test_rtmc_compares_the_value_of_an_action_with_that_of_the_state():
    credit = run(rtmc, [NAN] * 7, **TREE, prior=0)
    # hall: Q(l) = (3 + 0)/2, Q(r) = 6, V = (2 · 1.5 + 6)/3 = 3. left: Q(up) 3, Q(down) 0, V = 1.5.
    assert credit.advantage.tolist() == [-1.5, 1.5, -1.5, -1.5, 3.0, 0.0, 0.0]
    assert credit.anchor.tolist() == [0, 1, 0, 1, 0, 2, 3]
    np.testing.assert_array_equal(credit.step, credit.advantage)


def test_rtmc_averages_a_state_with_the_mean_score_of_the_group():
    credit = run(rtmc, [NAN] * 7, **TREE, prior=2)
    # The mean score of g is 3: V'(hall) = 3, V'(left) = (2 · 1.5 + 2 · 3)/4 = 2.25,
    # V'(right) = (6 + 2 · 3)/3 = 4
    assert credit.advantage.tolist() == [-1.5, 0.75, -1.5, -2.25, 3.0, 2.0, 0.0]
    default = run(rtmc, [NAN] * 7, **TREE)
    np.testing.assert_array_equal(default.advantage, credit.advantage)


def test_rtmc_counts_the_first_visit_of_a_trajectory():
    credit = run(
        rtmc,
        [0.0, 0.0, 8.0, 2.0],
        trajectory=list("aaab"),
        step=[0, 1, 2, 0],
        state=list("ssss"),
        action=["wait", "wait", "go", "go"],
        gamma=0.5,
        prior=0,
    )
    # returns 2, 4, 8, 2. Q(wait) = 2, of the first visit alone, Q(go) = 5, V = (2 + 8 + 2)/3 = 4
    assert credit.advantage.tolist() == [-2.0, -2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("missing", "options", "message"),
    [
        ("action", {}, "the batch has no actions to compare; pass `action`"),
        ("state", {}, "the batch has no states to compare"),
        (None, {"prior": -1}, "`prior` must be"),
        (None, {"gamma": 2}, "`gamma` must be"),
    ],
)
def test_rtmc_rejects_what_it_can_not_compare(missing, options, message):
    table = {name: column for name, column in TREE.items() if name != missing}
    with pytest.raises(CreditError, match=message):
        run(rtmc, [NAN] * 7, **table, **options)


def test_step_batch_numbers_actions_like_states():
    batch = StepBatch.from_arrays(
        [0.0] * 4, group=list("gghh"), trajectory=list("abcc"), step=[0, 0, 0, 1],
        action=[{"x": 1}, {"x": 1}, {"x": 1}, {"x": True}],
    )  # fmt: skip
    assert batch.action.tolist() == [0, 0, 1, 2]
    with pytest.raises(CreditError, match="actions can't be compared: object in row 0"):
        StepBatch.from_arrays([0.0], trajectory=["a"], step=[0], action=[object()])
