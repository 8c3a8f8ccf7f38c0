"""A policy behind an endpoint that speaks OpenAI's protocol: a real server, the real client."""

import asyncio
import json
import socket
import sys
import threading

import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from guerdon import Action, Environment, Message, Observation, Rubric, State
from guerdon._http import MAX_ANSWER
from guerdon.errors import InvalidArgumentError, PolicyError
from guerdon.rollouts.playing import openai_policy
from guerdon.rollouts.playing.openai_policy import OpenAIPolicy
from guerdon.rollouts.playing.worker import RLRolloutWorker

SOON = 10  # seconds after which what should happen is taken not to happen
TOOLS = [{"type": "function", "function": {"name": "guess", "parameters": {"type": "object"}}}]


class Server(uvicorn.Server):
    """A server with an event for when it is ready."""

    def __init__(self, app):
        super().__init__(uvicorn.Config(app, log_config=None, lifespan="off"))
        self.is_ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        self.is_ready.set()


class Endpoint:
    """Answers each request with the next of its answers, and keeps what it was asked.

    Attributes:
        answers: Messages, responses, or functions of the request; the last one stays.
        asked: The requests' bodies.
        keys: What each authorised itself with.
        is_asleep: Set when an answer of "sleep" is not being given.
    """

    def __init__(self):
        self.answers, self.asked, self.keys = [], [], []
        self.is_asleep = threading.Event()
        app = Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server = Server(app)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        assert self._server.is_ready.wait(SOON)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    async def _answer(self, request):
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("authorization"))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == "sleep":
            self.is_asleep.set()
            await request.receive()  # until the client goes
            return Response()
        if isinstance(answer, Response):
            return answer
        return completion(answer(self.asked[-1]) if callable(answer) else answer)

    def stop(self):
        self._server.should_exit = True
        self._thread.join(SOON)
        self._socket.close()
        assert not self._thread.is_alive()


def completion(message, *, finish_reason="stop", logprobs=None, **more):
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **message},
        "finish_reason": finish_reason,
        "logprobs": logprobs,
    }
    return JSONResponse(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            **more,
        }
    )


def replied(text):
    return {"content": text}


def calls(*arguments):
    return {
        "tool_calls": [
            {"id": f"c{number}", "type": "function", "function": {"name": "guess", "arguments": a}}
            for number, a in enumerate(arguments)
        ]
    }


@pytest.fixture(scope="module")
def served():
    endpoint = Endpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def endpoint(served):
    served.answers, served.asked, served.keys = [replied("hi")], [], []
    return served


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


def ask(endpoint, *answers, tools=None, messages=None, observation="6 × 7?", **options):
    """What a policy gives, asked once."""
    if answers:
        endpoint.answers = list(answers)
    options = {"base_url": endpoint.url, "max_retries": 0, **options}

    async def asking():
        async with OpenAIPolicy("m", **options) as policy:
            return await policy.get_action(observation, tools, messages=messages)

    return run(asking())


# What is sent


def test_openai_policy_sends_the_conversation_and_the_tools(endpoint):
    messages = [
        Message(role="user", content="?"),
        Message(role="assistant", **{"content": None, **calls("{}")}),
        Message(role="tool", content="no", tool_call_id="c0"),
    ]
    ask(
        endpoint, tools=TOOLS, messages=messages, temperature=0.5, tool_choice="required",
        logprobs=True, max_tokens=9, seed=3,
    )  # fmt: skip
    assert endpoint.asked == [
        {
            "model": "m",
            "messages": [message.to_openai() for message in messages],
            "tools": TOOLS,
            "tool_choice": "required",
            "temperature": 0.5,
            "logprobs": True,
            "max_tokens": 9,
            "seed": 3,
        }
    ]


def test_openai_policy_sends_only_requested_parameters(endpoint):
    # Without tools there is nothing to choose; None is no value.
    ask(endpoint, tool_choice="required", temperature=None)
    assert endpoint.asked == [{"model": "m", "messages": [{"role": "user", "content": "6 × 7?"}]}]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_openai_policy_system_precedes_conversations_without_instructions(endpoint, role):
    ask(endpoint, system="Be brief.")
    ask(endpoint, system="Be brief.", messages=[Message(role=role, content="Be long.")])
    firsts = [asked["messages"][0] for asked in endpoint.asked]
    assert firsts == [
        {"role": "system", "content": "Be brief."},
        {"role": role, "content": "Be long."},
    ]


def test_openai_policy_requires_no_key_for_a_base_url(endpoint, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ask(endpoint)
    ask(endpoint, api_key="k1")
    assert endpoint.keys == ["Bearer none", "Bearer k1"]


# What comes back


def test_openai_policy_returns_a_message_for_text(endpoint):
    output = ask(endpoint, replied("42"))
    assert output == ({"type": "message", "content": "42"}, "42", None, None)
    assert output.message.to_openai() == {"role": "assistant", "content": "42"}


def test_openai_policy_returns_a_tool_call_as_action(endpoint):
    output = ask(endpoint, {**calls('{"number": 7}'), "content": "I guess."}, tools=TOOLS)
    assert output.action == {
        "type": "call_tool", "tool_name": "guess", "arguments": {"number": 7},
    }  # fmt: skip
    assert output.raw_output == "I guess."
    assert output.message.tool_calls == calls('{"number": 7}')["tool_calls"]


def test_openai_policy_returns_several_tool_calls_as_one_action(endpoint):
    action = ask(endpoint, calls('{"number": 7}', '{"number": 8}'), tools=TOOLS).action
    assert action["type"] == "call_tools"
    assert [call["arguments"]["number"] for call in action["calls"]] == [7, 8]


def test_openai_policy_returns_invalid_arguments_with_their_error(endpoint):
    output = ask(endpoint, calls('{"number": '), tools=TOOLS)
    assert output.action["arguments"] == {}
    assert output.message.tool_calls[0]["function"]["arguments"] == '{"number": '
    assert "not valid JSON" in output.action["arguments_error"]
    assert output.raw_output == ""


def test_openai_policy_returns_logprobs(endpoint):
    other = {"token": "43", "logprob": -1.5, "bytes": None}
    tokens = [
        {"token": "4", "logprob": -0.25, "bytes": [52], "top_logprobs": [other]},
        {"token": "2", "logprob": -0.5, "bytes": [50], "top_logprobs": []},
    ]
    answer = completion(replied("42"), logprobs={"content": tokens, "refusal": None})
    assert ask(endpoint, answer, logprobs=True).logprobs == [
        {"token": "4", "logprob": -0.25, "top_logprobs": [{"token": "43", "logprob": -1.5}]},
        {"token": "2", "logprob": -0.5},
    ]


def test_openai_policy_does_not_follow_redirects(endpoint):
    there = {"location": f"{endpoint.url}/chat/completions"}
    with pytest.raises(PolicyError, match="307"):
        ask(endpoint, Response(status_code=307, headers=there), replied("42"))
    assert len(endpoint.asked) == 1


def test_openai_policy_rejects_an_answer_that_is_too_large(endpoint):
    with pytest.raises(PolicyError, match=f"answered with more than {MAX_ANSWER} bytes"):
        ask(endpoint, replied("a" * MAX_ANSWER))


def test_openai_policy_keeps_the_reasoning_in_the_message(endpoint):
    output = ask(endpoint, {"content": "42", "reasoning_content": "6 times 7"})
    assert output.message.reasoning_content == "6 times 7"
    assert output.raw_output == "42"


def test_openai_policy_info_has_the_finish_reason_and_usage(endpoint):
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    output = ask(endpoint, completion(replied("4"), finish_reason="length", usage=usage))
    assert (output.info["finish_reason"], output.info["model"]) == ("length", "m")
    assert {name: output.info["usage"][name] for name in usage} == usage
    json.dumps(output.info, allow_nan=False)


def test_openai_policy_info_leaves_out_what_the_endpoint_omits(endpoint):
    assert ask(endpoint, replied("42")).info == {"finish_reason": "stop", "model": "m"}


def test_openai_policy_finish_reason_is_recorded_on_the_step(endpoint):
    async def main():
        endpoint.answers = [completion(calls('{"number": 7}'), finish_reason="tool_calls")]
        async with OpenAIPolicy("m", base_url=endpoint.url) as policy:
            worker = RLRolloutWorker(Guessing, policy, max_steps=3, to_action=arguments)
            return await worker.run()

    [step] = run(main()).steps
    assert step.step_info["policy_info"] == {"finish_reason": "tool_calls", "model": "m"}


def test_openai_policy_sends_missing_arguments_as_an_empty_object(endpoint):
    output = ask(endpoint, calls(None), tools=TOOLS)
    assert output.action == {"type": "call_tool", "tool_name": "guess", "arguments": {}}
    assert output.message.tool_calls[0]["function"] == {"name": "guess", "arguments": "{}"}
    ask(endpoint, messages=[Message(role="user", content="?"), output.message])
    sent = endpoint.asked[-1]["messages"][-1]
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


def test_openai_policy_returns_an_empty_message_for_an_empty_answer(endpoint):
    assert ask(endpoint, {}).action == {"type": "message", "content": ""}


def test_openai_policy_to_action_makes_the_action(endpoint):
    output = ask(endpoint, replied("column 3"), to_action=lambda message: int(message.text[-1]))
    assert (output.action, output.raw_output) == (3, "column 3")


# What goes wrong


def failing(endpoint, *answers, **options):
    with pytest.raises(PolicyError) as caught:
        ask(endpoint, *answers, **options)
    return caught.value


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        pytest.param(400, openai.BadRequestError, id="400"),
        pytest.param(401, openai.AuthenticationError, id="401"),
        pytest.param(500, openai.InternalServerError, id="500"),
    ],
)
def test_openai_policy_reports_an_error_status_with_its_cause(endpoint, status, cause):
    error = failing(endpoint, JSONResponse({"error": {"message": "no!"}}, status))
    assert isinstance(error.__cause__, cause)
    assert "m returned no answer" in str(error)
    assert "no!" in str(error)


def test_openai_policy_reports_a_slow_endpoint(endpoint):
    error = failing(endpoint, "sleep", timeout=0.1)
    assert isinstance(error.__cause__, openai.APITimeoutError)


def test_openai_policy_abandons_an_endpoint_that_streams_slowly(endpoint, monkeypatch):
    monkeypatch.setattr(openai_policy, "RETRY_S", 0.0)
    gone = threading.Event()

    async def drip():
        try:
            while True:  # never silent for as long as one attempt may be
                yield b" "
                await asyncio.sleep(0)
        finally:
            gone.set()

    error = failing(endpoint, StreamingResponse(drip()), timeout=0.3)
    assert isinstance(error.__cause__, (TimeoutError, openai.APITimeoutError))
    assert "m returned no answer" in str(error)
    assert gone.wait(SOON)


def test_openai_policy_reports_a_missing_endpoint(endpoint):
    error = failing(endpoint, base_url="http://127.0.0.1:1/v1")
    assert isinstance(error.__cause__, openai.APIConnectionError)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(JSONResponse({"id": "c", "choices": []}), id="empty"),
        pytest.param(JSONResponse({"id": "c"}), id="missing"),
        pytest.param(JSONResponse({"id": "c", "choices": [{"index": 0}]}), id="no message"),
        pytest.param(JSONResponse([]), id="list"),
        pytest.param(PlainTextResponse("<html>"), id="page"),
    ],
)
def test_openai_policy_reports_an_answer_without_choices(endpoint, answer):
    assert "no choices" in str(failing(endpoint, answer))


def test_openai_policy_reports_an_answer_of_invalid_json(endpoint):
    answer = PlainTextResponse('{"choices": ', media_type="application/json")
    assert failing(endpoint, answer).__cause__ is not None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param({"refusal": "I won't."}, "refused: I won't.", id="refusal"),
        pytest.param(completion({}, finish_reason="content_filter"), "was filtered", id="filter"),
    ],
)
def test_openai_policy_reports_a_refusal(endpoint, answer, message):
    assert message in str(failing(endpoint, answer))


def called(function):
    return {"tool_calls": [{"id": "c0", "type": "function", "function": function}]}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(called("f"), id="a call that is text"),
        pytest.param({"tool_calls": ["f"]}, id="a text among calls"),
        pytest.param({"tool_calls": "f"}, id="text for calls"),
        pytest.param({"content": 7}, id="content that is a number"),
        pytest.param(
            completion(replied("4"), logprobs={"content": ["x"]}), id="tokens that are text"
        ),
        pytest.param(completion(replied("4"), logprobs={"content": 5}), id="no list of tokens"),
        pytest.param(completion({}, choices={"a": 1}), id="choices by name"),
        pytest.param(completion({}, choices=["x"]), id="a choice that is text"),
        pytest.param(
            completion({}, choices=[{"index": 0, "message": "x"}]), id="a message that is text"
        ),
    ],
)
def test_openai_policy_raises_policy_error_for_an_invalid_answer(endpoint, answer):
    assert str(failing(endpoint, answer)).startswith(("the answer of m ", "the message of m "))


def test_openai_policy_returns_a_call_with_invalid_arguments(endpoint):
    action = ask(endpoint, called({"name": "guess", "arguments": 7})).action
    assert action["arguments"] == {}
    assert "not valid JSON" in action["arguments_error"]


def test_openai_policy_retries_a_failure(endpoint):
    down = JSONResponse({"error": {}}, 500, headers={"retry-after-ms": "1"})
    assert ask(endpoint, down, replied("42"), max_retries=1).raw_output == "42"
    assert len(endpoint.asked) == 2


# Clients


def test_openai_policy_does_not_close_a_client_that_was_passed(endpoint):
    async def main():
        async with openai.AsyncOpenAI(base_url=endpoint.url, api_key="k2") as client:
            async with OpenAIPolicy("m", client=client) as policy:
                await policy.get_action("?")
            assert not client.is_closed()

    run(main())
    assert endpoint.keys == ["Bearer k2"]


def test_openai_policy_closes_its_own_client(endpoint):
    async def main():
        async with OpenAIPolicy("m", base_url=endpoint.url) as policy:
            assert not policy._client.is_closed()
        assert policy._client.is_closed()

    run(main())


def test_openai_policy_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ImportError, match=r"pip install 'guerdon\[judge\]'"):
        OpenAIPolicy("m")


def test_openai_policy_without_a_key_raises(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidArgumentError, match="api_key"):
        OpenAIPolicy("m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"client": object(), "api_key": "k"}, "pass either", id="client and key"),
        pytest.param({"max_retries": -1}, "`max_retries` must be", id="retries"),
        pytest.param({"timeout": 0}, "`timeout` must be a number of seconds above 0", id="timeout"),
        pytest.param({"stream": True}, r"sets \['stream'\] itself", id="stream"),
        pytest.param({"messages": []}, r"sets \['messages'\] itself", id="messages"),
    ],
)
def test_openai_policy_rejects_invalid_arguments(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        OpenAIPolicy("m", **options)


# In a worker


class Guess(Action):
    number: int


class Hint(Observation):
    text: str


class Right(Rubric):
    def forward(self, action, observation):
        return float(action.number == 7)


class Guessing(Environment[Guess, Hint, State]):
    tools = TOOLS

    def __init__(self):
        super().__init__(rubric=Right())

    def reset(self, seed=None, **kwargs):
        return Hint(text="Which number?")

    def step(self, action, **kwargs):
        return self.score(action, Hint(text="hm", done=action.number == 7))

    @property
    def state(self):
        return State()


def arguments(action):
    if "arguments_error" in action:
        return {"number": -1}
    return action["arguments"]


def test_openai_policy_plays_a_group(endpoint):
    def answer(request):
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        return calls('{"number": 7}' if turn else '{"number": 3')

    async def main():
        endpoint.answers = [answer]
        async with OpenAIPolicy("m", base_url=endpoint.url) as policy:
            worker = RLRolloutWorker(Guessing, policy, max_steps=3, to_action=arguments)
            return await worker.run_group({"id": "q"}, 3, seed=1)

    for record in run(main()):
        assert (record.ended, record.error) == ("done", None)
        assert record.env_rewards == [0.0, 1.0]
        roles = [message.role for message in record.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "tool"]
        assert "not valid JSON" in record.steps[0].action_taken["arguments_error"]
        [call] = record.messages[1].tool_calls
        assert call["function"]["arguments"] == '{"number": 3'
        json.dumps(record.to_row(), allow_nan=False)
    # vLLM, SGLang and llama.cpp refuse a conversation whose arguments are not JSON.
    for request in endpoint.asked[3:]:
        [call] = request["messages"][1]["tool_calls"]
        sent = json.loads(call["function"]["arguments"])
        assert sent == {"invalid_arguments": '{"number": 3'}


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("", {}),
        ("{}", {}),
        ('{"number": 3}', {"number": 3}),
        ("[3]", {"invalid_arguments": "[3]"}),
        ('{"number": NaN}', {"invalid_arguments": '{"number": NaN}'}),
    ],
)
def test_openai_policy_sends_arguments_that_are_json_objects(endpoint, written, sent):
    function = {"name": "guess", "arguments": written}
    call = {"id": "c0", "type": "function", "function": function}
    message = Message(role="assistant", content=None, tool_calls=[call])
    ask(endpoint, replied("42"), messages=[Message(role="user", content="?"), message])
    [asked] = endpoint.asked
    [call] = asked["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == sent
    assert message.tool_calls[0]["function"]["arguments"] == written


def test_openai_policy_cancelled_episode_disconnects_from_the_endpoint(endpoint):
    async def main():
        endpoint.answers = ["sleep"]
        endpoint.is_asleep.clear()
        async with OpenAIPolicy("m", base_url=endpoint.url) as policy:
            worker = RLRolloutWorker(Guessing, policy, max_steps=3)
            task = asyncio.ensure_future(worker.run())
            assert await asyncio.to_thread(endpoint.is_asleep.wait, SOON)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_openai_policy_failing_endpoint_ends_the_episode_with_an_error(endpoint):
    async def main():
        endpoint.answers = [calls('{"number": 3}'), JSONResponse({"error": {}}, 400)]
        async with OpenAIPolicy("m", base_url=endpoint.url, max_retries=0) as policy:
            worker = RLRolloutWorker(Guessing, policy, max_steps=3, to_action=arguments)
            return await worker.run()

    record = run(main())
    assert (record.ended, len(record.steps)) == ("error", 1)
    assert (
        "the policy at step 1: PolicyError: m returned no answer: BadRequestError" in record.error
    )
