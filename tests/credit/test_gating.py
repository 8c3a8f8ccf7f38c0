"""Outcome-gated credit: `gate_on_outcome`, and groups whose outcome doesn't vary."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.credit import (
    StepBatch,
    dr_grpo,
    gae,
    gate_on_outcome,
    gigpo,
    group_normalized_returns,
    grpo,
    hgpo,
    mt_grpo,
    reinforce_pp,
    rloo,
    rtmc,
    turn_rloo,
)
from guerdon.errors import CreditError

NAN = float("nan")
ESTIMATORS = [
    grpo, dr_grpo, rloo, gigpo, hgpo, rtmc, turn_rloo, mt_grpo, gae, group_normalized_returns,
    reinforce_pp,
]  # fmt: skip


def batch_of(right, brief, *, group=None, weight=0.3, rewards=None, extra=(), **options):
    """A batch of one step for each trajectory, whose score is the outcome plus brevity."""
    size = len(right)
    names = [f"t{index}" for index in range(size)]
    right, brief = np.array(right, float), np.array(brief, float)
    components = {"right": right, "brief": brief, **dict(extra)}
    return StepBatch.from_arrays(
        [NAN] * size if rewards is None else rewards, trajectory=names, step=[0] * size,
        group=group or ["g"] * size, state=["s"] * size, action=names, values=[0.0] * size,
        episode_score=np.nan_to_num(right) + weight * np.nan_to_num(brief),
        components=components, **options,
    )  # fmt: skip


def drawn(seed):
    """A batch of random groups, with components of any size."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 24)
    right = rng.random(size) < rng.random()
    group = rng.integers(0, 4, size).tolist()
    tests = rng.integers(0, 5, size) / 4
    return batch_of(
        right, rng.normal(size=size), group=group, weight=rng.choice([0.001, 0.3, 10.0]),
        extra={"tests": tests}.items(),
    )  # fmt: skip


def by_formula(batch, weights, progress):
    """A = (o − mean)/F + Σ s(h − mean over the solved)/F + Σ (h − mean)/F, group by group."""
    outcome = batch.components["right"]
    result = np.zeros(len(outcome))
    for code in range(len(batch.group_ids)):
        rows = np.flatnonzero(batch.group_of == code)
        o = outcome[rows]
        scale = np.std(o, ddof=1) + 1e-6 if len(set(o)) > 1 else 1.0
        a = o - o.mean()
        for name, weight in weights.items():
            h = weight * batch.components[name][rows]
            counts = np.ones(len(rows), bool) if name in progress else o == 1
            if counts.any():
                a = a + np.where(counts, h - h[counts].mean(), 0.0)
        result[rows] = a / scale
    return result


@given(seed=st.integers(0, 2**32 - 1), progress=st.sampled_from([(), ("tests",)]))
def test_grpo_gated_on_an_outcome_is_the_formula(seed, progress):
    batch, weights = drawn(seed), {"brief": 0.3, "tests": 0.5}
    gated = gate_on_outcome(batch, "right", weights=weights, progress=progress)
    expected = by_formula(batch, weights, progress)
    np.testing.assert_allclose(grpo(gated).advantage[batch.rows], expected, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_the_properties_of_gated_credit(seed, weighted):
    batch = drawn(seed)
    weights = {"brief": 0.3, "tests": 0.5} if weighted else None
    gated = grpo(gate_on_outcome(batch, "right", weights=weights))
    advantage, groups = gated.advantage[batch.rows], gated.diagnostics.groups
    outcome, ids = batch.components["right"], np.array(batch.group_ids)[batch.group_of]
    sums = np.bincount(batch.group_of, advantage)
    np.testing.assert_allclose(sums, 0.0, atol=1e-8)
    assert not advantage[np.isin(ids, groups["failed"])].any()
    for mixed in groups["mixed"]:
        failures = advantage[(ids == mixed) & (outcome == 0)]
        np.testing.assert_allclose(failures, failures[0], atol=1e-12)
        assert failures[0] < advantage[(ids == mixed) & (outcome == 1)].mean()
    assert gated.diagnostics.outcome == "right"


@given(seed=st.integers(0, 2**32 - 1))
def test_without_shaping_or_with_tiny_weights_it_is_the_estimator_on_the_outcome(seed):
    batch = drawn(seed)
    alone = batch_of(
        batch.components["right"], np.zeros(len(batch.scores)), group=batch.group_of.tolist()
    )
    expected = grpo(alone).advantage
    none = gate_on_outcome(batch, "right", weights={})
    np.testing.assert_allclose(grpo(none).advantage[batch.rows], expected, rtol=1e-12)
    tiny = gate_on_outcome(batch, "right", weights={"brief": 1e-12, "tests": 1e-12})
    np.testing.assert_allclose(grpo(tiny).advantage[batch.rows], expected, atol=1e-6)


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_a_failed_group_has_no_advantage_with_any_estimator(estimate):
    batch = batch_of([0, 0, 0, 0], [1, 9, 12, 4], rewards=[-0.1, NAN, 0.2, NAN])
    assert not estimate(gate_on_outcome(batch, "right")).advantage.any()
    assert not estimate(gate_on_outcome(batch, "right", weights={"brief": 5})).advantage.any()


@pytest.mark.parametrize("estimate", [grpo, gigpo, mt_grpo])
def test_the_deviation_is_that_of_the_outcome(estimate):
    batch = batch_of([1, 1, 0, 0], [5, 3, 100, 0], weight=0.1)
    advantage = estimate(gate_on_outcome(batch, "right")).advantage
    scale = np.std([1, 1, 0, 0], ddof=1) + 1e-6
    both = 2 if estimate is gigpo else 1  # the trajectory, and its only step
    np.testing.assert_allclose(advantage / both, np.array([0.6, 0.4, -0.5, -0.5]) / scale)


def test_where_all_solve_the_task_components_count_with_their_weights():
    batch = batch_of([1, 1, 1], [0, 1, 2], weight=0.1)
    gated = gate_on_outcome(batch, "right")
    np.testing.assert_allclose(grpo(gated).advantage, [-0.1, 0.0, 0.1], atol=1e-12)
    off = grpo(gate_on_outcome(batch, "right", saturated="off"))
    assert off.advantage.tolist() == [0.0] * 3
    assert off.diagnostics.groups["saturated"] == ("g",)


def test_gate_group_leaves_advantages_to_mixed_groups_alone():
    batch = batch_of([1, 1, 1, 0, 0, 0], [0, 1, 2, 3, 0, 1], group=list("ssmmff"))
    for estimate in grpo, gigpo, turn_rloo:
        credit = estimate(gate_on_outcome(batch, "right", gate="group"))
        assert credit.advantage.astype(bool).tolist() == [False, False, True, True, False, False]
        assert credit.diagnostics.phantom_share == 0.0


def test_gate_none_divides_by_the_deviation_of_the_outcome_alone():
    batch = batch_of([0, 0], [1, 3], weight=0.001)
    credit = grpo(gate_on_outcome(batch, "right", gate="none"))
    np.testing.assert_allclose(credit.advantage, [-0.001, 0.001])
    assert credit.diagnostics.phantom_groups == ("g",)
    assert credit.diagnostics.phantom_share == 1.0


def test_a_missing_component_counts_as_neither_good_nor_bad():
    batch = batch_of([1, 1, 1, 0], [1, NAN, 3, NAN], weight=1.0)
    gated = gate_on_outcome(batch, "right", weights={"brief": 1.0})
    scale = np.std([1, 1, 1, 0], ddof=1) + 1e-6
    expected = np.array([0.25 - 1, 0.25, 0.25 + 1, -0.75]) / scale
    np.testing.assert_allclose(grpo(gated).advantage, expected)


def test_base_rewards_of_trajectories_that_are_not_solved_do_not_count():
    rewards = [-0.1, NAN, -0.5, NAN, NAN, NAN]
    columns = {
        "trajectory": list("aabbcc"), "step": [0, 1] * 3, "group": ["g"] * 6,
        "state": list("stsuss"), "episode_score": [1.0, 0.0, 0.0],
        "components": {"right": [1.0, 0.0, 0.0]},
    }  # fmt: skip
    for rule, first in {"terminal": 0.9, "rest": 1.0}.items():
        batch = StepBatch.from_arrays(rewards, **columns, outcome_reward=rule)
        credit = gigpo(gate_on_outcome(batch, "right"))
        np.testing.assert_allclose(credit.returns, [first, first + 0.1, 0, 0, 0, 0], atol=1e-12)


def test_base_rewards_that_add_up_to_the_scores_contain_the_outcome():
    batch = StepBatch.from_arrays(
        [0.2, 1.0, 0.2, 0.0], trajectory=list("aabb"), step=[0, 1] * 2, group=["g"] * 4,
        episode_score=[1.2, 0.2], components={"right": [1.0, 0.0], "steps": [0.2, 0.2]},
    )  # fmt: skip
    assert batch.outcome_reward == "none"
    credit = turn_rloo(gate_on_outcome(batch, "right"))
    np.testing.assert_allclose(credit.returns, [1.0, 0.8, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outcome": "wrong"}, "'wrong' is no component .* its components are brief, right"),
        ({"weights": {"x": 1}}, "'x' is no component"),
        ({"progress": ["x"]}, "'x' is no component"),
        ({"weights": [1]}, "`weights` must be a mapping"),
        ({"weights": {"brief": NAN}}, r"weights\['brief'\]"),
        ({"gate": "all"}, "`gate` must be"),
        ({"saturated": "on"}, "`saturated` must be"),
        ({"solved": NAN}, "`solved`"),
        ({"outcome": "brief"}, r"the outcome 'brief' isn't in \[0, 1\] .* pass `solved`"),
    ],
)  # fmt: skip
def test_gate_on_outcome_rejects_invalid_options(options, message):
    with pytest.raises(CreditError, match=message):
        gate_on_outcome(batch_of([1, 0], [5, 0]), **{"outcome": "right"} | options)


def test_gate_on_outcome_rejects_a_missing_outcome():
    with pytest.raises(CreditError, match="the outcome 'right' is missing") as raised:
        gate_on_outcome(batch_of([1, NAN], [5, 0]), "right")
    assert raised.value.rows == (1,)


def test_solved_is_the_outcome_from_which_on_a_task_is_solved():
    batch = batch_of([0.9, 0.2, 100.0], [1, 2, 3], weight=1.0)
    gated = gate_on_outcome(batch, "right", solved=0.5)
    assert gated.outcome.solved.tolist() == [True, False, True]


# Diagnostics -------------------------------------------------------------------------------------

KINDS = {
    "failed": [0, 0], "saturated": [1, 1], "tied": [0.5, 0.5], "mixed": [0, 1], "single": [1],
}  # fmt: skip


def test_diagnostics_name_the_kind_of_each_group():
    pairs = [(kind, value) for kind, values in KINDS.items() for value in values]
    pairs += [("abstained", 0), ("abstained", 1)]
    batch = batch_of(
        [value for _, value in pairs], [0] * len(pairs), group=[kind for kind, _ in pairs],
        valid=[kind != "abstained" for kind, _ in pairs],
    )  # fmt: skip
    credit = grpo(gate_on_outcome(batch, "right"))
    assert credit.diagnostics.groups == {kind: (kind,) for kind in (*KINDS, "abstained")}


@pytest.mark.parametrize("weight", [1.0, 0.1, 0.001])
def test_four_wrong_answers_that_brevity_ranks_are_a_phantom_group(weight):
    batch = batch_of([0, 0, 0, 0], 1 - np.array([1, 9, 12, 4]) / 20, weight=weight)
    credit = grpo(batch)
    if weight == 1.0:
        np.testing.assert_allclose(credit.advantage, [1.123, -0.511, -1.123, 0.511], atol=2e-2)
    assert (credit.diagnostics.outcome, credit.diagnostics.phantom_share) == ("right", 1.0)
    assert credit.diagnostics.phantom_groups == ("g",)
    assert "100% of all advantages" in credit.diagnostics.notes[-1]
    assert "outcome='right'" in credit.diagnostics.notes[-1]
    gated = grpo(gate_on_outcome(batch, "right"))
    assert gated.advantage.tolist() == [0.0] * 4
    assert gated.diagnostics.phantom_share == 0.0
    assert not any("of all advantages" in note for note in gated.diagnostics.notes)


def test_the_outcome_is_guessed_if_one_component_is_0_or_1_everywhere():
    def guess(components, score=(1.0, 0.0)):
        batch = StepBatch.from_arrays(
            [NAN] * 2,
            trajectory=["a", "b"],
            step=[0, 0],
            episode_score=score,
            components=components,
        )
        return grpo(batch).diagnostics

    assert guess(None).outcome == "score"
    assert guess(None, (0.5, 0.0)).outcome is None
    assert guess({"a": [1, 0], "b": [0.5, 1]}).outcome == "a"
    several = guess({"a": [1, 0], "b": [1, 1]})
    assert (several.outcome, several.phantom_share, several.groups) == (None, None, {})
    assert guess({"a": [1, NAN], "b": [0.5, 1]}).outcome is None


def test_order_of_rows_does_not_matter():
    for order in itertools.permutations(range(4)):
        right, brief = np.array([1, 1, 0, 0])[list(order)], np.array([0.1, 0.7, 0.3, 0.9])
        batch = batch_of(right, brief[list(order)])
        advantage = grpo(gate_on_outcome(batch, "right")).advantage
        np.testing.assert_allclose(
            advantage[np.argsort(order)], [0.71014, 1.02191, -0.86602, -0.86602], atol=1e-4
        )
