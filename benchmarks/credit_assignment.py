"""GiGPO over 1,024 trajectories of 50 steps, and the grouping of similar states.

`gigpo` is compared with the same formulas in plain Python loops, whose time is linear in the number
of rows, and with itself on a quarter of the rows. Groups have 8 trajectories and about 170
different states of 400 letters. `group_similar` is compared with greedy grouping by ``difflib``,
without its junk heuristic, on one group of 400 states of 400 letters, each of which differs in a
few letters from one of 100 templates.

Each measurement creates new texts, because a str caches its hash.
"""

from __future__ import annotations

import gc
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from string import ascii_lowercase
from time import process_time
from typing import Any, TypeVar

import numpy as np

from benchmarks.timing import Findings, Measured, Pairs
from guerdon.credit import StepBatch, gigpo
from guerdon.credit.states import group_similar

TRAJECTORIES = 1_024
STEPS = 50
GROUP = 8
POOL = 190  # possible states of a group, of which about 170 occur
LETTERS = 400
GAMMA = 0.95
ROUNDS = 15
LINEAR_ROUNDS = 7

STATES, TEMPLATES = 400, 100
THRESHOLD = 0.95
EDITS = 6
DIFFLIB_ROUNDS = 2

Result = TypeVar("Result")


@dataclass(slots=True)
class Rows:
    """Rows of trajectories: each list has one entry per row."""

    rewards: list[float]
    group: list[str]
    trajectory: list[str]
    step: list[int]
    state: list[str]


def run() -> Findings:
    """Run the benchmark."""
    name = f"gigpo, {TRAJECTORIES:,} × {STEPS} steps"
    against_loops = Measured(name, "plain dicts and loops", 1 / 1.5)
    in_time = Measured(name, "plain dicts and loops", 0.060, absolute=True)
    linear = Measured("gigpo, 4 × the rows", "gigpo, 1 × the rows", 5)
    similar = Measured(f"group_similar, {STATES} states around {TEMPLATES}", "greedy difflib", 0.05)
    found = Findings([against_loops, in_time, linear, similar])
    against_loops.pairs = in_time.pairs = _against_loops(found)
    linear.pairs = [
        (_timed(_ours, _batch(4 * TRAJECTORIES))[0], _timed(_ours, _batch(TRAJECTORIES))[0])
        for _ in range(LINEAR_ROUNDS)
    ]
    similar.pairs = _against_difflib(found)
    return found


def _timed(work: Callable[[Any], Result], argument: Any) -> tuple[float, Result]:
    """Return the CPU time in seconds, and the result."""
    gc.collect()
    start = process_time()
    result = work(argument)
    return process_time() - start, result


# Advantages ------------------------------------------------------------------------------------


def _against_loops(found: Findings) -> Pairs:
    pairs = []
    for number in range(ROUNDS):
        ours, advantages = _timed(_ours, _batch(TRAJECTORIES))
        theirs, expected = _timed(_plain, _batch(TRAJECTORIES))
        pairs.append((ours, theirs))
        if number == 0 and not np.allclose(advantages, expected):
            found.notes.append("gigpo and the plain loops gave different advantages")
    return pairs


def _ours(batch: Rows) -> np.ndarray[Any, Any]:
    steps = StepBatch.from_arrays(
        batch.rewards,
        group=batch.group,
        trajectory=batch.trajectory,
        step=batch.step,
        state=batch.state,
    )
    return gigpo(steps, gamma=GAMMA).advantage


def _plain(batch: Rows) -> list[float]:
    """Compute the same advantages without numpy."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, trajectory in enumerate(batch.trajectory):
        rows_of[trajectory].append(row)
    returns = [0.0] * len(batch.rewards)
    scores_of: dict[str, dict[str, float]] = defaultdict(dict)
    for trajectory, rows in rows_of.items():
        rows.sort(key=batch.step.__getitem__)
        later = score = 0.0
        for row in reversed(rows):
            later = batch.rewards[row] + GAMMA * later
            returns[row] = later
            score += batch.rewards[row]
        scores_of[batch.group[rows[0]]][trajectory] = score
    of_episode: dict[str, float] = {}
    for scores in scores_of.values():
        of_episode.update(zip(scores, _relative(list(scores.values())), strict=True))
    anchors: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(batch.group, batch.state, strict=True)):
        anchors[key].append(row)
    advantages = [of_episode[trajectory] for trajectory in batch.trajectory]
    for rows in anchors.values():
        if len(rows) > 1:
            for row, value in zip(rows, _relative([returns[row] for row in rows]), strict=True):
                advantages[row] += value
    return advantages


def _relative(values: list[float]) -> list[float]:
    """Return the distances from the mean in standard deviations."""
    if len(values) < 2:
        return [0.0] * len(values)
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    scale = variance**0.5 + 1e-6
    return [(value - mean) / scale for value in values]


def _batch(trajectories: int) -> Rows:
    """Return a reproducible batch with newly created texts."""
    dice = random.Random(trajectories)
    batch = Rows([], [], [], [], [])
    for group in range(trajectories // GROUP):
        pool = [_letters(dice) for _ in range(POOL)]
        task = f"task-{group:04}"
        for number in range(GROUP):
            batch.rewards += [float(dice.random() < 0.1) for _ in range(STEPS)]
            batch.group += [task] * STEPS
            batch.trajectory += [f"{task}-{number}"] * STEPS
            batch.step += range(STEPS)
            batch.state += [state.decode() for state in dice.choices(pool, k=STEPS)]
    return batch


def _letters(dice: random.Random) -> bytes:
    return dice.randbytes(LETTERS // 2).hex().encode()


# Similar states --------------------------------------------------------------------------------


def _against_difflib(found: Findings) -> Pairs:
    pairs = []
    for number in range(DIFFLIB_ROUNDS):
        ours, groups = _timed(lambda states: group_similar(states, THRESHOLD), _states(number))
        theirs, expected = _timed(_greedy, _states(number))
        pairs.append((ours, theirs))
        if groups.tolist() != expected:
            found.notes.append("group_similar and greedy difflib gave different groups")
    with_quick_ratio, _ = _timed(lambda states: _greedy(states, quick=True), _states(0))
    found.notes.append(f"greedy difflib that calls quick_ratio() first: {with_quick_ratio:.2f} s")
    return pairs


def _greedy(states: Sequence[str], quick: bool = False) -> list[int]:
    templates: list[str] = []
    groups = []
    for state in states:
        matcher = SequenceMatcher(None, "", state, autojunk=False)  # it caches its analysis of b
        for number, template in enumerate(templates):
            matcher.set_seq1(template)
            if quick and matcher.quick_ratio() < THRESHOLD:
                continue
            if matcher.ratio() >= THRESHOLD:
                groups.append(number)
                break
        else:
            groups.append(len(templates))
            templates.append(state)
    return groups


def _states(seed: int) -> list[str]:
    """Return texts of words, each of which differs from a template in a few letters."""
    dice = random.Random(seed)
    words = ["".join(dice.choices(ascii_lowercase, k=dice.randint(2, 9))) for _ in range(300)]
    templates = [" ".join(dice.choices(words, k=LETTERS))[:LETTERS] for _ in range(TEMPLATES)]
    states = []
    for number in range(STATES):
        letters = list(templates[number % TEMPLATES])
        for _ in range(dice.randint(0, EDITS)):
            letters[dice.randrange(LETTERS)] = dice.choice(ascii_lowercase)
        states.append("".join(letters))
    dice.shuffle(states)
    return states
