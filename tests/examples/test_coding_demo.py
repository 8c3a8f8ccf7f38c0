"""The demo of the coding environment: served, played over the wire, and printed as a table."""

from itertools import islice
from pathlib import Path

import pytest

from examples.coding_env import demo

pytestmark = pytest.mark.edge  # real processes

ROOT = Path(__file__).parents[2]


def test_coding_demo_prints_a_row_for_each_kind_of_program(monkeypatch, capsys):
    some = list(islice(demo.games(), 2 * len(demo.KINDS)))
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(demo, "games", lambda: iter(some))
    assert demo.main() == 0
    output = capsys.readouterr().out
    assert "CodingEnvironment at http://127.0.0.1:" in output
    rows = [line.split() for line in output.splitlines()]
    by_kind = {row[0]: row for row in rows if row and row[0] in demo.KINDS}
    assert by_kind["right"][1:3] == ["2", "1.000"]
    assert 0.5 < float(by_kind["half"][2]) < 1
    # stopped by Compiles, stopped by PassesTests, failed
    assert by_kind["broken"][-3:] == ["2", "0", "0"]
    assert by_kind["wrong"][-3:] == ["0", "2", "0"]
    assert by_kind["endless"][-3:] == ["0", "2", "0"]
    assert "10 programs in 16 sessions" in output


def test_coding_demo_games_pair_every_task_with_every_kind():
    tasks = {number for number, _, _ in demo.games()}
    assert len(tasks) >= 30
    assert len(list(demo.games())) == len(tasks) * len(demo.KINDS)
