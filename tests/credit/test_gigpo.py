"""GiGPO by the conventions of the paper and of its authors' code."""

import json
import os
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.credit import gigpo, hgpo
from guerdon.errors import CreditError
from tests.credit.calls import run

# Inputs and outputs of the authors' code, with 6 decimals. They are not ours, and are outside the
# repository: $GUERDON_REFERENCE or ../shared/reference.
REFERENCE = Path(__file__).parents[3] / "shared" / "reference"
FILE = Path(os.environ.get("GUERDON_REFERENCE", REFERENCE)) / "gigpo_cases.json"
NAMES = (
    "shop_mean_norm",
    "shop_mean_norm_paper_episode_stats",
    "shop_w0.5",
    "line_gamma1",
    "single_traj_many_steps",
    "zero_std",
    "similarity_on",
    "dense_rewards_unequal_len",
)

NAN = float("nan")

# Two trajectories that win and lose: b and c take one step, a takes two.
#            a    a    b    c
REWARDS = [1.0, 2.0, 0.0, 0.0]
TABLE = {
    "group": ["g"] * 4,
    "trajectory": ["a", "a", "b", "c"],
    "step": [0, 1, 0, 0],
    "state": ["s", "t", "s", "s"],
    "gamma": 0.5,
}


@pytest.mark.skipif(not FILE.is_file(), reason=f"the authors' numbers aren't at hand: {FILE}")
@pytest.mark.parametrize("name", NAMES)
def test_gigpo_reproduces_the_numbers_of_its_authors(name):
    cases = json.loads(FILE.read_text(encoding="utf-8"))
    assert set(cases) == set(NAMES)
    inputs, outputs = cases[name]["inputs"], cases[name]["outputs"]

    def column(key):
        return [row[key] for row in inputs["rows"]]

    credit = run(
        gigpo,
        column("reward"),
        group=column("group"),
        trajectory=column("traj"),
        step=column("t"),
        state=column("obs"),
        episode_score=column("episode_score"),
        gamma=inputs["gamma"],
        omega=inputs["step_advantage_w"],
        normalize={"mean_norm": "mean", "mean_std_norm": "mean_std"}[inputs["mode"]],
        episode_stats="rows" if inputs["compute_mean_std_cross_steps"] else "trajectories",
        singleton="raw",
        similarity=inputs["similarity_thresh"] if inputs["enable_similarity"] else None,
    )
    np.testing.assert_allclose(credit.returns, outputs["returns"], atol=1e-5)
    np.testing.assert_allclose(credit.episode, outputs["A_E"], atol=1e-5)
    np.testing.assert_allclose(credit.step, outputs["A_S"], atol=1e-5)
    np.testing.assert_allclose(credit.advantage, outputs["A"], atol=1e-5)
    assert credit.anchor.tolist() == outputs["step_group"]


def test_gigpo_by_the_mean_as_in_the_paper():
    credit = run(gigpo, REWARDS, **TABLE, normalize="mean")
    # a: R_0 = 1 + 0.5 · 2 = 2, R_1 = 2
    assert credit.returns.tolist() == [2.0, 2.0, 0.0, 0.0]
    # scores 1 + 2 = 3, 0, 0: mean 1
    np.testing.assert_allclose(credit.episode, [2, 2, -1, -1], atol=1e-12)
    # in s returns 2, 0, 0: mean 2/3; t is alone
    np.testing.assert_allclose(credit.step, [4 / 3, 0, -2 / 3, -2 / 3], atol=1e-12)
    np.testing.assert_allclose(credit.advantage, [10 / 3, 2, -5 / 3, -5 / 3], atol=1e-12)
    assert credit.anchor.tolist() == [0, 1, 0, 0]
    assert credit.mask.all()


def test_gigpo_by_mean_and_deviation_as_in_the_paper():
    credit = run(gigpo, REWARDS, **TABLE)
    # scores 3, 0, 0: mean 1, σ² = (4 + 1 + 1) / 2 = 3; 2 / (1.7320508 + 1e-6) = 1.1546998
    np.testing.assert_allclose(
        credit.episode, [1.1546998, 1.1546998, -0.5773499, -0.5773499], atol=1e-7
    )
    # in s: σ² = (16/9 + 4/9 + 4/9) / 2 = 4/3; 1.3333333 / (1.1547005 + 1e-6) = 1.1546995
    np.testing.assert_allclose(credit.step, [1.1546995, 0, -0.5773498, -0.5773498], atol=1e-7)
    np.testing.assert_allclose(credit.advantage, credit.episode + credit.step, atol=0)


def test_gigpo_over_rows_a_longer_trajectory_weighs_more():
    credit = run(gigpo, REWARDS, **TABLE, normalize="mean", episode_stats="rows")
    # scores of the rows 3, 3, 0, 0: mean 1.5
    assert credit.episode.tolist() == [1.5, 1.5, -1.5, -1.5]
    credit = run(gigpo, REWARDS, **TABLE, episode_stats="rows")
    # σ² = 4 · 2.25 / 3 = 3; 1.5 / (1.7320508 + 1e-6) = 0.8660249
    np.testing.assert_allclose(credit.episode, [0.8660249] * 2 + [-0.8660249] * 2, atol=1e-7)


def test_gigpo_omega_weighs_the_step():
    credit = run(gigpo, REWARDS, **TABLE, normalize="mean", omega=0.5)
    # 2 + 0.5 · 4/3, 2 + 0, −1 − 0.5 · 2/3
    np.testing.assert_allclose(credit.advantage, [8 / 3, 2, -4 / 3, -4 / 3], atol=1e-12)


def test_gigpo_the_convex_joint_shares_between_episode_and_step():
    credit = run(gigpo, REWARDS, **TABLE, normalize="mean", joint="convex", omega=0.25)
    # 0.25 · 2 + 0.75 · 4/3, 0.25 · 2, −0.25 − 0.75 · 2/3
    np.testing.assert_allclose(credit.advantage, [1.5, 0.5, -0.75, -0.75], atol=1e-12)


def by_plain_loops(rewards, group, trajectory, state, score, gamma, omega):
    """GiGPO row by row, of trajectories whose rows are in the order of their steps."""
    later, returns = {}, []
    for reward, one in zip(reversed(rewards), reversed(trajectory), strict=True):
        later[one] = reward + gamma * later.get(one, 0.0)
        returns.insert(0, later[one])
    episodes, anchors = {}, {}
    for row, (where, one) in enumerate(zip(group, trajectory, strict=True)):
        episodes.setdefault(where, {})[one] = score[row]
        anchors.setdefault((where, state[row]), []).append(returns[row])

    def relative(value, values):
        values = list(values)
        if len(values) == 1 or len(set(values)) == 1:
            return 0.0
        return (value - statistics.fmean(values)) / (statistics.stdev(values) + 1e-6)

    return [
        relative(score[row], episodes[where].values())
        + omega * relative(returns[row], anchors[where, state[row]])
        for row, where in enumerate(group)
    ]


@given(seed=st.integers(0, 2**32 - 1), gamma=st.floats(0, 1), omega=st.floats(0, 3))
def test_gigpo_agrees_with_plain_loops(seed, gamma, omega):
    rng = np.random.default_rng(seed)
    trajectory = np.repeat(np.arange(9), rng.integers(1, 6, 9)).tolist()
    rewards = (rng.integers(-4, 5, len(trajectory)) / 4).tolist()
    group = [one % 3 for one in trajectory]
    state = rng.choice(["s", "t", "u"], len(trajectory)).tolist()
    score = rng.integers(0, 3, 9)[trajectory].astype(float).tolist()
    credit = run(
        gigpo,
        rewards,
        group=group,
        trajectory=trajectory,
        step=range(len(trajectory)),
        state=state,
        episode_score=score,
        gamma=gamma,
        omega=omega,
    )
    expected = by_plain_loops(rewards, group, trajectory, state, score, gamma, omega)
    np.testing.assert_allclose(credit.advantage, expected, atol=1e-7)


@pytest.mark.parametrize(
    ("singleton", "stats", "expected"),
    [
        ("zero", "trajectories", [0.0, 0.0]),
        ("raw", "trajectories", [7.0, 7.0]),
        ("raw", "rows", [0.0, 0.0]),  # two entries in the statistics, both 7
    ],
)
def test_gigpo_a_group_of_one(singleton, stats, expected):
    credit = run(
        gigpo,
        [3.0, 4.0],
        group=["g", "g"],
        trajectory=["a", "a"],
        step=[0, 1],
        state=["s", "t"],
        singleton=singleton,
        episode_stats=stats,
    )
    assert credit.episode.tolist() == expected


def test_gigpo_a_row_of_its_own_has_its_raw_score_over_rows():
    credit = run(
        gigpo,
        [7.0],
        group=[0],
        trajectory=[0],
        step=[0],
        state=[0],
        singleton="raw",
        episode_stats="rows",
    )
    assert credit.advantage.tolist() == [7.0]


def test_gigpo_revisits_are_in_the_anchor_group():
    credit = run(
        gigpo,
        [0.0, 0.0, 1.0],
        group=["g"] * 3,
        trajectory=["a"] * 3,
        step=[0, 1, 2],
        state=["s", "t", "s"],
        gamma=0.5,
        normalize="mean",
    )
    # returns 0.25, 0.5, 1; in s the mean is 0.625
    assert credit.step.tolist() == [-0.375, 0.0, 0.375]


def test_gigpo_an_anchor_group_stays_inside_its_group():
    credit = run(
        gigpo, [1.0, 0.0], group=["g", "h"], trajectory=["a", "b"], step=[0, 0], state=["s", "s"]
    )
    assert credit.anchor.tolist() == [0, 1]
    assert credit.advantage.tolist() == [0.0, 0.0]


def test_gigpo_equal_scores_and_returns_give_exactly_0():
    third = 0.1 + 0.2  # not 0.3
    credit = run(
        gigpo, [third] * 7, group=["g"] * 7, trajectory=range(7), step=[0] * 7, state=["s"] * 7
    )
    assert credit.advantage.tolist() == [0.0] * 7


def test_gigpo_small_differences_survive_a_large_offset():
    scores = [1e8, 1e8 + 0.25, 1e8 + 0.5, 1e8 + 0.25]
    credit = run(
        gigpo,
        [NAN] * 4,
        group=["g"] * 4,
        trajectory=range(4),
        step=[0] * 4,
        state=["s"] * 4,
        episode_score=scores,
        normalize="mean",
    )
    assert credit.episode.tolist() == [-0.25, 0.0, 0.25, 0.0]
    assert credit.step.tolist() == [-0.25, 0.0, 0.25, 0.0]


def test_gigpo_rejects_values_too_large_to_square():
    with pytest.raises(CreditError, match="too large"):
        run(gigpo, [1e200, -1e200], group=[0, 0], trajectory=[0, 1], step=[0, 0], state=[0, 0])


def test_gigpo_rejects_sums_too_large_for_a_float():
    with pytest.raises(CreditError, match="too large"):
        run(gigpo, [1.7e308] * 2, group=[0, 0], trajectory=[0, 0], step=[0, 1], state=[0, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "`gamma` must be in [0, 1], got 1.5"),
        ({"gamma": NAN}, "`gamma` must be in [0, 1], got nan"),
        ({"gamma": True}, "`gamma` must be in [0, 1], got True"),
        ({"omega": -1}, "`omega` must be a finite number >= 0, got -1"),
        ({"omega": 2, "joint": "convex"}, "`omega` must be in [0, 1], got 2"),
        ({"normalize": "std"}, "`normalize` must be 'mean_std' or 'mean', got 'std'"),
        (
            {"episode_stats": "steps"},
            "`episode_stats` must be 'trajectories' or 'rows', got 'steps'",
        ),
        ({"joint": "product"}, "`joint` must be 'sum' or 'convex', got 'product'"),
        ({"singleton": None}, "`singleton` must be 'zero' or 'raw', got None"),
        ({"normalize": []}, "`normalize` must be 'mean_std' or 'mean', got []"),
        ({"history": -1}, "`history` must be an integer in [0, 1000], got -1"),
        ({"history": 1.0}, "`history` must be an integer in [0, 1000], got 1.0"),
        ({"history": 1_001}, "`history` must be an integer in [0, 1000], got 1001"),
        ({"history": True}, "`history` must be an integer in [0, 1000], got True"),
        ({"similarity": 0.0}, "`similarity` must be in (0, 1], got 0.0"),
        ({"similarity": 1.1}, "`similarity` must be in (0, 1], got 1.1"),
        ({"default_step_reward": NAN}, "`default_step_reward` must be a finite number, got nan"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if type(value) is dict else "",
)
def test_gigpo_rejects_an_invalid_option(options, message):
    with pytest.raises(CreditError) as refusal:
        run(gigpo, REWARDS, **(TABLE | options))
    assert message in str(refusal.value)


# Three trajectories that meet in x, two of them by way of s.
#                a              b              c
HISTORY = {
    "group": ["g"] * 9,
    "trajectory": ["a"] * 3 + ["b"] * 3 + ["c"] * 3,
    "step": [0, 1, 2] * 3,
    "state": ["s", "x", "y", "s", "x", "z", "t", "x", "z"],
    "normalize": "mean",
}
WON = [0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_hgpo_averages_the_depths_by_their_length():
    credit = run(hgpo, WON, **HISTORY, history=1)
    # x alone: returns 1, 0, 0: a has 2/3; s then x: 1, 0: a has 1/2, b −1/2; c is alone.
    # weights 1 and 2: a (1 · 2/3 + 2 · 1/2) / 3 = 5/9, b (−1/3 − 2 · 1/2) / 3 = −4/9, c −1/3
    np.testing.assert_allclose(credit.step[[1, 4, 7]], [5 / 9, -4 / 9, -1 / 3], atol=1e-12)
    np.testing.assert_allclose(credit.advantage, credit.step, atol=0)
    assert credit.anchor.tolist() == [0, 1, 2, 0, 1, 3, 4, 1, 3]


def test_hgpo_alpha_weighs_deeper_groups():
    even = run(hgpo, WON, **HISTORY, history=1, alpha=0).step[1]
    deep = run(hgpo, WON, **HISTORY, history=1, alpha=2).step[1]
    assert even == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert deep == pytest.approx((2 / 3 + 4 * 1 / 2) / 5)
    assert run(hgpo, WON, **HISTORY, history=1, alpha=5000).step[1] == pytest.approx(1 / 2)


def test_hgpo_without_history_has_the_step_advantages_of_gigpo():
    with_episode = run(hgpo, WON, **HISTORY, history=0, joint="sum", omega=1.0)
    plain = run(gigpo, WON, **HISTORY)
    np.testing.assert_array_equal(with_episode.step, plain.step)
    np.testing.assert_array_equal(with_episode.advantage, plain.advantage)


def test_hgpo_rejects_a_negative_alpha():
    with pytest.raises(CreditError, match="`alpha` must be a finite number >= 0, got -1"):
        run(hgpo, WON, **HISTORY, alpha=-1)


@pytest.mark.parametrize("history", [1_000, np.int64(1_000)], ids=["int", "numpy"])
def test_gigpo_history_may_be_longer_than_every_trajectory(history):
    deepest, long = run(hgpo, WON, **HISTORY, history=3), run(hgpo, WON, **HISTORY, history=history)
    assert long.anchor.tolist() == deepest.anchor.tolist()
    assert np.isfinite(long.advantage).all()
    with pytest.raises(CreditError, match=r"`history` must be an integer in \[0, 1000\]"):
        run(hgpo, WON, **HISTORY, history=history + 1)
