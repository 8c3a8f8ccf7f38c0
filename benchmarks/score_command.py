"""``guerdon score --workers 1`` over 10⁶ rows, from a JSONL file to a JSONL file.

It is compared with `benchmarks.plain_script`: ``json.loads``, a plain loop, ``json.dumps``. Both
are timed as processes, including their start. Rows have 400 to 500 bytes, two messages, and three
checks of about 2 µs each. The peak memory of both is printed below the table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from benchmarks.checks import rows
from benchmarks.timing import Findings, Measured, take_turns

ROWS = 1_000_000
ROUNDS = 2
ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Program:
    """A command to time.

    Attributes:
        command: The arguments.
        peak: The peak memory in bytes.
        failed: The messages of failed runs.
    """

    command: list[str]
    peak: int = 0
    failed: list[str] = field(default_factory=list)

    def seconds(self) -> float:
        """Run the command once; return the seconds."""
        with tempfile.TemporaryFile("w+") as output:
            start = perf_counter()
            process = subprocess.Popen(self.command, cwd=ROOT, stdout=output, stderr=output)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                self.failed.append(f"exit {process.returncode}: {output.read()[-300:].strip()}")
        unit = 1 if sys.platform == "darwin" else 1024
        self.peak = max(self.peak, usage.ru_maxrss * unit)
        return seconds


def run(count: int = ROWS) -> Findings:
    """Run the benchmark.

    Args:
        count: The number of rows.
    """
    line = Measured(
        f"guerdon score, {count:,} rows", "json + plain loop", 2.5, per=count, unit="row"
    )
    found = Findings([line])
    with tempfile.TemporaryDirectory(prefix="guerdon-bench-") as folder:
        source, ours_out, theirs_out = (
            str(Path(folder) / name) for name in ("rollouts.jsonl", "ours.jsonl", "theirs.jsonl")
        )
        size = write_rollouts(source, count)
        command = str(Path(sys.executable).parent / "guerdon")
        ours = Program([command, "score", source, "--reward", "benchmarks.checks:reward",
                        "--out", ours_out, "--workers", "1"])  # fmt: skip
        theirs = Program([sys.executable, "-m", "benchmarks.plain_script", source, theirs_out])
        line.pairs = take_turns(ours.seconds, theirs.seconds, ROUNDS if count > 20_000 else 5)
        for program in (ours, theirs):
            found.notes += program.failed[:1]
        if not (ours.failed or theirs.failed) and not _same(ours_out, theirs_out):
            found.notes.append("guerdon score and the plain loop gave different rows")
    found.notes.append(
        f"guerdon score: {size / count:.0f} bytes per row; peak memory "
        f"{ours.peak / 2**20:.0f} MiB, the plain loop's {theirs.peak / 2**20:.0f} MiB"
    )
    return found


def write_rollouts(path: str, count: int) -> int:
    """Write rollouts to a file; return its size in bytes."""
    with open(path, "w", encoding="utf-8") as file:
        for row in rows(count):
            file.write(json.dumps(row) + "\n")
    return os.path.getsize(path)


def _same(ours: str, theirs: str, sample: int = 1_000) -> bool:
    """Return whether the first rows of both files are equal, except for fingerprints."""
    with open(ours) as one, open(theirs) as other:
        for _ in range(sample):
            a, b = one.readline(), other.readline()
            if not a or not b:
                return a == b
            if {**json.loads(a), "fingerprint": ""} != {**json.loads(b), "fingerprint": ""}:
                return False
    return True
