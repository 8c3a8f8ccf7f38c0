"""ComparisonJob: two rewards that are named, on a file."""

import json
import textwrap

import pytest

from guerdon.errors import InvalidArgumentError, LoadError, RewardConfigError, RolloutError
from guerdon.rollouts.comparing.comparison import ComparisonJob

REWARDS = """
    from guerdon import Rubric, reward_function

    class Number(Rubric):
        '''The turn is a number.'''
        score_range = (0.0, 1.0)

        def __init__(self, scale: float = 1.0):
            super().__init__()
            self.scale = scale

        def forward(self, action, observation):
            return float(action.content) * self.scale

    def one():
        return Number()

    def minus():
        return Number(-1.0)

    @reward_function(mode="batch")
    def ranked(rollouts_messages):
        texts = [messages[-1].text for messages in rollouts_messages]
        return [float(sorted(texts).index(text)) for text in texts]
"""

CONFIG = """
    schema_version: "1.0"
    normalize: false
    per_turn:
      - {{name: number, rubric: "rewards.py:Number", weight: {weight}, schedule: {schedule}}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "rewards.py").write_text(textwrap.dedent(REWARDS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def config(folder):
    def config(name, weight=1.0, schedule="null"):
        text = textwrap.dedent(CONFIG).format(weight=weight, schedule=schedule)
        (folder / name).write_text(text)
        return name

    return config


@pytest.fixture
def rollouts(folder, row, write_rows):
    return write_rows(
        [row("0.25", id="a", group="g"), row("1", id="b", group="h"), row("0.5", id="c", group="g"),
         b"{broken", row("x", id="d", group="h"), row("0", id="e", group="h")]
    )  # fmt: skip


def test_comparison_job_compares_rewards_in_code(rollouts):
    report = ComparisonJob("rewards.py:one", "rewards.py:minus", rollouts).run()
    found = report.comparison
    assert (found.rows, found.movement.both, found.neither) == (6, 4, 2)
    assert [move.id for move in found.moved] == ["b", "c", "a"]
    assert (found.groups.groups, found.groups.pairs.flipped, found.groups.mean_tau) == (2, 2, -1.0)
    assert found.before.failures == {"RolloutError": 1, "ValueError": 1}
    assert [str(change) for change in report.changes] == ["scale: 1.0 → -1.0"]
    assert (report.interrupted, report.is_unsteady) == (False, False)


def test_comparison_job_compares_reward_files(config, rollouts):
    before, after = config("a.yaml"), config("b.yaml", weight=-2.0)
    report = ComparisonJob(before, after, rollouts).run()
    assert [str(change) for change in report.changes] == ["per_turn.number.weight: 1.0 → -2.0"]
    assert report.comparison.moved[0].difference == -3.0
    assert report.comparison.components["number"].difference.value == 0.0


def test_comparison_job_compares_a_reward_file_with_itself(config, rollouts):
    report = ComparisonJob(config("a.yaml"), "a.yaml", rollouts).run()
    assert (report.changes, report.comparison.moved) == ((), ())
    assert report.fingerprint_before == report.fingerprint_after


def test_comparison_job_positions_schedules(config, rollouts):
    before = config("a.yaml")
    after = config("b.yaml", schedule="{piecewise: [[0, 1.0], [10, 0.0]]}")
    means = [
        ComparisonJob(before, after, rollouts, at=at).run().comparison.movement.after.value
        for at in (0, 5, 10)
    ]
    assert means == [0.4375, 0.21875, 0.0]


def test_comparison_job_compares_a_reward_file_with_code_by_tree(config, rollouts):
    report = ComparisonJob("rewards.py:one", config("b.yaml"), rollouts, at=3).run()
    assert str(report.changes[0]) == "the reward: 'Number' → 'RubricComposer'"
    assert report.comparison.movement.difference.value == 0.0


def test_comparison_job_rejects_a_position_without_a_reward_file(rollouts):
    with pytest.raises(InvalidArgumentError, match="--at requires a reward file"):
        ComparisonJob("rewards.py:one", "rewards.py:minus", rollouts, at=3).run()


def test_comparison_job_breaks_down_by_a_column(folder, row, write_rows):
    rows = [row("1", kind="x"), row("2", kind="y"), row("3")]
    parts = ComparisonJob("rewards.py:one", "rewards.py:minus", write_rows(rows), by="kind").run()
    assert {name: part.difference.value for name, part in parts.comparison.parts.items()} == {
        "x": -2.0, "y": -4.0, "(none)": -6.0,
    }  # fmt: skip


def test_comparison_job_keeps_groups_together_for_batch_functions(folder, row, write_rows):
    rows = [row("3", group="g"), row("1", group="g"), row("2", group="h")]
    found = ComparisonJob("rewards.py:one", "rewards.py:ranked", write_rows(rows)).run().comparison
    assert (found.movement.before.value, found.movement.after.value) == (2.0, 1 / 3)
    split = [rows[0], rows[2], rows[1]]
    with pytest.raises(RolloutError, match="is split"):
        ComparisonJob("rewards.py:ranked", "rewards.py:one", write_rows(split)).run()
    apart = ComparisonJob("rewards.py:one", "rewards.py:minus", write_rows(split)).run().comparison
    assert apart.groups.pairs.flipped == 1


@pytest.fixture
def two_folders(folder):
    """Writes old/ and new/, each with a reward that imports a module of its own."""

    def two_folders(old, new):
        module = f"limits_of_{folder.name}"
        for place, limit in (("old", old), ("new", new)):
            (folder / place).mkdir()
            (folder / place / f"{module}.py").write_text(f"LIMIT = {limit}\n")
            (folder / place / "reward.py").write_text(
                f"from {module} import LIMIT\n"
                f"def reward(action, observation):\n    return LIMIT + {len(place)}.0\n"
                f"def other(action, observation):\n    return LIMIT * 2\n"
            )
        return "old/reward.py:reward", "new/reward.py:reward"

    return two_folders


def test_comparison_job_rejects_different_modules_of_one_name(two_folders, row, write_rows):
    specs = two_folders(1.0, 2.0)
    with pytest.raises(InvalidArgumentError, match="are both the module 'limits_of_"):
        ComparisonJob(*specs, write_rows([row("1")])).run()


def test_comparison_job_accepts_equal_modules_of_one_name(two_folders, row, write_rows):
    specs = two_folders(1.0, 1.0)
    report = ComparisonJob(*specs, write_rows([row("1")])).run()
    assert report.comparison.movement.difference.value == 0.0


def test_comparison_job_shares_the_modules_of_one_folder(two_folders, row, write_rows):
    two_folders(1.0, 2.0)
    specs = "new/reward.py:reward", "new/reward.py:other"
    report = ComparisonJob(*specs, write_rows([row("1")])).run()
    assert report.comparison.movement.difference.value == -1.0


def test_comparison_job_compares_rewards_of_one_name_in_two_folders(folder, row, write_rows):
    for value, place in enumerate(("old", "new")):
        (folder / place).mkdir()
        (folder / place / "reward.py").write_text(
            f"def reward(action, observation):\n    return {value}.0\n"
        )
    specs = "old/reward.py:reward", "new/reward.py:reward"
    report = ComparisonJob(*specs, write_rows([row("1")])).run()
    assert report.comparison.movement.difference.value == 1.0
    assert [change.what for change in report.changes] == ["code"]


def test_comparison_job_compares_two_versions_of_single_files(folder, row, write_rows):
    package = f"package_of_{folder.name}"
    for value, place in enumerate(("old", "new")):
        (folder / place / package).mkdir(parents=True)
        (folder / place / package / "__init__.py").touch()
        (folder / place / package / "reward.py").write_text(
            f"def reward(action, observation):\n    return {value}.0\n"
        )
    specs = (f"{place}/{package}/reward.py:reward" for place in ("old", "new"))
    report = ComparisonJob(*specs, write_rows([row("1")])).run()
    assert report.comparison.movement.difference.value == 1.0


def test_comparison_job_reports_changed_code_behind_an_unchanged_file(
    folder, config, row, write_rows
):
    rollouts = write_rows([row("1")])
    (folder / "other").mkdir()
    (folder / "other" / "rewards.py").write_text(
        textwrap.dedent(REWARDS).replace("* self.scale", "* self.scale * 3")
    )
    after = config("other/b.yaml")
    report = ComparisonJob(config("a.yaml"), after, rollouts).run()
    assert [(change.what, change.where) for change in report.changes] == [
        ("code", "per_turn.number")
    ]
    assert report.comparison.movement.difference.value == 2.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rollouts": "absent.jsonl"}, RolloutError, "can't read absent.jsonl: No such file"),
        ({"rollouts": "empty.jsonl"}, RolloutError, "empty.jsonl has no rollouts"),
        ({"after": "rewards.py:absent"}, LoadError, "rewards.py has no 'absent'"),
        ({"after": "absent.yaml"}, RewardConfigError, "absent.yaml"),
        ({"format": "csv"}, InvalidArgumentError, "or 'atif', got 'csv'"),
        ({"top": -1}, InvalidArgumentError, "`top` must be an integer >= 0, got -1"),
    ],
    ids=["no-file", "empty", "no-reward", "no-config", "no-format", "no-top"],
)
def test_comparison_job_rejects_invalid_options(folder, rollouts, options, error, message):
    (folder / "empty.jsonl").write_text("\n")
    given = {"before": "rewards.py:one", "after": "rewards.py:minus", "rollouts": rollouts}
    with pytest.raises(error, match=message):
        ComparisonJob(**given | options).run()


def test_comparison_job_keeps_prints_off_standard_output(folder, row, write_rows, capsys):
    (folder / "loud.py").write_text(
        "print('loaded')\ndef reward(action, observation):\n    print('called')\n    return 1.0\n"
    )
    ComparisonJob("loud.py:reward", "loud.py:reward", write_rows([row("1")])).run()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.split() == ["loaded", "called", "called"]


def test_comparison_job_reads_rollouts_for_each_reward(folder, row, write_rows):
    (folder / "spoils.py").write_text(
        "def reward(action, observation):\n"
        "    observation.metadata['tags'].append('seen')\n"
        "    return float(len(observation.metadata['tags']))\n"
    )
    job = ComparisonJob("spoils.py:reward", "spoils.py:reward", write_rows([row("1", tags=[])]))
    movement = job.run().comparison.movement
    assert (movement.before.value, movement.after.value) == (1.0, 1.0)


def test_comparison_job_reports_progress(rollouts):
    seen = []
    job = ComparisonJob("rewards.py:one", "rewards.py:minus", rollouts)
    report = job.run(lambda rows, read: seen.append((rows, read)))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] <= report.comparison.rows


def test_comparison_job_compares_the_finished_rows_after_ctrl_c(folder, row, write_rows):
    (folder / "stops.py").write_text(
        "import os, signal\n"
        "def reward(action, observation):\n"
        "    if action.content == 'stop':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return 1.0\n"
    )
    rollouts = write_rows([row("1"), row("2"), row("stop"), row("3")])
    report = ComparisonJob("rewards.py:one", "stops.py:reward", rollouts).run()
    assert report.interrupted
    assert report.comparison.rows == 2
    assert json.dumps(report.to_dict(), allow_nan=False)
