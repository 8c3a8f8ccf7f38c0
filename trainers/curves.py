"""Learning curves of several methods and seeds: figures, and a plot for the documentation."""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
Curve = list[tuple[int, float]]


def main(
    learn: Callable[..., Curve], methods: Sequence[str], *, name: str, label: str, best: float
) -> None:
    """Train each method with the seeds of the command line, print the figures, and draw the plot.

    Args:
        learn: Trains a method with a seed in a folder, and returns means over some steps each.
        methods: The names of the methods.
        name: The name of the plot, ``docs/<name>.svg``.
        label: What the curves show.
        best: The best that is possible.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=DOCS / f"{name}.svg", help="the plot")
    options = parser.parse_args()
    curves: dict[str, list[Curve]] = {method: [] for method in methods}
    for method in methods:
        for seed in options.seeds:
            start = perf_counter()
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
                curve = learn(method, seed, folder)
            curves[method].append(curve)
            print(
                f"{method}, seed {seed}: {label} {curve[0][1]:.3f} at first, {curve[-1][1]:.3f} at "
                f"the end, {perf_counter() - start:.0f} s",
                flush=True,
            )
    draw(curves, options.out, label=label, best=best)


def draw(curves: Mapping[str, Sequence[Curve]], path: Path, *, label: str, best: float) -> None:
    """Draw the curves as SVG: a colour for each method, a line for each seed.

    Args:
        curves: The curves of each method.
        path: The file.
        label: What they show.
        best: The best that is possible, a dashed line.
    """
    # Text stays text, and the same curves give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "guerdon", "font.size": 9})
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(best, color="grey", linestyle="--", linewidth=0.8, label=f"best, {best:g}")
    for number, (method, runs) in enumerate(curves.items()):
        for place, run in enumerate(runs):
            own: dict[str, Any] = {} if place else {"label": method}
            axes.plot(*zip(*run, strict=True), color=f"C{number}", linewidth=1.2, **own)
    axes.set_xlabel("training step")
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
