"""A thousand rollouts, and a reward that fails for 5 % of them, to compare trainers with."""

from __future__ import annotations

import random
from typing import Any

from guerdon import Gate, LengthBounds, NumericAnswer, Rubric, Sequential, WeightedSum

GROUPS, SIZE, FAILURES = 125, 8, 50
TIMEOUT = "(the judge times out)"


class Judge(Rubric):
    """The share of different words; the judge doesn't answer for a text that says so."""

    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        """Score a text."""
        if TIMEOUT in action.content:
            raise TimeoutError("the judge did not answer")
        words = action.content.split()
        return len(set(words)) / len(words)


def make_reward() -> WeightedSum:
    """Return the reward: a gate, a check and a judge."""
    short = Gate(LengthBounds(1, 14, unit="words"))
    return WeightedSum([Sequential(short, NumericAnswer()), Judge()], weights=[1.0, 0.25])


reward = make_reward()


def make_rollouts(seed: int = 0) -> list[dict[str, Any]]:
    """Return the rollouts, group by group.

    Args:
        seed: The seed.
    """
    draw = random.Random(seed)
    failed = set(draw.sample(range(GROUPS * SIZE), FAILURES))
    rollouts = []
    for number in range(GROUPS * SIZE):
        group = number // SIZE
        if number % SIZE == 0:
            left, right = draw.randrange(2, 60), draw.randrange(2, 60)
        answer = left + right + draw.choice((0, 0, 1))
        filler = draw.choices(("so", "well", "then"), k=draw.randrange(12))
        words = [*filler, f"{left} + {right} = {answer}", f"A: {answer}"]
        completion = " ".join([*words, TIMEOUT] if number in failed else words)
        prompt = f"Question {group}: {left} and {right}?\n"
        rollouts.append(
            {
                "id": str(number), "group": str(group), "ground_truth": str(left + right),
                "messages": [
                    {"role": "user", "content": prompt},
                    {"role": "assistant", "content": completion},
                ],
            }
        )  # fmt: skip
    return rollouts


def texts(rollout: dict[str, Any]) -> tuple[str, str]:
    """Return the prompt and the completion of a rollout."""
    prompt, completion = rollout["messages"]
    return prompt["content"], completion["content"]
