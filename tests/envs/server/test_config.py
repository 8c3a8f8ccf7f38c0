"""The configuration over the wire: reading it, changing it, and rejecting a change as a whole."""

import ast
import asyncio
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from guerdon import Environment, Rubric, RubricComposer, State, create_app
from tests.envs.server.worlds import RESET, Echo, Length, Said, step


class Fixed(Rubric):
    score_range = (0.0, 1.0)
    tunable = ("value",)

    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


class Composed(Echo):
    def __init__(self):
        super().__init__()
        self.rubric = RubricComposer({"a": Fixed(), "b": Fixed(0.5)}, {"a": 1.0, "b": 2.0})


def reward(client):
    client.ask(RESET)
    return client.ask(step("hello"))["data"]["reward"]


def test_post_config_changes_all_sessions_from_their_next_resets(serve):
    server = serve(Composed)
    one, two = server.client(), server.client()
    assert (reward(one), reward(two)) == (2.0, 2.0)
    answer = server.http.post("/config", json={"weights": {"a": 5.0}})
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.json()["config"] == server.http.get("/config").json()
    assert one.ask(step("hello"))["data"]["reward"] == 2.0
    assert (reward(one), reward(two), reward(server.client())) == (6.0, 6.0, 6.0)


def test_config_message_changes_one_session(serve):
    server = serve(Composed)
    one, two = server.client(), server.client()
    reply = one.ask({"type": "config", "data": {"per_turn": [{"name": "b", "weight": 0.0}]}})
    assert (reply["type"], reply["data"]["status"]) == ("config", "ok")
    assert (reward(one), reward(two)) == (1.0, 2.0)
    assert one.ask({"type": "config"})["data"]["version"] == reply["data"]["config"]["version"]
    assert two.ask({"type": "config"})["data"]["per_turn"][1]["weight"] == 2.0
    assert server.http.get("/config").json()["per_turn"][1]["weight"] == 2.0


def test_observations_contain_the_fingerprint_of_their_configuration(serve):
    server = serve(Composed)
    client = server.client()
    client.ask(RESET)
    before = server.http.get("/config").json()["fingerprint"]
    after = server.http.post("/config", json={"weights": {"a": 5.0}}).json()["config"]
    seen = client.ask(step("hello"))["data"]["metadata"]["reward_fingerprint"]
    client.ask(RESET)
    then = client.ask(step("hello"))["data"]["metadata"]["reward_fingerprint"]
    assert (seen, then) == (before, after["fingerprint"])
    assert before != after["fingerprint"]


def test_post_config_changes_tunable_fields_of_a_plain_tree(serve):
    class Plain(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Fixed()

    server = serve(Plain)
    client = server.client()
    change = {"per_turn": [{"name": "reward", "config": {"value": 0.25}}]}
    assert server.http.post("/config", json=change).status_code == 200
    assert reward(client) == 0.25


def test_get_config_returns_the_changed_weight(serve):
    server = serve(Composed)
    server.http.post("/config", json={"weights": {"a": 5.0}})
    assert server.http.get("/config").json()["per_turn"][0]["weight"] == 5.0


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"weights": {"unknown": 1.0}}, "weights"),
        ({"per_turn": [{"name": "a", "rubric": "os.system"}]}, "per_turn[0].rubric"),
        ({"per_turn": [{"name": "a", "config": {"path": "/etc/passwd"}}]}, "config.path"),
        ({"mcp_services": {"judge": {"type": "mcp"}}}, "mcp_services"),
        ([], "a change must be an object"),
        (None, "a change must be an object"),
    ],
    ids=["name", "class", "file", "services", "list", "nothing"],
)
def test_post_config_lists_every_reason_of_a_rejection(serve, change, where):
    server = serve(Composed)
    before = server.http.get("/config").json()
    if isinstance(change, dict):
        change["training_step"] = "soon"
    answer = server.http.post("/config", json=change)
    assert answer.status_code == 422
    errors = answer.json()["detail"]
    assert where in json.dumps(errors)
    assert len(errors) == (2 if isinstance(change, dict) else 1)
    assert server.http.get("/config").json() == before


def test_config_message_is_rejected_and_the_session_continues(serve):
    client = serve(Composed).client()
    reply = client.ask({"type": "config", "data": {"weights": {"unknown": 1.0}}})
    assert (reply["type"], reply["data"]["code"]) == ("error", "VALIDATION_ERROR")
    assert "unknown" in reply["data"]["errors"][0]["msg"]
    assert reward(client) == 2.0


def test_post_config_rejects_nan(serve):
    answer = serve(Composed).http.post("/config", content=b'{"weights": {"a": NaN}}')
    assert answer.status_code == 422


def test_post_config_does_not_read_a_body_that_is_too_large(serve):
    server = serve(Composed)
    answer = server.http.post("/config", content=b'{"by": "' + b"x" * 10 * 2**20 + b'"}')
    assert (answer.status_code, "1048576 bytes" in answer.text) == (413, True)


def test_config_message_that_is_too_large_is_rejected(serve):
    client = serve(Composed, max_config_bytes=100).client()
    reply = client.ask({"type": "config", "data": {"by": "x" * 200}})
    assert (reply["data"]["code"], "100 bytes" in reply["data"]["message"]) == (
        "VALIDATION_ERROR",
        True,
    )
    assert reward(client) == 2.0


# Versions


def test_post_config_with_if_match_rejects_an_outdated_version(serve):
    http = serve(Composed).http
    seen = http.get("/config").headers["etag"]
    first = http.post("/config", json={"weights": {"a": 2.0}}, headers={"if-match": seen})
    assert (first.status_code, first.headers["etag"] != seen) == (200, True)
    late = http.post("/config", json={"weights": {"a": 3.0}}, headers={"if-match": seen})
    assert (late.status_code, late.json()["detail"]["code"]) == (412, "CONFLICT")
    assert late.headers["etag"] == first.headers["etag"]
    assert http.get("/config").json()["per_turn"][0]["weight"] == 2.0
    again = http.post(
        "/config", json={"weights": {"a": 3.0}}, headers={"if-match": late.headers["etag"]}
    )
    assert again.status_code == 200


def test_post_config_with_a_star_accepts_any_version(serve):
    http = serve(Composed).http
    for header in ({"if-match": "*"}, {}):
        assert http.post("/config", json={"weights": {"a": 2.0}}, headers=header).is_success


def test_config_message_may_contain_its_version(serve):
    server = serve(Composed)
    client = server.client()
    version = client.ask({"type": "config"})["data"]["version"]
    change = {"version": version, "weights": {"a": 2.0}}
    assert client.ask({"type": "config", "data": change})["data"]["status"] == "ok"
    reply = client.ask({"type": "config", "data": change})
    assert (reply["type"], reply["data"]["code"]) == ("error", "CONFLICT")


# The log of it


def test_config_audit_contains_who_changed_what(serve):
    server = serve(Composed)
    assert server.http.get("/config/audit").json() == []
    server.http.post("/config", json={"by": "trainer-1", "weights": {"a": 2.0}})
    server.http.post("/config", json={"schedules": {"b": [[0, 1.0], [100, 0.0]]}})
    first, second = server.http.get("/config/audit").json()
    assert first["by"] == "trainer-1"
    assert first["changes"] == [{"what": "per_turn.a.weight", "from": 1.0, "to": 2.0}]
    assert second["by"].startswith("127.0.0.1:")
    assert second["changes"][0]["what"] == "per_turn.b.schedule"
    assert first["when"] <= second["when"]


def test_config_audit_contains_the_session_of_its_own_changes(serve):
    server = serve(Composed)
    server.client().ask({"type": "config", "data": {"weights": {"a": 2.0}}})
    server.http.post("/config", json={"weights": {"b": 3.0}})
    one, two = server.http.get("/config/audit").json()
    assert one["by"] == f"session {one['session']}"
    assert one["changes"] == [{"what": "per_turn.a.weight", "from": 1.0, "to": 2.0}]
    assert "session" not in two


def test_post_config_with_a_training_step_is_not_a_change(serve):
    server = serve(Composed)
    client = server.client()
    spec = {"piecewise": [[0, 1.0], [100, 0.0]], "by": "training_step"}
    server.http.post("/config", json={"schedules": {"a": spec}})
    rewards = []
    for at in (0, 50, 100):
        server.http.post("/config", json={"training_step": at})
        rewards.append(reward(client))
    assert rewards == [2.0, 1.5, 1.0]
    assert len(server.http.get("/config/audit").json()) == 1


def test_post_config_cannot_tune_a_tree_that_differs_per_environment(serve):
    class Turns(Echo):
        made = 0

        def __init__(self):
            super().__init__()
            Turns.made += 1
            self.rubric = Fixed() if Turns.made == 1 else Length()

    server = serve(Turns)
    change = {"per_turn": [{"name": "reward", "config": {"value": 0.25}}]}
    assert server.http.post("/config", json=change).status_code == 200
    reply = server.client().ask(RESET)
    assert (reply["type"], "no such tunable field" in reply["data"]["message"]) == ("error", True)


# A session's own, and all


def test_session_with_its_own_change_gets_changes_of_all(serve):
    server = serve(Composed)
    one, two = server.client(), server.client()
    one.ask({"type": "config", "data": {"weights": {"b": 0.0}}})
    server.http.post("/config", json={"weights": {"a": 3.0}})
    assert (reward(one), reward(two)) == (3.0, 4.0)


def test_session_reports_move_its_own_schedules_only(serve):
    server = serve(Composed)
    one, two = server.client(), server.client()
    spec = {"piecewise": [[0, 1.0], [100, 0.0]], "by": "training_step"}
    server.http.post("/config", json={"schedules": {"a": spec}})
    one.ask({"type": "config", "data": {"training_step": 100}})
    assert (reward(one), reward(two)) == (1.0, 2.0)
    server.http.post("/config", json={"training_step": 50})
    assert (reward(one), reward(two)) == (1.0, 1.5)


# The wire


@pytest.mark.parametrize(
    "header", ['"{}"', "W/{}", '{}, "other"', '"other", W/"{}"', "{}"], ids=lambda each: each
)
def test_post_config_accepts_any_form_of_the_etag(serve, header):
    http = serve(Composed).http
    version = http.get("/config").json()["version"]
    sent = {"if-match": header.format(version)}
    change = {"weights": {"a": 2.0}}
    assert http.post("/config", json=change, headers=sent).status_code == 200
    assert http.post("/config", json={"weights": {"a": 3.0}}, headers=sent).status_code == 412


def test_post_config_requires_header_and_version_to_match(serve):
    http = serve(Composed).http
    seen = http.get("/config").json()["version"]
    present = http.post("/config", json={"weights": {"a": 2.0}}).json()["config"]["version"]
    change = {"weights": {"a": 3.0}, "version": present}
    late = http.post("/config", json=change, headers={"if-match": f'"{seen}"'})
    assert late.status_code == 412


def test_config_supports_head_and_reports_allowed_methods(serve):
    http = serve(Composed).http
    head = http.head("/config")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == http.get("/config").headers["etag"]
    refused = http.request("DELETE", "/config")
    assert refused.status_code == 405
    assert {each.strip() for each in refused.headers["allow"].split(",")} >= {"GET", "POST"}


def test_config_requires_the_token(serve):
    server = serve(Composed, token="sesame")
    change = {"weights": {"a": 2.0}}
    assert server.http.post("/config", json=change).status_code == 401
    assert server.http.get("/config").status_code == 401
    bearer = {"authorization": "Bearer sesame"}
    assert server.http.get("/config/audit", headers=bearer).json() == []
    assert server.http.post("/config", json=change, headers=bearer).status_code == 200


def test_post_config_lets_one_of_concurrent_writers_win(serve):
    server = serve(Composed)
    seen = {"if-match": server.http.get("/config").headers["etag"]}

    def write(number):
        change = {"weights": {"a": 100.0 + number}, "by": f"writer {number}"}
        return http.post("/config", json=change, headers=seen).status_code

    with (
        httpx.Client(base_url=server.url, verify=False) as http,
        ThreadPoolExecutor(20) as threads,
    ):
        codes = list(threads.map(write, range(100)))
    assert (codes.count(200), codes.count(412)) == (1, 99)
    [entry] = server.http.get("/config/audit").json()
    won = server.http.get("/config").json()["per_turn"][0]["weight"]
    assert entry["by"] == f"writer {won - 100:g}"


def test_post_config_rejects_numbers_beyond_float(serve):
    answer = serve(Composed).http.post("/config", json={"weights": {"a": 10**400}})
    assert answer.status_code == 422


def test_get_config_does_not_wait_for_a_slow_rubric(serve):
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Fixed):
        tunable = ("pace",)

        @property
        def pace(self):
            return self.__dict__.get("_pace", 1.0)

        @pace.setter
        def pace(self, value):
            begun.set()
            assert go_on.wait(5)
            self.__dict__["_pace"] = value

    class Plain(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Slow()

    server = serve(Plain)
    client = server.client()
    change = {"per_turn": [{"name": "reward", "config": {"pace": 2.0}}]}
    with ThreadPoolExecutor(1) as threads, httpx.Client(base_url=server.url) as other:
        answer = threads.submit(other.post, "/config", json=change)
        assert begun.wait(5)
        reply = server.http.get("/config", timeout=2.0).json()
        assert reply["per_turn"][0]["config"]["pace"] == 1.0
        assert reward(client) == 1.0
        go_on.set()
        assert answer.result().status_code == 200


def test_episodes_are_scored_by_one_configuration_during_changes(serve):
    server = serve(Composed)
    stop = threading.Event()

    def update():
        number = 0
        with httpx.Client(base_url=server.url) as http:
            while not stop.is_set():
                number += 1
                http.post("/config", json={"weights": {"a": float(number)}})

    with ThreadPoolExecutor(1) as threads:
        updating = threads.submit(update)
        client = server.client()
        for _ in range(30):
            client.ask(RESET)
            steps = [client.ask(step("hello"))["data"] for _ in range(5)]
            assert len({each["reward"] for each in steps}) == 1
            assert len({each["metadata"]["reward_fingerprint"] for each in steps}) == 1
        stop.set()
        updating.result()


# Weights in what is observed


def test_observations_contain_the_weights_of_their_reward(serve):
    server = serve(Composed)
    client = server.client()
    server.http.post("/config", json={"schedules": {"a": [[0, 1.0], [1, 0.5]]}})
    weights = []
    for _ in range(2):
        client.ask(RESET)
        weights.append(client.ask(step("hello"))["data"]["metadata"]["reward_weights"])
    assert weights == [{"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 2.0}]


def test_post_config_leaves_a_shared_tree_alone_within_an_episode(serve):
    shared = RubricComposer({"a": Fixed(), "b": Fixed(0.5)}, {"a": 1.0, "b": 2.0})

    class Sharing(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = shared

    server = serve(Sharing)
    client = server.client()
    assert reward(client) == 2.0
    change = {"weights": {"a": 5.0}, "per_turn": [{"name": "b", "config": {"value": 1.0}}]}
    assert server.http.post("/config", json=change).status_code == 200
    assert client.ask(step("hello"))["data"]["reward"] == 2.0
    assert reward(client) == 7.0


def test_post_config_changes_a_tree_that_cannot_be_copied(serve):
    class Locked(Fixed):
        def __init__(self):
            super().__init__()
            self._lock = threading.Lock()

    class Blocked(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = RubricComposer({"a": Locked()}, {"a": 1.0})

    server = serve(Blocked)
    client = server.client()
    assert reward(client) == 1.0
    assert server.http.post("/config", json={"weights": {"a": 5.0}}).status_code == 200
    assert client.ask(step("hello"))["data"]["reward"] == 1.0
    assert reward(client) == 5.0


def test_post_config_loses_no_concurrent_first_change():
    async def main():
        transport = httpx.ASGITransport(create_app(Composed))  # without lifespan, so not inspected
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            sent = [{"weights": {"a": 5.0}}, {"weights": {"b": 7.0}}]
            await asyncio.gather(*(http.post("/config", json=each) for each in sent))
            reply = (await http.get("/config")).json()
        return [each["weight"] for each in reply["per_turn"]]

    assert asyncio.run(main()) == [5.0, 7.0]


def test_http_step_without_a_reset_uses_the_present_configuration(serve):
    server = serve(Composed)
    reply = server.http.post("/config", json={"weights": {"a": 5.0}}).json()["config"]
    stepped = server.http.post("/step", json={"action": {"text": "hello"}}).json()
    assert stepped["reward"] == 6.0
    assert stepped["metadata"]["reward_fingerprint"] == reply["fingerprint"]
    assert server.http.get("/config").json()["progress"]["episode"] == 0


def test_reward_fails_if_a_weight_times_its_factor_overflows(serve):
    server = serve(Composed)
    change = {"weights": {"a": 1e300}, "schedules": {"a": {"constant": 1e300}}}
    assert server.http.post("/config", json=change).status_code == 200
    client = server.client()
    client.ask(RESET)
    reply = client.ask(step("hello"))["data"]
    assert reply["reward"] is None
    assert "finite" in reply["metadata"]["reward_error"]
    assert reply["metadata"]["reward_weights"] == {"a": None, "b": 2.0}


# The configuration of the environment itself


class Bonus(Echo):
    """Has a configuration of its own, as in the draft on reward pipelines."""

    def __init__(self):
        super().__init__()
        self.rubric = Fixed()
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


class BonusBesideReward(Bonus):
    def get_config(self):
        return {**Environment.get_config(self), **super().get_config()}


def step_reward(client):
    return client.ask(step("hello"))["data"]["reward"]


@pytest.mark.parametrize("world", [Bonus, BonusBesideReward])
def test_post_config_changes_the_own_configuration_of_an_environment(serve, world):
    server = serve(world)
    client = server.client()
    assert reward(client) == 1.0
    before = server.http.get("/config").json()
    assert (before["bonus"], before["per_turn"][0]["name"]) == (0.0, "reward")
    change = {"bonus": 3, "per_turn": [{"name": "reward", "config": {"value": 0.5}}]}
    answer = server.http.post("/config", json=change, headers={"if-match": before["version"]})
    assert answer.status_code == 200
    answer = answer.json()
    assert answer["config"]["bonus"] == 3
    assert answer["config"]["version"] != before["version"]
    assert {"what": "bonus", "from": 0.0, "to": 3} in answer["change"]["changes"]
    assert server.http.get("/config/audit").json() == [answer["change"]]
    assert step_reward(client) == 1.0
    assert (reward(client), reward(server.client())) == (3.5, 3.5)
    late = server.http.post("/config", json={"bonus": 5}, headers={"if-match": before["version"]})
    assert late.status_code == 412
    assert server.http.post("/config", json={"bonus": 0}).status_code == 200
    assert reward(client) == 0.5
    assert server.http.post("/config", json=server.http.get("/config").json()).status_code == 200


def test_post_config_that_an_environment_refuses_changes_nothing(serve):
    server = serve(Bonus)
    before = server.http.get("/config").json()
    change = {"bonus": -1, "per_turn": [{"name": "reward", "config": {"value": 0.5}}]}
    answer = server.http.post("/config", json=change)
    assert answer.status_code == 422
    assert "ValueError: bonus must not be negative" in answer.text
    assert server.http.post("/config", json={"malus": 1}).status_code == 422
    assert server.http.get("/config").json() == before
    assert reward(server.client()) == 1.0


def test_config_message_changes_the_own_configuration_in_one_session(serve):
    server = serve(Bonus)
    one, two = server.client(), server.client()
    reply = one.ask({"type": "config", "data": {"bonus": 2}})
    assert reply["data"]["config"]["bonus"] == 2
    assert (reward(one), reward(two)) == (3.0, 1.0)
    assert server.http.get("/config").json()["bonus"] == 0.0


def test_post_config_changes_only_the_sent_part_of_the_own_configuration(serve):
    made = itertools.count()

    class Tracks(Bonus):
        """Its configuration differs between environments, and changes while it runs."""

        def __init__(self):
            super().__init__()
            self.own = {"number": next(made), "level": 0, "words": ("a", "b")}

        def get_config(self):
            return dict(self.own)

        def update_config(self, config):
            self.own.update(config)

        def step(self, action, timeout_s=None, **kwargs):
            self.own["level"] += 1
            return Said(text=repr(self.own))

    def own(client):
        client.ask(RESET)
        return ast.literal_eval(client.ask(step("hello"))["data"]["observation"]["text"])

    server = serve(Tracks)
    client = server.client()
    first = own(client)
    assert (first["level"], first["words"]) == (1, ("a", "b"))
    assert own(client) == {**first, "level": 2}
    assert own(server.client())["number"] > first["number"]
    assert server.http.post("/config", json={"level": 10}).status_code == 200
    assert own(client) == {**first, "level": 11}
    assert own(client) == {**first, "level": 12}


@pytest.mark.parametrize("config", [None, "fast", State()])
def test_get_config_that_returns_no_dict_is_not_part_of_the_configuration(serve, config):
    class Configured(Bonus):
        def get_config(self):
            return config

    server = serve(Configured)
    assert reward(server.client()) == 1.0
    assert server.http.get("/config").json()["per_turn"][0]["name"] == "reward"
    assert server.http.post("/config", json={"bonus": 3}).status_code == 422
