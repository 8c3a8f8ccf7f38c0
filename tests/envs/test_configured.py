"""`ConfiguredEnv`: environments in code whose reward is a pipeline, one by one and in pools."""

import asyncio
import json
import threading

import pytest

from guerdon import EnvPool, LLMJudge, RewardConfig, RewardPipeline
from guerdon.envs import ConfiguredEnv
from guerdon.envs.configured import with_pipeline
from guerdon.envs.runner import EnvAdapter
from guerdon.errors import EnvDefinitionError, RewardConfigError, ServiceUnavailableError
from tests.envs.worlds import Board, Half, Move, Value, World


class Bare(World):
    """A world without a rubric of its own."""

    rubric_of = staticmethod(lambda: None)


class Async(Bare):
    reset = World.reset

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        await asyncio.sleep(0)
        return World.reset(self, seed, episode_id)

    async def step_async(self, action, timeout_s=None, **kwargs):
        await asyncio.sleep(0)
        return World.step(self, action)


def config(**more):
    entries = [
        {"name": "half", "rubric": Half, "weight": 1.0},
        {"name": "value", "rubric": Value, "weight": 1.0},
    ]
    data = {"schema_version": "1.0", "normalize": False, "per_turn": entries, **more}
    return RewardConfig.from_dict(data)


def test_with_pipeline_leaves_the_judge_that_it_replaces_without_services():
    class Judged(World):
        rubric_of = staticmethod(lambda: LLMJudge("How is the style? {action}", "style"))

    other = {"type": "openai_llm", "endpoint": "http://127.0.0.1:9", "model": "m"}
    with RewardPipeline(config(mcp_services={"other": other})) as pipeline:
        world = with_pipeline(Judged, pipeline)()
        world.reset()
        assert world.step(Move(value=0.5)).reward == 1.0


def test_configured_env_environments_are_scored_by_one_configuration():
    with ConfiguredEnv(Bare, config()) as configured:
        one, two = configured(), configured()
        one.reset()
        two.reset()
        configured.update_config({"weights": {"half": 4.0}}, by="ann")
        assert (one.step(Move()).reward, two.step(Move()).reward) == (1.5, 1.5)
        one.reset()
        assert (one.step(Move()).reward, two.step(Move()).reward) == (3.0, 1.5)
        assert one.get_config() == configured.get_config()
        assert configured.runtime.audit[0]["by"] == "ann"


def test_configured_env_an_environments_own_rubric_is_replaced():
    with ConfiguredEnv(World, config()) as configured:
        world = configured()
        world.reset()
        assert world.step(Move()).metadata["reward_components"] == {"half": 0.5, "value": 1.0}


class Bonus(Bare):
    """Has a configuration of its own, as in the draft on reward pipelines."""

    def __init__(self):
        super().__init__()
        self.bonus = 0.0

    def get_config(self):
        return {"bonus": self.bonus}

    def update_config(self, config):
        if config["bonus"] < 0:
            raise ValueError("bonus must not be negative")
        self.bonus = config["bonus"]

    def step(self, action, timeout_s=None, **kwargs):
        observation = super().step(action)
        observation.reward += self.bonus
        return observation


def test_configured_env_update_config_changes_the_own_configuration_of_its_environments():
    with ConfiguredEnv(lambda: Bonus(), config()) as configured:
        assert configured.get_config()["bonus"] == 0.0
        world = configured()
        world.reset()
        configured.update_config({"bonus": 3, "weights": {"half": 2.0}})
        assert configured.get_config()["bonus"] == 3
        assert world.step(Move()).reward == 1.5
        world.reset()
        assert world.step(Move()).reward == 5.0
        version = configured.get_config()["version"]
        refused = "the environment refused it: ValueError: bonus must not be negative"
        with pytest.raises(RewardConfigError, match=refused):
            configured.update_config({"bonus": -1, "weights": {"half": 1.0}})
        assert configured.get_config()["version"] == version


@pytest.mark.parametrize("backend", ["threads", pytest.param("processes", marks=pytest.mark.edge)])
@pytest.mark.parametrize("world", [Bare, Async])
def test_configured_env_a_pool_takes_a_change_over_slot_by_slot(world, backend):
    move = Move()
    with (
        ConfiguredEnv(world, config()) as configured,
        EnvPool(configured, n=4, backend=backend).sync() as pool,
    ):
        pool.reset_batch()
        first = configured.get_config()["fingerprint"]
        second = configured.update_config({"weights": {"half": 4.0}})["config"]["fingerprint"]
        assert [each.reward for each in pool.step_batch([move] * 4)] == [1.5] * 4
        pool.reset_batch(slots=[1, 3])
        stepped = pool.step_batch([move] * 4)
        assert [each.reward for each in stepped] == [1.5, 3.0, 1.5, 3.0]
        assert [each.metadata["reward_fingerprint"] for each in stepped] == [
            first, second, first, second,
        ]  # fmt: skip
        assert configured.get_config()["progress"]["episode"] == 6


class Short(Bare):
    """Ends its episode with the first step."""

    def step(self, action, timeout_s=None, **kwargs):
        return self.score(action, Board(done=True))


@pytest.mark.parametrize("backend", ["threads", pytest.param("processes", marks=pytest.mark.edge)])
def test_configured_env_a_curriculum_counts_the_episodes_of_all_slots(backend):
    stages = [
        {"name": "first", "until": {"component": "value", "mean_above": 0.5, "over": 4}},
        {"name": "second", "weights": {"half": 10.0}},
    ]
    with (
        ConfiguredEnv(Short, config(curriculum=stages)) as configured,
        EnvPool(configured, n=4, backend=backend).sync() as pool,
    ):
        for reward in (1.5, 6.0):
            pool.reset_batch()
            assert [each.reward for each in pool.step_batch([Move()] * 4)] == [reward] * 4
            assert configured.get_config()["progress"]["stage"] == "second"


@pytest.mark.parametrize("world", [Bare, Async])
def test_configured_env_no_episode_is_scored_by_two_configurations(world):
    stop = threading.Event()
    with (
        ConfiguredEnv(world, config()) as configured,
        EnvPool(configured, n=8).sync() as pool,
    ):

        def update():
            number = 0
            while not stop.is_set():
                number += 1
                configured.update_config({"weights": {"half": 2.0 * number}})

        updating = threading.Thread(target=update)
        updating.start()
        try:
            seen = set()
            for _ in range(8):
                pool.reset_batch()
                episodes = zip(*(pool.step_batch([Move()] * 8) for _ in range(4)), strict=True)
                for steps in episodes:
                    pairs = {(each.reward, each.metadata["reward_fingerprint"]) for each in steps}
                    assert len(pairs) == 1
                    seen |= pairs
        finally:
            stop.set()
            updating.join()
    by_print = {}
    for reward, fingerprint in seen:
        assert by_print.setdefault(fingerprint, reward) == reward


def test_configured_env_a_schedule_goes_by_the_episodes_of_all():
    schedule = {"piecewise": [[0, 1.0], [4, 0.0]]}
    entries = [{"name": "half", "rubric": Half, "weight": 8.0, "schedule": schedule}]
    with (
        ConfiguredEnv(Bare, config(per_turn=entries)) as configured,
        EnvPool(configured, n=4).sync() as pool,
    ):
        pool.reset_batch()
        rewards = sorted(each.reward for each in pool.step_batch([Move()] * 4))
        assert rewards == [1.0, 2.0, 3.0, 4.0]


def test_configured_env_a_change_that_is_refused_changes_nothing():
    with ConfiguredEnv(Bare, config()) as configured:
        before = configured.get_config()
        with pytest.raises(RewardConfigError):
            configured.update_config({"weights": {"half": 4.0, "who": 1.0}})
        assert configured.get_config() == before


def test_configured_env_a_file_will_do(tmp_path):
    entries = [{"name": "length", "rubric": "RegexMatch", "config": {"pattern": "please"}}]
    path = tmp_path / "reward.json"
    path.write_text(json.dumps({"schema_version": "1.0", "per_turn": entries}))
    with ConfiguredEnv(Bare, path) as configured:
        assert configured.get_config()["per_turn"][0]["config"] == {"pattern": "please"}


def test_configured_env_what_is_wrong_is_reported_when_it_is_made():
    with pytest.raises(RewardConfigError, match="no_such"):
        ConfiguredEnv(Bare, config(per_turn=[{"name": "a", "rubric": "no_such.Rubric"}]))


def test_configured_env_a_service_that_is_not_there_is_named_when_it_is_made():
    services = {"judge": {"type": "openai_llm", "endpoint": "http://127.0.0.1:9", "model": "m"}}
    with pytest.raises(ServiceUnavailableError, match="judge"):
        ConfiguredEnv(Bare, config(mcp_services=services))


def test_configured_env_a_pipeline_that_is_given_stays_open():
    class Pipeline(RewardPipeline):
        closed = False

        def close(self):
            self.closed = True

    pipeline = Pipeline(config())
    with ConfiguredEnv(Bare, pipeline):
        pass
    assert not pipeline.closed


def test_configured_env_reports_a_factory_that_returns_no_environment():
    with (
        ConfiguredEnv(lambda: None, config()) as configured,
        pytest.raises(EnvDefinitionError, match="must return an Environment"),
    ):
        EnvAdapter(configured())
