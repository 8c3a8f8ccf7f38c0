"""A Ray cluster on this machine beside its processes: ``guerdon score`` and `EnvPool`.

``guerdon score --engine ray`` is compared with ``--workers``, from a JSONL file to a JSONL file;
both are timed as processes, including their start, and the cluster runs before. A pool in actors is
compared with one in processes, with as many workers. Run it where Ray is installed::

    .venv-cluster/bin/python -m benchmarks --only ray
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks import process_pool, score_command
from benchmarks.timing import Findings, Measured, take_turns

WORKERS = process_pool.WORKERS
SLOTS = 64
ROUNDS = 3
BATCHES = 3
OBJECTS = 200 * 2**20  # bytes of the cluster's store for objects


class Computing(process_pool.Computing):
    """An environment with a step that computes for 10 ms."""

    seconds = 0.010


def run(count: int = score_command.ROWS) -> Findings:
    """Run the benchmark.

    Args:
        count: The number of rows for ``guerdon score``.
    """
    missing = "" if find_spec("ray") else "ray is not installed: make cluster installs it"
    score = Measured(
        f"guerdon score --engine ray, {count:,} rows", f"--workers {WORKERS}", 1 / 0.7,
        per=count, unit="row", missing=missing,
    )  # fmt: skip
    pool = Measured(
        f"EnvPool of {SLOTS} in {WORKERS} Ray actors, 10 ms of Python",
        f"{WORKERS} processes", 1 / 0.8, per=SLOTS * BATCHES, unit="slot", missing=missing,
    )  # fmt: skip
    found = Findings([score, pool])
    if not missing:
        with _cluster():
            _measure_score(score, found, count)
            _measure_pool(pool)
    return found


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    import ray

    ray.init(
        "local", num_cpus=WORKERS, include_dashboard=False, object_store_memory=OBJECTS,
        logging_level="WARNING",
    )  # fmt: skip
    try:
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        yield
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()


def _measure_score(line: Measured, found: Findings, count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="guerdon-bench-") as folder:
        source, ours_out, theirs_out = (
            str(Path(folder) / name) for name in ("rollouts.jsonl", "ours.jsonl", "theirs.jsonl")
        )
        score_command.write_rollouts(source, count)
        command = [str(Path(sys.executable).parent / "guerdon"), "score", source,
                   "--reward", "benchmarks.checks:reward", "--workers", str(WORKERS)]  # fmt: skip
        ours = score_command.Program([*command, "--out", ours_out, "--engine", "ray"])
        theirs = score_command.Program([*command, "--out", theirs_out])
        line.pairs = take_turns(ours.seconds, theirs.seconds, ROUNDS)
        for program in (ours, theirs):
            found.notes += program.failed[:1]
        if not found.notes and not filecmp.cmp(ours_out, theirs_out, shallow=False):
            found.notes.append("guerdon score wrote other rows on Ray")


def _measure_pool(line: Measured) -> None:
    from guerdon.envs import RayBackend

    with asyncio.Runner() as runner:
        actors = process_pool.stepping(
            runner, lambda: RayBackend(Computing, SLOTS, workers=WORKERS), SLOTS, BATCHES
        )
        processes = process_pool.stepping(
            runner, lambda: process_pool.processes(Computing, SLOTS), SLOTS, BATCHES
        )
        line.pairs = take_turns(actors, processes, ROUNDS)
