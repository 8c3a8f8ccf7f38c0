"""The loop of all experiments, and their learning curves as a table and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guerdon.arena import METHODS, Loop, Method, Model, train
from guerdon.arena.statistics import Estimate, median

__all__ = ["LOOP", "RATE", "SEEDS", "Experiment", "first_above_half", "learn", "plot", "table"]

Floats = NDArray[np.float64]

LOOP = Loop(groups=2)
RATE = 0.25
SEEDS = range(100, 110)  # others than those that the worlds were tried with
BOOTSTRAP = 2_000
# Okabe and Ito's palette.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """What an experiment found.

    Attributes:
        name: Its name, that of its module.
        measure: What the curves show, from 0 to 1.
        curves: By the name of what is compared, before each update and at the end, (R, U + 1).
        other: Curves that are in the table alone.
    """

    name: str
    measure: str
    curves: Mapping[str, Floats]
    other: Mapping[str, Floats] = field(default_factory=dict)


def learn(
    measure: Model,
    reward: Model | Callable[[int], Model],
    *,
    updates: int,
    seeds: Sequence[int] = SEEDS,
    method: Method = METHODS["grpo"],
) -> Floats:
    """Train a policy for each seed, and return its curve by a measure, (R, U + 1).

    Args:
        measure: The model whose expected return is the measure.
        reward: The model whose rewards policies are trained on, or a function that returns that of
            an update by its number.
        updates: U.
        seeds: R seeds.
        method: Computes the advantages.
    """
    of_update = (lambda update: reward) if isinstance(reward, Model) else reward
    return train(
        measure, method, seeds=seeds, learning_rate=RATE, updates=updates, loop=LOOP,
        reward=of_update,
    ).returns  # fmt: skip


def first_above_half(curves: Floats) -> Floats:
    """Return the number of updates after which each curve first exceeds 0.5, (R,), or infinity."""
    above = curves > 0.5
    return np.where(above.any(1), above.argmax(1), np.inf)


def table(experiment: Experiment) -> Iterator[str]:
    """Yield the lines of a table: medians over the seeds with their 95 % bootstrap intervals."""
    yield f"{experiment.name}: {experiment.measure}"
    yield f"  {'':44}{'at the end':20}updates to more than half"
    for label, curves in {**experiment.curves, **experiment.other}.items():
        end = _text(median(curves[:, -1], BOOTSTRAP), ".2f")
        half = _text(median(first_above_half(curves), BOOTSTRAP), ".0f")
        yield f"  {label:44}{end:20}{half}"


def _text(found: Estimate, form: str) -> str:
    value, low, high = (
        "never" if np.isinf(each) else format(each, form)
        for each in (found.value, found.low, found.high)
    )
    return value if low == high == "never" else f"{value} [{low}, {high}]"


def plot(experiment: Experiment, folder: Path) -> Path:
    """Draw the median curves with their quartiles as an SVG file, and return its path.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed (``pip install 'guerdon[plots]'``).
    """
    path = folder / f"shape-{experiment.name.replace('_', '-')}.svg"
    options = {"svg.fonttype": "none", "svg.hashsalt": "guerdon", "font.size": 9}
    with import_module("matplotlib").rc_context(options):
        figure = import_module("matplotlib.figure").Figure(figsize=(7, 3), layout="constrained")
        axes = figure.subplots()
        for (label, curves), colour in zip(experiment.curves.items(), COLOURS, strict=False):
            update = np.arange(0, curves.shape[1], 2)
            low, middle, high = np.quantile(curves[:, update], [0.25, 0.5, 0.75], axis=0)
            axes.plot(update, middle, color=colour, label=label, linewidth=1.4)
            axes.fill_between(update, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(left=0)
        axes.set_xlabel("updates")
        axes.set_ylabel(experiment.measure)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path
