"""Conversations whose agent, user and judge are a tiny model: nothing is scripted."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from math import exp
from pathlib import Path

import httpx
import jsonschema
import openai
import pytest

from examples.tau_airline.data import AirlineData
from examples.tau_airline.environment import TauAirlineEnvironment
from examples.tiny_model.model import TinyModel
from examples.tiny_model.server import MAX_BODY, create_app, serving
from examples.tiny_model.tokens import CALL, CALL_END, END, MARKS
from guerdon import LLMJudge, MCPClient, OpenAIPolicy, RLRolloutWorker, RubricComposer
from guerdon.errors import PolicyError, ServiceTimeoutError
from guerdon.services import ChatModel
from tests.examples.tau_airline import DATA

pytest.importorskip("torch", reason="`make live` installs torch and transformers")
pytestmark = pytest.mark.edge

ROOT = Path(__file__).parents[2]
EPISODES, TURNS, TOKENS = 8, 5, 40
TASKS = [
    {"instruction": f"You are passenger {number}. You want a refund.", "actions": []}
    for number in range(EPISODES)
]
AIRLINE = AirlineData(DATA.users, DATA.flights, DATA.reservations, tasks=TASKS, policy=DATA.policy)
HELLO = [{"role": "user", "content": "Hello."}]
BROKEN = {
    "id": "c0",
    "type": "function",
    "function": {"name": "look", "arguments": '{"where": '},
}
SCHEMA = {
    "properties": {"reason": {"type": "string"}, "score": {"type": "number"}},
    "required": ["reason", "score"],
}


@pytest.fixture(scope="module")
def model():
    return TinyModel()


@pytest.fixture(scope="module")
def url(model):
    with serving(create_app(model)) as url:
        yield url


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def tools():
    with TauAirlineEnvironment(AIRLINE) as environment:
        return environment.tools


def ask(client, **options):
    return client.chat.completions.create(
        **{"model": "tiny", "messages": HELLO, "max_tokens": TOKENS, "seed": 1, **options}
    )


def calls_of(message):
    return [(each.function.name, each.function.arguments) for each in message.tool_calls or ()]


# The protocol -------------------------------------------------------------------------------------


def test_tiny_model_has_about_a_hundred_thousand_parameters(model):
    assert 90_000 < sum(each.numel() for each in model.network.parameters()) < 110_000


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.3, "top_p": 0.5},
        {"tool_choice": "auto", "logit_bias": {CALL: 4, CALL_END: 3}, "max_tokens": 200},
        {"tool_choice": "required", "max_tokens": 400},
        {"response_format": {"type": "json_schema",
                             "json_schema": {"name": "answer", "schema": SCHEMA}}},
    ],
    ids=["text", "likely text", "broken calls", "call", "json"],
)  # fmt: skip
@pytest.mark.parametrize("seed", [1, 2])
def test_chat_completions_stream_the_same_answer_as_without_a_stream(client, tools, options, seed):
    if "tool_choice" in options:
        options = {**options, "tools": tools}
    whole = ask(client, seed=seed, logprobs=True, **options)
    [choice] = whole.choices
    text, calls, logprobs, reasons = "", {}, [], []
    stream = ask(
        client, seed=seed, logprobs=True, stream=True,
        stream_options={"include_usage": True}, **options,
    )  # fmt: skip
    for chunk in stream:
        for part in chunk.choices:
            text += part.delta.content or ""
            for call in part.delta.tool_calls or ():
                name, arguments = calls.get(call.index, (call.function.name, ""))
                calls[call.index] = name, arguments + (call.function.arguments or "")
            logprobs += part.logprobs.content if part.logprobs else []
            reasons += [part.finish_reason] if part.finish_reason else []
    assert (text, list(calls.values())) == (choice.message.content, calls_of(choice.message))
    assert reasons == [choice.finish_reason]
    assert logprobs == choice.logprobs.content
    assert chunk.usage == whole.usage
    assert len(logprobs) == whole.usage.completion_tokens


def test_chat_completions_differ_by_seed_unless_the_temperature_is_0(client):
    def answers(temperature):
        asked = [ask(client, seed=seed, temperature=temperature) for seed in (1, 2, 1)]
        return [each.choices[0].message.content for each in asked]

    first, second, again = answers(1.0)
    assert first == again != second
    assert len(set(answers(0.0))) == 1
    assert len({ask(client, seed=None).choices[0].message.content for _ in range(3)}) == 3


def test_chat_completions_end_at_max_tokens_with_the_reason_length(client):
    for most in (1, 7):
        found = ask(client, max_tokens=most, logit_bias={END: -100})
        assert found.choices[0].finish_reason == "length"
        assert found.usage.completion_tokens == most
    found = ask(client, logit_bias={END: 100})
    assert (found.choices[0].finish_reason, found.usage.completion_tokens) == ("stop", 1)


def test_chat_completions_report_log_probabilities_of_the_model(client):
    found = ask(client, temperature=0, logprobs=True, top_logprobs=20)
    for token in found.choices[0].logprobs.content:
        best = [each.logprob for each in token.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert sum(map(exp, best)) < 1
        # A mark may be more probable, but the grammar of text doesn't allow it.
        allowed = [each for each in token.top_logprobs if each.token not in MARKS.values()]
        assert (token.token, token.logprob) == (allowed[0].token, allowed[0].logprob)
    assert ask(client).choices[0].logprobs is None


def test_chat_completions_with_a_required_tool_are_valid_calls(client, tools):
    for tool in tools:
        function = tool["function"]
        chosen = {"type": "function", "function": {"name": function["name"]}}
        found = ask(client, tools=tools, tool_choice=chosen, max_tokens=2000)
        assert found.choices[0].finish_reason == "tool_calls"
        [(name, arguments)] = calls_of(found.choices[0].message)
        assert name == function["name"]
        jsonschema.validate(json.loads(arguments), function["parameters"])


def test_chat_completions_without_tool_choice_none_call_nothing(client, tools):
    bias = {CALL: 100}
    assert calls_of(ask(client, tools=tools, logit_bias=bias).choices[0].message)
    for options in ({"tools": tools, "tool_choice": "none"}, {}):
        assert not calls_of(ask(client, logit_bias=bias, **options).choices[0].message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 2}, "n: Input should be 1"),
        ({"temperature": 3}, "temperature: "),
        ({"messages": []}, "messages: "),
        ({"messages": [{"content": "no role"}]}, "messages are invalid: KeyError"),
        ({"messages": [{"role": "assistant", "tool_calls": [BROKEN]}]}, "messages: .*Expecting"),
        ({"tool_choice": "required"}, "tool_choice requires a tool"),
        ({"max_tokens": 10**6}, "context has 16384 tokens, but the prompt has "),
        ({"messages": [{"role": "user", "content": "x" * MAX_BODY}]}, "must have at most"),
    ],
    ids=range(8),
)
def test_chat_completions_refuse_invalid_requests(client, options, message):
    with pytest.raises(openai.BadRequestError, match=message):
        ask(client, **options)


def test_tiny_model_command_prints_its_address_and_stops_on_sigterm():
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.tiny_model", "--port", "0"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with process:
        try:
            url = process.stdout.readline().strip()
            body = {"model": "tiny", "messages": HELLO, "max_tokens": 1}
            response = httpx.post(f"{url}/chat/completions", json=body, timeout=60)
            assert response.json()["usage"]["completion_tokens"] == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


# Agent, user and judge ----------------------------------------------------------------------------


class Live:
    """Plays the airline with a tiny model behind an endpoint as agent, user and judge."""

    def __init__(self, url, stack):
        self.url, self._stack = url, stack

    def play(self, *, episodes=EPISODES, turns=TURNS, judge_tokens=150, step_per="turn", **policy):
        judge = ChatModel(
            self.url, "judge", temperature=1.0, max_tokens=judge_tokens,
            extra_body={"seed": 3, "logit_bias": {str(ord("0")): 2}},  # scores in [0, 1] are rare
        )  # fmt: skip
        self._stack.callback(judge.close)
        user = {"type": "openai_llm", "endpoint": self.url, "model": "user", "temperature": 1.0,
                "max_tokens": TOKENS,
                "extra_body": {"seed": 2, "logit_bias": {str(END): -100}}}  # fmt: skip
        options = {"max_tokens": TOKENS, "seed": 1, "logprobs": True, **policy}

        async def run():
            async with (
                MCPClient({"user": user}) as services,
                OpenAIPolicy("agent", base_url=self.url, **options) as policy,
            ):
                worker = RLRolloutWorker(
                    lambda: JudgedAirline(judge, services),
                    policy,
                    max_steps=turns,
                    step_per=step_per,
                )
                return await asyncio.gather(
                    *(worker.run({"reset": {"task": task}}) for task in range(episodes))
                )

        return asyncio.run(asyncio.wait_for(run(), 300))


class JudgedAirline(TauAirlineEnvironment):
    """The airline, with a judge of each turn in its reward."""

    def __init__(self, judge, services):
        super().__init__(AIRLINE, mcp=services)
        polite = LLMJudge("How polite is this?\n{action}\nThe answer: {observation}", judge)
        self.rubric = RubricComposer({"airline": self.rubric, "polite": polite}, [1.0, 0.5])


@pytest.fixture
def live(url):
    with ExitStack() as stack:
        yield Live(url, stack)


def steps_of(records):
    return [step.step_info for record in records for step in record.steps]


def errors_of_calls(records):
    """The errors of calls, as the environment has answered them."""
    found = []
    for record in records:
        for step in record.steps[1:]:
            data = step.observation_data
            outcomes = data.get("results") or [data]
            found += [each["error"]["error_type"] for each in outcomes if each.get("error")]
    return found


def check(records):
    """Each episode has ended in a stated way, and each step has a reward or the reason why not."""
    for record in records:
        assert record.ended in ("done", "max_steps", "error")
        assert (record.ended == "error") == (record.error is not None)
        for step in record.steps:
            info = step.step_info
            reasons = [info.get("error"), info.get("env_metadata", {}).get("reward_error")]
            assert (info["env_reward"] is None) == any(reasons), info


def test_live_episodes_are_played_concurrently_and_each_step_is_scored_or_says_why_not(live):
    records = live.play(logit_bias={CALL: 1, CALL_END: 3})
    check(records)
    assert len(records) == EPISODES
    assert {record.ended for record in records} == {"max_steps"}
    infos = steps_of(records)
    assert len(infos) == EPISODES * TURNS
    unscored = [each for each in infos if each["env_reward"] is None]
    assert 0 < len(unscored) < len(infos)
    for each in unscored:
        assert "JudgeError" in each["env_metadata"]["reward_error"]
    for each in infos:
        if each["env_reward"] is not None:
            polite = each["env_metadata"]["reward_components"]["polite"]
            assert each["env_reward"] == pytest.approx(0.5 * polite)
    assert {each["policy_info"]["finish_reason"] for each in infos} >= {"length", "stop"}
    actions = [step.action_taken["type"] for record in records for step in record.steps]
    assert {*actions} >= {"message", "call_tool"}
    for step in (step for record in records for step in record.steps):
        usage = step.step_info["policy_info"]["usage"]
        assert len(step.policy_logprobs) == usage["completion_tokens"] <= TOKENS


def test_live_agent_with_several_calls_a_turn_gets_an_answer_to_each(live):
    options = {"step_per": "call", "max_tokens": 120, "logit_bias": {CALL: 4, CALL_END: 5}}
    records = live.play(turns=12, **options)
    check(records)
    assert {record.ended for record in records} == {"max_steps"}
    for record in records:
        ids = [call["id"] for message in record.messages for call in message.tool_calls or ()]
        answered = [each.tool_call_id for each in record.messages if each.role == "tool"]
        assert len(ids) > len({step.step_info["assistant_turn_index"] for step in record.steps})
        assert answered == ids[: len(answered)]


def test_live_judge_without_a_usable_answer_leaves_steps_unscored(live):
    records = live.play(episodes=2, turns=2, judge_tokens=3)
    check(records)
    for each in steps_of(records):
        assert each["env_reward"] is None
        assert "increase the model's `max_tokens`" in each["env_metadata"]["reward_error"]


def test_live_agent_with_broken_arguments_is_answered_invalid_args_and_goes_on(live):
    records = live.play(episodes=2, logit_bias={CALL: 100, CALL_END: 3})
    check(records)
    assert {record.ended for record in records} == {"max_steps"}
    assert set(errors_of_calls(records)) >= {"invalid_args"}
    actions = [step.action_taken for record in records for step in record.steps]
    assert any("JSON" in json.dumps(action) for action in actions)


def test_live_agent_with_required_calls_has_valid_arguments(live):
    records = live.play(tool_choice="required", max_tokens=1500)
    check(records)
    assert {record.ended for record in records} <= {"done", "max_steps"}
    infos = steps_of(records)
    assert {each["policy_info"]["finish_reason"] for each in infos} == {"tool_calls"}
    assert set(errors_of_calls(records)) <= {"execution_error"}


def test_live_agent_with_cut_off_calls_is_answered_invalid_args(live):
    records = live.play(episodes=2, turns=3, tool_choice="required", max_tokens=30)
    check(records)
    reasons = [each["policy_info"]["finish_reason"] for each in steps_of(records)]
    assert "length" in reasons
    assert "invalid_args" in errors_of_calls(records)


def test_live_agent_whose_context_is_exceeded_ends_the_episode_with_an_error(live):
    [record] = live.play(episodes=1, max_tokens=16_000)
    check([record])
    assert record.ended == "error"
    assert "PolicyError" in record.error
    assert "context has 16384 tokens" in record.error


def test_live_slow_model_exceeds_the_timeouts_of_agent_and_judge(model):
    async def ask(url):
        async with OpenAIPolicy("agent", base_url=url, timeout=0.2, max_retries=0) as policy:
            with pytest.raises(PolicyError, match="APITimeoutError"):
                await policy.get_action({"text": "Hello."})
        async with ChatModel(url, "judge", timeout_s=0.2, retries=0) as judge:
            with pytest.raises(ServiceTimeoutError):
                await judge.complete(HELLO)

    with serving(create_app(model, delay_s=10.0)) as url:
        asyncio.run(ask(url))


def test_live_slow_model_ends_the_episode_with_an_error(model):
    with serving(create_app(model, delay_s=10.0)) as url:
        policy = OpenAIPolicy("agent", base_url=url, timeout=0.2, max_retries=0)
        worker = RLRolloutWorker(lambda: TauAirlineEnvironment(AIRLINE), policy, max_steps=2)
        record = worker.run_sync({"reset": {"task": 0}})
        asyncio.run(policy.aclose())
    assert (record.ended, record.steps) == ("error", [])
    assert "PolicyError: agent returned no answer: APITimeoutError" in record.error
