"""The checks and rollouts of the scoring benchmarks.

This module doesn't import guerdon at the top, because interpreters without it use this file too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

WEIGHTS = [0.6, 0.25, 0.15]

_ANSWER = re.compile(r"^(?:A:|####) *(-?[\d,]+)$", re.MULTILINE)
_STEP = re.compile(r"\d+ [-+*] \d+ =")


def right(action: Any, observation: Any) -> float:
    """The last answer line has the right number."""
    found = _ANSWER.findall(action.content)
    if not found:
        return 0.0
    truth = float(observation.metadata["ground_truth"])
    answer = float(found[-1].replace(",", ""))
    return 1.0 if abs(answer - truth) <= 1e-6 * max(1.0, abs(truth)) else 0.0


def works_it_out(action: Any, observation: Any) -> float:
    """The answer shows at least two steps."""
    return min(len(_STEP.findall(action.content)), 2) / 2


def varied(action: Any, observation: Any) -> float:
    """The share of distinct words."""
    words = action.content.split()
    return len(set(words)) / len(words) if words else 0.0


CHECKS = [right, works_it_out, varied]


def reward() -> Any:
    """Return the reward for ``guerdon score --reward benchmarks.checks:reward``."""
    from guerdon import WeightedSum

    return WeightedSum(CHECKS, WEIGHTS)


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield rows with a word problem and a solution, of 400 to 500 bytes as JSON."""
    dice = random.Random(7)
    for number in range(count):
        crates, apples, bruised = dice.randint(3, 40), dice.randint(6, 48), dice.randint(1, 17)
        total = crates * apples
        answer = total - bruised + (dice.random() < 0.3)
        question = (
            f"A stall gets {crates} crates with {apples} apples each. {bruised} of the apples are "
            "bruised and go to the pigs. How many are left to sell?"
        )
        solution = (
            f"There are {crates} * {apples} = {total} apples in all the crates. Without those "
            f"that are bruised, {total} - {bruised} = {answer} apples are left.\nA: {answer}"
        )
        yield {
            "id": f"row-{number:07}",
            "group": f"problem-{number // 8:06}",
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": solution},
            ],
            "ground_truth": str(total - bruised),
            "model": "a-model",
        }
