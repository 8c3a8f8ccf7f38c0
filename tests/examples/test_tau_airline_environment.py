"""tau-bench's airline as an environment: its tools, its users, and how episodes end."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.tau_airline import environment as environment_module
from examples.tau_airline.data import AirlineData, data_path, load_data
from examples.tau_airline.environment import TauAirlineEnvironment
from examples.tau_airline.reward import airline_reward
from examples.tau_airline.tools import TOOLS, Database
from examples.tau_airline.users import GREETING
from examples.tau_chat.scripted_model import Failed, Replied, ScriptedModel
from guerdon import (
    EnvPool,
    GenericEnvClient,
    MCPClient,
    OpenAIPolicy,
    RLRolloutWorker,
    ScriptedPolicy,
    check_environment,
    create_app,
    score_rollouts,
)
from guerdon.envs import ConfiguredEnv
from guerdon.errors import EnvError, EpisodeError, InvalidArgumentError
from guerdon.types import CallToolAction, CallToolsAction, ListToolsAction, SayAction
from tests.envs.client.servers import Served
from tests.examples.tau_airline import (
    BOOK,
    CANCEL,
    DATA,
    LOOK,
    MOVE,
    PASSENGERS,
    SEND,
    TASKS,
    answer_of,
    bags,
    booking,
    changed_flights,
)

BYE = "Thank you. ###STOP###"


def call(name, arguments):
    return CallToolAction(tool_name=name, arguments=arguments)


def say(text):
    return SayAction(content=text)


def make(**options):
    return TauAirlineEnvironment(DATA, **options)


@pytest.fixture
def environment():
    with make() as environment:
        environment.reset(task=0)
        yield environment


# Reset --------------------------------------------------------------------------------------------


def test_tau_airline_reset_returns_the_policy_and_the_users_first_message(environment):
    observation = environment.reset(task=2, episode_id="e1")
    system, first = observation.messages
    assert system == {"role": "system", "content": "Be helpful."}
    assert first["role"] == "user"
    assert first["content"].endswith(TASKS[2]["instruction"])
    assert observation.metadata == {"task": 2, "user": "scripted"}
    assert (environment.state.episode_id, environment.state.step_count) == ("e1", 0)


def test_tau_airline_reset_chooses_a_task_by_the_seed(environment):
    chosen = [environment.reset(seed=seed).metadata["task"] for seed in (1, 1, *range(20))]
    assert chosen[0] == chosen[1]
    assert set(chosen) == {0, 1, 2}


def test_tau_airline_reset_restores_the_database(environment):
    environment.step(call(*CANCEL))
    environment.reset(task=0)
    assert environment.database.differences(Database(DATA)) == []


def test_tau_airline_reset_that_fails_leaves_the_episode_as_it_is(environment):
    environment.step(call(*LOOK))
    environment.step(call(*CANCEL))
    with pytest.raises(InvalidArgumentError):
        environment.reset(task=2, user_messages=[])
    assert ending(environment.step(say("Done."))) == (True, 1.0, "user")


def test_tau_airline_environments_have_databases_of_their_own(environment):
    with make() as other:
        other.reset(task=0)
        environment.step(call(*CANCEL))
        assert other.database.differences(environment.database) == ["reservation AAAAAA"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": 3}, r"`task` must be an integer in \[0, 2\], got 3"),
        ({"task": "1"}, "`task` must be an integer"),
        ({"task": 0, "user_messages": []}, "`user_messages` must be a list of strings"),
        ({"task": 0, "user_messages": [4]}, r"`user_messages` must be .* got \[4\]"),
        ({"task": 0, "user_messages": "Hello"}, "`user_messages` must be .* got 'Hello'"),
    ],
    ids=range(5),
)
def test_tau_airline_reset_refuses_invalid_arguments(environment, arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        environment.reset(**arguments)


def test_tau_airline_environment_refuses_data_without_tasks_at_reset_and_max_turns_of_0():
    with (
        TauAirlineEnvironment(AirlineData({}, {}, {})) as environment,
        pytest.raises(InvalidArgumentError, match=r"tasks\.json is missing"),
    ):
        environment.reset()
    with pytest.raises(InvalidArgumentError, match="`max_turns` must be"):
        make(max_turns=0)


# Tools --------------------------------------------------------------------------------------------


def test_tau_airline_tools_are_the_functions_of_the_database(environment):
    assert sorted(TOOLS) == [each.name for each in environment.list_tools()]


def test_tau_airline_tools_have_the_published_descriptions(environment):
    function = {"name": "think", "description": "Think.", "parameters": {"type": "object"}}
    data = AirlineData({}, {}, {}, tools=[{"type": "function", "function": function}])
    with TauAirlineEnvironment(data) as other:
        [spec] = [each for each in other.tools if each["function"]["name"] == "think"]
        assert spec == data.tools[0]
        assert len(other.step(ListToolsAction()).tools) == 14


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
CALLS = {
    "book_reservation": booking(),
    "update_reservation_flights": changed_flights(),
    "update_reservation_baggages": bags(),
    "update_reservation_passengers": {"reservation_id": "AAAAAA", "passengers": PASSENGERS},
    "send_certificate": SEND[1],
    "cancel_reservation": CANCEL[1],
    "search_onestop_flight": {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"},
    "calculate": {"expression": "1 / 3"},
    "get_user_details": LOOK[1],
}


@given(name=st.sampled_from(sorted(CALLS)), value=VALUES, at=st.integers(0, 30))
def test_tau_airline_step_answers_as_the_database_does(name, value, at):
    arguments = dict(CALLS[name])
    if at < len(arguments):
        arguments[list(arguments)[at]] = value
    database = Database(DATA)
    expected = answer_of(database, name, arguments)
    with make() as environment:
        environment.reset(task=0)
        observation = environment.step(call(name, arguments))
        assert environment.database.differences(database) == []
    assert observation.is_error == expected.startswith("Error: ")
    if observation.error is not None and observation.error.error_type == "invalid_args":
        assert expected.startswith("Error: invalid argument of")
    else:
        assert observation.text == expected


def test_tau_airline_step_keeps_the_order_of_the_agents_keys(environment):
    flights = [{"date": "2024-05-20", "flight_number": "HAT002"}]
    observation = environment.step(call("book_reservation", booking(flights=flights)))
    assert list(json.loads(observation.text)["flights"][0])[:2] == ["date", "flight_number"]


def test_tau_airline_step_makes_the_first_call_of_a_turn_only(environment):
    calls = CallToolsAction(calls=[call(*LOOK), call(*CANCEL)])
    observation = environment.step(calls)
    assert "not called" in observation.results[1].text
    assert environment.database.differences(Database(DATA)) == []
    assert observation.metadata["reward_components"]["forbidden"] == 1.0


# Ends ---------------------------------------------------------------------------------------------


def ending(observation):
    return observation.done, observation.reward, observation.metadata.get("ended")


def test_tau_airline_episode_ends_when_the_user_leaves(environment):
    environment.step(call(*LOOK))
    assert ending(environment.step(say("Shall I cancel it?"))) == (False, 0.0, None)
    environment.step(call(*CANCEL))
    observation = environment.step(say("Done."))
    assert ending(observation) == (True, 1.0, "user")
    assert observation.messages == [{"role": "user", "content": BYE}]
    with pytest.raises(EpisodeError, match="the episode has ended"):
        environment.step(say("Hello?"))


def test_tau_airline_episode_ends_with_a_transfer_that_succeeds(environment):
    environment.reset(task=2)
    observation = environment.step(call("transfer_to_human_agents", {}))
    assert ending(observation) == (False, 0.0, None)
    assert ending(environment.step(call(*MOVE))) == (True, 1.0, "transfer")


def test_tau_airline_episode_ends_after_max_turns_with_0():
    with make(max_turns=2) as environment:
        environment.reset(task=2)
        environment.step(say("Yes?"))
        observation = environment.step(say("Yes?"))
        assert ending(observation) == (True, 0.0, "max_turns")
        with pytest.raises(EpisodeError):
            environment.step(say("Yes?"))
        environment.reset(task=2)
        environment.step(say("Yes?"))
        assert ending(environment.step(say("No."))) == (True, 1.0, "user")


# Users --------------------------------------------------------------------------------------------


def test_tau_airline_replayed_user_sends_its_messages_and_fails_after_the_last(environment):
    observation = environment.reset(task=0, user_messages=["Hi.", "Yes."])
    assert observation.messages[1]["content"] == "Hi."
    assert observation.metadata["user"] == "replayed"
    assert environment.step(say("Sure?")).messages[0]["content"] == "Yes."
    with pytest.raises(EnvError, match="recording has 2 messages, and no further one"):
        environment.step(say("Really?"))


@pytest.fixture
def services():
    opened = []

    def services(model, **more):
        user = {"type": "openai_llm", "endpoint": model.endpoint, "model": "m", "retries": 0}
        opened.append(MCPClient({"user": {**user, **more}}))
        return opened[-1]

    yield services
    for each in opened:
        each.close()


@pytest.mark.edge
def test_tau_airline_model_user_gets_the_instruction_and_the_conversation(services):
    with ScriptedModel(["Hi, cancel it.", BYE]) as model, make(mcp=services(model)) as environment:
        observation = environment.reset(task=0)
        assert observation.metadata["user"] == "model"
        environment.step(call(*LOOK))
        assert ending(environment.step(say("Sorry, no.")))[2] == "user"
    first, second = (each["messages"] for each in model.asked)
    assert TASKS[0]["instruction"] in first[0]["content"]
    assert first[1:] == [{"role": "user", "content": GREETING}]
    assert second[1:] == [
        {"role": "user", "content": GREETING},
        {"role": "assistant", "content": "Hi, cancel it."},
        {"role": "user", "content": "Sorry, no."},
    ]


@pytest.mark.edge
@pytest.mark.parametrize("answer", [Failed(500), Replied(" ")], ids=["failed", "empty"])
def test_tau_airline_failure_of_the_users_model_is_an_env_error(services, answer):
    script = [answer, "Hi.", answer, BYE]
    with ScriptedModel(script) as model, make(mcp=services(model)) as environment:
        with pytest.raises(EnvError, match="the user's model"):
            environment.reset(task=2)
        environment.reset(task=2)
        with pytest.raises(EnvError, match="the user's model"):
            environment.step(say("No."))
        assert ending(environment.step(say("No."))) == (True, 1.0, "user")
    assert [each["content"] for each in model.asked[-1]["messages"][1:]] == [GREETING, "Hi.", "No."]


def test_tau_airline_user_is_scripted_if_no_service_plays_it(services):
    with MCPClient({"judge": "http://127.0.0.1:9/mcp"}) as others, make(mcp=others) as environment:
        assert environment.reset(task=0).metadata["user"] == "scripted"


# As a guerdon environment -------------------------------------------------------------------------


def test_check_environment_finds_no_problem_in_tau_airline():
    assert check_environment(make).problems == []
    played = [call(*LOOK), call(*CANCEL), call(*BOOK), say("Done?"), say("Bye.")]
    assert check_environment(make, actions=played).problems == []


def test_tau_airline_reward_file_scores_an_episode(monkeypatch):
    reward = Path(environment_module.__file__).with_name("reward.yaml")
    monkeypatch.setattr("examples.tau_airline.reward.load_data", lambda folder: DATA)
    with ConfiguredEnv(make, reward) as configured, configured() as environment:
        environment.reset(task=2)
        assert ending(environment.step(say("No."))) == (True, 1.0, "user")


STEPS = st.sampled_from(
    [LOOK, CANCEL, BOOK, SEND, MOVE, ("cancel_reservation", {"reservation_id": "B"}), "Yes?", "No."]
)


def as_action(step):
    if isinstance(step, str):
        return {"type": "message", "content": step}
    return {"type": "call_tool", "tool_name": step[0], "arguments": step[1]}


@settings(max_examples=40)
@given(
    steps=st.lists(STEPS | st.lists(STEPS, min_size=2, max_size=2), min_size=1, max_size=6),
    task=st.integers(0, 2),
)
def test_airline_reward_scores_a_live_episode_and_its_recording_alike(steps, task):
    actions = []
    for step in steps:
        if isinstance(step, list):
            calls = [as_action(each) for each in step if not isinstance(each, str)]
            actions.append({"type": "call_tools", "calls": calls} if len(calls) > 1 else "Yes?")
        else:
            actions.append(as_action(step))
    worker = RLRolloutWorker(
        lambda: make(max_turns=len(actions)),
        ScriptedPolicy(actions),
        max_steps=len(actions),
    )
    record = worker.run_sync({"reset": {"task": task}, "task": task})
    assert record.ended == "done", record.error
    live = [step.step_info["env_metadata"]["reward_components"] for step in record.steps]
    reward = airline_reward(DATA)
    recorded = [reward.score(*step).components() for step in record.to_rollout().steps]
    assert recorded == live
    [row] = score_rollouts(reward, [record.to_rollout()])
    assert row["step_rewards"] == record.env_rewards


# On a server --------------------------------------------------------------------------------------


@pytest.fixture
def server():
    served = Served(create_app(make))
    yield served.url
    served.stop()


@pytest.mark.edge
def test_env_pool_steps_tau_airline_over_the_wire(server):
    with EnvPool(server, n=3).sync() as pool:
        first = pool.reset_batch(options=[{"task": number} for number in range(3)])
        assert [each.metadata["task"] for each in first] == [0, 1, 2]
        pool.step_batch([call(*CANCEL), say("It is $1,327.5, OK?"), call(*MOVE)])
        seen = pool.step_batch([call(*MOVE), say("Bye."), None])
        assert [each.reward for each in seen[:2]] == [1.0, 1.0]
        again = pool.reset_batch(slots=[2], options=[{"task": 2, "user_messages": ["Hi."]}])
        assert again[0].metadata["user"] == "replayed"
        [_, _, lost] = pool.step_batch([None, None, say("Hello.")])
        assert (lost.reward, lost.done) == (None, True)
        assert "no further one" in lost.metadata["error"]


@pytest.mark.edge
def test_openai_policy_plays_tau_airline_over_the_wire(server):
    function = {"name": "cancel_reservation", "arguments": json.dumps(CANCEL[1])}
    made = {"tool_calls": [{"id": "c0", "type": "function", "function": function}], "content": None}

    async def main(model):
        async with OpenAIPolicy("m", base_url=model.endpoint) as policy:
            worker = RLRolloutWorker(
                lambda: GenericEnvClient.from_url(server),
                policy,
                max_steps=5,
                tools=make().tools,
            )
            return await worker.run({"reset": {"task": 0}})

    with ScriptedModel([Replied(choice={"message": made}), "It is done."]) as model:
        record = asyncio.run(main(model))
    assert (record.ended, record.env_rewards) == ("done", [0.0, 1.0])
    roles = [message.role for message in record.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert json.loads(record.messages[3].text)["status"] == "cancelled"
    assert len(model.asked[0]["tools"]) == 14


# The published data -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published():
    try:
        data = load_data(data_path())
    except InvalidArgumentError as error:
        pytest.skip(f"the data is missing: {error}")
    if not data.tools or not data.tasks:
        pytest.skip("the data has no tools.json or no tasks.json")
    return data


def test_tau_airline_tools_are_those_of_tools_json(published):
    with TauAirlineEnvironment(published) as environment:
        assert environment.tools == published.tools


def plain(schema, definitions):
    """Return a JSON Schema without references, and without what only describes or bounds."""
    if isinstance(schema, list):
        return [plain(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    beside = {"title", "description", "minimum", "maximum", "additionalProperties", "$defs"}
    found = {name: plain(each, definitions) for name, each in schema.items() if name not in beside}
    return {name: each for name, each in found.items() if (name, each) != ("required", [])}


def test_tau_airline_own_schemas_accept_what_tools_json_describes(published):
    with make() as environment:
        own = {
            each["function"]["name"]: each["function"]["parameters"] for each in environment.tools
        }
    for tool in published.tools:
        function = tool["function"]
        schema = own[function["name"]]
        assert plain(schema, schema.get("$defs", {})) == plain(function["parameters"], {})


def test_tau_airline_reset_begins_each_of_the_50_tasks(published):
    assert len(published.tasks) == 50
    with TauAirlineEnvironment(published) as environment:
        for number, task in enumerate(published.tasks):
            system, first = environment.reset(task=number).messages
            assert system["content"] == published.policy
            assert task["instruction"] in first["content"]


def test_tau_airline_reward_of_the_expected_actions_is_1(published):
    with TauAirlineEnvironment(published) as environment:
        for number, task in enumerate(published.tasks):
            environment.reset(task=number)
            rewards = [0.0]
            for action in task["actions"]:
                observation = environment.step(call(action["name"], action["kwargs"]))
                rewards.append(observation.reward)
                if observation.done:
                    break
            else:
                last = environment.step(say(f"Done: {', '.join(task['outputs'])}."))
                rewards.append(last.reward)
            assert sum(rewards) == 1.0, number


def test_tau_airline_environment_lists_its_tasks_and_resets_to_one_by_index():
    environment = make()
    assert environment.public_tasks == {"test": [{"task": 0}, {"task": 1}, {"task": 2}]}
    first = environment.reset(split="test", index=2)
    assert first.metadata["task"] == 2
    with pytest.raises(InvalidArgumentError, match="`split` must be 'test', got 'train'"):
        environment.reset(split="train", index=0)
