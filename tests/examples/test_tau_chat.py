"""A chat with a simulated user and a judge at its end: real sockets, scripted models."""

import asyncio
import contextlib
import doctest
import importlib
import json

import pytest
from mcp.server import MCPServer

from examples.tau_chat.demo import ACTIONS, TRAVELLER, VERDICT, main, reward, reward_at
from examples.tau_chat.desk import CHANGE_FEE, TOOLS, DeskError
from examples.tau_chat.environment import TauChatEnvironment
from examples.tau_chat.models import ChatAction, ChatObservation
from examples.tau_chat.rubrics import Settled
from examples.tau_chat.scenario import GOODBYE, GREETING, RULES, SETTLED, USER, open_desk
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

MODULES = ["demo", "desk", "environment", "models", "rubrics", "scenario", "scripted_model"]

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
    """Observations with what they are told beside their fields."""


both = pytest.mark.parametrize("opened", [here, over_the_wire])


def play(reset, step, actions=ACTIONS):
    reset()
    return [step(action) for action in actions]


# A conversation --------------------------------------------------------------------------------


@both
def test_a_conversation_is_played_and_judged_at_its_end(opened):
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


def test_the_travellers_model_is_told_the_whole_conversation_each_time():
    with scripted() as model, here(reward_at(model.endpoint)) as (reset, step):
        play(reset, step)
    *asked, judged = model.asked
    said = [GREETING, HELLO, ACTIONS[0]["content"], CODE, ACTIONS[3]["content"], YES]
    said.append(ACTIONS[5]["content"])
    roles = ["user", "assistant"] * 4
    talk = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    for number, body in enumerate(asked):
        system, *rest = body["messages"]
        assert system == {"role": "system", "content": USER}
        assert rest == talk[: 2 * number + 1]
        assert (body["model"], body["temperature"]) == ("traveller", 0.7)
    question = judged["messages"][-1]["content"]
    assert "agent calls change_flight" in question
    assert f"traveller: {BYE}" in question


def test_nothing_of_an_episode_is_left_in_the_next():
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
    asked = [body["messages"] for body in model.asked]
    assert asked[:5] == asked[5:10]


def test_services_may_be_mcp_tools_without_the_environment_knowing():
    replies = iter(TRAVELLER)
    heard = []
    player = MCPServer("player", log_level="CRITICAL")

    @player.tool()
    def traveller(messages: list[dict[str, str]]) -> str:
        heard.append(messages)
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
    assert [len(messages) for messages in heard] == [2, 4, 6, 8]
    assert "agent calls read_booking" in model.asked[0]["messages"][-1]["content"]


def test_a_model_plays_the_agent_in_a_rollout():
    def says(action):
        if "content" in action:
            return Replied(action["content"])
        function = {"name": action["name"], "arguments": json.dumps(action["arguments"])}
        call = {"id": "call", "type": "function", "function": function}
        return Replied(choice={"message": {"content": None, "tool_calls": [call]}})

    async def play(endpoint, make):
        async with OpenAIPolicy("agent", base_url=endpoint, system=RULES) as policy:
            return await RLRolloutWorker(make, policy, max_steps=9).run()

    scripts = {"traveller": TRAVELLER, "judge": [VERDICT], "agent": map(says, ACTIONS)}
    with (
        ScriptedModel(scripts) as model,
        ConfiguredEnv(TauChatEnvironment, reward_at(model.endpoint)) as make,
    ):
        record = asyncio.run(play(model.endpoint, make))
    assert (record.ended, record.env_rewards[-1]) == ("done", REWARD)
    assert next(body for body in model.asked if body["model"] == "agent")["tools"] == TOOLS


# Models that fail ------------------------------------------------------------------------------


@both
def test_delays_429s_broken_json_and_dropped_connections_pass(opened, monkeypatch):
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)  # tries again at once
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
    ("opened", "answer", "told"),
    [
        (here, Failed(429), "answered 429"),
        (here, Broken(), "invalid JSON"),
        (here, Dropped(), "can't be reached"),
        (here, Replied(""), "not a text"),
        (over_the_wire, Dropped(), "can't be reached"),
    ],
    ids=["429", "broken", "dropped", "silent", "dropped, over the wire"],
)
def test_a_traveller_who_dies_is_a_steps_error_and_nothing_was_said(opened, answer, told):
    traveller = [HELLO, answer, *TRAVELLER[1:]]
    with (
        scripted(traveller) as model,
        opened(reward_at(model.endpoint, retries=0)) as (reset, step),
    ):
        reset()
        with pytest.raises((ServiceError, ServerError), match=told) as raised:
            step(ACTIONS[0])
        assert "'user'" in str(raised.value)
        last = [step(action) for action in ACTIONS][-1]
    assert (last.reward, last.done) == (REWARD, True)
    assert last.transcript.count(ACTIONS[0]["content"]) == 1
    assert model.asked[1]["messages"] == model.asked[2]["messages"]


def test_a_server_that_ends_within_an_episode_is_told_and_the_desk_goes_on():
    with contextlib.ExitStack() as serving:
        model = serving.enter_context(scripted())
        with here(reward_at(model.endpoint, retries=0)) as (reset, step):
            reset()
            serving.close()
            with pytest.raises(ServiceUnavailableError, match="'user'"):
                step(ACTIONS[0])
            observation = step(ACTIONS[1])
    assert (observation.reward, observation.refused) == (0.0, False)


def test_a_traveller_who_does_not_even_call_leaves_no_conversation():
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
    ("opened", "answer", "told"),
    [
        (here, Failed(500), "500"),
        (here, Dropped(), "can't be reached"),
        (here, "A splendid conversation.", "verdict"),
        (here, '{"score": -0.5, "reasoning": "it lied"}', "-0.5"),
        (over_the_wire, Dropped(), "can't be reached"),
    ],
    ids=["500", "dropped", "no verdict", "out of range", "dropped, over the wire"],
)
def test_a_judge_that_is_down_makes_the_reward_invalid_and_nothing_else(opened, answer, told):
    with (
        scripted([*TRAVELLER, *TRAVELLER], [answer, VERDICT]) as model,
        opened(reward_at(model.endpoint, retries=0)) as (reset, step),
    ):
        last = play(reset, step)[-1]
        assert (last.reward, last.done) == (None, True)
        assert "conduct" in last.metadata["reward_error"]
        assert told in last.metadata["reward_error"]
        assert "conduct" not in last.metadata["reward_components"]
        assert play(reset, step)[-1].reward == REWARD


def test_a_judge_of_every_step_that_is_down_at_one_lets_the_episode_go_on():
    with scripted(judge=[VERDICT, Failed(502)] + [VERDICT] * 4) as model:
        config = reward_at(model.endpoint, retries=0)
        judged = config["episode_end"].pop()
        judged["config"]["fields"] = {"transcript": "observation.content"}
        config["per_turn"].append(judged)
        with here(config) as (reset, step):
            observations = play(reset, step)
    assert [each.reward is None for each in observations] == [False, True] + [False] * 4
    assert observations[-1].metadata["reward_components"] == COMPONENTS


def test_services_that_are_not_there_are_named_at_the_start():
    with scripted() as model:
        config = reward_at(model.endpoint)
    with pytest.raises(ServiceUnavailableError, match=r"'user'.*'judge'"):
        ConfiguredEnv(TauChatEnvironment, config)


def test_an_environment_without_services_says_where_they_come_from():
    config = {"per_turn": [{"name": "brief", "rubric": lambda action, observation: 1.0}]}
    with (
        ConfiguredEnv(TauChatEnvironment, config) as make,
        pytest.raises(ServiceError, match="mcp_services"),
    ):
        make().reset()


# The desk, and the rules of a conversation -----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("cancel_booking", {}, "there is no tool"),
        ("read_booking", {}, "takes code"),
        ("read_booking", {"code": 1}, "takes code"),
        ("read_booking", "RZ4K", "takes code"),
        ("read_booking", {"code": "RZ4X"}, "no booking"),
        ("change_flight", {"code": "RZ4K", "number": "AL 210"}, "already"),
        ("change_flight", {"code": "RZ4K", "number": "AL 212"}, "no seats"),
        ("change_flight", {"code": "RZ4K", "number": "AL 330"}, "doesn't fly Basel-Porto"),
        ("change_flight", {"code": "RZ4K", "number": "AL 9"}, "no flight"),
    ],
)
def test_the_desk_refuses_what_cannot_be_and_changes_nothing(name, arguments, told):
    desk = open_desk()
    with pytest.raises(DeskError, match=told):
        desk.call(name, arguments)
    assert desk == open_desk()


@pytest.mark.parametrize(("number", "paid"), [("AL 214", 119 + 35 + CHANGE_FEE), ("AL 216", 159)])
def test_a_change_costs_the_difference_and_the_fee_and_is_never_paid_out(number, paid):
    desk = open_desk()
    changed = json.loads(desk.call("change_flight", {"code": "RZ4K", "number": number}))
    assert (changed["flight"], changed["paid"]) == (number, paid)
    assert (desk.bookings["RZ4K"] == SETTLED) == (number == "AL 214")


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ({"name": "read_booking", "arguments": {"code": "X"}}, "no booking 'X'"),
        ({"name": "read_booking", "arguments": {"code": GOODBYE}}, GOODBYE),
        ({"name": "read_booking", "arguments": "{code", "arguments_error": "no JSON"}, "no JSON"),
    ],
    ids=["no booking", "the traveller's goodbye", "no JSON"],
)
def test_what_the_desk_refuses_costs_and_is_told(action, told):
    with scripted() as model, here(reward_at(model.endpoint)) as (reset, step):
        reset()
        observation = step({"type": "tool_call", **action})
    assert told in observation.content
    assert (observation.refused, observation.reward, observation.done) == (True, -0.1, False)


def test_the_wrong_flight_is_not_what_was_asked_for():
    actions = [dict(each) for each in ACTIONS]
    actions[4] = {**actions[4], "arguments": {"code": "RZ4K", "number": "AL 216"}}
    with scripted() as model, here(reward_at(model.endpoint)) as (reset, step):
        last = play(reset, step, actions)[-1]
    assert last.metadata["reward_components"] == {**COMPONENTS, "settled": 0.0}


def test_how_the_bookings_are_is_not_told_over_a_wire():
    observation = ChatObservation(speaker="user", content=BYE, done=True)
    with pytest.raises(MissingInputError, match="over the wire"):
        Settled()(ChatAction(content="Bye."), observation)


def test_saying_nothing_is_refused_and_too_many_steps_end_it():
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


def test_the_demo_plays_on_a_server_of_its_own(capsys):
    assert main() == 0
    said = capsys.readouterr().out
    assert f"traveller: {HELLO}" in said
    assert f"reward 0.97, of {COMPONENTS}" in said


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"examples.tau_chat.{name}")
    assert doctest.testmod(module).failed == 0
