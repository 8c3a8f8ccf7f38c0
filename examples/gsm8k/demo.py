"""Scores solutions of word problems with ``guerdon score``, and compares the models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from examples.gsm8k.rollouts import HERE, rollouts, solutions

REWARD = f"{HERE / 'reward.py'}:Solution"
# Where the files for `guerdon view` are written.
FOLDER = Path("runs/gsm8k")


def show(*arguments: str) -> int:
    """Print a guerdon command and run it."""
    shown = " ".join(arg.replace(f"{HERE}/", "examples/gsm8k/") for arg in arguments)
    print(f"$ guerdon {shown}", flush=True)
    command = Path(sys.executable).with_name("guerdon")
    return subprocess.run([command, *arguments], check=False).returncode


def agreement(rows: Iterable[dict[str, Any]], scored: Path) -> str:
    """Return how many verdicts agree with the published ones."""
    with scored.open(encoding="utf-8") as file:
        pairs = [
            (row["is_correct"], json.loads(line)["score"])
            for row, line in zip(rows, file, strict=True)
        ]
    agreeing = sum(score is not None and correct == (score >= 0.8) for correct, score in pairs)
    return f"verdicts that agree with the published ones: {agreeing:,} of {len(pairs):,}"


def main() -> int:
    """Print the tree, score every solution, and compare the verdicts with the published ones."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else solutions()
    print(f"Solutions: {'the sample in ' if source.parent == HERE else ''}{source.name}\n")
    rows = list(rollouts(source))
    FOLDER.mkdir(parents=True, exist_ok=True)
    recorded, scored = FOLDER / "rollouts.jsonl", FOLDER / "scored.jsonl"
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    recorded.write_text("".join(lines), encoding="utf-8")
    status = show("tree", REWARD)
    status |= show(
        "score", str(recorded), "--reward", REWARD, "--out", str(scored), "--trees",
        "--by", "model", "--passing", "0.8",
    )  # fmt: skip
    print(agreement(rows, scored))
    results = map(json.loads, scored.read_text(encoding="utf-8").splitlines())
    example = next(row for row in results if 0.8 <= row["score"] < 1)
    del example["trees"]  # which the page of `guerdon view` shows
    print(f"\nA row of the result:\n{json.dumps(example, indent=2)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
