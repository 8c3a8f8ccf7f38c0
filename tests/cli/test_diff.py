"""guerdon diff: two rewards on the same rollouts."""

import json

import pytest

from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real processes

CONFIG = """\
schema_version: "1.0"
normalize: false
per_turn:
  - {{name: number, rubric: "reward.py:Number", weight: {weight}}}
"""

MORE = """
def minus(action, observation):
    return -float(action.content)

def even(action, observation):
    return 0.5

def only_whole(action, observation):
    return float(int(action.content))
"""


@pytest.fixture(autouse=True)
def _rewards(rewards, tmp_path):
    with (tmp_path / "reward.py").open("a") as file:
        file.write(MORE)
    for name, weight in (("a", 1.0), ("b", -2.0)):
        (tmp_path / f"{name}.yaml").write_text(CONFIG.format(weight=weight))


@pytest.fixture
def diff(tmp_path):
    """Runs the command in this process; returns its output with single spaces."""

    def diff(*args):
        done = run_inside(tmp_path, "diff", *args)
        done.table = " ".join(done.stdout.split())
        return done

    return diff


@pytest.fixture
def diff_json(diff):
    """Runs the command; returns its JSON output."""
    return lambda *args: json.loads(diff(*args, "--json").stdout)


def test_diff_of_two_reward_files(diff, rows):
    rows(["1", "0.5", "0"], group="g")
    done = diff("a.yaml", "b.yaml", "rollouts.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    for expected in (
        "per_turn.number.weight 1.0 -2.0",
        "rows 3",
        "valid in both 3",
        "of those valid in both 0.500 -1.000 -1.500",
        "lowest -3.000",
        "highest 0.000",
        "rose 0 fell 2 unmoved 1",
        "flipped 3 (100.0%)",
        "groups whose best rollout changed 1 (100.0%)",
        "mean of Kendall's τ_b -1.000",
        "g 0 1 → -2 2 0 → 0",
        "0 g 1.000 -2.000 -3.000",
        "3 rows with both in",
        "a.yaml",
    ):
        assert expected in done.table


def test_diff_of_code_and_a_reward_file(diff, rows):
    rows(["1", "0"])
    done = diff("reward.py:Number", "b.yaml", "rollouts.jsonl")
    assert done.returncode == 0
    assert "the reward Number RubricComposer" in done.table


def test_diff_of_one_reward(diff, rows):
    rows(["1", "0"], group="g")
    done = diff("a.yaml", "a.yaml", "rollouts.jsonl")
    assert done.returncode == 0
    assert done.table.startswith("one and the same reward")
    assert "rose 0 fell 0 unmoved 2" in done.table
    assert "flipped 0 (0.0%)" in done.table
    assert "moved most" not in done.table


def test_diff_exits_with_1_on_a_failed_row(diff, rows):
    rows(["1", "x", "0.5"], group="g")
    done = diff("reward.py:Number", "reward.py:only_whole", "rollouts.jsonl")
    assert done.returncode == 1
    for expected in ("valid in both 1", "valid in one only 1 0", "valid in neither 1"):
        assert expected in done.table
    assert "valid before only: id" in done.table
    assert "2 0.500 step 0: ValueError: invalid literal for int()" in done.table
    assert "ValueError 1 2 step 0: ValueError: could not convert string to float" in done.table


def test_diff_prints_json(diff_json, rows):
    rows(["1", "x", "0"], group="g", kind="k")
    found = diff_json("reward.py:Number", "reward.py:minus", "rollouts.jsonl", "--by", "kind")
    assert (found["before_reward"], found["after_reward"]) == (
        "reward.py:Number",
        "reward.py:minus",
    )
    assert (found["rows"], found["valid_in_both"], found["valid_in_neither"]) == (3, 2, 1)
    assert (found["mean_before"], found["mean_after"], found["mean_difference"]) == (
        0.5,
        -0.5,
        -1.0,
    )
    assert found["changes"] == [
        {"what": "changed", "where": "", "before": "Number", "after": "minus"}
    ]
    assert (found["groups"]["flipped"], found["groups"]["mean_tau"]) == (1, -1.0)
    assert found["groups"]["flips"] == [
        {"group": "g", "better_before": 0, "better_after": 2, "before": [1.0, 0.0],
         "after": [-1.0, 0.0]}
    ]  # fmt: skip
    assert found["moved"][0]["difference"] == -2.0
    assert found["by"]["k"]["fell"] == 1
    assert found["after"]["failures"] == {"ValueError": 1}


def test_diff_distinguishes_ties_from_flips(diff_json, rows):
    rows(["1", "0", "0"], group="g")
    groups = diff_json("reward.py:Number", "reward.py:even", "rollouts.jsonl")["groups"]
    assert (groups["flipped"], groups["ties_made"], groups["ties_broken"]) == (0, 2, 0)
    assert (groups["tied"], groups["mean_tau"], groups["best_tied"]) == (1, None, 1)
    assert (groups["dead_before"], groups["dead_after"]) == (0, 1)


def test_diff_lists_at_most_top_rows(diff_json, diff, rows):
    rows(["1", "0.75", "0.5", "0.25"], group="g")
    args = "reward.py:Number", "reward.py:minus", "rollouts.jsonl"
    found = diff_json(*args, "--top", "2")
    assert [move["id"] for move in found["moved"]] == [0, 1]
    assert len(found["groups"]["flips"]) == 2
    assert "moved most" not in diff(*args, "--top", "0").table


def test_diff_reads_standard_input(guerdon, rows):
    data = rows(["1", "0"])
    done = guerdon("diff", "a.yaml", "b.yaml", "-", "--json", input=data)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 2


def test_diff_positions_schedules(diff_json, rows, tmp_path):
    rows(["1"])
    schedule = ", schedule: {piecewise: [[0, 1.0], [10, 0.0]]}}"
    text = CONFIG.format(weight=1.0).replace("}", schedule)
    (tmp_path / "c.yaml").write_text(text)
    found = diff_json("a.yaml", "c.yaml", "rollouts.jsonl", "--at", "5")
    assert found["mean_after"] == 0.5
    assert [change["where"] for change in found["changes"]] == ["per_turn.number.schedule"]


def test_diff_reads_tau_bench(diff_json, tmp_path):
    records = [
        {"task_id": task, "trial": trial, "reward": 0.0, "info": {},
         "traj": [{"role": "assistant", "content": str(score)}]}
        for trial, score in ((0, 1), (1, 0)) for task in (0, 1)
    ]  # fmt: skip
    (tmp_path / "tau.json").write_text(json.dumps(records))
    found = diff_json("reward.py:Number", "reward.py:minus", "tau.json", "--format", "tau-bench")
    assert (found["groups"]["groups"], found["groups"]["flipped"]) == (2, 2)


def test_diff_escapes_control_characters_and_markup(diff, rows, tmp_path):
    rows(["1", "0"], group="[red]\x1b[2J")
    done = diff("reward.py:Number", "reward.py:minus", "rollouts.jsonl")
    assert "[red]\\x1b[2J" in done.table
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.yaml", "b.yaml", "absent.jsonl"], "can't read absent.jsonl: No such file"),
        (["a.yaml", "b.yaml", "empty.jsonl"], "empty.jsonl has no rollouts"),
        (["a.yaml", "reward.py:absent", "rollouts.jsonl"], "reward.py has no 'absent'"),
        (["broken.yaml", "b.yaml", "rollouts.jsonl"], "per_turn[0].weight"),
        (
            ["reward.py:Number", "reward.py:minus", "rollouts.jsonl", "--at", "1"],
            "--at requires",
        ),
        (
            ["a.yaml", "b.yaml", "rollouts.jsonl", "--format", "csv"],
            "must be 'jsonl', 'tau-bench', 'parquet', 'openenv-trace' or 'atif'",
        ),
    ],
    ids=["no-file", "empty", "no-reward", "broken", "no-schedules", "no-format"],
)
def test_diff_exits_with_2_and_a_reason_if_it_can_not_run(diff, rows, tmp_path, args, message):
    rows(["1"])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken.yaml").write_text(CONFIG.format(weight=".nan"))
    done = diff(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_diff_exits_with_130_after_ctrl_c_and_compares_finished_rows(diff, rows, tmp_path):
    rows(["1", "2", "stop", "3"])
    (tmp_path / "stops.py").write_text(
        "import os, signal\n"
        "def reward(action, observation):\n"
        "    if action.content == 'stop':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return 1.0\n"
    )
    done = diff("stops.py:reward", "reward.py:even", "rollouts.jsonl")
    assert done.returncode == 130
    assert "rows 2 valid in both 2" in done.table
    assert "interrupted: only these are compared" in done.table


def test_diff_reports_a_missing_argument(diff):
    done = diff("a.yaml", "b.yaml")
    assert done.returncode == 2
    assert "ROLLOUTS" in done.stderr
