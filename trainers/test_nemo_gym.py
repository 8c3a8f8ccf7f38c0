"""`guerdon.integrations.nemo_gym` with the servers and the rollout collection of NeMo Gym."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import uvicorn
from fastapi import FastAPI, Request
from nemo_gym import server_utils
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from omegaconf import OmegaConf
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

from guerdon import NumericAnswer, WeightedSum, reward_function
from guerdon.integrations.nemo_gym import resources_server
from trainers.agreement import ROLLOUTS
from trainers.gym_models import message, task
from trainers.locks import AsyncJudge, Judge, tree
from trainers.rollouts import make_reward, texts


@asynccontextmanager
async def served(app, configured, name, kind):
    """Serve an application; add its address to the configuration."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    place = {"host": "127.0.0.1", "port": server.servers[0].sockets[0].getsockname()[1]}
    configured[name] = {kind: {name: place}}
    yield
    server.should_exit = True
    await task


def model_of(answer):
    """Return a model server, whose output items are those of `answer` for the input items."""
    app = FastAPI()

    @app.post("/v1/responses")
    async def responses(request: Request):
        given = (await request.json())["input"]
        return task("", *answer(given))["response"]

    return app


def app_of(server, client, name, **references):
    """Return the application of a server, as `run_webserver` makes it."""
    config_class = SimpleAgentConfig if references else BaseResourcesServerConfig
    place = {"host": "127.0.0.1", "port": 0, "entrypoint": "app.py", "name": name}
    made = server(config=config_class(**place, **references), server_client=client)
    app = made.setup_webserver()
    made.setup_exception_middleware(app)
    return app


@asynccontextmanager
async def gym(server, answer=lambda given: [message("A: 42")]):
    """Serve a resources server, a simple agent and a model; yield a client."""
    configured = OmegaConf.create()
    head = BaseServerConfig(host="127.0.0.1", port=0)
    client = ServerClient(head_server_config=head, global_config_dict=configured)
    references = {
        "resources_server": {"type": "resources_servers", "name": "words"},
        "model_server": {"type": "responses_api_models", "name": "model"},
    }
    session = server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())
    agent = app_of(SimpleAgent, client, "agent", **references)
    words = app_of(server, client, "words")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(words, configured, "words", "resources_servers"))
        await stack.enter_async_context(served(agent, configured, "agent", "responses_api_agents"))
        model = model_of(answer)
        await stack.enter_async_context(served(model, configured, "model", "responses_api_models"))
        yield client
        await session.close()
    server_utils._GLOBAL_AIOHTTP_CLIENT = None  # each test has a loop of its own


async def post(client, name, path, body):
    response = await client.post(server_name=name, url_path=path, json=body)
    await raise_for_status(response)
    return await get_response_json(response)


def echo(given):
    """Answer with the last message of the user."""
    return [message(given[-1]["content"])]


def run_tasks(server, prompts, answer=echo, **fields):
    """Run the agent once for each prompt; return the result, or the exception."""

    async def run_all():
        async with gym(server, answer) as client:
            tasks = [
                {"responses_create_params": {"input": prompt}, "expected_answer": "42", **fields}
                for prompt in prompts
            ]
            runs = (post(client, "agent", "/run", each) for each in tasks)
            return await asyncio.gather(*runs, return_exceptions=True)

    return asyncio.run(run_all())


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_resources_server_verifies_the_rollouts_of_an_agent(judge):
    right, wrong, failed = run_tasks(resources_server(tree(judge)), ["A: 42", "A: 41", "down"])
    assert [right["reward"], wrong["reward"]] == [1.0, 0.0]
    assert right["reward/rubric_1"] == 1.0
    assert right["reward_fingerprint"] == tree(judge).fingerprint()
    assert not right["mask_sample"]
    assert failed.status == 500
    assert b"the judge is down" in failed.response_content


def test_resources_server_passes_what_marks_a_failed_reward_through_the_agent():
    [failed] = run_tasks(resources_server(tree(), on_invalid=0.5), ["down"])
    assert failed["reward"] == 0.5
    assert failed["reward/rubric_1"] is None
    assert failed["reward_components"] is None
    assert failed["instance_config"] == {"mask_sample": True}  # where NeMo RL reads it
    assert "the judge is down" in failed["failure_reason"]


def test_resources_server_returns_components_as_nemo_rl_requires_them():
    reward = WeightedSum([NumericAnswer(), Judge()], weights=[1.0, 0.25])
    for row in run_tasks(resources_server(reward), ["A: 42", "A: 41"]):
        parts = row["reward_components"]
        assert [*parts] == ["rubric_0", "rubric_1"]
        assert sum(parts.values()) == pytest.approx(row["reward"])


def test_resources_server_scores_reasoning_and_calls_of_its_own_tools():
    seen = []

    @reward_function
    def scored(messages):
        seen.extend(each.to_openai() for each in messages)
        return 1.0

    class Calculator(resources_server(scored)):
        def setup_webserver(self):
            app = super().setup_webserver()

            @app.post("/multiply")
            async def multiply(body: dict[str, int]):
                return body["a"] * body["b"]

            return app

    def answer(given):
        if given[-1].get("type") == "function_call_output":
            return [message(f"A: {given[-1]['output']}")]
        arguments = {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}
        thought = {"type": "summary_text", "text": "I multiply."}
        return [
            {"type": "reasoning", "id": "r", "summary": [thought]},
            {"type": "function_call", "call_id": "c", **arguments},
        ]

    [row] = run_tasks(Calculator, ["6 × 7?"], answer)
    assert row["reward"] == 1.0
    asked, called, output, answered = seen
    assert asked == {"role": "user", "content": "6 × 7?"}
    assert called["reasoning_content"] == "I multiply."
    assert called["tool_calls"][0]["function"]["name"] == "multiply"
    assert output == {"role": "tool", "tool_call_id": "c", "content": "42"}
    assert answered == {"role": "assistant", "content": "A: 42"}


def test_rollout_collection_counts_no_failed_reward(tmp_path):
    rows = [
        {"responses_create_params": {"input": text}, "expected_answer": "42"}
        for text in ("A: 42", "A: 41", "down", "A: 42")
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def collect():
        async with gym(resources_server(tree(), on_invalid=0.0), echo) as client:

            class Collection(RolloutCollectionHelper):
                def setup_server_client(self, head_server_config=None):
                    return client

            config = RolloutCollectionConfig(
                agent_name="agent",
                input_jsonl_fpath=str(tmp_path / "tasks.jsonl"),
                output_jsonl_fpath=str(tmp_path / "rollouts.jsonl"),
            )
            await Collection().run_from_config(config)

    asyncio.run(collect())
    kept, failed = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("rollouts.jsonl", "rollouts_failures.jsonl")
    )
    assert sorted(row["reward"] for row in kept) == [0.0, 1.0, 1.0]
    assert [row["_ng_failure_class"] for row in failed] == ["reward_failed"]
    [metrics] = json.loads((tmp_path / "rollouts_aggregate_metrics.json").read_text())
    assert metrics["agent_metrics"]["mean/reward"] == pytest.approx(2 / 3)
    assert metrics["agent_metrics"]["mean/reward/rubric_1"] == pytest.approx(2 / 3)


def test_verify_gives_the_scores_of_the_reward(agrees):
    async def verify(client, row):
        prompt, text = texts(row)
        body = task(prompt, message(text), expected_answer=row["ground_truth"])
        return (await post(client, "words", "/verify", body))["reward"]

    async def verify_all():
        async with gym(resources_server(make_reward())) as client:
            calls = (verify(client, row) for row in ROLLOUTS)
            return await asyncio.gather(*calls, return_exceptions=True)

    arrived = asyncio.run(verify_all())
    agrees("NeMo Gym, `ServerClient`", arrived, failures="`ClientResponseError`")
