"""Exact values, by hand, by enumeration, and against sampled episodes."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.arena import (
    WORLDS,
    Crossroads,
    Model,
    Outcome,
    World,
    exact_gradient,
    exact_values,
    occupancy,
    optimal_value,
    uniform_policy,
)
from guerdon.arena.episodes import episode_seeds, play
from guerdon.arena.learners import softmax
from guerdon.credit import StepBatch, gigpo, grpo

NAMES = WORLDS.names()


def model_of(name):
    return Model.of(WORLDS[name]())


def random_policy(model, seed=1):
    return softmax(np.random.default_rng(seed).normal(0, 0.5, model.next.shape[:2]))


def test_exact_values_of_the_crossroads_are_those_computed_by_hand():
    model = Model.of(Crossroads())
    values = exact_values(model, uniform_policy(model))
    assert model.states == ("crossroads", "hill", "lake", "home")
    assert values.value == 0.5
    assert values.advantage[0, 0].tolist() == [0.25, -0.25]  # the hill, the lake
    assert values.advantage[1, 1].tolist() == [0.25, -0.25]  # on the hill
    assert values.advantage[1, 2].tolist() == [0.25, -0.25]  # at the lake
    assert optimal_value(model) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_exact_values_are_the_mean_of_sampled_returns(name):
    model = model_of(name)
    policy = random_policy(model)
    episodes = play(model, policy[None], episode_seeds(np.array([3], np.uint64), 0, 4000))
    returns = np.add.reduceat(episodes.reward, episodes.starts)
    error = np.sqrt((returns.var() + 1e-3) / len(returns))
    assert abs(returns.mean() - exact_values(model, policy).value) < 5 * error


@pytest.mark.parametrize("name", NAMES)
def test_exact_advantage_is_zero_on_average_in_every_state(name):
    model = model_of(name)
    policy = random_policy(model)
    average = (exact_values(model, policy).advantage * policy).sum(-1)
    np.testing.assert_allclose(average, 0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_exact_gradient_is_the_derivative_of_the_value(name):
    model = model_of(name)
    logits = np.random.default_rng(2).normal(size=model.next.shape[:2])
    gradient = exact_gradient(model, softmax(logits))
    for state, action in itertools.islice(np.ndindex(*logits.shape), 0, None, 7):
        nudge = np.zeros_like(logits)
        nudge[state, action] = 1e-5
        up, down = (exact_values(model, softmax(logits + sign * nudge)).value for sign in (1, -1))
        assert gradient[state, action] == pytest.approx((up - down) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_exact_values_of_many_policies_are_those_of_each(name):
    model = model_of(name)
    policies = np.stack([random_policy(model, seed) for seed in range(3)])
    together = exact_values(model, policies)
    for number, policy in enumerate(policies):
        alone = exact_values(model, policy)
        np.testing.assert_allclose(together.q[number], alone.q, atol=1e-12)
        np.testing.assert_allclose(together.v[number], alone.v, atol=1e-12)
        np.testing.assert_allclose(
            exact_gradient(model, policies)[number], exact_gradient(model, policy), atol=1e-12
        )


@pytest.mark.parametrize("name", NAMES)
def test_occupancy_is_the_share_of_episodes_in_a_state(name):
    model = model_of(name)
    policy = random_policy(model)
    visits = occupancy(model, policy)
    episodes = play(model, policy[None], episode_seeds(np.array([5], np.uint64), 0, 4000))
    found = np.zeros_like(visits)
    np.add.at(found, (episodes.turn, episodes.state), 1 / 4000)
    assert np.abs(found - visits).max() < 0.05
    assert np.all(np.diff(visits.sum(-1)) < 1e-12)  # episodes only end


@pytest.mark.parametrize("name", NAMES)
def test_optimal_value_is_above_that_of_every_policy(name):
    model = model_of(name)
    for seed in range(5):
        assert exact_values(model, random_policy(model, seed)).value <= optimal_value(model) + 1e-12


def test_grpo_and_gigpo_on_the_crossroads_are_those_computed_by_hand():
    model = Model.of(Crossroads())
    # a: left, left; b: left, right with bad luck; c: right, left; d: right, right.
    batch = StepBatch.from_arrays(
        [0, 1, 0, 0, 0, 0.5, 0, 0], trajectory=list("aabbccdd"), step=[0, 1] * 4,
        state=[0, 1, 0, 1, 0, 2, 0, 2],
    )  # fmt: skip
    outcome = [5 / 8, -3 / 8, 1 / 8, -3 / 8]
    assert grpo(batch, normalize="mean").advantage.tolist() == np.repeat(outcome, 2).tolist()
    assert gigpo(batch, normalize="mean").step.tolist() == [
        5 / 8, 1 / 2, -3 / 8, -1 / 2, 1 / 8, 1 / 4, -3 / 8, -1 / 4,
    ]  # fmt: skip
    exact = exact_values(model, uniform_policy(model)).advantage
    turns, states, actions = [0, 1] * 4, [0, 1, 0, 1, 0, 2, 0, 2], [0, 0, 0, 1, 1, 0, 1, 1]
    assert exact[turns, states, actions].tolist() == [
        1 / 4, 1 / 4, 1 / 4, -1 / 4, -1 / 4, 1 / 4, -1 / 4, -1 / 4,
    ]  # fmt: skip


@st.composite
def worlds(draw):
    states = draw(st.integers(1, 3))
    chances = st.sampled_from([0.25, 0.5, 1.0])

    def outcomes_of(state, action):
        chance = draw(chances)
        parts = [chance] if chance == 1 else [chance, 1 - chance]
        return [
            Outcome(
                part, draw(st.integers(0, states - 1)),
                draw(st.lists(st.sampled_from(["coin", "fine"]), max_size=2)), draw(st.booleans()),
            )
            for part in parts
        ]  # fmt: skip

    table = {
        (state, action): outcomes_of(state, action) for state in range(states) for action in (0, 1)
    }

    class Drawn(World):
        name = "drawn"
        actions = ("a", "b")
        max_steps = draw(st.integers(1, 3))
        weights = {"coin": 1.0, "fine": -0.3}  # noqa: RUF012

        def initial(self):
            return 0

        def outcomes(self, state, action):
            return table[state, action]

    return Drawn()


def value_by_enumeration(world, policy, state, steps):
    """The expected return, by all that can happen."""
    if steps == 0:
        return 0.0
    total = 0.0
    for action in (0, 1):
        for outcome in world.outcomes(state, action):
            reward = sum(world.weights[event] for event in outcome.events)
            later = 0.0
            if not outcome.done:
                later = value_by_enumeration(world, policy, outcome.state, steps - 1)
            total += policy[state][action] * outcome.probability * (reward + later)
    return total


@given(worlds(), st.floats(0, 1))
def test_exact_values_are_those_of_an_enumeration_of_all_episodes(world, left):
    model = Model.of(world)
    policy = np.tile([left, 1 - left], (len(model.states), 1))
    by_state = {state: policy[number] for number, state in enumerate(model.states)}
    expected = value_by_enumeration(world, by_state, 0, world.max_steps)
    assert exact_values(model, policy).value == pytest.approx(expected, abs=1e-12)
