"""Sessions: messages over a WebSocket, their end, and what remains."""

import asyncio
import json
import math
import sys
import threading

import pytest
from pydantic import BaseModel, ConfigDict, field_validator
from websockets.exceptions import ConnectionClosed

from guerdon import Gate, Observation, Rubric, Sequential, State, WeightedSum, create_app
from guerdon.envs.server.sessions import Connection, SessionEnd
from guerdon.errors import EpisodeError
from tests.envs.server.worlds import (
    CLOSE,
    RESET,
    STATE,
    Counted,
    Echo,
    Length,
    Said,
    Say,
    counted,
    step,
)

# Messages


def test_session_plays_an_episode(play):
    client = play().client()
    first = client.ask({"type": "reset", "data": {"seed": 7, "episode_id": "ep-1", "level": 3}})
    arguments = {"arguments": {"seed": 7, "level": 3}}
    assert first == {
        "type": "observation",
        "data": {
            "observation": {"text": "begin", "metadata": arguments},
            "reward": None,
            "done": False,
            "metadata": arguments,
        },
    }
    answer = client.ask(step("hello"))
    assert answer["type"] == "observation"
    assert set(answer["data"]) == {"observation", "reward", "done", "metadata"}
    assert set(answer["data"]["observation"]) == {"text", "metadata"}
    assert answer["data"]["observation"]["metadata"] == answer["data"]["metadata"]
    assert (answer["data"]["reward"], answer["data"]["done"]) == (0.5, False)
    assert client.ask(STATE) == {"type": "state", "data": {"episode_id": "ep-1", "step_count": 1}}
    assert client.ask(step("end"))["data"]["done"] is True
    client.say(CLOSE)
    assert client.ended() == 1000


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": {}}])
def test_session_reset_needs_no_data(play, data):
    answer = play().client().ask({"type": "reset", **data})
    assert answer["data"]["metadata"] == {"arguments": {"seed": None}}


def test_session_passes_only_accepted_keywords(play):
    class Narrow(Echo):
        def reset(self, seed=None, *, level=1):
            return Said(text=f"{seed} {level}")

        def step(self, action):
            return Said(text=action.text)

    client = play(Narrow).client()
    asked = {"seed": 5, "episode_id": "e", "level": 3, "more": 1}
    answer = client.ask({"type": "reset", "data": asked})
    assert answer["data"]["observation"]["text"] == "5 3"
    assert client.ask(step("hi"))["data"]["observation"]["text"] == "hi"


@pytest.mark.parametrize("name", ["self", "cls", "kwargs"])
def test_session_reset_accepts_names_that_python_uses(play, name):
    answer = play().client().ask({"type": "reset", "data": {name: 1}})
    assert answer["type"] == "observation"


def test_session_sends_no_metadata_beside_an_observation_without(play):
    class Plain(Echo):
        def reset(self, **kwargs):
            return Said(text="begin")

    answer = play(Plain).client().ask(RESET)
    assert answer["data"] == {
        "observation": {"text": "begin", "metadata": {}},
        "reward": None,
        "done": False,
    }


def test_session_answers_in_order(play):
    client = play().client()
    for n in range(200):
        client.say(step(f"{n}"))
    assert [client.hear()["data"]["observation"]["text"] for _ in range(200)] == [
        f"{n}" for n in range(200)
    ]


def test_session_answers_messages_that_arrive_during_a_step(serve, hold):
    class Slow(Echo):
        def step(self, action, **kwargs):
            if action.text == "wait":
                hold.wait()
            return super().step(action)

    client = serve(Slow).client()
    client.ask(RESET)
    client.say(step("wait"))
    with pytest.raises(TimeoutError):  # long enough for the server to look after the client
        client.hear(timeout=0.4)
    client.say(STATE)
    client.say(step("next"))
    client.say({"type": "nonsense"})
    hold.set()
    kinds = [client.hear() for _ in range(4)]
    assert kinds[0]["data"]["observation"]["text"] == "wait"
    assert kinds[1] == {"type": "state", "data": {"episode_id": None, "step_count": 1}}
    assert kinds[2]["data"]["observation"]["text"] == "next"
    assert kinds[3]["data"]["code"] == "UNKNOWN_TYPE"


def test_session_sends_components_of_a_gated_reward(serve):
    class Gated(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Sequential(
                Gate(Length(), threshold=0.5), WeightedSum([Length(), Length()], [0.5, 0.5])
            )

    client = serve(Gated).client()
    client.ask(RESET)
    answer = client.ask(step("1234567890"))["data"]
    assert answer["reward"] == 1.0
    components = answer["metadata"]["reward_components"]
    assert components
    assert all(isinstance(value, float) for value in components.values())
    low = client.ask(step("1"))["data"]
    assert low["reward"] == 0.0
    assert set(low["metadata"]["reward_components"]) < set(components)


def test_session_sends_components_of_a_rubric_called_by_hand(play):
    class ByHand(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = WeightedSum([Length()], [1.0])

        def step(self, action, **kwargs):
            observation = Said(text=action.text)
            observation.reward = self.rubric(action, observation)
            return observation

    answer = play(ByHand).client().ask(step("12345"))["data"]
    assert answer["reward"] == 0.5
    assert list(answer["metadata"]["reward_components"].values()) == [0.5]


def failing(by_hand):
    """An environment whose rubric fails at the action "bad"."""

    class Fails(Rubric):
        def forward(self, action, observation):
            if action.text == "bad":
                raise ValueError("no such judge")
            return 1.0

    class Failing(Echo):
        def __init__(self):
            super().__init__()
            self.rubric = Fails()

        def step(self, action, **kwargs):
            self.episode.step_count += 1
            observation = Said(text=action.text)
            if by_hand:
                return observation.with_reward(self.rubric(action, observation))
            return self.score(action, observation)

    return Failing


@pytest.mark.parametrize("by_hand", [False, True])
def test_create_app_fails_a_step_on_a_reward_error_if_it_is_to(serve, by_hand):
    served = serve(failing(by_hand), fail_on_reward_error=True)
    client = served.client()
    client.ask(RESET)
    assert client.ask(step("good"))["data"]["reward"] == 1.0
    failed = client.ask(step("bad"))
    assert failed["type"] == "error"
    assert failed["data"] == {
        "message": "step: the reward failed: ValueError: no such judge",
        "code": "EXECUTION_ERROR",
    }
    assert client.ask(STATE)["data"]["step_count"] == 2
    assert client.ask(step("good"))["data"]["reward"] == 1.0
    assert served.number("guerdon_failures_total", kind="reward") == 1
    over_http = served.http.post("/step", json={"action": {"text": "bad"}})
    assert over_http.status_code == 500
    assert over_http.json()["detail"]["code"] == "EXECUTION_ERROR"


@pytest.mark.parametrize("by_hand", [False, True])
def test_session_continues_after_a_failed_rubric(serve, by_hand):
    served = serve(failing(by_hand))
    client = served.client()
    client.ask(RESET)
    assert client.ask(step("good"))["data"]["reward"] == 1.0
    failed = client.ask(step("bad"))
    assert failed["type"] == "observation"
    assert failed["data"]["reward"] is None
    assert "no such judge" in str(failed["data"]["metadata"]["reward_error"])
    if not by_hand:
        assert failed["data"]["observation"]["text"] == "bad"
    again = client.ask(step("good"))["data"]
    assert again["reward"] == 1.0
    assert "reward_error" not in again["metadata"]
    assert served.number("guerdon_failures_total", kind="reward") == 1


def test_session_runs_async_environments(serve):
    class Async(Counted):
        made = closed = 0

        async def reset_async(self, seed=None, episode_id=None, **kwargs):
            await asyncio.sleep(0)
            return Said(text=threading.current_thread().name)

        async def step_async(self, action, timeout_s=None, **kwargs):
            await asyncio.sleep(0)
            return await self.score_async(action, Said(text=action.text))

    served = serve(Async)
    client = served.client()
    assert client.ask(RESET)["data"]["observation"]["text"] == "served"
    assert client.ask(step("hello"))["data"]["reward"] == 0.5
    client.say(CLOSE)
    client.ended()
    served.empty()
    assert Async.made == Async.closed


def test_sessions_have_environments_of_their_own(play):
    served = play()
    clients = [served.client() for _ in range(5)]
    for n, client in enumerate(clients):
        client.ask({"type": "reset", "data": {"episode_id": f"{n}"}})
        for _ in range(n):
            client.ask(step())
    states = [client.ask(STATE)["data"] for client in clients]
    assert states == [{"episode_id": f"{n}", "step_count": n} for n in range(5)]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
        ),
        ({"jsonrpc": "2.0", "id": "a", "method": "nothing"}, -32601),
        ({}, -32600),
        (None, -32600),
        ([], -32600),
    ],
)
def test_session_answers_mcp(play, request_, answer):
    client = play().client()
    reply = client.ask({"type": "mcp", "data": request_})
    assert reply["type"] == "mcp"
    assert reply["data"]["jsonrpc"] == "2.0"
    if isinstance(answer, int):
        assert reply["data"]["error"]["code"] == answer
    else:
        assert reply["data"] == answer


# What is refused, and goes on


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("", "INVALID_JSON"),
        ("{", "INVALID_JSON"),
        ("{'type': 'reset'}", "INVALID_JSON"),
        ('{"type": "reset"} {}', "INVALID_JSON"),
        ('{"type": "reset", "data": {"seed": NaN}}', "INVALID_JSON"),
        ('{"type": "reset", "data": {"seed": 1e999}}', "INVALID_JSON"),
        ('{"type": "step", "data": {"text": "x", "metadata": {"x": -1e999}}}', "INVALID_JSON"),
        ('{"type": "step", "data": {"text": "\\ud800"}}', "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        (b'{"type": "reset"}', "INVALID_JSON"),
        (b"\xff\x00", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ("7", "VALIDATION_ERROR"),
        ("null", "VALIDATION_ERROR"),
        ({}, "UNKNOWN_TYPE"),
        ({"type": "dance"}, "UNKNOWN_TYPE"),
        ({"type": "Reset"}, "UNKNOWN_TYPE"),
        ({"type": None}, "UNKNOWN_TYPE"),
        ({"type": ["reset"]}, "UNKNOWN_TYPE"),
        ({"type": {"reset": 1}}, "UNKNOWN_TYPE"),
        ({"type": "reset", "seed": 1}, "VALIDATION_ERROR"),
        ({"type": "state", "request_id": "r"}, "VALIDATION_ERROR"),
        ({"type": "close", "why": 1}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": []}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": "x"}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": "x"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": 1.5}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -(10**4000)}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"episode_id": "x" * 256}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"episode_id": 3}}, "VALIDATION_ERROR"),
        ({"type": "step"}, "VALIDATION_ERROR"),
        ({"type": "step", "data": None}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": 5}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "x", "txt": "y"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"action": {"text": "x"}}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": ["x"]}, "VALIDATION_ERROR"),
    ],
)
def test_session_reports_a_bad_message_and_continues(play, message, code):
    served = play()
    before = served.number("guerdon_failures_total", kind=code.lower()) or 0
    client = served.client()
    client.ask({"type": "reset", "data": {"episode_id": "kept"}})
    answer = client.ask(message)
    assert answer["type"] == "error"
    assert answer["data"]["code"] == code
    assert answer["data"]["message"]
    assert client.ask(step())["data"]["reward"] == 0.5
    assert client.ask(STATE)["data"] == {"episode_id": "kept", "step_count": 1}
    assert served.number("guerdon_failures_total", kind=code.lower()) == before + 1


def test_session_errors_list_the_fields(play):
    client = play().client()
    error = client.ask({"type": "step", "data": {"text": 5, "speed": 3}})["data"]
    assert "text" in error["message"]
    assert sorted(each["loc"] for each in error["errors"]) == [["speed"], ["text"]]
    assert all(each["msg"] and each["type"] for each in error["errors"])
    error = client.ask({"type": "reset", "request_id": 1})["data"]
    assert "request_id" in error["message"]
    assert error["errors"][0]["loc"] == ["request_id"]
    error = client.ask({"type": "reset", "data": {"seed": -1}})["data"]
    assert error["errors"][0]["loc"] == ["seed"]
    assert "dance" in client.ask({"type": "dance"})["data"]["message"]


def test_session_reports_a_failing_validator_of_an_action(serve):
    class Picky(Say):
        @field_validator("text")
        @classmethod
        def _known(cls, value):
            return {"hello": value}[value]  # a KeyError is no ValueError

    client = serve(Echo, Picky).client()
    assert client.error(step("unknown")) in ("EXECUTION_ERROR", "VALIDATION_ERROR")
    assert client.ask(step("hello"))["type"] == "observation"


@pytest.mark.parametrize(
    "number",
    ["1e999", "1" + "0" * 5000, '"\\u0000"', "[[[[]]]]", "-0.0", "null"],
    ids=lambda text: text[:12],
)
def test_session_answers_mcp_for_any_id(play, number):
    client = play().client()
    client.say(f'{{"type":"mcp","data":{{"jsonrpc":"2.0","id":{number},"method":"tools/list"}}}}')
    text = client.socket.recv(timeout=10)
    answer = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert answer["type"] in ("mcp", "error")
    assert client.ask(STATE)["type"] == "state"


# What an environment does wrong


class Misbehaving(Counted):
    made = closed = 0
    fault = staticmethod(lambda: None)

    def step(self, action, **kwargs):
        if action.text == "bad":
            type(self).fault()
        return super().step(action)

    def reset(self, seed=None, episode_id=None, **kwargs):
        if seed == 13:
            type(self).fault()
        return super().reset(seed, episode_id)


def misbehaving(fault):
    return type("Misbehaves", (Misbehaving,), {"fault": staticmethod(fault), "made": 0})


def raising(error):
    def fault():
        raise error

    return fault


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


FAULTS = {
    "raises": raising(ValueError("no luck")),
    "exits": lambda: sys.exit(3),
    "interrupts": raising(KeyboardInterrupt()),
    "cancels": raising(asyncio.CancelledError()),
    "stops": raising(StopIteration()),
    "generator": raising(GeneratorExit()),
    "surrogate": raising(ValueError("\ud800")),
    "mute": raising(Mute()),
    "group": raising(ExceptionGroup("many", [ValueError("no luck")])),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("bad", [step("bad"), {"type": "reset", "data": {"seed": 13}}])
def test_session_reports_what_the_environment_raises_and_continues(play, fault, bad):
    client = play(misbehaving(FAULTS[fault])).client()
    client.ask(RESET)
    answer = client.ask(bad)
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    if fault == "raises":
        assert "no luck" in answer["data"]["message"]
        assert "ValueError" in answer["data"]["message"]
    if bad["type"] == "reset":  # the environment may be anywhere between two episodes
        refused = client.ask(step("good"))["data"]
        assert refused["code"] == "EXECUTION_ERROR"
        assert "the last reset failed; reset again" in refused["message"]
        client.ask(RESET)
    assert client.ask(step("good"))["data"]["reward"] == 0.4


@pytest.mark.parametrize("in_task", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_session_reports_what_an_async_environment_raises(play, fault, in_task):
    class Async(Echo):
        async def step_async(self, action, **kwargs):
            async def fail():
                await asyncio.sleep(0)
                FAULTS[fault]()

            if action.text == "bad":
                await (asyncio.create_task(fail()) if in_task else fail())
            return await self.score_async(action, Said(text=action.text))

    served = play(Async)
    client, other = served.client(), served.client()
    client.ask(RESET)
    assert client.error(step("bad")) == "EXECUTION_ERROR"
    assert client.ask(step("good"))["data"]["reward"] == 0.4
    assert other.ask(step("good"))["data"]["reward"] == 0.4


def test_session_reports_a_cancelled_task_of_the_environment(play):
    class Async(Echo):
        async def step_async(self, action, **kwargs):
            task = asyncio.ensure_future(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task

    client = play(Async).client()
    assert client.error(step()) == "EXECUTION_ERROR"
    assert client.ask(RESET)["type"] == "observation"


@pytest.mark.parametrize(
    "gives", [None, 5, {"text": "x"}, Said, State()], ids=["None", "int", "dict", "class", "state"]
)
def test_session_reports_a_step_without_an_observation(play, gives):
    class Wrong(Echo):
        def step(self, action, **kwargs):
            return gives

    client = play(Wrong).client()
    answer = client.ask(step())
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert "step" in answer["data"]["message"]
    assert "Observation" in answer["data"]["message"]
    assert client.ask(RESET)["type"] == "observation"


@pytest.mark.parametrize("gives", [None, {"episode_id": "x"}])
def test_session_reports_an_invalid_state(play, gives):
    class Wrong(Echo):
        state = gives

    client = play(Wrong).client()
    answer = client.ask(STATE)
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert "state" in answer["data"]["message"]
    assert client.ask(RESET)["type"] == "observation"


def test_session_reports_an_unserializable_state(serve):
    class Wide(State):
        best: float = math.nan

    class Wrong(Echo):
        state = Wide()

    client = serve(Wrong).client()
    answer = client.ask(STATE)
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert "best" in answer["data"]["message"]


class Inner(BaseModel):
    x: float = 0.0


class Rich(Observation):
    value: float = 0.0
    anything: object = None
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ({"value": math.nan}, "value"),
        ({"value": math.inf}, "value"),
        ({"value": -math.inf}, "value"),
        ({"metadata": {"deep": [1, {"x": math.nan}]}}, "metadata.deep[1].x"),
        ({"anything": math.nan}, "anything"),
        ({"anything": {"a": (1.0, math.inf)}}, "anything.a[1]"),
        ({"inner": Inner(x=math.nan)}, "inner.x"),
        ({"many": (Inner(), Inner(x=math.inf))}, "many[1].x"),
        ({"anything": Inner(x=math.nan)}, "anything.x"),
        pytest.param({"anything": object()}, "anything", id="object"),
        pytest.param({"anything": [1, lambda: 0]}, "anything", id="function"),
        pytest.param({"metadata": {"who": object()}}, "metadata.who", id="object in metadata"),
        pytest.param({"metadata": {"text": "\ud800"}}, "metadata.text", id="surrogate"),
        ({"anything": b"\xff"}, "anything"),
    ],
    ids=str,
)
def test_session_names_the_field_of_an_unserializable_observation(play, what, field):
    class Wrong(Echo):
        def step(self, action, **kwargs):
            return Rich(**what) if action.text == "bad" else Rich()

    client = play(Wrong).client()
    client.ask(RESET)
    answer = client.ask(step("bad"))
    assert answer["type"] == "error", answer
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert field in answer["data"]["message"]
    assert client.ask(step("good"))["type"] == "observation"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_session_sends_words_that_look_like_nan(play, word):
    client = play().client()
    assert client.ask(step(word))["data"]["observation"]["text"] == word


@pytest.mark.parametrize("reward", [math.nan, math.inf, True, 1, "much"])
def test_session_sends_valid_json_for_an_unchecked_reward(play, reward):
    class Loose(Said):
        model_config = ConfigDict(validate_assignment=False)

    class Wrong(Echo):
        def step(self, action, **kwargs):
            observation = Loose(text=action.text)
            observation.reward = reward
            return observation

    client = play(Wrong).client()
    client.say(step())
    text = client.socket.recv(timeout=10)
    answer = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    if answer["type"] == "observation":
        assert answer["data"]["reward"] == reward
        assert reward in (1, True)
    else:
        assert answer["data"]["code"] == "EXECUTION_ERROR"
        assert "reward" in answer["data"]["message"]


@pytest.mark.parametrize(
    "components",
    [{"a": None}, {"a": "x"}, {1: 2.0}, {"a": math.nan}, {"\ud800": 1.0}, {"a": True}, [1], None],
    ids=str,
)
def test_session_ignores_invalid_components(play, components):
    class Odd(Echo):
        def step(self, action, **kwargs):
            metadata = {"reward_components": components} if action.text == "bad" else {}
            return Said(text=action.text, reward=0.5, metadata=metadata)

    served = play(Odd)
    client = served.client()
    client.ask(RESET)
    client.ask(step("bad"))
    assert client.ask(step("good"))["data"]["reward"] == 0.5
    assert served.http.get("/metrics").status_code == 200
    assert served.sessions() == 1


def test_session_sends_metadata_of_unexpected_types(serve):
    class Odd(Echo):
        def step(self, action, **kwargs):
            return Said(text=action.text, metadata={"reward_error": 5, "step_rewards": "x"})

    answer = serve(Odd).client().ask(step())
    assert answer["data"]["metadata"] == {"reward_error": 5, "step_rewards": "x"}


def test_session_reports_the_environments_own_refusal(play):
    class Strict(Echo):
        over = True

        def step(self, action, **kwargs):
            raise EpisodeError("no episode is running; reset first")

    answer = play(Strict).client().ask(step())
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert "no episode is running; reset first" in answer["data"]["message"]


# Time


def hanging(hold, **more):
    """Steps "wait", resets with seed 13, and nothing else, hang until the test ends."""

    def slow_step(self, action, **kwargs):
        if action.text == "wait":
            hold.wait()
        return Echo.step(self, action)

    def slow_reset(self, seed=None, episode_id=None, **kwargs):
        if seed == 13:
            hold.wait()
        return Echo.reset(self, seed, episode_id)

    return counted(step=slow_step, reset=slow_reset, **more)


def test_session_makes_a_new_environment_after_a_step_timeout(serve, hold, eventually):
    world = hanging(hold)
    served = serve(world, step_timeout_s=0.1)
    made = world.made
    client = served.client()
    client.ask({"type": "reset", "data": {"episode_id": "old"}})
    answer = client.ask(step("wait"))
    assert answer["data"]["code"] == "EXECUTION_ERROR"
    assert "0.1 s" in answer["data"]["message"]
    assert client.error(step("hello")) == "EXECUTION_ERROR"
    assert client.error(STATE) == "EXECUTION_ERROR"
    assert client.ask({"type": "reset", "data": {"episode_id": "new"}})["type"] == "observation"
    assert client.ask(step("hello"))["data"]["reward"] == 0.5
    assert client.ask(STATE)["data"] == {"episode_id": "new", "step_count": 1}
    assert world.made == made + 2
    assert world.closed == made
    hold.set()
    eventually(lambda: world.closed == made + 1)  # its code has come back
    client.say(CLOSE)
    client.ended()
    eventually(lambda: world.closed == world.made)


def test_session_abandons_a_slow_reset(serve, hold):
    client = serve(hanging(hold), step_timeout_s=0.1).client()
    assert client.error({"type": "reset", "data": {"seed": 13}}) == "EXECUTION_ERROR"
    assert client.ask(RESET)["type"] == "observation"


def test_session_abandons_a_slow_async_step(serve):
    class Async(Counted):
        made = closed = 0

        async def step_async(self, action, **kwargs):
            if action.text == "wait":
                await asyncio.Event().wait()
            return Said(text=action.text)

    served = serve(Async, step_timeout_s=0.1)
    client = served.client()
    assert client.error(step("wait")) == "EXECUTION_ERROR"
    assert client.ask(RESET)["type"] == "observation"
    assert client.ask(step("hello"))["data"]["observation"]["text"] == "hello"
    client.say(CLOSE)
    client.ended()
    served.empty()
    assert Async.closed == Async.made


def test_sessions_do_not_wait_for_a_hanging_one(serve, hold):
    served = serve(hanging(hold))
    stuck, other = served.client(), served.client()
    stuck.say(step("wait"))
    assert other.ask(RESET)["type"] == "observation"
    assert other.ask(step())["data"]["reward"] == 0.5


def test_session_waiting_for_a_thread_does_not_use_up_the_step_timeout(serve):
    ticket = threading.Lock()

    class OneByOne(Echo):
        def step(self, action, **kwargs):
            with ticket:
                threading.Event().wait(0.17)
            return super().step(action)

    # All steps together take longer; a busy machine may take several times as long for one.
    served = serve(OneByOne, max_threads=1, step_timeout_s=1.5)
    clients = [served.client() for _ in range(10)]
    for client in clients:
        client.ask(RESET)
    for client in clients:
        client.say(step())
    assert [client.hear()["type"] for client in clients] == ["observation"] * 10


def test_session_ends_when_idle(serve):
    served = serve(idle_timeout_s=0.2)
    client = served.client()
    client.ask(RESET)
    answer = client.hear()
    assert answer["type"] == "error"
    assert answer["data"]["code"] == "SESSION_ERROR"
    assert "0.2 s" in answer["data"]["message"]
    assert client.ended() == 1000
    served.empty()
    assert served.number("guerdon_sessions_closed_total", reason="idle") == 1


def test_session_that_sends_messages_is_not_idle(serve, eventually):
    served = serve(idle_timeout_s=0.3)
    busy, idle = served.client(), served.client()

    def talk():
        busy.ask(STATE)
        return served.sessions() == 1

    eventually(talk)
    assert busy.ask(RESET)["type"] == "observation"
    assert idle.hear()["data"]["code"] == "SESSION_ERROR"


def test_session_is_not_idle_during_a_long_step(serve):
    class Slow(Echo):
        def step(self, action, **kwargs):
            threading.Event().wait(0.5)
            return super().step(action)

    client = serve(Slow, idle_timeout_s=0.2).client()
    client.ask(RESET)
    assert client.ask(step())["data"]["reward"] == 0.5
    assert client.ask(STATE)["type"] == "state"


# Making and closing


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (raising(ValueError("no luck")), "no luck"),
        (lambda: sys.exit(3), "sys.exit(3)"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
        (lambda: None, "rubric"),
        (raising(Mute()), ""),
    ],
)
def test_session_ends_if_the_environment_cannot_be_made(serve, fault, problem):
    works = threading.Event()
    works.set()

    class Late(Echo):
        def __init__(self):
            super().__init__()
            if not works.is_set():
                self.rubric = None
                fault()

    served = serve(Late, max_sessions=1)
    works.clear()
    client = served.client()
    answer = client.hear()
    assert answer["type"] == "error"
    assert answer["data"]["code"] == "FACTORY_ERROR"
    assert problem in answer["data"]["message"]
    assert client.ended() == 1000
    served.empty()
    works.set()
    assert served.client().ask(RESET)["type"] == "observation"
    assert served.number("guerdon_failures_total", kind="factory") == 1


def test_session_ends_if_making_the_environment_hangs(serve, hold, eventually):
    hold.set()

    class Slow(Counted):
        made = closed = 0

        def __init__(self):
            super().__init__()
            hold.wait()

    served = serve(Slow, max_sessions=1, step_timeout_s=0.1)
    hold.clear()
    client = served.client()
    answer = client.hear()
    assert answer["data"]["code"] == "FACTORY_ERROR"
    assert "0.1 s" in answer["data"]["message"]
    assert client.ended() == 1000
    served.empty()
    assert Slow.closed == Slow.made - 1
    hold.set()
    eventually(lambda: Slow.closed == Slow.made)


@pytest.mark.parametrize("fault", FAULTS)
def test_session_frees_its_place_if_close_raises(play, fault):
    class Wrong(Echo):
        def close(self):
            FAULTS[fault]()

    served = play(Wrong)
    client = served.client()
    assert client.ask(RESET)["type"] == "observation"
    client.say(CLOSE)
    assert client.ended() == 1000
    served.empty()


def test_session_frees_its_place_if_close_hangs(serve, hold):
    hold.set()

    class Wrong(Echo):
        def close(self):
            hold.wait()

    served = serve(Wrong, max_sessions=1, close_timeout_s=0.1)
    hold.clear()
    for _ in range(2):
        client = served.client()
        assert client.ask(RESET)["type"] == "observation"
        client.say(CLOSE)
        assert client.ended() == 1000
        served.empty()


def test_session_closes_each_environment_once(serve, eventually):
    world = counted()
    served = serve(world)
    clients = [served.client() for _ in range(20)]
    for n, client in enumerate(clients):
        client.ask(RESET)
        if n % 2:
            client.say(CLOSE)
        else:
            client.close()
    eventually(lambda: world.closed == world.made)
    assert world.made == 21  # one that was inspected when the server started
    served.empty()
    assert served.number("guerdon_sessions_opened_total") == 20


# Capacity


def test_session_is_refused_at_capacity_until_a_place_is_free(serve):
    served = serve(max_sessions=2)
    first, second = served.client(), served.client()
    for client in (first, second):
        client.ask(RESET)
    third = served.client()
    answer = third.hear()
    assert answer["type"] == "error"
    data = answer["data"]
    assert data["code"] == "CAPACITY_REACHED"
    assert (data["active_sessions"], data["max_sessions"]) == (2, 2)
    assert data["message"]
    assert third.ended() == 1000
    assert first.ask(step())["data"]["reward"] == 0.5
    assert served.number("guerdon_refused_total", reason="capacity") == 1
    first.say(CLOSE)
    first.ended()
    served_again = _place(served)
    assert served_again.ask(step())["data"]["reward"] == 0.5


def _place(served):
    """A client that got a place, as soon as there is one."""
    while True:
        client = served.client()
        try:
            if client.ask(RESET)["type"] == "observation":
                return client
        except ConnectionClosed:
            pass
        client.close()


def test_session_capacity_includes_calls_over_http(serve, hold, eventually):
    inside = threading.Event()

    class Slow(Echo):
        def reset(self, **kwargs):
            inside.set()
            hold.wait()
            return Said()

    served = serve(Slow, max_sessions=1)
    calling = threading.Thread(target=lambda: served.http.post("/reset"))
    calling.start()
    try:
        assert inside.wait(10)
        refused = served.client().hear()
        assert refused["data"]["code"] == "CAPACITY_REACHED"
        assert refused["data"]["active_sessions"] == 1
        again = served.http.post("/reset")
        assert again.status_code == 503
        assert again.json()["detail"]["code"] == "CAPACITY_REACHED"
    finally:
        hold.set()
        calling.join()
    assert served.http.post("/reset").status_code == 200


# Clients that leave


@pytest.mark.parametrize("how", ["reset", "close", "goodbye"])
def test_session_ends_if_the_client_leaves_during_a_step(serve, hold, eventually, how):
    world = hanging(hold)
    served = serve(world, max_sessions=1)
    raw = served.raw()
    assert raw.upgrade() == 101
    raw.frame(RESET)
    raw.hear()
    made = world.made
    raw.frame(step("wait"))
    eventually(lambda: served.sessions() == 1)
    if how == "goodbye":
        raw.frame(b"\x03\xe8", opcode=8)
    elif how == "reset":
        raw.reset()
    if how == "close":
        raw.close()
    served.empty()
    assert world.closed == made - 1  # it still runs
    assert served.client().ask(RESET)["type"] == "observation"
    hold.set()
    eventually(lambda: world.closed == made)


def test_session_ends_if_the_client_abandons_a_step_and_leaves(serve, hold, eventually):
    world = hanging(hold)
    served = serve(world, max_sessions=1)
    raw = served.raw()
    raw.upgrade()
    raw.frame(step("wait"))
    client_is_watched = threading.Event()
    client_is_watched.wait(0.4)
    raw.frame(CLOSE)
    raw.frame(b"\x03\xe8", opcode=8)
    raw.close()
    served.empty()
    assert served.client().ask(RESET)["type"] == "observation"


def test_session_ends_if_the_client_leaves_with_unanswered_messages(serve, hold):
    served = serve(hanging(hold), max_sessions=1)
    raw = served.raw()
    raw.upgrade()
    raw.frame(step("wait"))
    for _ in range(5):
        raw.frame(STATE)
    raw.reset()
    served.empty()


def test_session_ends_if_the_client_leaves_before_its_environment_is_made(serve, hold, eventually):
    hold.set()

    class Slow(Counted):
        made = closed = 0

        def __init__(self):
            super().__init__()
            hold.wait()

    served = serve(Slow, max_sessions=1)
    hold.clear()
    raw = served.raw()
    raw.upgrade()
    eventually(lambda: served.sessions() == 1)
    raw.reset()
    served.empty()
    hold.set()
    eventually(lambda: Slow.closed == Slow.made)


def test_session_cancels_an_async_step_if_the_client_leaves(serve, eventually):
    inside = threading.Event()
    cancelled = threading.Event()

    class Async(Counted):
        made = closed = 0

        async def step_async(self, action, **kwargs):
            inside.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    served = serve(Async)
    raw = served.raw()
    raw.upgrade()
    raw.frame(step())
    assert inside.wait(10)
    raw.reset()
    served.empty()
    assert cancelled.wait(10)
    eventually(lambda: Async.closed == Async.made)


# Many


def test_idle_sessions_use_no_thread(alone, serve):
    served = serve()

    async def opened():
        from websockets.asyncio.client import connect

        url = served.url.replace("http", "ws") + "/ws"
        before = threading.active_count()
        async with asyncio.timeout(20):
            first = await connect(url, proxy=None, compression=None)
            await first.send(json.dumps(RESET))
            await first.recv()
            rest = []
            for _ in range(99):
                each = await connect(url, proxy=None, compression=None)
                await each.send(json.dumps(RESET))
                await each.recv()
                rest.append(each)
            assert served.sessions() == 100
            after = threading.active_count()
            for each in (first, *rest):
                await each.close()
        return before, after

    before, after = asyncio.run(opened())
    assert after <= before + 4
    served.empty()


@pytest.mark.parametrize("error", [OSError("the client has left"), RuntimeError("closed")])
@pytest.mark.parametrize("call", [Connection.accept, lambda each: each.send("{}")])
def test_connection_ends_the_session_if_the_connection_is_closed(call, error):
    async def receive():
        return {"type": "websocket.connect"}

    async def send(event):
        raise error

    async def main():
        connection = Connection(receive, send, close_timeout_s=1.0)
        with pytest.raises(SessionEnd, match="client left"):
            await call(connection)
        await connection.close(1000, "as nothing is open any more")

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/ws", "/mcp"])
def test_websocket_whose_client_leaves_during_the_handshake_ends(path):
    async def receive():
        return {"type": "websocket.connect"}

    async def send(event):
        raise RuntimeError("the transport is closed")

    async def main():
        app = create_app(Echo)
        scope = {"type": "websocket", "path": path, "headers": [(b"host", b"localhost")]}
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            assert not app.sessions.sessions

    asyncio.run(main())


def test_ws_with_trees_has_the_score_of_every_rubric_in_the_metadata(serve):
    served = serve(Echo)
    client, plain = served.client("/ws?trees=1"), served.client()
    for each in (client, plain):
        each.ask(RESET)
    metadata = client.ask(step("four"))["data"]["observation"]["metadata"]
    assert "reward_tree" not in plain.ask(step("four"))["data"]["observation"]["metadata"]
    tree = metadata["reward_tree"]
    assert (tree["name"], tree["value"], tree["status"]) == ("", 0.4, "scored")
