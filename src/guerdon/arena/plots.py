"""Plots of the arena's results, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from guerdon._loading import import_extra
from guerdon.arena.report import Row

__all__ = ["plot_curves"]

# The methods that are drawn in colour (Okabe and Ito's palette); the others are grey.
COLOURS = {
    "exact": "#000000",
    "grpo": "#0072B2",
    "gigpo": "#D55E00",
    "gae": "#009E73",
    "mt_grpo": "#CC79A7",
    "turn_rloo": "#E69F00",
}


def plot_curves(rows: Sequence[Row], path: Path) -> None:
    """Draw the median learning curves of a world, with the quartiles of those in colour.

    Args:
        rows: The rows of the world.
        path: The SVG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    mpl = import_extra("matplotlib", "plots", "guerdon arena --page")
    figures = import_extra("matplotlib.figure", "plots", "guerdon arena --page")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "guerdon", "font.size": 9}):
        figure = figures.Figure(figsize=(7, 3.2), layout="constrained")
        axes = figure.subplots()
        for row in sorted(rows, key=lambda row: row.contest.method in COLOURS):
            method, curve = row.contest.method, np.array(row.contest.curve)
            update, low, middle, high = curve.T
            colour = COLOURS.get(method, "#BBBBBB")
            label = method if method in COLOURS else None
            axes.plot(update, middle, color=colour, label=label, linewidth=1.4 if label else 0.8)
            if label:
                axes.fill_between(update, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
        axes.set_xlabel("updates")
        axes.set_ylabel("share of the optimum")
        axes.legend(frameon=False, loc="lower right")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None})
