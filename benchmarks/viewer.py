"""The index and the server of ``guerdon view``.

The time of the index is compared with ``json.loads`` of every line. The memory of the server is its
peak: it reads a file of rows and one of rollouts, and answers what the page asks for. The words of
the rollouts are drawn from 5,000.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.request import build_opener

from benchmarks.timing import Counted, Findings, Measured, take_turns

MEGABYTES = 200
ROUNDS = 3
INDEX_BYTES = 60_000_000  # of the files that are timed
ROOT = Path(__file__).resolve().parent.parent


def run(megabytes: int = MEGABYTES) -> Findings:
    """Run the benchmark.

    Args:
        megabytes: The size of the file of rows that is served.
    """
    with tempfile.TemporaryDirectory(prefix="guerdon-bench-") as name:
        folder = Path(name)
        rows, rollouts = folder / "rows.jsonl", folder / "rollouts.jsonl"
        found = Findings()
        for path, lines in ((rows, made_rows()), (rollouts, made_rollouts())):
            count = write_rows(path, lines, INDEX_BYTES)
            line = Measured(f"index of {path.stem}", "json.loads of each line", 1.5, per=count,
                            unit="row")  # fmt: skip
            line.pairs = take_turns(_indexing(path), _loading(path), ROUNDS)
            found.lines.append(line)
        write_rows(rows, made_rows(), megabytes * 1_000_000)
        found.lines.append(_memory(rows, rollouts))
    return found


# Files -------------------------------------------------------------------------------------------


def _words() -> Callable[[int], str]:
    rng = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgk"
    known = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(5000)]
    weights = [1 / place for place in range(1, 5001)]  # as in a language
    return lambda count: " ".join(rng.choices(known, weights, k=count))


def made_rows() -> Iterator[dict[str, Any]]:
    """Yield result rows with the advantages of their steps, in groups of 8."""
    rng = random.Random(1)
    number = 0
    while True:
        score, style = float(rng.random() < 0.5), round(rng.random(), 6)
        turns = rng.randint(1, 6)
        steps = [
            {"step_index": step, "advantage": rng.gauss(0.0, 1.0), "return_to_go": score}
            for step in range(turns)
        ]
        yield {
            "id": f"rollout-{number}", "group": number // 8, "score": score + style,
            "is_score_valid": True, "components": {"right": score, "style": style},
            "step_rewards": [0.0] * (turns - 1) + [score + style], "error": None,
            "fingerprint": "0123456789abcdef", "steps": steps,
        }  # fmt: skip
        number += 1


def made_rollouts(messages: int = 6) -> Iterator[dict[str, Any]]:
    """Yield the rollouts of the rows."""
    words, number = _words(), 0
    while True:
        roles = ("user", "assistant") * (messages // 2)
        conversation = [{"role": role, "content": words(60)} for role in roles]
        yield {"id": f"rollout-{number}", "group": number // 8, "messages": conversation}
        number += 1


def write_rows(
    path: Path, rows: Iterator[dict[str, Any]], size: float = float("inf"), *, most: int = 10**9
) -> int:
    """Write rows until the file has a size or a number of rows; return the number."""
    count = 0
    with path.open("w") as file:
        while count < most and file.tell() < size:
            for _ in range(min(1000, most - count)):
                file.write(json.dumps(next(rows)) + "\n")
                count += 1
    return count


# Measurements ------------------------------------------------------------------------------------


def _indexing(path: Path) -> Callable[[], float]:
    from guerdon.viewer import FileIndex

    def index() -> float:
        with tempfile.TemporaryDirectory() as cache:
            start = perf_counter()
            FileIndex(path, cache=Path(cache)).close()
            return perf_counter() - start

    return index


def _loading(path: Path) -> Callable[[], float]:
    def load() -> float:
        start = perf_counter()
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
        return perf_counter() - start

    return load


def start_view(rows: Path, *options: str) -> tuple[subprocess.Popen[str], re.Match[str] | None]:
    """Start ``guerdon view``; return the process, and its address and its token if it starts."""
    command = [sys.executable, "-m", "guerdon", "view", str(rows), "--no-open", *options]
    environment = os.environ | {"XDG_CACHE_HOME": str(rows.parent / "cache")}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, re.search(r"(http://\S+/)\?token=(\S+)", process.stdout.readline())


def _memory(rows: Path, rollouts: Path) -> Counted:
    """The peak memory of a server that has answered what the page asks for."""
    size = rows.stat().st_size + rollouts.stat().st_size
    line = Counted(f"memory of guerdon view, {size / 1e6:,.0f} MB", "200 MB", 200e6, unit="B")
    process, announced = start_view(rows, "--rollouts", str(rollouts))
    try:
        if announced is not None:
            _ask(announced[1], announced[2])
    finally:
        process.terminate()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.communicate()
    if announced is None:
        line.missing = "it did not start"
        return line
    line.ours = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return line


def _ask(base: str, token: str) -> None:
    """Ask for everything that the page asks for."""
    browser = build_opener()
    browser.addheaders = [("authorization", f"Bearer {token}")]
    [file] = json.load(browser.open(f"{base}api/files", timeout=600))["files"]
    names = [each["name"] for each in file["columns"] if each["type"] != "text"]
    columns = "&".join(f"names={name}" for name in names)
    last = file["rows"] - 1
    for query in (f"columns?file=0&{columns}", "order?file=0&by=id", "search?file=0&q=etaoin",
                  f"rows?file=0&at=0,{last // 2},{last}", "join?file=0&other=0"):  # fmt: skip
        with browser.open(f"{base}api/{query}", timeout=600) as answer:
            while answer.read(2**20):
                pass
