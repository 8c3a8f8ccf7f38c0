"""What `RLRolloutWorker` has to record, whoever's environment it plays: for both interpreters.

Their environment and ours say what they are told, as ``echoed``, and are done with "bye".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from guerdon import RLRolloutWorker, ScriptedPolicy
from guerdon.rollouts import RolloutRecord
from interop.checks import holds, same

WORDS = ("hello", "hi please", "bye")
# What they give for these: theirs a tenth for each character, ours as `Manners` has it.
THEIR_REWARDS = (0.5, 0.9, 0.3)
OUR_REWARDS = (0.25 * 11 / 16, 0.75 + 0.25 * 7 / 16, 0.25 * 13 / 16)

SEED = 7
STEPS = 5  # of an episode, at most, where that isn't what ends it
GROUP = 4


def script(*words: str, say: Callable[..., Any] = dict) -> ScriptedPolicy:
    """A policy of some words, one per turn; `say` makes an action of a `message`."""
    return ScriptedPolicy([say(message=word) for word in words])


def check_endings(env: Any, rewards: Sequence[float], *, say: Callable[..., Any] = dict) -> None:
    """Play an episode to each end that it may have, and look at what was recorded.

    Args:
        env: What makes environments, or one.
        rewards: What it gives for `WORDS`.
        say: Makes the action of a `message`.

    Raises:
        AssertionError: Something else was recorded.
    """
    given = list(rewards)
    stop = ScriptedPolicy([say(message=WORDS[0]), {"type": "terminate"}])
    for ended, policy, max_steps, wanted in (
        ("done", script(*WORDS, say=say), STEPS, given),
        ("max_steps", script(*WORDS, say=say), 2, given[:2]),
        ("terminate", stop, STEPS, [given[0], None]),
    ):
        worker = RLRolloutWorker(env, policy, max_steps=max_steps)
        record = worker.run_sync(seed=SEED, rollout_id=f"ep-{ended}")
        same("id and seed", (record.id, record.seed), (f"ep-{ended}", SEED))
        check_record(record, ended=ended, rewards=wanted)
        same("the seed that arrived", record.steps[0].observation_data["seed"], SEED)


async def check_group(env: Callable[[], Any], rewards: Sequence[float]) -> None:
    """Play four episodes of a task at once, and look at what was recorded.

    Args:
        env: What makes environments.
        rewards: What they give for `WORDS`.

    Raises:
        AssertionError: Something else was recorded.
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
        same("what reset was given", (seen["seed"], seen["level"]), (record.seed, 3))
        same("ground_truth", record.ground_truth, "hello")


def check_record(
    record: RolloutRecord, *, ended: str, rewards: list[Any], first: str | None = None
) -> None:
    """Look at the record of an episode with the first of `WORDS`.

    Args:
        record: The record.
        ended: Why the episode ended.
        rewards: What the environment gave, one a step.
        first: The text of the task; None: the conversation begins with the first observation.

    Raises:
        AssertionError: Something else was recorded.
    """
    steps = record.steps
    same("ended", (record.ended, record.error), (ended, None))
    same("rewards", [step.step_info["env_reward"] for step in steps], rewards)
    numbers = list(range(len(rewards)))
    same("turns", [step.step_info["assistant_turn_index"] for step in steps], numbers)
    same("system_step_index", [step.system_step_index for step in steps], numbers)
    is_last = [ended != "max_steps" and number == numbers[-1] for number in numbers]
    same("is_done", [step.is_done for step in steps], is_last)
    told = len(rewards) - (ended == "terminate")  # the environment; a terminate isn't sent
    metadata = [step.step_info.get("env_metadata", {}) for step in steps]
    same("metadata", [each["turn"] for each in metadata[:told]], [n + 1 for n in range(told)])
    holds("components", metadata, all(each["reward_components"] for each in metadata[:told]))
    same("observations", [step.observation_data["echoed"] for step in steps],
         ["", *WORDS][: len(steps)])  # fmt: skip
    _check_conversation(record, WORDS[:told], first=first)


def _check_conversation(record: RolloutRecord, words: Sequence[str], *, first: str | None) -> None:
    """Look at messages that alternate; the last turn of a terminate isn't answered."""
    texts = [message.text for message in record.messages]
    spoken, shown = texts[1::2], texts[2::2]
    same("roles", [message.role for message in record.messages],
         ["user" if number % 2 == 0 else "assistant" for number in range(len(texts))])  # fmt: skip
    if first is None:
        same("the first message", json.loads(texts[0])["echoed"], "")
    else:
        same("the first message", texts[0], first)
    same("said", [json.loads(text)["message"] for text in spoken[: len(words)]], list(words))
    same("answered", [json.loads(text)["echoed"] for text in shown], list(words))
    same("raw outputs", [step.raw_policy_output for step in record.steps], spoken)
    taken = [step.action_taken.get("message") for step in record.steps]
    same("actions", taken, [json.loads(text).get("message") for text in spoken])
    ends = [len(step.resulting_messages_history) for step in record.steps]
    same("histories", ends, [min(2 * n + 3, len(texts)) for n in range(len(spoken))])


def check_error(env: Any, said: str) -> None:
    """Play an episode that breaks at its second step: the first one is kept, with the error.

    Args:
        env: What makes environments, or one.
        said: What the error says.

    Raises:
        AssertionError: Something else was recorded.
    """
    record = RLRolloutWorker(env, script("hello", "break"), max_steps=STEPS).run_sync()
    same("ended", record.ended, "error")
    holds("error", record.error, "step 1: " in str(record.error) and said in str(record.error))
    same("rewards", len(record.env_rewards), 2)
    same("the last reward", record.env_rewards[1], None)
    same("the step's error", record.steps[1].step_info["error"], record.error)
    same("is_done", [step.is_done for step in record.steps], [False, False])
    same("roles", [message.role for message in record.messages][-2:], ["user", "assistant"])
