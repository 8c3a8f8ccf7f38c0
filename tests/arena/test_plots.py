"""Plots of worlds and results."""

import xml.etree.ElementTree as ElementTree

import pytest

from guerdon.arena import WORLDS, Model

pytest.importorskip("matplotlib", reason="the extra 'plots' draws the plots")

from guerdon.arena.plots import plot_curves, plot_world
from guerdon.arena.report import rows_by_world
from guerdon.arena.runner import run_arena
from tests.arena.test_runner import PROTOCOL

CIRCLES = "{http://www.w3.org/2000/svg}use"


@pytest.mark.parametrize("name", WORLDS.names())
def test_plot_world_draws_every_state(name, tmp_path):
    model = Model.of(WORLDS[name]())
    plot_world(model, tmp_path / "world.svg")
    tree = ElementTree.parse(tmp_path / "world.svg")
    drawn = [
        each for each in tree.iter(CIRCLES) if "fill" in each.get("style", "") and each.get("x")
    ]
    assert len(drawn) >= len(model.states)


def test_plot_curves_names_the_methods(tmp_path):
    results = run_arena(
        tmp_path / "arena.jsonl", worlds=["crossroads"], methods=["exact", "grpo"],
        protocol=PROTOCOL, processes=1,
    )  # fmt: skip
    plot_curves(rows_by_world(results, PROTOCOL)["crossroads"], tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text()
    assert ">exact</text>" in text
    assert ">grpo</text>" in text
