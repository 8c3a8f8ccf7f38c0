"""`truncated`: kept apart from `done`, from the environment to clients, rows and Gymnasium."""

import asyncio

import pytest
from starlette.testclient import TestClient

from guerdon import Environment, EnvPool, Observation, RLRolloutWorker, State, create_app
from guerdon.envs import ASGITransport, GenericEnvClient
from guerdon.envs.runner import EnvAdapter
from guerdon.errors import InvalidObservationError
from guerdon.integrations.stepping import LocalEnvironment, ends
from guerdon.rollouts import ScriptedPolicy
from guerdon.rollouts.playing.adapters import read_result
from tests.envs.client.servers import Served
from tests.envs.worlds import Board, Half, Move

LIMIT = 2


class Limited(Environment[Move, Board, State]):
    """A move of 1 wins; otherwise the second one is the last."""

    state = State()

    def __init__(self):
        super().__init__(rubric=Half())

    count = 0

    def reset(self, seed=None):
        self.count = 0
        return Board()

    def step(self, action):
        self.count += 1
        won, late = action.value == 1, self.count == LIMIT
        return self.score(action, Board(done=won or late, truncated=late and not won))


class Cut(Board):
    """A field of that name with a meaning of its own."""

    truncated: str = ""


class Cuts(Limited):
    def step(self, action):
        return self.score(action, Cut(truncated="40 lines", done=action.value == 1))


class Undone(Limited):
    def step(self, action):
        return self.score(action, Board(truncated=True))


ENDS = [([1], [(True, False)]), ([0, 0], [(False, False), (True, True)])]


@pytest.mark.parametrize(("values", "flags"), ENDS)
@pytest.mark.parametrize("backend", ["threads", pytest.param("processes", marks=pytest.mark.edge)])
def test_env_pool_keeps_truncated_apart_from_done(backend, values, flags):
    with EnvPool(Limited, n=1, backend=backend).sync() as pool:
        pool.reset_batch()
        seen = [pool.step_batch([{"value": value}])[0] for value in values]
    assert [(each.done, each.truncated) for each in seen] == flags
    assert ["truncated" in each.metadata for each in seen] == [flag for _, flag in flags]


@pytest.mark.parametrize(("values", "flags"), ENDS)
def test_client_reads_truncated_from_the_metadata(values, flags):
    async def main():
        transport = ASGITransport(create_app(Limited))
        async with GenericEnvClient("http://server", transport=transport) as client:
            await client.reset()
            return [await client.step({"value": value}) for value in values]

    results = asyncio.run(main())
    assert [(each.done, each.truncated) for each in results] == flags
    assert all("truncated" not in each.observation for each in results)


def test_server_sends_no_field_truncated_that_other_clients_would_refuse():
    with TestClient(create_app(Limited)) as client:
        answer = client.post("/step", json={"action": {"value": 1}}).json()
        assert "truncated" not in answer["observation"]
        assert "truncated" not in client.get("/schema").json()["observation"]["properties"]


@pytest.fixture
def server():
    served = Served(create_app(Limited))
    yield served.url
    served.stop()


@pytest.mark.edge
@pytest.mark.parametrize(("values", "flags"), ENDS)
def test_remote_pool_keeps_truncated_apart_from_done(server, values, flags):
    with EnvPool(server, n=1).sync() as pool:
        pool.reset_batch()
        seen = [pool.step_batch([{"value": value}])[0] for value in values]
    assert [(each.done, each.truncated) for each in seen] == flags


@pytest.mark.parametrize(("values", "flags"), ENDS)
def test_rollout_worker_records_truncated(values, flags):
    policy = ScriptedPolicy([{"value": value} for value in values])
    record = RLRolloutWorker(Limited, policy, max_steps=5).run_sync()
    assert (record.ended, record.steps[-1].is_done) == ("done", True)
    assert record.truncated == record.to_row().get("truncated", False) == flags[-1][1]
    assert record.steps[-1].step_info.get("truncated", False) == flags[-1][1]


@pytest.mark.parametrize(("values", "flags"), ENDS)
def test_ends_a_truncated_step_does_not_terminate(values, flags):
    game = LocalEnvironment(Limited)
    game.reset(None, None)
    last = [game.step({"value": value}) for value in values][-1]
    game.close()
    assert ends(last, failed=False) == (not flags[-1][1], flags[-1][1])


def test_env_adapter_refuses_an_observation_that_is_truncated_and_not_done():
    adapter = EnvAdapter(Undone())
    adapter.reset()
    with pytest.raises(InvalidObservationError, match="truncated, but not done; set `done=True`"):
        adapter.step(Move())


def test_env_adapter_leaves_a_field_of_that_name_alone():
    adapter = EnvAdapter(Cuts())
    adapter.reset()
    for value in (0, 1):
        seen = adapter.step(Move(value=value))
        assert (seen.truncated, "truncated" in seen.metadata) == ("40 lines", False)
    assert seen.model_dump()["truncated"] == "40 lines"


@pytest.mark.parametrize(
    ("answer", "truncated"),
    [
        (Observation(done=True, truncated=True), True),
        ({"text": "", "done": True, "truncated": True}, True),
        ({"observation": {}, "done": True, "truncated": True}, True),
        ({"text": "", "done": True, "metadata": {"truncated": True}}, True),
        ({"text": "", "done": False, "truncated": True}, False),
        ({"text": "", "done": True, "truncated": "40 lines"}, False),
        ({"text": "", "done": True}, False),
    ],
)
def test_read_result_reads_truncated_of_an_answer_of_any_kind(answer, truncated):
    assert read_result(answer, "step").truncated is truncated
