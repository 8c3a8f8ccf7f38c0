"""An environment's configuration: read, changed, and applied when an episode begins."""

import asyncio
import copy
import threading

import pytest

from guerdon import Gate, RubricComposer
from guerdon.errors import ConfigConflictError, RewardConfigError, ServiceError
from tests.envs.worlds import SOON, Down, Half, Move, Value, World


class Composed(World):
    def __init__(self):
        super().__init__(RubricComposer({"a": Half(), "v": Value()}, [1.0, 1.0], normalize=False))


def reward(world):
    world.reset()
    return world.step(Move(value=1.0)).reward


def test_environment_config_a_change_counts_from_the_next_reset_on():
    world = Composed()
    world.reset()
    answer = world.update_config({"weights": {"a": 4.0}}, by="ann")
    assert answer["status"] == "ok"
    assert world.step(Move()).reward == 1.5
    assert reward(world) == 3.0
    assert world.get_config() == answer["config"] | {"progress": world.get_config()["progress"]}


def test_environment_config_an_async_reset_takes_it_over_too():
    class Async(Composed):
        reset = World.reset

        async def reset_async(self, seed=None, episode_id=None, **kwargs):
            return self.reset()

    world = Async()
    world.update_config({"weights": {"a": 4.0}})
    asyncio.run(world.reset_async())
    assert world.step(Move()).reward == 3.0
    assert world.get_config()["progress"]["episode"] == 1


def test_environment_config_a_reset_that_calls_its_parents_begins_one_episode():
    class Child(Composed):
        def reset(self, *args, **kwargs):
            return super().reset(*args, **kwargs)

    world = Child()
    world.get_config()
    world.reset()
    assert world.get_config()["progress"]["episode"] == 1


def test_environment_config_each_observation_has_the_fingerprint_of_what_scored_it():
    world = Composed()
    world.reset()
    before = world.step(Move()).metadata["reward_fingerprint"]
    assert before == world.rubric.fingerprint()
    world.rubric.update_weights({"a": 9.0})
    world.reset()
    after = world.step(Move()).metadata["reward_fingerprint"]
    assert before != after == world.rubric.fingerprint()


def test_environment_config_what_can_not_be_changed_changes_nothing():
    world = Composed()
    with pytest.raises(RewardConfigError, match="unknown"):
        world.update_config({"weights": {"a": 4.0, "unknown": 1.0}})
    assert reward(world) == 1.5
    seen = world.get_config()["version"]
    world.update_config({"weights": {"a": 2.0}}, version=seen)
    with pytest.raises(ConfigConflictError):
        world.update_config({"weights": {"a": 3.0}}, version=seen)
    assert reward(world) == 2.0


def test_environment_config_a_rubric_that_can_not_be_copied_can_not_be_configured():
    class Blocked(Half):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    with pytest.raises(RewardConfigError, match="can't be copied"):
        World(Blocked()).get_config()


def test_environment_config_a_gate_is_tuned_by_its_path():
    world = World(Gate(Half(), 1.0))
    assert reward(world) == 0.0
    world.update_config({"per_turn": [{"name": "reward", "config": {"threshold": 0.5}}]})
    assert reward(world) == 0.5


def test_environment_config_an_environment_without_services_is_reported():
    with pytest.raises(ServiceError, match="mcp_services"):
        World().mcp.call_tool("judge")


def test_environment_config_services_may_be_given():
    services = object()

    class Served(World):
        def __init__(self):
            super().__init__()
            self.mcp = services

    assert Served().mcp is services


# Which resets begin an episode


class Resets:
    """A reset to be mixed in."""

    def reset(self, seed=None, episode_id=None, **kwargs):
        return World.reset(self, seed, episode_id)


def test_environment_config_a_reset_that_is_mixed_in_begins_an_episode():
    class Mixed(Resets, Composed):
        pass

    world = Mixed()
    world.update_config({"weights": {"a": 4.0}})
    assert reward(world) == 3.0
    assert world.get_config()["progress"]["episode"] == 1


def test_environment_config_the_order_in_which_resets_are_inherited_stays():
    class One(Composed):
        pass

    class Other(Composed):
        def reset(self, *args, **kwargs):
            self.asked = "other"
            return super().reset(*args, **kwargs)

    class Both(One, Other):
        pass

    world = Both()
    world.reset()
    assert world.asked == "other"


def test_environment_config_a_reset_that_failed_leaves_the_episode_as_it_was():
    class Fails(Composed):
        def reset(self, seed=None, **kwargs):
            if seed == 13:
                raise OSError("no such game")
            return super().reset(seed, **kwargs)

    world = Fails()
    world.get_config()
    world.reset()
    before = world.step(Move())
    world.update_config({"weights": {"a": 4.0}})
    with pytest.raises(OSError, match="no such game"):
        world.reset(seed=13)
    after = world.step(Move())
    assert (after.reward, before.reward) == (1.5, 1.5)
    assert after.metadata["reward_fingerprint"] == before.metadata["reward_fingerprint"]
    assert reward(world) == 3.0


def test_environment_config_a_rubric_that_is_made_anew_by_each_reset_is_configured_too():
    class Anew(Composed):
        def reset(self, *args, **kwargs):
            self.rubric = Composed().rubric
            return super().reset(*args, **kwargs)

    world = Anew()
    world.update_config({"weights": {"a": 4.0}})
    assert (reward(world), reward(world)) == (3.0, 3.0)
    config = world.get_config()
    assert config["progress"]["episode"] == 2
    assert world.step(Move()).metadata["reward_fingerprint"] == config["fingerprint"]


def test_environment_config_a_rubric_that_is_slow_to_be_changed_does_not_block_an_async_reset():
    begun, go_on = threading.Event(), threading.Event()
    go_on.set()

    class Slow(Half):
        tunable = ("pace",)

        @property
        def pace(self):
            return self.__dict__.get("_pace", 1.0)

        @pace.setter
        def pace(self, value):
            begun.set()
            assert go_on.wait(SOON)
            self.__dict__["_pace"] = value

    class Async(World):
        reset = World.reset

        async def reset_async(self, seed=None, episode_id=None, **kwargs):
            return self.reset()

    world = Async(Slow())
    world.update_config({"per_turn": [{"name": "reward", "config": {"pace": 2.0}}]})
    begun.clear()
    go_on.clear()

    async def main():
        resetting = asyncio.ensure_future(world.reset_async())
        assert await asyncio.to_thread(begun.wait, SOON)
        go_on.set()  # which is impossible if the loop is blocked
        await resetting

    asyncio.run(main())
    assert world.rubric.pace == 2.0


# Fingerprints


def test_environment_config_fingerprint_includes_weights_that_were_set_directly():
    world = Composed()
    config = world.get_config()["fingerprint"]
    world.reset()
    first = world.step(Move()).metadata["reward_fingerprint"]
    world.rubric.update_weights({"a": 9.0})
    second = world.step(Move()).metadata["reward_fingerprint"]
    assert (first, second) == (config, world.rubric.fingerprint())
    assert first != second
    world.reset()
    assert world.step(Move()).metadata["reward_fingerprint"] == second
    assert reward(world) == 5.5


def test_environment_config_a_child_that_is_replaced_in_an_episode_is_seen_in_the_fingerprint():
    world = Composed()
    world.get_config()
    world.reset()
    world.rubric.a = Value()
    assert world.step(Move()).metadata["reward_fingerprint"] == world.rubric.fingerprint()


def test_environment_config_a_copied_rubric_takes_no_episode_along():
    world = Composed()
    world.get_config()
    world.reset()
    assert world.rubric._scored_by is not None
    assert copy.deepcopy(world.rubric)._scored_by is None


def test_environment_config_a_reward_that_failed_reports_what_it_was_scored_by():
    world = World(RubricComposer({"a": Half(), "down": Down()}, [1.0, 1.0], normalize=False))
    config = world.get_config()["fingerprint"]
    world.reset()
    observation = world.step(Move())
    assert observation.reward is None
    assert observation.metadata["reward_fingerprint"] == config
