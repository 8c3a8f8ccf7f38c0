"""Normalising an array of 10⁶ rewards of 16 environments with integer IDs.

`RewardNormalizer` validates the array, updates its statistics, and returns the normalised rewards.
It is compared with only numpy's mean and standard deviation of each environment's rewards, without
normalising them. Each round has a new normaliser and a new array.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from benchmarks.timing import Findings, Measured
from guerdon import RewardNormalizer

REWARDS = 1_000_000
ENVIRONMENTS = 16
ROUNDS = 15
OTHER_ROUNDS = 5
SINGLE = 50_000

Columns = tuple[Any, Any]


def run() -> Findings:
    """Run the benchmark."""
    found = Findings()
    name = f"{REWARDS:,} rewards of {ENVIRONMENTS} environments, normalised"
    line = Measured(name, "bare numpy mean and std per environment", 5)
    for number in range(ROUNDS):
        ours, scales = _timed(_ours, _columns(number))
        theirs, expected = _timed(_bare, _columns(number))
        line.pairs.append((ours, theirs))
        if not np.allclose(scales, expected, rtol=1e-12):
            found.notes.append("the normaliser and bare numpy gave different means or deviations")
    found.lines.append(line)
    found.notes.append(_others())
    found.notes.append(_one_by_one())
    return found


def _timed(work: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    """Return the CPU time in seconds, and the result."""
    gc.collect()
    start = process_time()
    result = work(argument)
    return process_time() - start, result


def _columns(seed: int) -> Columns:
    dice = np.random.default_rng(seed)
    env_id = dice.integers(0, ENVIRONMENTS, REWARDS)
    return dice.normal(env_id, 1 + env_id, REWARDS), env_id


def _ours(columns: Columns) -> list[tuple[float, float]]:
    normalizer = RewardNormalizer()
    normalizer(reward=columns[0], env_id=columns[1])
    scales = map(normalizer.scale, range(ENVIRONMENTS))
    return [(scale.center, scale.spread) for scale in scales]


def _bare(columns: Columns) -> list[tuple[float, float]]:
    rewards, env_id = columns
    found = []
    for each in range(ENVIRONMENTS):
        own = rewards[env_id == each]
        found.append((float(own.mean()), float(own.std())))
    return found


def _others() -> str:
    """Return the times of other methods, and of texts as IDs."""
    times = []
    for method in ("min_max", "population", "percentile"):
        times.append(f"{method} {_fastest(method, _columns(0)) * 1e3:.0f} ms")
    rewards, env_id = _columns(0)
    names = [f"environment-{number}" for number in env_id.tolist()]
    times.append(f"mean and std with a list of texts as IDs "
                f"{_fastest('running_mean_std', (rewards, names)) * 1e3:.0f} ms")  # fmt: skip
    return "the same array with other methods: " + ", ".join(times)


def _fastest(method: Any, columns: Columns) -> float:
    rounds = (
        _timed(lambda given: RewardNormalizer(method)(*given), columns) for _ in range(OTHER_ROUNDS)
    )
    return min(seconds for seconds, _ in rounds)


def _one_by_one() -> str:
    """Return the times of normalising a single reward."""
    rewards = _columns(0)[0][:SINGLE].tolist()
    times = []
    for method in ("running_mean_std", "min_max", "population", "percentile"):
        normalizer = RewardNormalizer(method)  # type: ignore[arg-type]

        def each(rewards: list[float], normalizer: RewardNormalizer = normalizer) -> None:
            for reward in rewards:
                normalizer(reward, "chess")

        times.append(f"{method} {_timed(each, rewards)[0] / SINGLE * 1e6:.1f} µs")
    return "a single reward: " + ", ".join(times)
