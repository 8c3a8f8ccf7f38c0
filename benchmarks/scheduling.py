"""A simulation of a pool whose slots share workers: `step_batch` and `as_completed`.

A slot belongs to one worker, which runs its slots' steps in the order in which they arrive. What
sends the actions and receives the observations is one process.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

Steps = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool, and what its own work costs.

    Attributes:
        workers: The number of workers; slot i is in worker ``i % workers``.
        lanes: How many steps run at the same time in each worker.
        worker_s: Seconds of a worker for each step, besides the environment's.
        send_s: Seconds of the sender for each step.
        receive_s: Seconds of the sender for each observation.
        batch_s: Seconds of the sender for each batch, or each step of `as_completed`.
    """

    workers: int
    lanes: int = 1
    worker_s: float = 0.0
    send_s: float = 0.0
    receive_s: float = 0.0
    batch_s: float = 0.0


class _Workers:
    """The times at which the lanes of each worker are free."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._free = [[0.0] * pool.lanes for _ in range(pool.workers)]

    def run(self, slot: int, sent: float, seconds: float) -> float:
        """Return when a step ends that is sent at a time."""
        lanes = self._free[slot % self._pool.workers]
        end = max(sent, lanes[0]) + seconds + self._pool.worker_s
        heapq.heapreplace(lanes, end)
        return end


def step_batch(pool: Pool, steps: Steps) -> float:
    """Return the seconds of batches that each wait for their slowest slot.

    Args:
        pool: The pool.
        steps: The seconds of each step: a row for each batch, a column for each slot.
    """
    workers, now = _Workers(pool), 0.0
    for row in steps.tolist():
        now += pool.batch_s + pool.send_s * len(row)
        for end in sorted([workers.run(slot, now, each) for slot, each in enumerate(row)]):
            now = max(now, end) + pool.receive_s
    return now


def as_completed(pool: Pool, steps: Steps) -> float:
    """Return the seconds of the same steps if each slot's next begins as soon as one has ended."""
    workers, order = _Workers(pool), count()
    rounds, slots = steps.shape
    table = steps.tolist()
    now = pool.batch_s + pool.send_s * slots
    ended = [
        (workers.run(slot, now, table[0][slot]), next(order), slot, 0) for slot in range(slots)
    ]
    heapq.heapify(ended)
    while ended:
        end, _, slot, row = heapq.heappop(ended)
        now = max(now, end) + pool.receive_s
        if row + 1 < rounds:
            now += pool.batch_s + pool.send_s
            end = workers.run(slot, now, table[row + 1][slot])
            heapq.heappush(ended, (end, next(order), slot, row + 1))
    return now


def lognormal(mean: float, sigma: float, shape: tuple[int, int], seed: int = 0) -> Steps:
    """Draw step times with a long tail.

    Args:
        mean: Their mean, in seconds.
        sigma: The standard deviation of their logarithm; 0 for steps that all take the mean.
        shape: The number of batches, and of slots.
        seed: Makes them repeatable.
    """
    random = np.random.default_rng(seed)
    return random.lognormal(math.log(mean) - sigma**2 / 2, sigma, shape)


def exponential(mean: float, shape: tuple[int, int], seed: int = 0) -> Steps:
    """Draw exponential step times; see `lognormal`."""
    return np.random.default_rng(seed).exponential(mean, shape)
