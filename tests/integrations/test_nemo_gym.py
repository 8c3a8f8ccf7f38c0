"""`guerdon.integrations.nemo_gym`, without NeMo Gym; `make trainers` tests both together."""

import json
import logging
import math
import sys
from statistics import median

import pytest

from guerdon import NumericAnswer, RegexMatch, WeightedSum, reward_function
from guerdon.errors import InvalidArgumentError, MissingExtraError, RewardFunctionError
from guerdon.integrations.nemo_gym import resources_server, to_messages
from tests.integrations.reward_files import write_reward
from trainers import gym_models
from trainers.agreement import ROLLOUTS, advantages, direct
from trainers.gym_models import message, task
from trainers.locks import AsyncJudge, Judge, tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def nemo_gym(monkeypatch):
    """Replaces the module of NeMo Gym that the adapter uses."""
    monkeypatch.setitem(sys.modules, "nemo_gym", gym_models)
    monkeypatch.setitem(sys.modules, "nemo_gym.base_resources_server", gym_models.MODULE)


async def verified(server, *output, prompt="6 × 7?", **fields):
    """Verify a response; return what `verify` adds to it."""
    annotation = server.verify.__annotations__["body"]
    answer = await server().verify(annotation(**task(prompt, *output, **fields)))
    row = answer.model_dump()
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row.pop("response")["output"] == list(output)
    assert row.pop("responses_create_params")["input"] == prompt
    return row


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
async def test_verify_returns_the_reward_and_its_components(nemo_gym, judge):
    server = resources_server(tree(judge))
    assert await verified(server, message("A: 42"), expected_answer="42") == {
        "reward": 1.0,
        "reward/rubric_0": 1.0,
        "reward/rubric_1": 1.0,
        "reward_components": None,
        "reward_fingerprint": tree(judge).fingerprint(),
        "mask_sample": False,
        "failure_reason": None,
    }


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
async def test_verify_raises_if_the_reward_fails(nemo_gym, judge, caplog):
    server = resources_server(tree(judge))
    with pytest.raises(RewardFunctionError, match=r"the reward failed: .*the judge is down"):
        await verified(server, message("down"), expected_answer="42")
    assert [each.levelname for each in caplog.records] == ["ERROR"]


async def test_verify_masks_a_failed_reward_with_the_number_of_on_invalid(nemo_gym):
    server = resources_server(tree(), on_invalid=-2)
    row = await verified(server, message("down"), expected_answer="42")
    assert "the judge is down" in row.pop("failure_reason")
    assert row == {
        "reward": -2.0,
        "reward/rubric_0": None,
        "reward/rubric_1": None,
        "reward_components": None,
        "reward_fingerprint": tree().fingerprint(),
        "mask_sample": True,
        "instance_config": {"mask_sample": True},
        "_ng_failure_class": "reward_failed",
    }


def test_a_masked_reward_of_0_changes_the_advantages_of_its_group():
    """The figures of the page: NeMo RL's statistics of the group contain the number."""
    scores = direct(ROLLOUTS)
    masked = advantages([0.0 if score is None else score for score in scores])
    pairs = zip(advantages(scores), masked, strict=True)
    changes = [abs(number - right) for right, number in pairs if right is not None]
    changed = [change for change in changes if change > 1e-9]
    assert (len(changes), len(changed)) == (950, 286)
    assert (round(median(changed), 1), round(max(changed), 1)) == (0.4, 1.7)


async def test_aggregate_metrics_leaves_out_failed_rewards(nemo_gym):
    server = resources_server(tree(), on_invalid=0)
    rows = [
        await verified(server, message(text), expected_answer="42") for text in ("A: 42", "down")
    ]
    request = gym_models.AggregateMetricsRequest(verify_responses=rows)
    assert await server().aggregate_metrics(request) == [1.0]


@pytest.mark.parametrize("turns", [["A: 42"], ["A: 42", "A: 42", "41"]])
async def test_verify_returns_reward_components_of_a_sum_that_add_up_to_the_reward(nemo_gym, turns):
    server = resources_server(WeightedSum([NumericAnswer(), RegexMatch("A:")], [1.0, -0.25]))
    row = await verified(server, *map(message, turns), expected_answer="42")
    right = sum(turn == "A: 42" for turn in turns)
    added = {"rubric_0": pytest.approx(right), "rubric_1": pytest.approx(-0.25 * right)}
    assert row["reward_components"] == added
    assert row["reward"] == 0.75 * right


async def test_verify_keeps_the_ground_truth_of_a_task_without_the_named_field(nemo_gym):
    row = await verified(resources_server(NumericAnswer()), message("A: 42"), ground_truth="42")
    assert row["reward"] == 1.0


async def test_verify_scores_the_messages_of_the_prompt_and_the_response(nemo_gym):
    seen = {}

    @reward_function
    def scored(messages, topic, first_turn, ground_truth=None):
        seen["messages"] = [each.to_openai() for each in messages]
        return {"score": len(topic), "metrics": {"first": first_turn, "note": ground_truth}}

    prompt = [
        {"role": "developer", "content": "Multiply."},
        {"role": "user", "content": "2 × 2?"},
        message("4"),
        {"role": "user", "content": "6 × 7?"},
    ]
    call = {"type": "function_call", "call_id": "c", "name": "multiply", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "42"}
    fields = {"instructions": "Be brief.", "answer": "42", "verifier_metadata": {"topic": "abc"}}
    server = resources_server(scored, ground_truth="answer")
    row = await verified(server, call, output, message("A: 42"), prompt=prompt, **fields)
    assert (row["reward"], row["reward/first"]) == (3.0, 1.0)
    assert "reward/note" not in row
    function = {"name": "multiply", "arguments": "{}"}
    called = {"id": "c", "type": "function", "function": function}
    assert seen["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Multiply."},
        {"role": "user", "content": "2 × 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "6 × 7?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        {"role": "assistant", "content": "A: 42"},
    ]


async def test_verify_does_not_score_assistant_messages_of_the_prompt(nemo_gym):
    prompt = [{"role": "user", "content": "2 × 2?"}, message("4")]
    server = resources_server(NumericAnswer())
    assert (await verified(server, message("5"), prompt=prompt, expected_answer="4"))["reward"] == 0
    with pytest.raises(RewardFunctionError, match="first_turn"):
        await verified(server, prompt=prompt, expected_answer="4")


async def test_verify_scores_with_the_file_of_a_pipeline(nemo_gym, tmp_path):
    row = await verified(
        resources_server(write_reward(tmp_path)), message("A: 42"), expected_answer="42"
    )
    assert row["reward"] == 1.5
    assert {"reward/words", "reward/correct"} <= row.keys()


def test_to_messages_joins_the_items_of_an_assistant_turn():
    def reasoning(*texts):
        return {"type": "reasoning", "id": "r", "summary": [{"text": text} for text in texts]}

    def call(number):
        return {"type": "function_call", "call_id": number, "name": "f", "arguments": "{}"}

    first, second, third = to_messages(
        [
            *(reasoning("Both", "sides."), message("Looking."), call("1"), call("2")),
            *(reasoning("Now"), reasoning("sure."), message("A: 42")),
            message("Done."),
        ]
    )
    assert [each["id"] for each in first.pop("tool_calls")] == ["1", "2"]
    assert [first, second, third] == [
        {"role": "assistant", "content": "Looking.", "reasoning_content": "Both\nsides."},
        {"role": "assistant", "content": "A: 42", "reasoning_content": "Now\nsure."},
        {"role": "assistant", "content": "Done."},
    ]


def test_to_messages_keeps_parts_that_are_not_texts():
    image = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"}
    content = [{"type": "input_text", "text": "What is it?"}, image]
    [asked] = to_messages([{"role": "user", "content": content}])
    assert asked["content"] == content


def test_resources_server_logs_the_fingerprint(nemo_gym, caplog):
    with caplog.at_level(logging.INFO):
        resources_server(tree())
    assert tree().fingerprint() in caplog.text


def test_resources_server_refuses_rewards_of_batches_and_numbers_that_json_lacks(nemo_gym):
    @reward_function
    def ranked(rollouts_messages):
        return [0.0] * len(rollouts_messages)

    with pytest.raises(RewardFunctionError, match="ranked scores batches"):
        resources_server(ranked)
    with pytest.raises(InvalidArgumentError, match="`on_invalid` must be"):
        resources_server(tree(), on_invalid=math.nan)


def test_resources_server_states_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "nemo_gym.base_resources_server", None)
    with pytest.raises(MissingExtraError, match="pip install nemo-gym"):
        resources_server(tree())
