"""``make arena-lm``: trains the language model with each method, and prints the order of these.

Every method is tuned as in the arena: it trains with each learning rate and the seeds of the sweep,
and the rate with the highest median area under the curve is taken. Other seeds are evaluated.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from guerdon.arena import METHODS, exact_values, optimal_value, uniform_policy
from guerdon.arena.protocol import Protocol
from guerdon.arena.report import Row, rows_by_world
from guerdon.arena.runner import EVALUATION_SEED, SWEEP_SEED, evaluate_method
from trainers.arena_lm import Floats, TextWorld, Trainer, warm_up
from trainers.character_model import LARGE, SMALL, Size
from trainers.curves import DOCS, draw


class Plan(NamedTuple):
    """How a world is trained: the number of updates, and of groups of an update."""

    updates: int
    groups: int


PLANS = {"short-lock": Plan(250, groups=4), "key-maze": Plan(100, groups=1)}
CHOSEN = ("exact", "grpo", "gigpo", "turn_rloo", "gae", "mt_grpo")
RATES = (0.001, 0.002, 0.004)
SWEEP_SEEDS = 2


class Setup(NamedTuple):
    """What all methods have in common: the device, the size of the model, and the seeds."""

    device: str
    size: Size
    seeds: int


class Result(NamedTuple):
    """The results of a method in a world, with one entry for each seed.

    Attributes:
        world: The name of the world.
        method: The name of the method.
        rate: The learning rate that the sweep chose.
        curves: The normalized return before each update and at the end, (seeds, U + 1).
        final: The return at the end, (seeds,).
        refused: The share of the model's texts that were no action.
        seconds: The time of a run.
    """

    world: str
    method: str
    rate: float
    curves: Floats
    final: Floats
    refused: float
    seconds: float

    @property
    def area(self) -> float:
        """The median area under the curve."""
        return float(np.median(self.curves.mean(-1)))

    def updates_to(self, target: float) -> list[str]:
        """Return the number of updates to a share of the optimum for each seed."""
        reached = self.curves >= target
        return [str(row.argmax()) if row.any() else "–" for row in reached]


def protocol_of(world: str) -> Protocol:
    """Return the arena's protocol with the groups of a world."""
    protocol = Protocol.read()
    return protocol.with_changes(loop=replace(protocol.loop, groups=PLANS[world].groups))


def prepare(name: str, setup: Setup) -> dict[str, Any]:
    """Return the weights of the model of a world after the warm-up, as arrays."""
    torch.set_num_threads(1)
    weights = warm_up(TextWorld(name, setup.device), size=setup.size)
    return {key: value.cpu().numpy() for key, value in weights.items()}


def tune(pair: tuple[str, str], setup: Setup, weights: Mapping[str, Any]) -> Result:
    """Tune a method in a world, and evaluate it on other seeds.

    Args:
        pair: The names of the world and of the method.
        setup: What all methods have in common.
        weights: The weights of each world; see `prepare`.
    """
    torch.set_num_threads(1)
    name, method = pair
    world, loop = TextWorld(name, setup.device), protocol_of(name).loop
    first: dict[str, Tensor] = {key: torch.tensor(value) for key, value in weights[name].items()}
    low = exact_values(world.model, uniform_policy(world.model)).value
    span = optimal_value(world.model) - low

    def learn(rate: float, first_seed: int, seeds: int) -> tuple[Floats, Floats, list[Any]]:
        runs = [
            Trainer(
                world, METHODS[method], seed=first_seed + number, rate=rate, weights=first,
                loop=loop, size=setup.size,
            ).run(PLANS[name].updates)
            for number in range(seeds)
        ]  # fmt: skip
        returns = np.array([run.returns for run in runs])
        return (returns - low) / span, returns[:, -1], runs

    areas = [np.median(learn(rate, SWEEP_SEED, SWEEP_SEEDS)[0].mean(-1)) for rate in RATES]
    rate = RATES[int(np.argmax(areas))]  # of equal ones the first, which is the lowest
    curves, final, runs = learn(rate, EVALUATION_SEED, setup.seeds)
    refused, seconds = (np.mean([run[place] for run in runs]) for place in (1, 2))
    return Result(name, method, rate, curves, final, float(refused), float(seconds))


def in_the_arena(name: str) -> list[Row]:
    """Return the results of the arena's table of logits, the best method first."""
    protocol = protocol_of(name)
    results = [evaluate_method(name, method, protocol) for method in CHOSEN]
    return rows_by_world(results, protocol)[name]


def table(results: Sequence[Result], arena: Sequence[Row]) -> str:
    """Return the results of a world in Markdown, with both orders and their rank correlation."""
    name = results[0].world
    protocol = protocol_of(name)
    target = protocol.target
    ordered = sorted(results, key=lambda each: -each.area)
    rows = [
        f"| {each.method} | {each.rate:g} | {', '.join(each.updates_to(target))} | {each.area:.3f} "
        f"| {', '.join(f'{value:.2f}' for value in each.final)} | {each.refused:.2%} "
        f"| {each.seconds:.0f} |"
        for each in ordered
    ]
    ours = [each.method for each in ordered]
    theirs = [row.result.method for row in arena]
    ranks = np.corrcoef(range(len(ours)), [theirs.index(method) for method in ours])[0, 1]
    areas = ", ".join(
        f"{row.result.method} {row.area.value:.3f} ({row.updates.value:g})" for row in arena
    )
    return "\n".join([
        f"**{name}**, {PLANS[name].updates} updates of {protocol.loop.episodes} episodes",
        "",
        f"| method | rate | updates to {target:.0%} | area | final return | refused | s |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Order of the language model: {', '.join(ours)}.",
        f"Order of the arena, with area and updates to {target:.0%}: {areas}.",
        f"Spearman's rank correlation: {ranks:.2f}.",
        "",
    ])  # fmt: skip


def main() -> None:
    """Train, print a table for each world, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", choices=["auto", "yes", "no"], default="auto")
    parser.add_argument("--seeds", type=int, help="by default 3, and 10 on a GPU")
    parser.add_argument("--out", type=Path, default=DOCS, help="the folder of the plots")
    parser.add_argument("--worlds", nargs="+", choices=[*PLANS], default=[*PLANS])
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available() if options.gpu == "auto" else options.gpu == "yes"
    if has_gpu:
        setup = Setup("cuda", LARGE, options.seeds or 10)
    else:
        setup = Setup("cpu", SMALL, options.seeds or 3)
    processes = 1 if has_gpu else os.cpu_count()
    pairs = [(world, method) for world in options.worlds for method in CHOSEN]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        prepared = pool.map(partial(prepare, setup=setup), options.worlds)
        weights = dict(zip(options.worlds, prepared, strict=True))
        results = []
        for result in pool.map(partial(tune, setup=setup, weights=weights), pairs):
            results.append(result)
            print(f"{result.world}, {result.method}: area {result.area:.3f}, rate {result.rate:g}",
                  flush=True)  # fmt: skip
        arena = dict(zip(options.worlds, pool.map(in_the_arena, options.worlds), strict=True))
    for world in options.worlds:
        own = [result for result in results if result.world == world]
        print("\n" + table(own, arena[world]), flush=True)
        curves = {each.method: [[*enumerate(row)] for row in each.curves] for each in own}
        path = options.out / f"arena-lm-{world}.svg"
        draw(curves, path, label="share of the optimum", best=1.0)


if __name__ == "__main__":
    main()
