"""Checks of the records of `RLRolloutWorker` in any environment, for both interpreters.

Their environment and ours return the text of an action as ``echoed``, and end with "bye".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from guerdon import RLRolloutWorker, ScriptedPolicy
from guerdon.rollouts import RolloutRecord
from interop.checks import same, true

WORDS = ("hello", "hi please", "bye")
# The rewards for these words: theirs are 0.1 per character, ours those of `Manners`.
THEIR_REWARDS = (0.5, 0.9, 0.3)
OUR_REWARDS = (0.25 * 11 / 16, 0.75 + 0.25 * 7 / 16, 0.25 * 13 / 16)

SEED = 7
STEPS = 5  # more than an episode has
GROUP = 4


def script(*words: str, make_action: Callable[..., Any] = dict) -> ScriptedPolicy:
    """Return a policy that sends one word per turn, as actions created by `make_action`."""
    return ScriptedPolicy([make_action(message=word) for word in words])


def check_endings(
    env: Any, rewards: Sequence[float], *, make_action: Callable[..., Any] = dict
) -> None:
    """Play an episode to each possible end, and check the records.

    Args:
        env: An environment, or a function that creates one.
        rewards: The rewards for `WORDS`.
        make_action: Creates an action with a `message`.

    Raises:
        AssertionError: A record is wrong.
    """
    all_rewards = list(rewards)
    stop = ScriptedPolicy([make_action(message=WORDS[0]), {"type": "terminate"}])
    for ended, policy, max_steps, expected in (
        ("done", script(*WORDS, make_action=make_action), STEPS, all_rewards),
        ("max_steps", script(*WORDS, make_action=make_action), 2, all_rewards[:2]),
        ("terminate", stop, STEPS, [all_rewards[0], None]),
    ):
        worker = RLRolloutWorker(env, policy, max_steps=max_steps)
        record = worker.run_sync(seed=SEED, rollout_id=f"ep-{ended}")
        same("id and seed", (record.id, record.seed), (f"ep-{ended}", SEED))
        check_record(record, ended=ended, rewards=expected)
        same("the seed that arrived", record.steps[0].observation_data["seed"], SEED)


async def check_group(env: Callable[[], Any], rewards: Sequence[float]) -> None:
    """Play four episodes of a task concurrently, and check the records.

    Args:
        env: A function that creates environments.
        rewards: The rewards for `WORDS`.

    Raises:
        AssertionError: A record is wrong.
    """
    task = {
        "id": "q7",
        "messages": [{"role": "user", "content": "Say hello."}],
        "reset": {"level": 3},
        "ground_truth": "hello",
    }
    worker = RLRolloutWorker(env, script(*WORDS), max_steps=STEPS)
    records = await worker.run_group(task, GROUP)
    same("seeds", len({record.seed for record in records}), 1)
    name = f"q7:{records[0].seed}"
    same("ids", [record.id for record in records], [f"{name}-{number}" for number in range(GROUP)])
    same("groups", {record.group for record in records}, {name})
    for record in records:
        check_record(record, ended="done", rewards=list(rewards), first="Say hello.")
        seen = record.steps[0].observation_data
        same("the arguments of reset", (seen["seed"], seen["level"]), (record.seed, 3))
        same("ground_truth", record.ground_truth, "hello")


def check_record(
    record: RolloutRecord, *, ended: str, rewards: list[Any], first: str | None = None
) -> None:
    """Check the record of an episode with the first of `WORDS`.

    Args:
        record: The record.
        ended: Why the episode ended.
        rewards: The environment's rewards, one per step.
        first: The text of the task; None: the conversation begins with the first observation.

    Raises:
        AssertionError: A record is wrong.
    """
    steps = record.steps
    same("ended", (record.ended, record.error), (ended, None))
    same("rewards", [step.step_info["env_reward"] for step in steps], rewards)
    numbers = list(range(len(rewards)))
    same("turns", [step.step_info["assistant_turn_index"] for step in steps], numbers)
    same("system_step_index", [step.system_step_index for step in steps], numbers)
    is_last = [ended != "max_steps" and number == numbers[-1] for number in numbers]
    same("is_done", [step.is_done for step in steps], is_last)
    sent = len(rewards) - (ended == "terminate")  # a terminate isn't sent
    metadata = [step.step_info.get("env_metadata", {}) for step in steps]
    same("metadata", [each["turn"] for each in metadata[:sent]], [n + 1 for n in range(sent)])
    true("components", metadata, all(each["reward_components"] for each in metadata[:sent]))
    same("observations", [step.observation_data["echoed"] for step in steps],
         ["", *WORDS][: len(steps)])  # fmt: skip
    _check_conversation(record, WORDS[:sent], first=first)


def _check_conversation(record: RolloutRecord, words: Sequence[str], *, first: str | None) -> None:
    """Check the alternating messages; a terminate has no response."""
    texts = [message.text for message in record.messages]
    sent, received = texts[1::2], texts[2::2]
    same("roles", [message.role for message in record.messages],
         ["user" if number % 2 == 0 else "assistant" for number in range(len(texts))])  # fmt: skip
    if first is None:
        same("the first message", json.loads(texts[0])["echoed"], "")
    else:
        same("the first message", texts[0], first)
    same("sent", [json.loads(text)["message"] for text in sent[: len(words)]], list(words))
    same("received", [json.loads(text)["echoed"] for text in received], list(words))
    same("raw outputs", [step.raw_policy_output for step in record.steps], sent)
    taken = [step.action_taken.get("message") for step in record.steps]
    same("actions", taken, [json.loads(text).get("message") for text in sent])
    ends = [len(step.resulting_messages_history) for step in record.steps]
    same("histories", ends, [min(2 * n + 3, len(texts)) for n in range(len(sent))])


def check_error(env: Any, message: str) -> None:
    """Play an episode whose second step fails, and check that the record has both steps.

    Args:
        env: An environment, or a function that creates one.
        message: A part of the error's message.

    Raises:
        AssertionError: A record is wrong.
    """
    record = RLRolloutWorker(env, script("hello", "break"), max_steps=STEPS).run_sync()
    same("ended", record.ended, "error")
    true("error", record.error, "step 1: " in str(record.error) and message in str(record.error))
    same("rewards", len(record.env_rewards), 2)
    same("the last reward", record.env_rewards[1], None)
    same("the step's error", record.steps[1].step_info["error"], record.error)
    same("is_done", [step.is_done for step in record.steps], [False, False])
    same("roles", [message.role for message in record.messages][-2:], ["user", "assistant"])
