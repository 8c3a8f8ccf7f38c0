"""`OnRay`: scoring chunks in tasks on a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import uuid
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Self

from guerdon._ray import connect, free_cpus, import_ray
from guerdon.errors import ScoringError
from guerdon.rollouts.scoring.execution import (
    DIED,
    Batches,
    Engine,
    Interrupts,
    OpenScore,
    ScoredChunk,
    open_worker,
    score_in_worker,
)

# A task costs more than a message to a process: its chunks have more batches.
LARGEST = 4096

# Seconds to wait for free CPUs.
START_S = 120.0
# Seconds after which ctrl-C is noticed meanwhile.
WAIT_S = 1.0


class OnRay(Engine):
    """Scores in tasks of a Ray cluster, in a placement group of as many CPUs as there are workers.

    Ray decides where a task runs, and repeats it on another node if its node or process dies.
    After ctrl-C the chunks that are submitted are finished; a second ctrl-C ends them.

    Args:
        open_score: Called once in each process; returns what scores batches there.
        workers: The number of tasks that run at the same time, on a CPU each; None for all CPUs
            that are free.
        interrupts: Where ctrl-C is recorded.

    Raises:
        MissingExtraError: Ray isn't installed.
        ScoringError: On entering: the cluster has too few free CPUs. On leaving: a chunk's process
            died again each time that Ray repeated it.
    """

    largest = LARGEST

    def __init__(
        self, open_score: OpenScore, *, workers: int | None, interrupts: Interrupts
    ) -> None:
        self._ray = import_ray()
        self._open_score, self._workers = open_score, workers
        self._interrupts = interrupts

    def __enter__(self) -> Self:
        ray = self._ray
        self._connected = connect(ray)
        workers = self._workers or free_cpus(ray)
        self.ahead = 2 * workers + 1
        self._group = ray.util.placement_group([{"CPU": 1}] * workers, strategy="SPREAD")
        try:
            self._wait_for_cpus(workers)
        except BaseException:
            self._disconnect()
            raise
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._group)
        self._task = ray.remote(_score_chunk).options(num_cpus=1, scheduling_strategy=strategy)
        self._settings = ray.put((uuid.uuid4().hex, self._open_score, workers, os.getcwd()))
        return self

    def _wait_for_cpus(self, workers: int) -> None:
        deadline = monotonic() + START_S
        while not self._group.wait(WAIT_S):
            if self._interrupts.requested:
                raise KeyboardInterrupt
            if monotonic() > deadline:
                raise ScoringError(
                    f"the cluster had no {workers} free CPUs within {START_S:g} s; use fewer "
                    "workers"
                )

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._disconnect()
        if isinstance(error, self._ray.exceptions.RayTaskError):
            raise error.cause from None
        if isinstance(error, self._ray.exceptions.RayError):
            raise ScoringError(f"{DIED} ({type(error).__name__})") from None

    def submit(self, chunk: Batches) -> Future[ScoredChunk]:
        """Start a task that scores a chunk."""
        future: Future[ScoredChunk] = self._task.remote(self._settings, chunk).future()
        return future

    def finishes(self, future: Future[ScoredChunk]) -> bool:
        """Whether the chunk is finished or will be, which Ray doesn't distinguish."""
        return True

    def _disconnect(self) -> None:
        self._ray.util.remove_placement_group(self._group)  # ends its tasks
        if self._connected:
            self._ray.shutdown()


# In a worker -------------------------------------------------------------------------------------

# The run that the reward of this process belongs to; Ray keeps the process for later tasks.
_run = ""


def _score_chunk(settings: tuple[str, OpenScore, int, str], chunk: Batches) -> ScoredChunk:
    global _run
    run, open_score, workers, folder = settings
    if run != _run:
        with contextlib.suppress(OSError):  # another machine may not have it
            os.chdir(folder)
        open_worker(open_score, workers)
        _run = run
    return score_in_worker(chunk)
