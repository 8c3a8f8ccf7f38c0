"""GDPO: components of a score that are normalized one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.credit import StepBatch, gdpo
from guerdon.errors import CreditError
from tests.credit.calls import run

NAN = float("nan")
TABLE = {"group": list("gggh"), "trajectory": list("abcd"), "step": [0] * 4}
RIGHT, SHORT = [1.0, 1.0, 0.0, 5.0], [10.0, 30.0, 20.0, 5.0]


def test_gdpo_normalizes_each_component_within_its_group():
    credit = run(
        gdpo,
        [0.0] * 4,
        **TABLE,
        components={"right": RIGHT, "short": SHORT},
        weights={"right": 1.0, "short": -0.5},
        normalize_batch=False,
    )
    # right 1, 1, 0: mean 2/3, σ² = (1/9 + 1/9 + 4/9) / 2 = 1/3; ±1/3 / (0.5773503 + 1e-6)
    # short 10, 30, 20: mean 20, σ = 10: −1, 1, 0, times −0.5
    np.testing.assert_allclose(
        credit.advantage, [0.5773493 + 0.5, 0.5773493 - 0.5, -1.1546985, 0.0], atol=2e-7
    )
    np.testing.assert_array_equal(credit.episode, credit.advantage)
    assert credit.step.tolist() == [0.0] * 4


def test_gdpo_normalizes_the_sums_over_the_trajectories_of_the_batch():
    table = {"group": list("ggghh"), "trajectory": list("aabcd"), "step": [0, 1, 0, 0, 0]}
    table["components"] = {"x": [3.0, 3.0, 1.0, 8.0, 8.0]}
    credit = run(gdpo, [0.0] * 5, **table, weights={"x": 2.0})
    # A: g ±2 · 1 / (√2 + 1e-6) = ±1.4142126, h 0, 0. Mean 0, σ² = 2 · 2 / 3: 1.4142126 / 1.1547
    np.testing.assert_allclose(
        credit.advantage, [1.2247437, 1.2247437, -1.2247437, 0.0, 0.0], atol=2e-6
    )


def test_gdpo_distinguishes_components_with_the_same_sum():
    components = {"right": [1.0, 0.0, 0.0, 0.0], "short": [0.0, 1.0, 0.0, 1.0]}
    credit = run(
        gdpo,
        [1.0, 1.0, 0.0, 1.0],
        trajectory=list("abcd"),
        step=[0] * 4,
        components=components,
        weights={"right": 1.0, "short": 1.0},
        normalize_batch=False,
    )
    # right: mean 1/4, σ 1/2; short: mean 1/2, σ √(1/3). a: 1.499997 − 0.8660239
    np.testing.assert_allclose(
        credit.advantage, [0.6339731, 0.3660249, -1.3660229, 0.3660249], atol=1e-6
    )


def test_gdpo_a_missing_component_is_no_zero():
    credit = run(
        gdpo,
        [0.0] * 4,
        **TABLE,
        components={"right": RIGHT, "short": [10.0, None, 20.0, NAN]},
        weights={"right": 1.0, "short": 1.0},
        normalize_batch=False,
    )
    # short of a and c alone: mean 15, σ = √50; b has its part of `right`
    np.testing.assert_allclose(
        credit.advantage, [0.5773493 - 0.7071067, 0.5773493, -1.1546985 + 0.7071067, 0], atol=2e-7
    )


known = st.lists(st.one_of(st.just(NAN), st.integers(-3, 3).map(float)), min_size=2, max_size=6)


@settings(max_examples=30)
@given(component=known)
def test_gdpo_equals_gdpo_without_the_trajectories_that_lack_the_component(component):
    size = len(component)
    table = {"trajectory": list(range(size)), "step": [0] * size, "rewards": [0.0] * size}
    table["components"] = {"base": [0.0] * size, "extra": component}
    credit = run(gdpo, **table, weights={"base": 1.0, "extra": 1.0}, normalize_batch=False)
    has = [one == one for one in component]
    alone = run(
        gdpo,
        **table | {"components": {"extra": component}},
        valid=has,
        weights={"extra": 1.0},
        normalize_batch=False,
    )
    np.testing.assert_array_equal(credit.advantage, alone.advantage)  # 0 where it lacks it


def test_gdpo_masks_invalid_trajectories():
    components = {"right": [1.0, 0.0, float("inf"), 0.0]}
    valid = [True, True, False, True]
    credit = run(gdpo, [0.0] * 4, **TABLE, components=components, weights={"right": 1}, valid=valid)
    assert credit.mask.tolist() == valid
    assert credit.advantage[0] == -credit.advantage[1] > 0
    assert credit.advantage[2] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"rihgt": 1.0}}, "names ['rihgt'], which the batch doesn't have; its compo"),
        ({"weights": {"right": NAN}}, "`weights['right']` must be a finite number"),
        ({"weights": 1.0}, "`weights` must be a mapping from names to numbers, got 1.0"),
        ({"weights": {"short": 1.0}}, "none of the components ['short'] for the trajectories"),
        ({"weights": {}}, "none of the components []"),
        ({"weights": {"right": 1.0}, "gamma": 2}, "`gamma` must be in [0, 1], got 2"),
    ],
    ids=str,
)
def test_gdpo_rejects_invalid_options(options, message):
    components = {"right": RIGHT, "short": [1.0, None, 2.0, 3.0]}
    with pytest.raises(CreditError) as refusal:
        run(gdpo, [0.0] * 4, **TABLE, components=components, **options)
    assert message in str(refusal.value)


def test_step_batch_reads_components_like_scores():
    table = {"trajectory": ["b", "b", "a"], "step": [0, 1, 0]}
    for given_as in ([2.0, 2.0, NAN], [2.0, None], {"a": None, "b": 2.0}):
        batch = StepBatch.from_arrays([0.0] * 3, **table, components={"x": given_as})
        np.testing.assert_array_equal(batch.components["x"], [NAN, 2.0])  # a, b
    assert StepBatch.from_arrays([0.0] * 3, **table).components == {}


@pytest.mark.parametrize(
    ("component", "message"),
    [
        ([1.0, 2.0, 3.0], "`components['x']` differs within a trajectory in row 1"),
        ([1.0, 1.0, float("inf")], "`components['x']` is infinite for the trajectories 'a'"),
        ({"a": 1.0}, "`components['x']` lacks the trajectories 'b'"),
        (["1", "1", "1"], "`components['x']` must contain numbers"),
    ],
)
def test_step_batch_rejects_invalid_components(component, message):
    with pytest.raises(CreditError) as refusal:
        StepBatch.from_arrays(
            [0.0] * 3, trajectory=["b", "b", "a"], step=[0, 1, 0], components={"x": component}
        )
    assert message in str(refusal.value)
