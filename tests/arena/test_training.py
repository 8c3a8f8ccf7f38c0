"""The loop: batches, learners, clipping, reproducibility, and estimators that fail."""

import dataclasses

import numpy as np
import pytest

from guerdon.arena import METHODS, Crossroads, Loop, Method, Model, exact_gradient, train
from guerdon.arena.episodes import episode_seeds, play
from guerdon.arena.exact import exact_values, uniform_policy
from guerdon.arena.learners import NetworkLearner
from guerdon.arena.training import policy_gradient
from guerdon.arena.worlds import KeyMaze, Lock, StampedMaze, ToolUse
from guerdon.credit import Credit, grpo
from guerdon.errors import CreditError, InvalidArgumentError

LOCK = Model.of(Lock(dials=2))


def test_train_of_several_seeds_is_that_of_each_alone():
    options = {"updates": 5, "loop": Loop(groups=1)}
    together = train(LOCK, METHODS["gae"], seeds=[1, 2], learning_rate=[1.0, 2.0], **options)
    for number, (seed, rate) in enumerate([(1, 1.0), (2, 2.0)]):
        alone = train(LOCK, METHODS["gae"], seeds=[seed], learning_rate=rate, **options)
        np.testing.assert_array_equal(together.returns[number], alone.returns[0])
        np.testing.assert_array_equal(together.policies[number], alone.policies[0])


@pytest.mark.parametrize("learner", ["tabular", "network"])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_train_with_the_exact_advantage_opens_the_lock(learner, clip):
    loop = Loop(learner=learner, clip=clip, epochs=1 if clip is None else 3)
    rate = 0.3 if learner == "tabular" else 0.03  # states of a network share parameters
    training = train(
        LOCK, METHODS["exact"], seeds=[0, 1, 2], learning_rate=rate, updates=200, loop=loop
    )
    assert (training.returns[:, 0] < 0.5).all()
    assert (training.returns[:, -1] > 1.1).all()


def test_train_with_more_epochs_and_clip_leaves_the_ratio_near_the_clip():
    model = Model.of(Crossroads())

    def ratio(clip):
        loop = Loop(clip=clip, epochs=50)
        training = train(
            model, METHODS["exact"], seeds=[3], learning_rate=0.05, updates=1, loop=loop
        )
        return training.policies[0, 0].max() / 0.5

    assert 1.1 < ratio(0.1) < 1.2
    assert ratio(0.1) < ratio(0.3) < 1.4


def test_policy_gradient_of_exact_advantages_is_the_exact_gradient_on_average():
    model = Model.of(ToolUse())
    policy = uniform_policy(model)
    episodes = play(model, policy[None], episode_seeds(np.array([1], np.uint64), 0, 20_000))
    exact = exact_values(model, policy).advantage
    weight = exact[episodes.turn, episodes.state, episodes.action]
    found = policy_gradient(policy[None], episodes, weight)[0]
    np.testing.assert_allclose(found, exact_gradient(model, policy), atol=5e-3)


def test_network_learner_moves_its_logits_along_the_gradient_in_proportion_to_the_rate():
    learner = NetworkLearner(LOCK, np.array([1, 1]))
    one = np.random.default_rng(0).normal(size=learner.logits.shape[1:])
    direction, rate = np.stack([one, one]), np.array([1e-6, 2e-6])
    learner.ascend(direction, np.array([1e-2, 1e-2]))  # the last layer is 0 at first
    before = learner.logits
    learner.ascend(direction, rate)
    change = ((learner.logits - before) * direction).sum((1, 2)) / rate
    assert change[0] > 0
    assert change[1] == pytest.approx(change[0], rel=1e-3)


def test_gigpo_and_grpo_take_the_same_updates_where_no_state_repeats():
    model = Model.of(StampedMaze())
    options = {"seeds": [1, 2], "learning_rate": 2.0, "updates": 10}
    first, second = (train(model, METHODS[name], **options) for name in ("gigpo", "grpo"))
    np.testing.assert_array_equal(first.returns, second.returns)


def test_hgpo_has_no_advantage_where_no_state_repeats():
    training = train(
        Model.of(StampedMaze()), METHODS["hgpo"], seeds=[1], learning_rate=2.0, updates=5
    )
    assert training.coverage.max() == 0
    assert np.ptp(training.returns) == 0


def test_batches_of_the_arena_are_those_of_from_arrays():
    from guerdon.credit import StepBatch, gigpo, hgpo, rtmc

    model = Model.of(KeyMaze())
    policy = uniform_policy(model)[None]
    episodes = play(model, policy, episode_seeds(np.array([4], np.uint64), 0, 16))
    fast = episodes.batch(0, group_size=8)
    group = (episodes.episode // 8).tolist()
    slow = StepBatch.from_arrays(
        episodes.reward, trajectory=episodes.episode, step=episodes.turn, group=group,
        state=episodes.state, action=episodes.action,
    )  # fmt: skip
    for estimate in (gigpo, hgpo, rtmc):
        np.testing.assert_allclose(
            estimate(fast).advantage, estimate(slow).advantage, rtol=0, atol=1e-12
        )


# Estimators that fail ----------------------------------------------------------------------------


def returning(change):
    def estimate(batch):
        return change(grpo(batch))

    return Method("mine", estimate)


def changing(batch):
    batch.rewards[:] = 1.0
    return grpo(batch)


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (
            returning(
                lambda credit: dataclasses.replace(credit, advantage=credit.advantage * np.nan)
            ),
            "'mine' returned advantages that aren't finite",
        ),
        (
            returning(lambda credit: dataclasses.replace(credit, advantage=credit.advantage[:-1])),
            r"'mine' must return a Credit with an advantage of the shape \(\d+,\), got Credit",
        ),
        (returning(lambda credit: credit.advantage), "must return a Credit .* got ndarray"),
        (Method("mine", changing), "'mine' changes the batch"),
        (
            Method("mine", lambda batch: Credit.of(batch, np.log(batch.rewards - 1))),
            "too large",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_train_refuses_what_an_estimator_must_not_return(method, problem):
    with pytest.raises(CreditError, match=problem):
        train(LOCK, method, seeds=[1], learning_rate=1.0, updates=1)


def test_method_named_refuses_unknown_names():
    with pytest.raises(InvalidArgumentError, match="there is no method 'grpoo'"):
        Method.named("grpoo")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"groups": 0}, "`groups` must be"),
        ({"learner": "transformer"}, "`learner` must be 'tabular' or 'network'"),
        ({"epochs": 2}, "`clip` must be given if `epochs` is more than 1"),
        ({"clip": 2.0}, "`clip` must be"),
    ],
)
def test_loop_refuses_values_out_of_range(options, problem):
    with pytest.raises(InvalidArgumentError, match=problem):
        Loop(**options)
