"""Plots of worlds and of the arena's results, with matplotlib."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from guerdon._loading import import_extra
from guerdon.arena.exact import exact_values, uniform_policy
from guerdon.arena.model import Floats, Model
from guerdon.arena.report import Row

__all__ = ["plot_curves", "plot_world"]

# The methods that are drawn in colour (Okabe and Ito's palette); the others are grey.
COLOURS = {
    "exact": "#000000",
    "grpo": "#0072B2",
    "gigpo": "#D55E00",
    "gae": "#009E73",
    "mt_grpo": "#CC79A7",
    "turn_rloo": "#E69F00",
}


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield the axes of a figure, which is then written as SVG."""
    mpl = import_extra("matplotlib.figure", "plots", "a plot of guerdon.arena")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "guerdon", "font.size": 9}):
        figure = mpl.figure.Figure(figsize=(width, height), layout="constrained")
        yield figure.subplots()
        figure.savefig(path, format="svg", metadata={"Date": None})


def plot_curves(rows: Sequence[Row], path: Path) -> None:
    """Draw the median learning curves of a world, with the quartiles of those in colour.

    Args:
        rows: The rows of the world.
        path: The SVG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    with _figure(path, 7, 3.2) as axes:
        curves = {row.result.method: np.array(row.result.curve).T for row in rows}
        for method in sorted(curves.keys() - COLOURS.keys()):
            update, _, middle, _ = curves[method]
            axes.plot(update, middle, color="#BBBBBB", linewidth=0.8)
        for method in [each for each in COLOURS if each in curves]:
            update, low, middle, high = curves[method]
            axes.plot(update, middle, color=COLOURS[method], label=method, linewidth=1.4)
            axes.fill_between(update, low, high, color=COLOURS[method], alpha=0.12, linewidth=0)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
        axes.set_xlabel("updates")
        axes.set_ylabel("share of the optimum")
        axes.figure.legend(frameon=False, loc="outside right upper")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def plot_world(model: Model, path: Path) -> None:
    """Draw the states of a world and its transitions, coloured by the uniform policy's values.

    A state whose text contains ``@`` is drawn at the place of that character; others are drawn
    by their distance from the initial state.

    Args:
        model: The model.
        path: The SVG file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    places = _grid_places(model) or _layers(model)
    x, y = np.array([places[state] for state in range(len(model.states))]).T
    values = exact_values(model, uniform_policy(model)).v[0]
    with _figure(path, 5, np.clip(5 * (np.ptp(y) + 1) / (np.ptp(x) + 2), 0.9, 2.4)) as axes:
        pairs = np.argwhere(model.probability.sum(-1) > 0)
        for state, action in pairs.tolist():
            for after in set(model.next[state, action].tolist()) - {state}:
                ends = [x[state], x[after]], [y[state], y[after]]
                axes.plot(*ends, color="#BBBBBB", linewidth=0.6, zorder=1)
        size = 60 if len(values) < 40 else 12
        drawn = axes.scatter(x, y, c=values, cmap="viridis", s=size, zorder=2)
        axes.scatter(x[:1], y[:1], s=2 * size, facecolors="none", edgecolors="black", zorder=3)
        axes.figure.colorbar(drawn, ax=axes, label="value")
        axes.set_axis_off()
        axes.margins(0.05, 0.15)


def _grid_places(model: Model) -> dict[int, tuple[float, float]]:
    """Return where ``@`` is in the text of each state; states at the same place are apart."""
    texts = [model.world.describe(state).split("\n") for state in model.states]
    width = max(len(line) for text in texts for line in text) + 1
    seen: Counter[tuple[int, int]] = Counter()
    places = {}
    for state, text in enumerate(texts):
        cell = next(((row, line.index("@")) for row, line in enumerate(text) if "@" in line), None)
        if cell is None:
            return {}
        places[state] = (float(cell[1] + seen[cell] * width), float(-cell[0]))
        seen[cell] += 1
    return places


def _layers(model: Model) -> dict[int, tuple[float, float]]:
    """Return places by the distance from the initial state, and the order within it."""
    distance = {0: 0}
    for state in range(len(model.states)):  # numbered in the order of a breadth-first search
        for after in model.next[state][model.probability[state] > 0].tolist():
            distance.setdefault(after, distance[state] + 1)
    sizes = Counter(distance.values())
    seen: Counter[int] = Counter()
    places = {}
    for state, layer in distance.items():
        places[state] = (float(layer), seen[layer] - (sizes[layer] - 1) / 2)
        seen[layer] += 1
    tall = max(sizes.values())
    scale: Floats = np.array([1.0, min(1.0, 4 / tall)])
    return {state: tuple(np.array(place) * scale) for state, place in places.items()}
