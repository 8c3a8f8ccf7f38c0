"""The public API and the tables compute the same numbers."""

import asyncio
from functools import partial

import numpy as np
import pytest

from examples.arena.public_path import PublicTrainer
from guerdon import EnvPool
from guerdon.arena import METHODS, WORLDS, Loop, Model, WorldEnvironment, train
from guerdon.arena.learners import softmax
from guerdon.credit import ESTIMATORS

LOOP = Loop(groups=2, group_size=4)
REGISTERED = [
    name
    for name, method in METHODS.items()
    if method.estimate in [ESTIMATORS[each] for each in ESTIMATORS.names()]
]


async def trained(trainer, updates):
    async with EnvPool(partial(WorldEnvironment, trainer.model), n=LOOP.episodes) as pool:
        return [(await trainer.update(pool)).logits for _ in range(updates)][-1]


@pytest.mark.parametrize(
    ("world", "method"),
    [
        *(("lock", name) for name in REGISTERED),
        *((name, "gigpo") for name in WORLDS.names() if name != "lock"),
        ("key-maze", "hgpo"),
        ("tool-use", "gae"),
        ("umbrella", "state_differences"),
    ],
)
def test_train_in_tables_takes_the_updates_of_pool_worker_aligner_and_credit(world, method):
    model, updates = Model.of(WORLDS[world]()), 3
    trainer = PublicTrainer(
        model, METHODS[method], seed=11, learning_rate=2.0,
        groups=LOOP.groups, group_size=LOOP.group_size,
    )  # fmt: skip
    logits = asyncio.run(trained(trainer, updates))
    in_tables = train(
        model, METHODS[method], seeds=[11], learning_rate=2.0, updates=updates, loop=LOOP
    )
    assert np.abs(logits).max() > 0.01
    np.testing.assert_allclose(softmax(logits), in_tables.policies[0], rtol=0, atol=1e-12)


def test_public_path_with_the_state_as_an_index_equals_that_with_its_text():
    model = Model.of(WORLDS["key-maze"]())
    make = partial(PublicTrainer, model, METHODS["gigpo"], seed=4, learning_rate=2.0, groups=1)
    by_text = make(state_key="last")
    by_index = make(state_key=lambda step: step.observation_data["state"])

    async def run(trainer):
        async with EnvPool(partial(WorldEnvironment, model), n=8) as pool:
            return (await trainer.update(pool)).logits

    np.testing.assert_array_equal(asyncio.run(run(by_text)), asyncio.run(run(by_index)))
