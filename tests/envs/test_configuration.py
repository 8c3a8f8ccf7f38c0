"""An environment's configuration: told, changed, and taken over when an episode begins."""

import asyncio
import threading

import pytest

from guerdon import (
    ConfigConflictError,
    ConfigError,
    ConfigUpdateError,
    Gate,
    RubricComposer,
    ServiceError,
)
from tests.envs.worlds import Half, Move, Value, World


class Composed(World):
    def __init__(self):
        super().__init__(RubricComposer({"a": Half(), "v": Value()}, [1.0, 1.0], normalize=False))


def reward(world):
    world.reset()
    return world.step(Move(value=1.0)).reward


def test_a_change_counts_from_the_next_reset_on():
    world = Composed()
    world.reset()
    answer = world.update_config({"weights": {"a": 4.0}}, by="ann")
    assert answer["status"] == "ok"
    assert world.step(Move()).reward == 1.5
    assert reward(world) == 3.0
    assert world.get_config() == answer["config"] | {"progress": world.get_config()["progress"]}


def test_an_async_reset_takes_it_over_too():
    class Async(Composed):
        reset = World.reset

        async def reset_async(self, seed=None, episode_id=None, **kwargs):
            return self.reset()

    world = Async()
    world.update_config({"weights": {"a": 4.0}})
    asyncio.run(world.reset_async())
    assert world.step(Move()).reward == 3.0
    assert world.get_config()["progress"]["episode"] == 1


def test_a_reset_that_calls_its_parents_begins_one_episode():
    class Child(Composed):
        def reset(self, *args, **kwargs):
            return super().reset(*args, **kwargs)

    world = Child()
    world.get_config()
    world.reset()
    assert world.get_config()["progress"]["episode"] == 1


def test_each_observation_has_the_fingerprint_of_what_scored_it():
    world = Composed()
    world.reset()
    before = world.step(Move()).metadata["reward_fingerprint"]
    assert before == world.rubric.fingerprint()
    world.rubric.update_weights({"a": 9.0})
    world.reset()
    after = world.step(Move()).metadata["reward_fingerprint"]
    assert before != after == world.rubric.fingerprint()


def test_what_can_not_be_changed_changes_nothing():
    world = Composed()
    with pytest.raises(ConfigUpdateError, match="nobody"):
        world.update_config({"weights": {"a": 4.0, "nobody": 1.0}})
    assert reward(world) == 1.5
    seen = world.get_config()["version"]
    world.update_config({"weights": {"a": 2.0}}, version=seen)
    with pytest.raises(ConfigConflictError):
        world.update_config({"weights": {"a": 3.0}}, version=seen)
    assert reward(world) == 2.0


def test_a_rubric_that_can_not_be_copied_can_not_be_configured():
    class Held(Half):
        def __init__(self):
            super().__init__()
            self.held = threading.Lock()

    with pytest.raises(ConfigError, match="can't be copied"):
        World(Held()).get_config()


def test_a_gate_is_tuned_by_its_path():
    world = World(Gate(Half(), 1.0))
    assert reward(world) == 0.0
    world.update_config({"per_turn": [{"name": "reward", "config": {"threshold": 0.5}}]})
    assert reward(world) == 0.5


def test_an_environment_without_services_says_so():
    with pytest.raises(ServiceError, match="mcp_services"):
        World().mcp.call_tool("judge")


def test_services_may_be_given():
    services = object()

    class Served(World):
        def __init__(self):
            super().__init__()
            self.__dict__["_mcp"] = services

    assert Served().mcp is services
