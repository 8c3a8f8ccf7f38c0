"""Converts a file of model solutions into rollouts, one for each problem and model.

The file has the layout of the GSM8K model solutions: each line is a problem with ``question``,
``ground_truth`` (a worked solution with the answer after ``A:``) and, for each model,
``{"is_correct": bool, "solution": str}``.

Run it to write the rollouts to standard output::

    python -m examples.gsm8k.rollouts sample.jsonl > rollouts.jsonl
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rollouts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rollouts of a file of model solutions.

    Args:
        path: The file.

    Yields:
        Rows for ``guerdon score``. The solutions of a problem share a group; ``model`` is the
        author, and ``is_correct`` the published verdict.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            problem = json.loads(line)
            for model, written in problem.items():
                if not isinstance(written, dict):
                    continue
                yield {
                    "id": f"{number}/{model}",
                    "group": number,
                    "model": model,
                    "messages": [
                        {"role": "user", "content": problem["question"]},
                        {"role": "assistant", "content": written["solution"]},
                    ],
                    "ground_truth": problem["ground_truth"],
                    "is_correct": written["is_correct"],
                }


def solutions() -> Path:
    """Return the path of the published solutions, or of this example's sample if it is missing.

    It is searched in ``$GUERDON_DATA/gsm8k``, then in ``shared/data/gsm8k`` beside the checkout.
    """
    beside = HERE.parents[2] / "shared" / "data"
    for folder in (os.environ.get("GUERDON_DATA"), beside):
        if folder and (found := Path(folder) / "gsm8k" / "model_solutions.jsonl").is_file():
            return found
    return HERE / "sample.jsonl"


if __name__ == "__main__":
    for row in rollouts(Path(sys.argv[1]) if len(sys.argv) > 1 else solutions()):
        print(json.dumps(row, ensure_ascii=False))
