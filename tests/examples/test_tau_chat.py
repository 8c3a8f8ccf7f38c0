"""The chat with a simulated user and a judge: real sockets, scripted models."""

import asyncio
import contextlib
import doctest
import gc
import importlib
import json
import socket
import warnings
from urllib.parse import urlsplit

import pytest
from mcp.server import MCPServer

from examples.tau_chat.booking_system import CHANGE_FEE, TOOLS, BookingError
from examples.tau_chat.demo import ACTIONS, TRAVELLER, VERDICT, main, reward, reward_at
from examples.tau_chat.environment import TauChatEnvironment
from examples.tau_chat.models import ChatAction, ChatObservation
from examples.tau_chat.rubrics import Settled
from examples.tau_chat.scenario import GOODBYE, GREETING, RULES, SETTLED, USER, new_system
from examples.tau_chat.scripted_model import Broken, Dropped, Failed, Replied, ScriptedModel
from guerdon import (
    EnvClient,
    MCPClient,
    OpenAIPolicy,
    RewardConfig,
    RewardPipeline,
    RLRolloutWorker,
    create_app,
)
from guerdon.envs import ConfiguredEnv
from guerdon.errors import (
    EpisodeError,
    InvalidArgumentError,
    MissingInputError,
    ServerError,
    ServiceError,
    ServiceUnavailableError,
)
from guerdon.services import ChatModel, make_judge_server
from tests.envs.client.servers import Served

pytestmark = pytest.mark.edge  # real servers and processes

MODULES = [
    "booking_system",
    "demo",
    "environment",
    "models",
    "rubrics",
    "scenario",
    "scripted_model",
]

HELLO, CODE, YES, BYE = TRAVELLER
COMPONENTS = {"refused": 0.0, "settled": 1.0, "conduct": 0.9}
REWARD = pytest.approx(0.7 + 0.3 * 0.9)


def scripted(traveller=TRAVELLER, judge=(VERDICT,)):
    return ScriptedModel({"traveller": traveller, "judge": judge})


@contextlib.contextmanager
def here(config):
    """An environment in this process."""
    with ConfiguredEnv(TauChatEnvironment, config) as make, make() as environment:
        yield lambda: environment.reset(), lambda action: environment.step(ChatAction(**action))


@contextlib.contextmanager
def over_the_wire(config):
    """An environment on a server, in a session over WebSocket."""
    pipeline = RewardPipeline(RewardConfig.from_dict(config))
    served = Served(create_app(TauChatEnvironment, reward=pipeline))
    try:
        with TauChatClient.from_url(served.url).sync() as client:
            yield lambda: client.reset().observation, lambda action: client.step(action).observation
    finally:
        served.stop()


class TauChatClient(EnvClient):
    """A client with untyped observations."""


both = pytest.mark.parametrize("opened", [here, over_the_wire])


def play(reset, step, actions=ACTIONS):
    reset()
    return [step(action) for action in actions]


# A conversation --------------------------------------------------------------------------------


@both
def test_tau_chat_environment_scores_the_conversation_at_its_end(opened):
    with scripted() as model, opened(reward_at(model.endpoint)) as (reset, step):
        first = reset()
        observations = [step(action) for action in ACTIONS]
    assert (first.speaker, first.content, first.rules) == ("user", HELLO, RULES)
    assert [each.speaker for each in observations] == [
        "user",
        "tool",
        "tool",
        "user",
        "tool",
        "user",
    ]
    assert [each.done for each in observations] == [False] * 5 + [True]
    assert [each.reward for each in observations] == [0.0] * 5 + [REWARD]
    assert observations[0].metadata["reward_components"] == {"refused": 0.0}
    assert observations[-1].metadata["reward_components"] == COMPONENTS


def test_step_sends_the_whole_conversation_to_the_user_service():
    with scripted() as model, here(reward_at(model.endpoint)) as (reset, step):
        play(reset, step)
    *user_requests, judge_request = model.asked
    texts = [GREETING, HELLO, ACTIONS[0]["content"], CODE, ACTIONS[3]["content"], YES]
    texts.append(ACTIONS[5]["content"])
    roles = ["user", "assistant"] * 4
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    for number, body in enumerate(user_requests):
        system, *rest = body["messages"]
        assert system == {"role": "system", "content": USER}
        assert rest == messages[: 2 * number + 1]
        assert (body["model"], body["temperature"]) == ("traveller", 0.7)
    question = judge_request["messages"][-1]["content"]
    assert "agent calls change_flight" in question
    assert f"traveller: {BYE}" in question


def test_reset_begins_an_independent_conversation():
    with (
        scripted([*TRAVELLER, *TRAVELLER, Failed(503)], [VERDICT] * 2) as model,
        here(reward_at(model.endpoint, retries=0)) as (reset, step),
    ):
        one, other = play(reset, step), play(reset, step)
        with pytest.raises(ServiceUnavailableError):
            reset()
        with pytest.raises(EpisodeError):
            step(ACTIONS[1])
    assert [each.content for each in one] == [each.content for each in other]
    assert one[-1].transcript == other[-1].transcript
    requests = [body["messages"] for body in model.asked]
    assert requests[:5] == requests[5:10]


def test_tau_chat_environment_uses_mcp_tools_as_services():
    replies = iter(TRAVELLER)
    calls = []
    player = MCPServer("player", log_level="CRITICAL")

    @player.tool()
    def traveller(messages: list[dict[str, str]]) -> str:
        calls.append(messages)
        return next(replies)

    config = RewardConfig.from_dict(reward({}) | {"mcp_services": {}})
    with (
        ScriptedModel([VERDICT]) as model,
        ChatModel(model.endpoint, "any") as chat,
        MCPClient(
            {"user": player, "judge": make_judge_server(chat, "Judge this: {transcript}")}
        ) as client,
        here(RewardPipeline(config, mcp=client)) as (reset, step),
    ):
        last = play(reset, step)[-1]
    assert (last.reward, last.metadata["reward_components"]) == (REWARD, COMPONENTS)
    assert [len(messages) for messages in calls] == [2, 4, 6, 8]
    assert "agent calls read_booking" in model.asked[0]["messages"][-1]["content"]


def test_rollout_worker_plays_a_model_in_tau_chat_environment():
    def reply_with(action):
        if "content" in action:
            return Replied(action["content"])
        function = {"name": action["tool_name"], "arguments": json.dumps(action["arguments"])}
        call = {"id": "call", "type": "function", "function": function}
        return Replied(choice={"message": {"content": None, "tool_calls": [call]}})

    async def play(endpoint, make):
        async with OpenAIPolicy("agent", base_url=endpoint, system=RULES) as policy:
            return await RLRolloutWorker(make, policy, max_steps=9).run()

    scripts = {"traveller": TRAVELLER, "judge": [VERDICT], "agent": map(reply_with, ACTIONS)}
    with (
        ScriptedModel(scripts) as model,
        ConfiguredEnv(TauChatEnvironment, reward_at(model.endpoint)) as make,
    ):
        record = asyncio.run(play(model.endpoint, make))
    assert (record.ended, record.env_rewards[-1]) == ("done", REWARD)
    assert next(body for body in model.asked if body["model"] == "agent")["tools"] == TOOLS


# Failing models --------------------------------------------------------------------------------


@both
def test_step_retries_temporary_failures_of_services(opened, monkeypatch):
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)  # retries at once
    slow = Replied(CODE, delay_s=0.01)
    traveller = [HELLO, Failed(429, retry_after="0"), slow, Dropped(within=True), YES, BYE]
    with (
        scripted(traveller, [Broken(), VERDICT]) as model,
        opened(reward_at(model.endpoint)) as (reset, step),
    ):
        last = play(reset, step)[-1]
    assert (last.reward, last.metadata["reward_components"]) == (REWARD, COMPONENTS)
    assert len(model.asked) == len(TRAVELLER) + 1 + 3


@pytest.mark.parametrize(
    ("opened", "answer", "message"),
    [
        (here, Failed(429), "answered 429"),
        (here, Broken(), "invalid JSON"),
        (here, Dropped(), "can't be reached"),
        (here, Replied(""), "non-empty text"),
        (over_the_wire, Dropped(), "can't be reached"),
    ],
    ids=["429", "broken", "dropped", "empty", "dropped, over the wire"],
)
def test_step_with_a_failing_user_service_raises_and_can_be_repeated(opened, answer, message):
    traveller = [HELLO, answer, *TRAVELLER[1:]]
    with (
        scripted(traveller) as model,
        opened(reward_at(model.endpoint, retries=0)) as (reset, step),
    ):
        reset()
        with pytest.raises((ServiceError, ServerError), match=message) as raised:
            step(ACTIONS[0])
        assert "'user'" in str(raised.value)
        last = [step(action) for action in ACTIONS][-1]
    assert (last.reward, last.done) == (REWARD, True)
    assert last.transcript.count(ACTIONS[0]["content"]) == 1
    assert model.asked[1]["messages"] == model.asked[2]["messages"]


def test_tools_work_after_the_user_service_has_stopped():
    with contextlib.ExitStack() as serving:
        model = serving.enter_context(scripted())
        with here(reward_at(model.endpoint, retries=0)) as (reset, step):
            reset()
            serving.close()
            with pytest.raises(ServiceUnavailableError, match="'user'"):
                step(ACTIONS[0])
            observation = step(ACTIONS[1])
    assert (observation.reward, observation.refused) == (0.0, False)


def test_reset_with_a_failing_user_service_raises_and_can_be_repeated():
    with (
        scripted([Failed(503), *TRAVELLER]) as model,
        here(reward_at(model.endpoint, retries=0)) as (reset, step),
    ):
        with pytest.raises(ServiceUnavailableError, match="503"):
            reset()
        with pytest.raises(EpisodeError, match="no conversation"):
            step(ACTIONS[0])
        assert play(reset, step)[-1].reward == REWARD


@pytest.mark.parametrize(
    ("opened", "answer", "message"),
    [
        (here, Failed(500), "500"),
        (here, Dropped(), "can't be reached"),
        (here, "A splendid conversation.", "verdict"),
        (here, '{"score": -0.5, "reasoning": "it lied"}', "-0.5"),
        (over_the_wire, Dropped(), "can't be reached"),
    ],
    ids=["500", "dropped", "no verdict", "out of range", "dropped, over the wire"],
)
def test_failing_judge_invalidates_the_reward_of_that_episode_only(opened, answer, message):
    with (
        scripted([*TRAVELLER, *TRAVELLER], [answer, VERDICT]) as model,
        opened(reward_at(model.endpoint, retries=0)) as (reset, step),
    ):
        last = play(reset, step)[-1]
        assert (last.reward, last.done) == (None, True)
        assert "conduct" in last.metadata["reward_error"]
        assert message in last.metadata["reward_error"]
        assert "conduct" not in last.metadata["reward_components"]
        assert play(reset, step)[-1].reward == REWARD


def test_failing_per_turn_judge_invalidates_the_reward_of_that_step_only():
    with scripted(judge=[VERDICT, Failed(502)] + [VERDICT] * 4) as model:
        config = reward_at(model.endpoint, retries=0)
        judged = config["episode_end"].pop()
        judged["config"]["fields"] = {"transcript": "observation.content"}
        config["per_turn"].append(judged)
        with here(config) as (reset, step):
            observations = play(reset, step)
    assert [each.reward is None for each in observations] == [False, True] + [False] * 4
    assert observations[-1].metadata["reward_components"] == COMPONENTS


def test_configured_env_raises_at_once_if_services_are_unavailable():
    with scripted() as model:
        config = reward_at(model.endpoint)
    with pytest.raises(ServiceUnavailableError, match=r"'user'.*'judge'"):
        ConfiguredEnv(TauChatEnvironment, config)


def test_reset_without_services_raises_and_names_mcp_services():
    config = {"per_turn": [{"name": "brief", "rubric": lambda action, observation: 1.0}]}
    with (
        ConfiguredEnv(TauChatEnvironment, config) as make,
        pytest.raises(ServiceError, match="mcp_services"),
    ):
        make().reset()


# The booking system ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cancel_booking", {}, "unknown tool"),
        ("read_booking", {}, "takes code"),
        ("read_booking", {"code": 1}, "takes code"),
        ("read_booking", "RZ4K", "takes code"),
        ("read_booking", {"code": "RZ4X"}, "unknown booking"),
        ("change_flight", {"code": "RZ4K", "number": "AL 210"}, "already"),
        ("change_flight", {"code": "RZ4K", "number": "AL 212"}, "no seats"),
        ("change_flight", {"code": "RZ4K", "number": "AL 330"}, "doesn't fly Basel-Porto"),
        ("change_flight", {"code": "RZ4K", "number": "AL 9"}, "unknown flight"),
    ],
)
def test_booking_system_call_rejects_invalid_calls_and_changes_nothing(name, arguments, message):
    system = new_system()
    with pytest.raises(BookingError, match=message):
        system.call(name, arguments)
    assert system == new_system()


@pytest.mark.parametrize(("number", "paid"), [("AL 214", 119 + 35 + CHANGE_FEE), ("AL 216", 159)])
def test_change_flight_charges_a_fare_increase_and_the_fee(number, paid):
    system = new_system()
    changed = json.loads(system.call("change_flight", {"code": "RZ4K", "number": number}))
    assert (changed["flight"], changed["paid"]) == (number, paid)
    assert (system.bookings["RZ4K"] == SETTLED) == (number == "AL 214")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"arguments": {"code": "X"}}, "unknown booking 'X'"),
        ({"arguments": {"code": GOODBYE}}, GOODBYE),
        ({"arguments_error": "not JSON"}, "not JSON"),
    ],
    ids=["unknown booking", "the traveller's goodbye", "not JSON"],
)
def test_step_reports_and_penalizes_a_failed_tool_call(action, message):
    with scripted() as model, here(reward_at(model.endpoint)) as (reset, step):
        reset()
        observation = step({"type": "call_tool", "tool_name": "read_booking", **action})
    assert message in observation.content
    assert (observation.refused, observation.reward, observation.done) == (True, -0.1, False)


def test_settled_scores_0_for_the_wrong_flight():
    actions = [dict(each) for each in ACTIONS]
    actions[4] = {**actions[4], "arguments": {"code": "RZ4K", "number": "AL 216"}}
    with scripted() as model, here(reward_at(model.endpoint)) as (reset, step):
        last = play(reset, step, actions)[-1]
    assert last.metadata["reward_components"] == {**COMPONENTS, "settled": 0.0}


def test_settled_rejects_an_observation_from_the_wire():
    observation = ChatObservation(speaker="user", content=BYE, done=True)
    with pytest.raises(MissingInputError, match="over the wire"):
        Settled()(ChatAction(content="Bye."), observation)


def test_step_rejects_an_empty_message_and_max_steps_ends_the_conversation():
    with (
        scripted() as model,
        ConfiguredEnv(lambda: TauChatEnvironment(max_steps=1), reward_at(model.endpoint)) as make,
    ):
        environment = make()
        environment.reset(episode_id="one")
        with pytest.raises(InvalidArgumentError, match="empty"):
            environment.step(ChatAction(content=" "))
        assert environment.state.step_count == 0
        last = environment.step(ChatAction(**ACTIONS[1]))
        assert (last.done, last.metadata["reward_components"]["settled"]) == (True, 0.0)
        assert environment.state.model_dump() == {
            "episode_id": "one", "step_count": 1, "turns": 2, "over": True
        }  # fmt: skip
        with pytest.raises(EpisodeError):
            environment.step(ChatAction(content="Hello?"))
    with pytest.raises(InvalidArgumentError, match="max_steps"):
        TauChatEnvironment(max_steps=0)


def test_tau_chat_demo_prints_the_conversation_and_its_reward(capsys):
    assert main() == 0
    output = capsys.readouterr().out
    assert f"traveller: {HELLO}" in output
    assert f"reward 0.97, of {COMPONENTS}" in output


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"examples.tau_chat.{name}")
    assert doctest.testmod(module).failed == 0


def test_scripted_model_closes_connections_that_it_has_just_accepted():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(10):
            with ScriptedModel([]) as model:
                address = urlsplit(model.endpoint)
                clients = [
                    socket.create_connection((address.hostname, address.port)) for _ in range(5)
                ]
            for each in clients:
                each.close()
        gc.collect()
    assert [str(each.message) for each in caught if "transport" in str(each.message)] == []
