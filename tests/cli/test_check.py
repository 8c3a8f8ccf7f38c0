"""guerdon check: the table, the JSON, the actions, and the exit codes."""

import json
import textwrap

import pytest

from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real processes

WORLDS = """
    from guerdon import Action, Environment, Observation, Rubric, State
    from guerdon.errors import EpisodeError

    class Say(Action):
        text: str

    class Short(Rubric):
        score_range = (0.0, 1.0)

        def forward(self, action, observation):
            return 1 / (1 + len(action.text))

    class Good(Environment[Say, Observation, State]):
        def __init__(self):
            super().__init__(rubric=Short())
            self.over, self.state_ = True, State()

        def reset(self, seed=None):
            self.over = False
            return Observation()

        def step(self, action):
            if self.over:
                raise EpisodeError("reset begins an episode")
            if action.text == "crash":
                raise OSError("it [bold]crashed[/]")
            self.over = True
            return self.score(action, Observation(done=True))

        @property
        def state(self):
            return self.state_

    class Bad(Good):
        def step(self, action):
            return self.score(action, Observation(done=True, metadata={"[red]x": {1, 2}}))

    class Forgot(Good):
        def __init__(self):
            super().__init__()
            self.rubric = None

    class Loud(Good):
        def step(self, action):
            print("a step")
            return super().step(action)

    class Once(Good):
        def reset(self, seed=None):
            if not self.over:
                raise OSError("the second reset")
            return super().reset()

    class Hangs(Good):
        def reset(self, seed=None):
            import threading
            threading.Event().wait()

    def make():
        return Good()
"""


@pytest.fixture(autouse=True)
def _worlds(tmp_path):
    (tmp_path / "worlds.py").write_text(textwrap.dedent(WORLDS))


@pytest.fixture
def inside(tmp_path):
    return lambda *args: run_inside(tmp_path, *args)


@pytest.fixture
def actions(tmp_path):
    def actions(data):
        data = data if isinstance(data, bytes) else data.encode()
        (tmp_path / "actions.jsonl").write_bytes(data)
        return ["--actions", "actions.jsonl"]

    return actions


def rows(done):
    """The table's rows, with single spaces."""
    lines = (" ".join(line.split()) for line in done.stdout.splitlines())
    return [line for line in lines if line and set(line) != {"─"}]


@pytest.mark.parametrize("target", ["worlds.py:Good", "worlds.py:make", "worlds:Good"])
def test_check_prints_a_row_per_check_and_exits_with_0(inside, target):
    done = inside("check", target)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(rows(done)) == 11
    assert all(row.startswith("ok ") for row in rows(done))


def test_check_exits_with_1_and_reports_problems(inside):
    done = inside("check", "worlds.py:Bad")
    assert (done.returncode, done.stderr) == (1, "")
    bad = [row for row in rows(done) if row.startswith("problem ")]
    assert len(bad) == 2
    assert bad[0].startswith("problem observations survive JSON observation 1: metadata.[red]x is")
    assert bad[1].startswith("problem a step after the end is refused it is taken; raise Episode")


def test_check_without_a_rubric_exits_with_1_and_a_hint(inside):
    done = inside("check", "worlds.py:Forgot")
    assert done.returncode == 1
    assert "Forgot has no rubric; set one in __init__" in " ".join(rows(done))


REWARD = """
    schema_version: "1.0"
    per_turn:
      - name: short
        rubric: worlds.py:Short
        weight: 1.0
        schedule: {piecewise: [[0, 0.0], [10, 1.0]], by: episode}
"""


@pytest.mark.parametrize("target", ["Good", "Forgot", "make"])
def test_check_plays_with_the_reward_of_a_file(inside, tmp_path, target):
    (tmp_path / "reward.yaml").write_text(textwrap.dedent(REWARD))
    done = inside("check", f"worlds.py:{target}", "--reward", "reward.yaml")
    assert all(row.startswith("ok ") for row in rows(done)), done.stdout
    assert (done.returncode, done.stderr, len(rows(done))) == (0, "", 11)


def test_check_reports_a_reward_of_a_file_that_is_out_of_range(inside, tmp_path):
    (tmp_path / "rewards.py").write_text(
        "from guerdon import Rubric\n"
        "class Wild(Rubric):\n"
        "    score_range = (0.0, 1.0)\n"
        "    def forward(self, action, observation):\n"
        "        return 2.0\n"
    )
    wild = textwrap.dedent(REWARD).replace("worlds.py:Short", "rewards.py:Wild")
    (tmp_path / "reward.yaml").write_text(wild.replace("[0, 0.0]", "[0, 1.0]"))
    done = inside("check", "worlds.py:Good", "--reward", "reward.yaml")
    assert done.returncode == 1
    assert "outside of [0.0, 1.0]" in " ".join(rows(done))


def test_check_exits_with_2_for_a_reward_file_that_is_invalid(inside, tmp_path):
    (tmp_path / "reward.yaml").write_text("per_turn: [{name: short}]")
    done = inside("check", "worlds.py:Good", "--reward", "reward.yaml")
    assert done.returncode == 2
    assert "reward.yaml" in done.stderr


def test_check_prints_json(guerdon):
    for name, code in (("Good", 0), ("Bad", 1)):
        done = guerdon("check", f"worlds.py:{name}", "--json")
        assert (done.returncode, done.stderr) == (code, "")
        data = json.loads(done.stdout)
        assert set(data) == {"ok", "checks"}
        assert data["ok"] == (code == 0)
        assert all(set(line) == {"check", "status", "detail"} for line in data["checks"])
        statuses = {line["check"]: line["status"] for line in data["checks"]}
        assert len(statuses) == 11
        assert ("problem" in statuses.values()) == (code == 1)


def test_check_keeps_prints_of_the_environment_off_the_json(inside):
    done = inside("check", "worlds.py:Loud", "--json")
    assert json.loads(done.stdout)["ok"]


def test_check_reports_a_later_exception_without_a_traceback(guerdon):
    done = guerdon("check", "worlds.py:Once", "--json")
    assert done.returncode == 1
    assert "OSError: the second reset" in done.stdout
    assert "Traceback" not in done.stderr


def test_check_reports_a_hang_after_the_timeout(guerdon):
    done = guerdon("check", "worlds.py:Hangs", "--timeout", "0.2", "--json")
    assert done.returncode == 1
    assert "took longer than 0.2 s" in done.stdout


# Actions


def test_check_plays_the_actions_of_a_file(inside, actions):
    good = '\ufeff{"text": "a"}\n\n  {"text": "b\u2028c", "metadata": {"n": 1}}  \r\n'
    for text in (good.removeprefix("\ufeff"), '{"text": "a"}'):
        done = inside("check", "worlds.py:Good", *actions(text))
        assert (done.returncode, done.stderr) == (0, "")
    done = inside("check", "worlds.py:Good", *actions('{"text": "crash"}\n'))
    assert done.returncode == 1
    assert "OSError: it [bold]crashed[/]" in " ".join(rows(done))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"text": "a"}\n{"text": \n', "actions.jsonl, line 2:"),
        ('{"text": "a"}\n\n["a"]\n', "actions.jsonl, line 3: an action must be an object"),
        ('"a"\n', "actions.jsonl, line 1: an action must be an object"),
        (b'{"text": "a"}\n{"text": "\xff"}\n', "actions.jsonl"),
    ],
    ids=["cut", "a list", "a string", "not UTF-8"],
)
def test_check_exits_with_2_on_an_invalid_action_line(inside, actions, data, message):
    done = inside("check", "worlds.py:Good", *actions(data))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_check_fails_on_a_file_without_actions(inside, actions, text):
    done = inside("check", "worlds.py:Good", *actions(text))
    assert done.returncode in (1, 2)
    assert "no actions" in done.stdout + done.stderr


@pytest.mark.parametrize("text", ['{"txet": "a"}\n', '{"text": 3}\n', "{}\n"])
def test_check_reports_an_action_that_does_not_fit(inside, actions, text):
    done = inside("check", "worlds.py:Good", *actions(text))
    assert done.returncode in (1, 2)
    assert "text" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# What can't be done


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["nothing"],
            "'nothing' is not a folder, not module:name and not a registered environment",
        ),
        (["."], "has no environment.py"),
        (["worlds.py:Absent"], "has no 'Absent'"),
        (
            ["worlds.py:Short"],
            "must be an Environment class or a function that returns an environment",
        ),
        (["worlds.py:Good", "--actions", "absent.jsonl"], "absent.jsonl: No such file"),
        (["worlds.py:Good", "--actions", "."], "Is a directory"),
        (["worlds.py:Good", "--timeout", "-1"], "timeout"),
        (["worlds.py:Good", "--timeout", "nan"], "timeout"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_check_exits_with_2_and_one_line_if_it_can_not_run(inside, args, message):
    done = inside("check", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["--steps", "0"], ["--seed", "-1"], ["--timeout", "soon"]])
def test_check_exits_with_2_on_invalid_options(inside, args):
    done = inside("check", "worlds.py:Good", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert args[0] in done.stderr
    assert "Traceback" not in done.stderr


def test_check_shows_the_traceback_of_an_environment_that_does_not_import(inside, tmp_path):
    (tmp_path / "maze").mkdir()
    (tmp_path / "maze" / "environment.py").write_text("x = 1\nraise OSError('no game')\n")
    done = inside("check", "maze")
    assert (done.returncode, done.stdout) == (2, "")
    assert f'File "{tmp_path}/maze/environment.py", line 2, in <module>' in done.stderr
    assert done.stderr.count("File ") == 1
