"""Reward functions for sandboxes, and conversations to score.

This module imports only the standard library, because the baselines run it too.
"""

from __future__ import annotations

import random
import re
from typing import Any

MESSAGES = 20

_ANSWER = re.compile(r"answer: *(-?\d+)")
_STEP = re.compile(r"\d+ [-+*] \d+ = -?\d+")
_WORDS = ("the", "crate", "of", "apples", "goes", "to", "a", "stall", "by", "the", "river", "and",
          "people", "waited", "for", "it", "yet", "3 + 4 = 7", "12 * 2 = 24")  # fmt: skip


def brief(messages: list[Any], ground_truth: str | None = None) -> float:
    """Score the answer, plus a small reward for steps and a small penalty for words."""
    texts = [message.text for message in messages if message.role == "assistant"]
    found = [answer for text in texts for answer in _ANSWER.findall(text)]
    steps = sum(len(_STEP.findall(text)) for text in texts)
    words = sum(len(text.split()) for text in texts)
    right = bool(found) and found[-1] == ground_truth
    return (1.0 if right else 0.2) + min(steps, 20) / 200 - words / 10_000


def wordy(rollouts_messages: list[list[Any]], ground_truths: list[str]) -> list[float]:
    """Score each of a batch like `brief`, minus the words in common with the others."""
    bags = [
        {word for message in messages for word in message.text.split()}
        for messages in rollouts_messages
    ]
    pairs = zip(rollouts_messages, ground_truths, strict=True)
    scores = [brief(messages, truth) for messages, truth in pairs]
    return [
        score - sum(len(bag & other) for other in bags) / 1_000 / len(bags)
        for score, bag in zip(scores, bags, strict=True)
    ]


def conversation(number: int) -> tuple[list[dict[str, str]], str]:
    """Return messages of 50 to 300 letters, with alternating roles, and the right answer."""
    dice = random.Random(number)
    messages = [
        {
            "role": "assistant" if place % 2 else "user",
            "content": " ".join(dice.choices(_WORDS, k=75))[: dice.randint(50, 300)],
        }
        for place in range(MESSAGES)
    ]
    truth = str(dice.randint(-99, 99))
    messages[-1]["content"] += f" answer: {truth}"
    return messages, truth
