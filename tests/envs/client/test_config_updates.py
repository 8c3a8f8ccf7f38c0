"""Configuring the reward of a server from its clients, also over a connection that is lost."""

import json
import textwrap

import pytest

from guerdon import EnvClient, GenericEnvClient, HTTPEnvClient, RewardConfig, Rubric, RubricComposer
from guerdon.envs.client.config_updates import SessionUpdates, update_error, versioned
from guerdon.errors import (
    ConfigConflictError,
    ConnectionLostError,
    InvalidArgumentError,
    RewardConfigError,
    ServerError,
)
from tests.envs.client.servers import Echo, run

pytestmark = pytest.mark.edge  # real servers and processes


class Fixed(Rubric):
    score_range = (0.0, 1.0)
    tunable = ("value", "mode")

    def __init__(self, value=1.0):
        super().__init__()
        self.value = value
        self.mode = "strict"

    def forward(self, action, observation):
        return self.value


class Composed(Echo):
    def __init__(self):
        super().__init__()
        self.rubric = RubricComposer({"a": Fixed(), "b": Fixed(0.5)}, {"a": 1.0, "b": 2.0})


HELLO = {"message": "hello"}


async def reward(client):
    await client.reset()
    return (await client.step(HELLO)).reward


def lose(client):
    """Break the connection, as a network does."""
    client._session._socket.transport.abort()


@pytest.mark.parametrize("kind", [EnvClient, GenericEnvClient])
def test_update_config_changes_one_session(serve, kind):
    async def main():
        url = serve(Composed).url
        async with kind(url) as one, kind(url) as two:
            reply = await one.get_config()
            assert [each["weight"] for each in reply["per_turn"]] == [1.0, 2.0]
            answer = await one.update_config({"weights": {"a": 5.0}})
            assert (answer["status"], await one.get_config()) == ("ok", answer["config"])
            assert (await reward(one), await reward(two)) == (6.0, 2.0)

    run(main())


def test_post_config_changes_all_sessions(serve):
    async def main():
        async with EnvClient(serve(Composed).url) as client:
            answer = await client.post("/config", json={"weights": {"a": 5.0}})
            assert answer["status"] == "ok"
            assert await client.get("/config") == answer["config"]
            assert await reward(client) == 6.0

    run(main())


def test_http_client_update_config_changes_all_sessions(serve):
    async def main():
        url = serve(Composed).url
        async with HTTPEnvClient(url) as http, EnvClient(url) as client:
            answer = await http.update_config({"weights": {"a": 5.0}})
            assert await http.get_config() == answer["config"]
            assert await reward(client) == 6.0

    run(main())


def test_sync_clients_update_config(serve):
    url = serve(Composed).url
    with EnvClient(url).sync() as client, HTTPEnvClient(url).sync() as http:
        assert http.update_config({"weights": {"a": 5.0}})["status"] == "ok"
        assert http.get_config()["per_turn"][0]["weight"] == 5.0
        assert http.post("/config", json={"weights": {"a": 6.0}})["status"] == "ok"
        assert client.update_config({"weights": {"b": 0.0}})["status"] == "ok"
        assert client.get_config()["per_turn"][1]["weight"] == 0.0
        assert client.post("/config", json={"training_step": 1})["status"] == "ok"
        client.reset()
        assert client.step(HELLO).reward == 6.0


# Refusals


@pytest.mark.parametrize("kind", [EnvClient, HTTPEnvClient])
def test_update_config_lists_every_problem(serve, kind):
    async def main():
        async with kind(serve(Composed).url) as client:
            with pytest.raises(RewardConfigError, match="nothing was changed") as caught:
                await client.update_config({"weights": {"who": 1.0}, "training_step": -1})
            assert sorted(problem.partition(":")[0] for problem in caught.value.problems) == [
                "training_step",
                "weights.who",
            ]
            assert (await client.get_config())["per_turn"][0]["weight"] == 1.0

    run(main())


@pytest.mark.parametrize("kind", [EnvClient, HTTPEnvClient])
@pytest.mark.parametrize("change", [None, [], "weights", 3])
def test_update_config_does_not_send_what_is_not_a_dict(serve, kind, change):
    async def main():
        async with kind(serve(Composed).url) as client:
            with pytest.raises(InvalidArgumentError, match="is a dict"):
                await client.update_config(change)

    run(main())


def test_update_config_raises_conflict_for_the_later_of_two_writers(serve):
    async def main():
        url = serve(Composed).url
        async with HTTPEnvClient(url) as one, HTTPEnvClient(url) as two:
            await one.get_config()
            await two.get_config()
            await one.update_config({"weights": {"a": 5.0}})
            with pytest.raises(ConfigConflictError):
                await two.update_config({"weights": {"a": 6.0}})
            await one.update_config({"weights": {"a": 7.0}})  # it has seen its own
            await two.get_config()
            answer = await two.update_config({"weights": {"a": 6.0}})
            assert answer["change"]["changes"][0]["from"] == 7.0

    run(main())


def test_update_config_of_a_session_raises_conflict(serve):
    async def main():
        url = serve(Composed).url
        async with EnvClient(url) as client, HTTPEnvClient(url) as http:
            seen = (await client.get_config())["version"]
            await http.update_config({"weights": {"a": 5.0}})
            with pytest.raises(ConfigConflictError):
                await client.update_config({"weights": {"b": 0.0}})
            with pytest.raises(ConfigConflictError):
                await client.update_config({"weights": {"b": 0.0}}, version=seen)
            await client.get_config()
            await client.update_config({"weights": {"b": 0.0}})
            assert await reward(client) == 5.0

    run(main())


@pytest.mark.parametrize("kind", [EnvClient, HTTPEnvClient])
def test_update_config_rejects_ten_megabytes(serve, kind):
    async def main():
        async with kind(serve(Composed).url) as client:
            with pytest.raises(
                (ServerError, ConnectionLostError), match=r"larger than|closed|reach"
            ):
                await client.update_config({"by": "x" * 10 * 2**20})

    run(main())


def test_update_config_raises_after_close(serve):
    async def main():
        client = EnvClient(serve(Composed).url)
        await client.update_config({"weights": {"a": 5.0}})
        await client.close()
        with pytest.raises(ConnectionLostError, match="was closed"):
            await client.get_config()
        with pytest.raises(ConnectionLostError, match="was closed"):
            await client.update_config({"weights": {"a": 6.0}})
        assert await reward(client) == 6.0
        await client.close()

    run(main())


# A connection that is lost

CHANGES = {
    "one": [{"weights": {"a": 5.0}}],
    "the later wins": [{"weights": {"a": 2.0}}, {"weights": {"a": 5.0}}],
    "in two forms": [{"weights": {"a": 2.0}}, {"per_turn": [{"name": "a", "weight": 5.0}]}],
    "in two forms, turned": [
        {"per_turn": [{"name": "a", "weight": 2.0}]}, {"weights": {"a": 5.0}}],
    "schedules": [{"schedules": {"a": {"constant": 2.0}}},
                  {"per_turn": [{"name": "a", "weight": 10.0, "schedule": {"constant": 0.5}}]}],
    "a removed schedule": [
        {"schedules": {"a": {"constant": 2.0}}}, {"weights": {"a": 5.0}, "schedules": {"a": None}}],
    "fields": [{"per_turn": [{"name": "a", "config": {"value": 0.5}}]},
               {"per_turn": [{"name": "a", "config": {"mode": "loose"}}], "weights": {"a": 10.0}}],
    "steps": [{"schedules": {"a": {"piecewise": [[0, 1], [10, 5]], "by": "training_step"}}},
              {"training_step": 10}],
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_update_config_is_repeated_after_a_lost_connection(serve, name):
    async def main():
        async with EnvClient(serve(Composed).url) as client:
            for change in CHANGES[name]:
                await client.update_config(change)
            assert await reward(client) == 6.0
            before = await client.get_config()
            lose(client)
            assert await reward(client) == 6.0
            after = await client.get_config()
            assert (after["per_turn"], after["fingerprint"]) == (
                before["per_turn"],
                before["fingerprint"],
            )

    run(main())


def test_update_config_with_a_returned_configuration_is_repeated(serve):
    async def main():
        url = serve(Composed).url
        async with EnvClient(url) as client, EnvClient(url) as other:
            reply = await client.get_config()
            reply["per_turn"][0]["weight"] = 5.0
            await other.reset()
            await client.update_config(reply)
            await other.reset()
            lose(client)
            assert await reward(client) == 6.0

    run(main())


def test_update_config_after_a_loss_is_added_to_earlier_updates(serve):
    async def main():
        async with EnvClient(serve(Composed).url) as client:
            await client.get_config()
            await client.update_config({"weights": {"a": 5.0}})
            lose(client)
            await client._session.drop()
            await client.connect()
            answer = await client.update_config({"weights": {"b": 0.0}})
            assert [each["weight"] for each in answer["config"]["per_turn"]] == [5.0, 0.0]
            assert await reward(client) == 5.0

    run(main())


def test_update_config_after_a_loss_ignores_the_lost_version(serve):
    async def main():
        url = serve(Composed).url
        async with EnvClient(url) as client, HTTPEnvClient(url) as http:
            await client.get_config()
            await http.update_config({"weights": {"b": 0.0}})
            lose(client)
            await client._session.drop()
            await client.reset()
            await client.update_config({"weights": {"a": 5.0}})
            assert await reward(client) == 5.0

    run(main())


def test_update_config_does_not_repeat_a_rejected_update(serve):
    async def main():
        async with EnvClient(serve(Composed).url) as client:
            await client.update_config({"weights": {"a": 5.0}})
            with pytest.raises(RewardConfigError):
                await client.update_config({"weights": {"a": 9.0, "who": 1.0}})
            lose(client)
            assert await reward(client) == 6.0

    run(main())


class Levels(Composed):
    level = 1

    def get_config(self):
        return {"level": self.level}

    def update_config(self, change):
        self.level = change["level"]

    def step(self, action):
        return super().step(action).model_copy(update={"reward": float(self.level)})


def test_update_config_repeats_the_environments_own_configuration(serve):
    async def main():
        async with EnvClient(serve(Levels).url) as client:
            await client.update_config({"level": 3})
            assert await reward(client) == 3.0
            lose(client)
            assert await reward(client) == 3.0

    run(main())


def test_session_updates_merge_many_updates():
    updates = SessionUpdates()
    for number in range(1000):
        updates.add({"weights": {"a": number}, "training_step": number, "by": "ann"})
    assert updates.merged == {"weights": {"a": 999}, "training_step": 999}


# Handing one over


WORLD = """
    from guerdon import Action, Environment, Observation, Rubric, State

    class Say(Action):
        message: str

    class Echo(Environment[Say, Observation, State]):
        state = State()

        def reset(self, seed=None):
            return Observation()

        def step(self, action):
            return self.score(action, Observation())

    class Long(Rubric):
        score_range = (0.0, 1.0)

        def __init__(self, longest=10):
            super().__init__()
            self.longest = longest

        def forward(self, action, observation):
            return min(len(action.message) / self.longest, 1.0)
"""


def configuration(rubric):
    entry = {"name": "long", "rubric": rubric, "weight": 4.0, "config": {"longest": 10}}
    return {"schema_version": "1.0", "per_turn": [entry]}


@pytest.mark.parametrize("given", ["dict", "model", "path", "from a file elsewhere"])
def test_process_launcher_passes_the_config_as_a_file(tmp_path, monkeypatch, given):
    (tmp_path / "worlds.py").write_text(textwrap.dedent(WORLD))
    monkeypatch.chdir(tmp_path)
    config = configuration("worlds.py:Long")
    if given == "model":
        config = RewardConfig.from_dict(config)
    elif given != "dict":
        folder = tmp_path / "rewards"
        folder.mkdir()
        config = folder / "reward.json"
        config.write_text(json.dumps(configuration("../worlds.py:Long")))
        if given == "from a file elsewhere":
            config = RewardConfig.from_file(config)

    async def main():
        client = GenericEnvClient.from_module("worlds.py:Echo", config=config)
        async with client:
            reply = await client.get_config()
            assert (reply["per_turn"][0]["name"], reply["per_turn"][0]["weight"]) == ("long", 4.0)
            assert await reward(client) == 2.0
            await client.update_config({"weights": {"long": 2.0}})
            assert await reward(client) == 1.0
            client._launcher._process.kill()
            client._launcher._process.wait()
            assert await reward(client) == 1.0  # of the server that was started again

    run(main())


def test_versioned_leaves_reports_without_a_version():
    assert versioned({"training_step": 3, "by": "t"}, None, "1-f") == {
        "training_step": 3,
        "by": "t",
    }
    assert versioned({"weights": {}}, None, "1-f") == {"weights": {}, "version": "1-f"}
    assert versioned({"weights": {}}, "2-e", "1-f")["version"] == "2-e"


def test_update_error_of_a_conflict_has_both_versions():
    reply = {"message": "it was changed", "version": "2-e"}
    error = update_error(ServerError("failed", code="412", details=reply), "1-f")
    assert (str(error), error.sent, error.present) == ("it was changed", "1-f", "2-e")


def test_update_config_repeats_only_what_it_changed(serve):
    async def main():
        async with EnvClient(serve(Composed).url) as client:
            reply = await client.get_config()
            reply["per_turn"][0]["weight"] = 5.0
            reply["per_turn"][0]["config"]["value"] = 0.5
            await client.update_config(reply)
            change = {"name": "b", "config": {"value": 1.0}}
            await client.post("/config", json={"weights": {"b": 10.0}, "per_turn": [change]})
            assert await reward(client) == 12.5
            lose(client)
            with pytest.raises(ConnectionLostError):
                await client.step(HELLO)
            assert await reward(client) == 12.5

    run(main())
