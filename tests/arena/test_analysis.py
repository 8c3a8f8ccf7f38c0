"""Estimators on frozen policies."""

import numpy as np
import pytest

from guerdon.arena import METHODS, Loop, Method, Model, exact_values, optimal_value, uniform_policy
from guerdon.arena.analysis import frozen_policy, quality
from guerdon.arena.worlds import KeyMaze, Lock, StampedMaze, Umbrella
from guerdon.credit import Credit

LOOP = Loop(groups=1, scale=False)


def measured(model, method, share=0.5, batches=600):
    return quality(model, method, frozen_policy(model, share), batches=batches, seed=5, loop=LOOP)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_frozen_policy_has_the_share_of_the_optimum(share):
    model = Model.of(KeyMaze())
    low, high = exact_values(model, uniform_policy(model)).value, optimal_value(model)
    value = exact_values(model, frozen_policy(model, share)).value
    assert (value - low) / (high - low) == pytest.approx(share, abs=1e-6)


def test_quality_of_the_exact_advantage_is_perfect():
    found = measured(Model.of(Lock(dials=3)), METHODS["exact"])
    assert found.correlation == pytest.approx(1)
    assert found.bias < 0.1


def test_quality_finds_rloo_and_turn_rloo_unbiased_and_mt_grpo_biased_where_the_policy_stops():
    model = Model.of(Lock(dials=3))
    unbiased = [measured(model, METHODS[name], batches=4000) for name in ("rloo", "turn_rloo")]
    biased = measured(model, METHODS["mt_grpo"], batches=4000)
    assert max(each.bias for each in unbiased) < 0.15
    assert biased.bias > 0.3


def test_quality_finds_less_noise_with_a_judge_of_states_than_with_outcomes():
    model = Model.of(Umbrella(days=4))
    judged, outcome = (measured(model, METHODS[name]) for name in ("state_differences", "rloo"))
    assert judged.signal_to_noise > 2 * outcome.signal_to_noise
    assert judged.correlation > outcome.correlation


def test_quality_finds_an_estimator_that_subtracts_its_own_future():
    def reads_the_future(batch):
        returns = batch.returns()
        later = returns - batch.rewards  # what the trajectory itself earned afterwards
        return Credit.of(batch, returns - later)

    model = Model.of(KeyMaze())
    assert measured(model, Method("mine", reads_the_future), batches=2000).bias > 0.3


def test_quality_of_an_estimator_without_advantages_is_not_a_number():
    found = measured(Model.of(StampedMaze()), METHODS["hgpo"], batches=40)
    assert found.coverage == 0
    assert np.isnan([found.bias, found.correlation]).all()
