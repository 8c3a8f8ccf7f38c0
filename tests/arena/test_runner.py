"""Whole runs: files, interruption, processes, reports."""

import json
import math
import re

import pytest

from guerdon.arena.protocol import Hypothesis, Protocol
from guerdon.arena.report import page, rows_by_world
from guerdon.arena.runner import MethodFailure, read_results, run_arena
from guerdon.errors import InvalidArgumentError, ScoringError

PROTOCOL = Protocol.read().with_changes(
    updates=20, learning_rates=[0.5, 2.0], sweep_seeds=2, evaluation_seeds=4, batches=20,
    frozen=[0.0, 0.5], bootstrap=200,
    hypotheses=[
        {"method": "gigpo", "worlds": ["crossroads"], "claim": "it is faster"},
        {"method": "exact", "worlds": "all", "claim": "it is the ceiling"},
    ],
)  # fmt: skip
WORLDS = ["crossroads", "tool-use"]
METHODS = ["exact", "grpo", "gigpo"]

MINE = """
from guerdon.arena import Outcome, World
from guerdon.credit import Credit

def ones(batch):
    return Credit.of(batch, batch.rewards * 0 + 1)

def broken(batch):
    raise RuntimeError("out of order")

class Coin(World):
    name = "coin"
    actions = ("keep", "toss")
    max_steps = 1
    weights = {"heads": 1.0, "kept": 0.4}

    def initial(self):
        return "coin"

    def outcomes(self, state, action):
        if action == 0:
            return [Outcome(1.0, "end", ["kept"], done=True)]
        return [Outcome(0.5, "end", ["heads"], done=True), Outcome(0.5, "end", done=True)]
"""


@pytest.fixture
def run(tmp_path):
    def run(**options):
        options = {"worlds": WORLDS, "methods": METHODS, "protocol": PROTOCOL, "processes": 1} | (
            options
        )
        return run_arena(tmp_path / "arena.jsonl", **options)

    run.file = tmp_path / "arena.jsonl"
    return run


def without_times(results):
    return [
        {name: value for name, value in vars_of(each).items() if name != "seconds"}
        for each in results
    ]


def vars_of(result):
    return {name: getattr(result, name) for name in result.__slots__}


def test_run_arena_writes_a_line_for_each_pair_and_returns_them_in_order(run):
    results = run()
    assert [(each.world, each.method) for each in results] == [
        (world, method) for world in WORLDS for method in METHODS
    ]
    header, *lines = map(json.loads, run.file.read_text().splitlines())
    assert header["protocol"]["updates"] == 20
    assert len(lines) == 6
    assert all(len(each.area) == 4 for each in results)


def test_run_arena_is_the_same_in_processes(run):
    alone = run(methods=["grpo"])
    run.file.unlink()
    assert without_times(run(methods=["grpo"], processes=2)) == without_times(alone)


def test_run_arena_goes_on_after_an_interruption(run):
    whole = run()
    lines = run.file.read_text().splitlines(keepends=True)
    run.file.write_text("".join(lines[:3]) + lines[3][:50])  # cut off in the middle of a line
    seen = []
    again = run(progress=lambda result, finished, total: seen.append((finished, total)))
    assert seen == [(3, 6), (4, 6), (5, 6), (6, 6)]
    assert without_times(again) == without_times(whole)
    assert len(read_results(run.file)[1]) == 6


def test_run_arena_refuses_a_file_of_another_protocol(run):
    run(worlds=["crossroads"], methods=["grpo"])
    with pytest.raises(InvalidArgumentError, match="has the results of another protocol"):
        run(protocol=PROTOCOL.with_changes(updates=30))


def test_run_arena_refuses_a_file_that_another_run_writes(run):
    def second(*_):
        with pytest.raises(ScoringError, match=r"process \d+, .* is writing to this file"):
            run()

    run(worlds=["crossroads"], methods=["grpo"], progress=second)


@pytest.mark.parametrize("text", ["scores\n", "{}\n", '{"arena": "x", "protocol": {}}\n'])
def test_run_arena_refuses_a_file_that_is_something_else(run, text):
    run.file.write_text(text)
    with pytest.raises(InvalidArgumentError, match="not a file of the arena"):
        run()
    assert run.file.read_text() == text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"worlds": ["crosroads"]}, "there is no world 'crosroads'"),
        ({"methods": ["grpoo"]}, "there is no method 'grpoo'"),
        ({"processes": -1}, "`processes` must be"),
    ],
)
def test_run_arena_refuses_unknown_names_before_it_writes(run, options, problem):
    with pytest.raises(InvalidArgumentError, match=problem):
        run(**options)
    assert not run.file.exists()


def test_page_has_the_claims_the_tables_and_the_protocol(run):
    results = run()
    text = page(results, PROTOCOL)
    assert "*gigpo: it is faster.* crossroads: " in text
    assert "*exact: it is the ceiling.* crossroads: yes" in text
    for world in WORLDS:
        assert f"## {world}" in text
    rows = rows_by_world(results, PROTOCOL)["crossroads"]
    grpo = next(row for row in rows if row.result.method == "grpo")
    assert grpo.versus is None
    line = next(line for line in text.splitlines() if line.startswith("| grpo | "))
    assert f"{grpo.area.value:.3f} [{grpo.area.low:.3f}, {grpo.area.high:.3f}]" in line
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_rows_by_world_count_seeds_that_never_reach_the_target_as_infinite(run):
    results = run(worlds=["tool-use"], protocol=PROTOCOL.with_changes(updates=1))
    rows = rows_by_world(results, PROTOCOL)["tool-use"]
    assert all(math.isinf(row.updates.value) for row in rows)


def test_protocol_read_refuses_what_is_not_a_protocol(tmp_path):
    (tmp_path / "p.yaml").write_text("updates: 0")
    with pytest.raises(InvalidArgumentError, match="not a protocol of the arena"):
        Protocol.read(tmp_path / "p.yaml")


def test_protocol_fingerprint_ignores_claims_alone():
    claims = [Hypothesis(method="rloo", worlds="all", claim="it wins")]
    assert PROTOCOL.with_changes(hypotheses=claims).fingerprint() == PROTOCOL.fingerprint()
    assert PROTOCOL.with_changes(sweep_seeds=3).fingerprint() != PROTOCOL.fingerprint()


def test_run_arena_takes_estimators_and_worlds_of_a_file(run, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    methods = ["grpo", f"{mine}:ones", f"{mine}:broken"]
    results = run(worlds=[f"{mine}:Coin"], methods=methods, processes=2)
    assert results[2] == MethodFailure(
        f"{mine}:Coin", f"{mine}:broken", "RuntimeError: out of order"
    )
    assert results[0].optimum == 0.5
    assert "RuntimeError: out of order" in page(results, PROTOCOL)
    seen = []
    run(
        worlds=[f"{mine}:Coin"], methods=methods,
        progress=lambda result, *_: seen.append(result.method),
    )  # fmt: skip
    assert seen == [f"{mine}:broken"]  # the others are not run again
