"""The simulation of a pool agrees with formulas where there are any."""

import numpy as np
import pytest

from benchmarks.scheduling import Pool, as_completed, exponential, lognormal, step_batch

BOTH = [step_batch, as_completed]


@pytest.mark.parametrize("simulate", BOTH)
def test_one_worker_takes_the_sum_of_all_steps(simulate):
    steps = lognormal(0.01, 1.0, (50, 8))
    assert simulate(Pool(workers=1), steps) == pytest.approx(steps.sum())


@pytest.mark.parametrize("simulate", BOTH)
def test_costs_of_one_worker_and_of_the_sender_add_up_if_there_is_one_slot(simulate):
    pool = Pool(1, worker_s=0.1, send_s=0.02, receive_s=0.03, batch_s=0.5)
    assert simulate(pool, np.full((10, 1), 0.2)) == pytest.approx(10 * 0.85)


def test_step_batch_with_a_worker_for_each_slot_waits_for_the_slowest():
    steps = exponential(1.0, (20, 16))
    assert step_batch(Pool(16), steps) == pytest.approx(steps.max(axis=1).sum())


def test_step_batch_of_exponential_steps_takes_a_harmonic_number_of_means():
    slots = 32
    harmonic = sum(1 / each for each in range(1, slots + 1))
    seconds = step_batch(Pool(slots), exponential(0.5, (20_000, slots)))
    assert seconds / 20_000 == pytest.approx(0.5 * harmonic, rel=0.01)


def test_as_completed_with_a_worker_for_each_slot_takes_the_longest_column():
    steps = exponential(1.0, (30, 16))
    assert as_completed(Pool(16), steps) == pytest.approx(steps.sum(axis=0).max())


@pytest.mark.parametrize("simulate", BOTH)
@pytest.mark.parametrize(("workers", "lanes"), [(4, 1), (2, 2), (1, 4)])
def test_equal_steps_take_as_many_turns_as_a_lane_has_slots(simulate, workers, lanes):
    seconds = simulate(Pool(workers, lanes), np.full((5, 16), 0.25))
    assert seconds == pytest.approx(5 * 4 * 0.25)


@pytest.mark.parametrize("simulate", BOTH)
def test_a_sender_that_is_slower_than_the_workers_is_the_limit(simulate):
    pool = Pool(64, send_s=0.002, receive_s=0.003)
    seconds = simulate(pool, np.full((200, 64), 1e-6))
    assert seconds == pytest.approx(200 * 64 * 0.005, rel=0.01)


@pytest.mark.parametrize("simulate", BOTH)
def test_as_completed_is_never_slower_without_costs(simulate):
    for seed in range(20):
        steps = lognormal(0.01, 1.0, (10, 12), seed)
        least = steps.sum() / 5
        assert least <= simulate(Pool(5), steps)
        assert as_completed(Pool(5), steps) <= step_batch(Pool(5), steps) + 1e-9


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0])
def test_lognormal_steps_have_the_given_mean(sigma):
    assert lognormal(0.01, sigma, (1000, 1000)).mean() == pytest.approx(0.01, rel=0.01)
