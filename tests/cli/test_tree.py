"""guerdon tree: what a reward is made of."""

import json

import pytest

pytestmark = pytest.mark.edge  # real processes


@pytest.fixture(autouse=True)
def _rewards(rewards):
    pass


def test_tree_prints_names_meanings_ranges_weights_and_dependencies(guerdon):
    done = guerdon("tree", "reward.py:reward")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    lines = [line for line in lines if set(line) != {"─"}]
    assert lines[0] == "rubric measures range weight depends on"
    assert lines[1].startswith("reward WeightedSum The weighted sum of")
    assert lines[2].startswith("rubric_0 Gate ")
    assert lines[2].endswith(" [0, 1] 1")
    assert lines[3] == "rubric Number The turn is a number. [0, 1] passes at 0.5"
    assert lines[4].startswith("rubric_1 Sequential ")
    assert lines[4].endswith(" -0.5")
    assert lines[5] == "rubric_0 polite Says please. –"
    assert lines[6].startswith("rubric_1 Number The turn is a number. [0, 1] rubric_0")
    assert len(lines) == 8
    assert lines[7].startswith("reward ")


def test_tree_prints_json(guerdon):
    done = guerdon("tree", "reward.py:reward", "--json")
    assert done.returncode == 0
    data = json.loads(done.stdout)
    nodes = {node["path"]: node for node in data["tree"]}
    assert list(nodes) == [
        "", "rubric_0", "rubric_0.rubric", "rubric_1", "rubric_1.rubric_0", "rubric_1.rubric_1",
    ]  # fmt: skip
    assert nodes["rubric_0.rubric"] == {
        "path": "rubric_0.rubric",
        "rubric": "Number",
        "measures": "The turn is a number.",
        "range": [0.0, 1.0],
        "weight": None,
        "depends_on": ["passes at 0.5"],
        "async": False,
    }
    assert (nodes["rubric_0"]["weight"], nodes["rubric_1"]["weight"]) == (1.0, -0.5)
    assert nodes["rubric_1.rubric_0"]["measures"] == "Says please."
    assert nodes["rubric_1.rubric_1"]["depends_on"] != []
    assert data["fingerprint"]


def test_tree_prints_names_with_brackets_unchanged(guerdon, tmp_path):
    (tmp_path / "odd.py").write_text(
        "from guerdon import RubricDict\n"
        "def one(action, observation):\n    'Is [bold]one[/] of [0, 1].'\n    return 1.0\n"
        "def reward():\n    return RubricDict({'[red]x[/red]': one})\n"
    )
    done = guerdon("tree", "odd.py:reward")
    assert "[red]x[/red]" in done.stdout
    assert "Is [bold]one[/] of [0, 1]." in done.stdout


def test_tree_shows_the_traceback_of_a_reward_that_does_not_import(guerdon, tmp_path):
    (tmp_path / "broken.py").write_text("def setup():\n    [][1]\n\nsetup()\n")
    done = guerdon("tree", "broken.py:reward")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert f'File "{tmp_path}/broken.py", line 4, in <module>' in done.stderr
    assert "IndexError: list index out of range\n" in done.stderr
    assert "error: broken.py:reward: importing it raised IndexError" in done.stderr
    assert done.stderr.count("File ") == 2


def test_tree_shows_the_line_of_a_syntax_error(guerdon, tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ndef reward(:\n")
    done = guerdon("tree", "broken.py:reward")
    assert done.returncode == 2
    assert "def reward(:" in done.stderr
    assert done.stderr.count("File ") == 1


def test_tree_reports_a_missing_reward_in_one_line(guerdon):
    done = guerdon("tree", "reward.py:absent")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: reward.py has no 'absent'")
    assert "Traceback" not in done.stderr


def test_tree_reports_a_full_disk_without_a_traceback(guerdon):
    with open("/dev/full", "wb") as full:
        done = guerdon("tree", "reward.py:reward", stdout=full)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


FADING = """
schema_version: "1.0"
per_turn:
  - {name: f, rubric: "fn.py:short", config: {n: 30}, schedule: {piecewise: [[0, 1.0], [10, 0.0]]}}
curriculum:
  - {name: first, weights: {f: 2.0}, until: {episodes: 5}}
  - {name: then}
"""


def test_tree_prints_the_schedules_of_a_reward_file(guerdon, tmp_path):
    (tmp_path / "fn.py").write_text(
        'def short(action, observation, n=3):\n    """Short enough."""\n    return 1.0\n'
    )
    (tmp_path / "fading.yaml").write_text(FADING)
    done = guerdon("tree", "fading.yaml")
    assert done.returncode == 0
    assert "short" in done.stdout
    assert "Short enough." in done.stdout
    assert "weight of f moves by episode: piecewise [[0, 1.0], [10, 0.0]]\n" in done.stdout
    assert "weights go by stages: first, then\n" in done.stdout
    data = json.loads(guerdon("tree", "fading.yaml", "--json").stdout)
    assert data["schedules"]["f"]["by"] == "episode"
    assert data["stages"] == ["first", "then"]
