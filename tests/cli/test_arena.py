"""guerdon arena: a run, its table, its page, and its JSON."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.edge  # real processes

SMALL = ["--worlds", "crossroads,lock", "--methods", "exact,grpo,gigpo", "--seeds", "3"]
PROTOCOL = """
updates: 30
learning_rates: [1.0]
sweep_seeds: 2
evaluation_seeds: 3
target: 0.9
baseline: grpo
bootstrap: 200
frozen: [0.5]
batches: 20
"""


@pytest.fixture(autouse=True)
def _protocol(tmp_path):
    (tmp_path / "quick.yaml").write_text(PROTOCOL)


def test_arena_prints_a_table_for_each_world_and_goes_on(guerdon, tmp_path):
    done = guerdon("arena", *SMALL, "--protocol", "quick.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("6/6 ")
    for word in ("crossroads", "lock", "exact", "updates to 90%", "`gigpo`: "):
        assert word in done.stdout
    again = guerdon("arena", *SMALL, "--protocol", "quick.yaml", "--json")
    assert (again.returncode, again.stderr) == (0, "")
    results = json.loads(again.stdout)["results"]
    assert [each["method"] for each in results] == ["exact", "grpo", "gigpo"] * 2


@pytest.mark.parametrize("whom", ["process", "group"])
def test_arena_that_is_interrupted_ends_its_processes_and_goes_on(guerdon, started, whom):
    options = ["arena", *SMALL, "--protocol", "quick.yaml", "--processes", "2"]
    process = started(*options, start_new_session=True)
    assert process.stderr.readline().startswith(b"1/6 ")
    (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
    process.communicate(timeout=30)  # until all of its processes have closed their output
    assert process.returncode == 130
    again = guerdon(*options)
    assert again.returncode == 0, again.stderr
    assert 1 <= len(again.stderr.splitlines()) <= 5


def test_arena_writes_a_page_with_plots(guerdon, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra 'plots' draws the curves")
    done = guerdon("arena", *SMALL, "--protocol", "quick.yaml", "--page", "results.md")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "results.md").read_text()
    assert "![Learning curves in lock](results/lock.svg)" in page
    assert (tmp_path / "results" / "lock.svg").read_text().startswith("<?xml")


def test_arena_reports_an_estimator_that_fails_and_evaluates_the_others(guerdon, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from guerdon.credit import Credit\n"
        "def mine(batch):\n"
        "    return Credit.of(batch, np.full(batch.size, np.nan))\n"
    )
    done = guerdon(
        "arena", "--worlds", "lock", "--methods", "grpo,mine.py:mine", "--protocol", "quick.yaml"
    )
    assert done.returncode == 1
    assert "lock mine.py:mine: CreditError: " in done.stderr
    assert "grpo" in done.stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--worlds", "lok"], "there is no world 'lok'; did you mean 'lock'?"),
        (["--methods", "grop"], "there is no method 'grop'; did you mean 'grpo'?"),
        (["--protocol", "nothing.yaml"], "nothing.yaml: not a protocol of the arena"),
    ],
)
def test_arena_refuses_unknown_names(guerdon, tmp_path, options, problem):
    done = guerdon("arena", *options)
    assert done.returncode == 2
    assert problem in " ".join(done.stderr.split())
    assert not (tmp_path / "arena.jsonl").exists()
