"""Reading 10,000 rollouts of 20 messages, and scoring them with a reward function in process.

Scoring is compared with calls of the bare function in a loop over parsed messages. The function
takes about 20 µs; the exact time is printed below the table. Reading is compared with
``json.loads`` on the same lines; each rollout is dropped before the next is read, as in ``guerdon
score``.
"""

from __future__ import annotations

import gc
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from time import process_time
from typing import Any

from benchmarks.timing import Findings, Measured, Pairs, take_turns
from guerdon import Message, Rollout, read_rollouts, reward_function, score_rollouts

ROLLOUTS = 10_000
MESSAGES = 20
SCORING_ROUNDS = 15
READING_ROUNDS = 7

_ANSWER = re.compile(r"answer: *(-?\d+)")
_WORDS = ("the", "crate", "of", "apples", "goes", "to", "a", "stall", "by", "the", "river", "and",
          "people", "waited", "for", "it", "yet")  # fmt: skip


def brief(messages: list[Message], ground_truth: str | None = None, **kwargs: Any) -> float:
    """Score the answer, minus small penalties for words and calls."""
    texts = [message.text for message in messages if message.role == "assistant"]
    found = [answer for text in texts for answer in _ANSWER.findall(text)]
    words = sum(len(text.split()) for text in texts)
    different = len(set(texts[-1].split()))
    calls = sum(len(message.tool_calls or ()) for message in messages)
    right = bool(found) and found[-1] == ground_truth
    return (1.0 if right else 0.2) - words / 10_000 + different / 1_000 - calls / 1_000


scored = reward_function(brief)


def run() -> Findings:
    """Run the benchmark."""
    lines = list(_lines())
    scoring = Measured(
        f"{ROLLOUTS:,} rollouts, a reward function", "the bare function", 1.5, per=ROLLOUTS
    )
    reading = Measured(f"reading {ROLLOUTS:,} rollouts", "json.loads", 4, per=ROLLOUTS)
    scoring.unit = reading.unit = "rollout"
    found = Findings([scoring, reading])
    reading.pairs = take_turns(
        lambda: _timed(lambda: read_rollouts(lines)),
        lambda: _timed(lambda: map(json.loads, lines)),
        READING_ROUNDS,
    )
    kept = [
        _timed(lambda: [list(read_rollouts(lines))]),
        _timed(lambda: [list(map(json.loads, lines))]),
    ]
    found.notes.append(
        "reading them into a list, which the garbage collector traverses: "
        f"{kept[0] / ROLLOUTS * 1e6:.0f} µs/rollout, json.loads {kept[1] / ROLLOUTS * 1e6:.0f} µs"
    )
    scoring.pairs = _score(list(read_rollouts(lines)), found)
    if scoring.theirs is not None:
        found.notes.append(
            f"the bare reward function: {scoring.theirs * 1e6:.1f} µs; the rollouts: "
            f"{sum(map(len, lines)) / ROLLOUTS:,.0f} bytes each"
        )
    return found


def _score(rollouts: list[Rollout], found: Findings) -> Pairs:
    if [row["score"] for row in score_rollouts(scored, rollouts)] != list(_bare(rollouts)):
        found.notes.append("score_rollouts and the bare function gave different scores")
    return take_turns(
        lambda: _timed(lambda: score_rollouts(scored, rollouts)),
        lambda: _timed(lambda: _bare(rollouts)),
        SCORING_ROUNDS,
    )


def _bare(rollouts: list[Rollout]) -> Iterator[float]:
    for rollout in rollouts:
        yield brief(rollout.messages, rollout.columns["ground_truth"])


def _timed(begin: Callable[[], Iterable[Any]]) -> float:
    """Return the CPU time in seconds of a full iteration."""
    gc.collect()
    gc.freeze()  # excludes existing objects from collection
    start = process_time()
    for _ in begin():
        pass
    seconds = process_time() - start
    gc.unfreeze()
    return seconds


def _lines() -> Iterator[bytes]:
    """Yield rollouts as lines of JSONL, with some tool calls of the assistant."""
    dice = random.Random(3)
    for number in range(ROLLOUTS):
        answer = str(dice.randint(-99, 99))
        messages = _messages(dice, number)
        messages[-1]["content"] += f" answer: {answer}"
        row = {"id": f"row-{number}", "group": f"task-{number // 8}", "messages": messages}
        yield json.dumps(row | {"ground_truth": answer}).encode()


def _messages(dice: random.Random, number: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    while len(messages) < MESSAGES:
        messages.append({"role": "user", "content": _text(dice)})
        messages.append({"role": "assistant", "content": _text(dice)})
        if dice.random() < 0.2 and len(messages) <= MESSAGES - 4:  # a call and its answer
            call = f"call_{number}_{len(messages)}"
            messages[-1]["tool_calls"] = [_call(dice, call)]
            messages.append({"role": "tool", "tool_call_id": call, "content": _text(dice)})
            messages.append({"role": "assistant", "content": _text(dice)})
    return messages


def _text(dice: random.Random) -> str:
    return " ".join(dice.choices(_WORDS, k=75))[: dice.randint(50, 300)]


def _call(dice: random.Random, name: str) -> dict[str, Any]:
    arguments = json.dumps({"crate": dice.randint(1, 99), "to": dice.choice(_WORDS)})
    return {"id": name, "type": "function", "function": {"name": "move", "arguments": arguments}}
