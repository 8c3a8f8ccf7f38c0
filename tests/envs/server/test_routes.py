"""The stateless HTTP face: each path, how it goes well, and how it doesn't."""

import json
import math
import threading

import httpx
import pytest

from guerdon import Gate, Rubric, Sequential, WeightedSum, create_app
from guerdon.errors import EpisodeError, InvalidArgumentError
from guerdon.types import EnvironmentMetadata
from tests.envs.server.worlds import Echo, Length, Said, counted

# What there is to read


def test_get_health(play):
    answer = play().http.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})


def test_get_metadata(serve):
    assert serve().http.get("/metadata").json() == {
        "name": "Echo",
        "description": "Repeats a text.",
        "readme_content": None,
        "version": "1.0.0",
        "author": None,
        "documentation_url": None,
    }


def test_get_metadata_with_own_metadata_and_a_given_name(serve):
    class Named(Echo):
        def get_metadata(self):
            return EnvironmentMetadata(name="mine", description="Much.", author="me", version="2")

    about = serve(Named, env_name="theirs").http.get("/metadata").json()
    assert (about["name"], about["author"], about["version"]) == ("theirs", "me", "2")
    assert serve(Named).http.get("/list_environments").json() == ["mine"]
    assert serve(Named, env_name="theirs").http.get("/list_environments").json() == ["theirs"]


def test_get_schema(serve):
    schemas = serve().http.get("/schema").json()
    assert set(schemas) >= {"action", "observation", "state"}
    assert schemas["action"]["required"] == ["text"]
    assert schemas["action"]["additionalProperties"] is False
    assert "text" in schemas["observation"]["properties"]
    assert set(schemas["state"]["properties"]) == {"episode_id", "step_count"}


def test_get_config_of_a_tree(serve):
    class Gated(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Sequential(
                Gate(Length(), threshold=0.5), WeightedSum([Length(), Length()], [0.7, 0.3])
            )

    config = serve(Gated).http.get("/config").json()
    assert config["schema_version"]
    assert config["episode_end"] == []
    (entry,) = config["per_turn"]
    assert entry["rubric"].endswith("Sequential")
    assert entry["weight"] == 1.0
    assert config["fingerprint"] == Gated().rubric.fingerprint()
    tree = json.dumps(config["tree"])
    assert "Gate" in tree
    assert "WeightedSum" in tree
    assert "0.7" in json.dumps(config)


def test_get_config_of_a_rubric_with_values_beyond_json(serve):
    class Bounded(Length):
        def __init__(self):
            super().__init__()
            self.most = math.inf
            self.where = {"a": [math.nan]}
            self.text = "\ud800"

    class Odd(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Bounded()

    answer = serve(Odd).http.get("/config")
    assert answer.status_code == 200
    json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/reset", 405),
        ("GET", "/step", 405),
        ("GET", "/mcp", 405),
        ("POST", "/health", 405),
        ("DELETE", "/state", 405),
        ("PUT", "/config", 405),
        ("HEAD", "/health", 200),
    ],
)
def test_routes_reject_unknown_paths_and_methods(play, method, path, status):
    assert play().http.request(method, path).status_code == status


# reset, step, state


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b"null"])
def test_post_reset_needs_no_body(play, body):
    answer = play().http.post("/reset", content=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    arguments = {"arguments": {"seed": None}}
    assert answer.json() == {
        "observation": {"text": "begin", "metadata": arguments},
        "reward": None,
        "done": False,
        "metadata": arguments,
    }


def test_post_reset_passes_its_arguments_on(play):
    body = {"seed": 42, "episode_id": "ep1", "level": {"of": ["a"]}, "self": 1, "request_id": "r"}
    arguments = play().http.post("/reset", json=body).json()["metadata"]["arguments"]
    assert arguments["seed"] == 42
    assert arguments["level"] == {"of": ["a"]}


def test_post_step(play):
    body = {"action": {"text": "12345"}, "timeout_s": 5.0, "request_id": "r", "speed": 2}
    answer = play().http.post("/step", json=body)
    assert answer.status_code == 200
    reply = answer.json()
    assert (reply["observation"]["text"], reply["reward"], reply["done"]) == ("12345", 0.5, False)
    assert reply["metadata"]["arguments"] == {"timeout_s": 5.0, "speed": 2}
    assert reply["observation"]["metadata"] == reply["metadata"]


def test_post_reset_and_step_pass_only_accepted_keywords(play):
    class Narrow(Echo):
        def reset(self, seed=None, *, level=1):
            return Said(text=f"{seed} {level}")

        def step(self, action, *, speed=1):
            return Said(text=f"{action.text} {speed}")

    http = play(Narrow).http
    reset = http.post("/reset", json={"seed": 5, "episode_id": "e", "level": 3, "more": 1})
    assert reset.json()["observation"]["text"] == "5 3"
    step = http.post("/step", json={"action": {"text": "x"}, "speed": 2, "self": 1, "more": 3})
    assert step.json()["observation"]["text"] == "x 2"


def test_http_calls_have_fresh_environments_which_are_closed(serve, eventually):
    world = counted()
    served = serve(world)
    assert (world.made, world.closed) == (1, 1)
    for _ in range(3):
        assert served.http.get("/state").json() == {"episode_id": None, "step_count": 0}
        served.http.post("/step", json={"action": {"text": "x"}})
        served.http.post("/reset")
        served.http.post("/reset", json={"seed": -1})
    assert (world.made, world.closed) == (10, 10)
    for path in ("/metadata", "/schema", "/config", "/health"):
        served.http.get(path)
    assert world.made == 10


@pytest.mark.parametrize(
    ("path", "body", "loc"),
    [
        ("/reset", {"seed": -1}, ["body", "seed"]),
        ("/reset", {"seed": "x"}, ["body", "seed"]),
        ("/reset", {"seed": 1.5}, ["body", "seed"]),
        ("/reset", {"episode_id": "x" * 256}, ["body", "episode_id"]),
        ("/reset", {"episode_id": 5}, ["body", "episode_id"]),
        ("/reset", [], ["body"]),
        ("/reset", "x", ["body"]),
        ("/step", None, ["body"]),
        ("/step", [], ["body"]),
        ("/step", {}, ["body", "action"]),
        ("/step", {"text": "x"}, ["body", "action"]),
        ("/step", {"action": None}, ["body", "action"]),
        ("/step", {"action": "x"}, ["body", "action"]),
        ("/step", {"action": {}}, ["body", "action", "text"]),
        ("/step", {"action": {"text": 5}}, ["body", "action", "text"]),
        ("/step", {"action": {"text": "x", "txt": 1}}, ["body", "action", "txt"]),
        ("/step", {"action": {"text": "x"}, "timeout_s": 0}, ["body", "timeout_s"]),
        ("/step", {"action": {"text": "x"}, "timeout_s": -1}, ["body", "timeout_s"]),
        ("/step", {"action": {"text": "x"}, "timeout_s": "x"}, ["body", "timeout_s"]),
        ("/step", {"action": {"text": "x"}, "request_id": 5}, ["body", "request_id"]),
    ],
)
def test_http_calls_report_invalid_fields(play, path, body, loc):
    world = counted()
    answer = play(world).http.post(path, json=body)
    assert answer.status_code == 422
    assert [each["loc"] for each in answer.json()["detail"]] == [loc]
    assert all(each["msg"] and each["type"] for each in answer.json()["detail"])
    assert world.made == 0


@pytest.mark.parametrize("path", ["/reset", "/step"])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{'a': 1}",
        b"\xff\xfe",
        b'{"seed": NaN}',
        b'{"action": {"text": "x", "metadata": {"x": 1e999}}}',
        b"[" * 50_000,
        b'{"a": "\\ud800"}',
    ],
    ids=lambda body: repr(body[:12]),
)
def test_http_calls_reject_invalid_json(play, path, body):
    answer = play().http.post(path, content=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body"]


def test_post_step_rejects_an_infinite_timeout(play):
    answer = play().http.post("/step", content=b'{"action":{"text":"x"},"timeout_s":1e999}')
    assert answer.status_code == 422


# Size


@pytest.mark.parametrize("path", ["/reset", "/step", "/mcp"])
@pytest.mark.parametrize("chunked", [False, True])
def test_http_calls_reject_a_body_that_is_too_large(serve, path, chunked):
    served = serve(max_message_bytes=1000)
    body = (b" " * 500 for _ in range(3)) if chunked else b" " * 1001
    answer = served.http.post(path, content=body)
    assert answer.status_code == 413
    assert "1000 bytes" in answer.json()["detail"]["message"]
    assert served.number("guerdon_refused_total", reason="size") == 1


def test_http_calls_reject_an_announced_large_body_at_once(play):
    raw = play().raw()
    raw.send(b"POST /step HTTP/1.1\r\nHost: localhost\r\nContent-Length: 209715200\r\n\r\n")
    assert raw.status() == 413


def test_http_calls_accept_a_chunked_body(play):
    body = (bytes([each]) for each in b'{"action": {"text": "12345"}}')
    assert play().http.post("/step", content=body).json()["reward"] == 0.5


@pytest.mark.parametrize("length", ["-1", "x", "1, 2", "1" * 5000])
def test_http_calls_reject_an_invalid_content_length(play, length):
    raw = play().raw()
    raw.send(f"POST /step HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
    assert raw.status() in (400, 413)


# What an environment does wrong


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def fails(error):
    def step(self, action, **kwargs):
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("no luck"), 500),
        (ValueError("\ud800"), 500),
        (Mute(), 500),
        (SystemExit(3), 500),
        (KeyboardInterrupt(), 500),
        (EpisodeError("no episode is running; reset first"), 409),
    ],
    ids=lambda value: type(value).__name__,
)
def test_post_step_reports_what_the_environment_raises(play, error, status):
    world = counted(step=fails(error))
    served = play(world)
    failures = served.number("guerdon_failures_total", kind="step") or 0
    answer = served.http.post("/step", json={"action": {"text": "x"}})
    assert answer.status_code == status
    assert answer.json()["detail"]["code"] == "EXECUTION_ERROR"
    if not isinstance(error, (Mute, SystemExit)):
        assert type(error).__name__ in answer.json()["detail"]["message"]
    assert world.made == world.closed
    assert served.number("guerdon_failures_total", kind="step") == failures + 1
    assert served.http.post("/reset").status_code == 200


@pytest.mark.parametrize("method", ["reset", "step", "state", "close", "__init__"])
def test_http_calls_free_their_place_after_any_error(serve, method):
    works = threading.Event()
    works.set()

    def wrong(self, *args, **kwargs):
        if works.is_set():
            return getattr(Echo, method)(self, *args, **kwargs)
        raise ValueError("no luck")

    if method == "state":
        wrong = property(lambda self: wrong_state(self))

        def wrong_state(self):
            if works.is_set():
                return self.episode
            raise ValueError("no luck")

    served = serve(counted(**{method: wrong}) if method != "__init__" else late(works))
    works.clear()
    calls = [
        served.http.post("/reset"),
        served.http.post("/step", json={"action": {"text": "x"}}),
        served.http.get("/state"),
    ]
    bad = {"reset": [500, 200, 200], "step": [200, 500, 200], "state": [200, 200, 500]}
    expected = bad.get(method, [200] * 3 if method == "close" else [500] * 3)
    assert [each.status_code for each in calls] == expected
    assert all("no luck" in each.text for each in calls if each.status_code == 500)
    works.set()
    assert served.app.sessions.calls == 0
    assert served.http.post("/reset").status_code == 200


def late(works):
    class Late(Echo):
        def __init__(self):
            super().__init__()
            if not works.is_set():
                raise ValueError("no luck")

    return Late


def test_post_step_abandons_a_hanging_environment(serve, hold, eventually):
    def step(self, action, **kwargs):
        hold.wait()
        return Said()

    world = counted(step=step)
    served = serve(world, step_timeout_s=0.1, max_sessions=1)
    answer = served.http.post("/step", json={"action": {"text": "x"}})
    assert answer.status_code == 504
    assert "0.1 s" in answer.json()["detail"]["message"]
    assert served.http.post("/reset").status_code == 200
    assert world.closed == world.made - 1
    hold.set()
    eventually(lambda: world.closed == world.made)


def test_post_step_respects_the_callers_timeout(serve, hold):
    def step(self, action, **kwargs):
        hold.wait()
        return Said()

    served = serve(counted(step=step), step_timeout_s=60)
    answer = served.http.post("/step", json={"action": {"text": "x"}, "timeout_s": 0.05})
    assert answer.status_code == 504
    assert "0.05 s" in answer.json()["detail"]["message"]


def test_http_calls_free_the_place_of_a_client_that_left(serve, hold, eventually):
    inside = threading.Event()

    def reset(self, **kwargs):
        inside.set()
        hold.wait()
        return Said()

    served = serve(counted(reset=reset), max_sessions=1)
    raw = served.raw()
    raw.send(b"POST /reset HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert inside.wait(10)
    raw.reset()
    eventually(lambda: served.http.get("/state").status_code == 200, within=3)


def test_http_calls_do_not_wait_for_a_hanging_close(serve, hold):
    hold.set()
    served = serve(counted(close=lambda self: hold.wait()), close_timeout_s=0.1)
    hold.clear()
    assert served.http.post("/reset").status_code == 200
    assert served.app.sessions.calls == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800"])
def test_post_step_reports_an_unserializable_observation(serve, value):
    def step(self, action, **kwargs):
        return Said(metadata={"deep": [value]})

    answer = serve(counted(step=step)).http.post("/step", json={"action": {"text": "x"}})
    assert answer.status_code == 500
    assert "metadata.deep" in answer.json()["detail"]["message"]


def test_a_request_that_fails_in_the_server_closes_its_connection(serve, monkeypatch):
    def text():
        raise RuntimeError("out of order")

    served = serve(Echo)
    monkeypatch.setattr(served.app.sessions.metrics, "text", text)
    for _ in range(3):  # a client that reused the connection would fail
        answer = served.http.get("/metrics")
        assert (answer.status_code, answer.headers["connection"]) == (500, "close")
        assert answer.json()["detail"]["message"] == "RuntimeError: out of order"


def test_post_step_with_a_failed_rubric(play):
    class Fails(Rubric):
        def forward(self, action, observation):
            raise ValueError("no such judge")

    class Failing(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Fails()

    answer = play(Failing).http.post("/step", json={"action": {"text": "x"}})
    assert answer.status_code == 200
    assert answer.json()["reward"] is None
    assert "no such judge" in str(answer.json()["metadata"]["reward_error"])


def test_http_calls_are_refused_at_capacity(serve):
    served = serve(max_sessions=1)
    client = served.client()
    client.ask({"type": "reset"})
    for call in (served.http.post("/reset"), served.http.get("/state")):
        assert call.status_code == 503
        assert call.json()["detail"] | {"message": ""} == {
            "code": "CAPACITY_REACHED",
            "message": "",
            "active_sessions": 1,
            "max_sessions": 1,
        }
    for path in ("/health", "/metadata", "/config", "/metrics"):
        assert served.http.get(path).status_code == 200


def test_http_calls_run_concurrently(serve):
    class Slow(Echo):
        def step(self, action, **kwargs):
            barrier.wait()
            return super().step(action)

    barrier = threading.Barrier(4, timeout=10)
    served = serve(Slow)
    answers = []

    def call():
        with httpx.Client(trust_env=False) as http:
            answers.append(http.post(f"{served.url}/step", json={"action": {"text": "12345"}}))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [answer.json()["reward"] for answer in answers] == [0.5] * 4


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/reset"), ("POST", "/step"), ("GET", "/state")]
)
def test_create_app_in_production_mode_has_sessions_only(serve, method, path):
    served = serve(mode="production")
    answer = served.http.request(method, path, json={})
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    assert served.client().ask({"type": "reset"})["type"] == "observation"
    assert served.http.get("/metadata").status_code == 200


def test_create_app_rejects_an_unknown_mode():
    with pytest.raises(InvalidArgumentError, match="`mode` must be 'simulation' or 'production'"):
        create_app(Echo, mode="prod")
