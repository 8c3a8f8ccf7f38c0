"""A plain script instead of ``guerdon score``: read JSON, call the checks, write JSON.

python -m benchmarks.plain_script ROLLOUTS.jsonl OUT.jsonl
"""

from __future__ import annotations

import json
import sys

from benchmarks.checks import WEIGHTS, right, varied, works_it_out
from benchmarks.contestant import Action, Observation


def main(source: str, target: str) -> None:
    first, second, third = WEIGHTS
    with open(source, encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
        for line in lines:
            row = json.loads(line)
            action = Action(row["messages"][-1]["content"])
            observation = Observation(row)
            a = right(action, observation)
            b = works_it_out(action, observation)
            c = varied(action, observation)
            score = a * first + b * second + c * third
            result = {
                "id": row["id"],
                "group": row["group"],
                "score": score,
                "is_score_valid": True,
                "components": {"rubric_0": a, "rubric_1": b, "rubric_2": c},
                "step_rewards": [score],
                "error": None,
                "fingerprint": "0123456789abcdef",
            }
            out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
