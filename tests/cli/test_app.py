"""guerdon: its help, and its error messages."""

import importlib

import pytest

import guerdon as package
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real processes

app = importlib.import_module("guerdon.cli.app")  # the room offers a Typer of that name


@pytest.mark.parametrize("how", [["--help"], ["-h"], []])
def test_help_shows_commands_with_examples(guerdon, how):
    done = guerdon(*how)
    text = done.stdout + done.stderr
    assert done.returncode == (0 if how else 2)
    for expected in (
        "guerdon tree reward.py:reward",
        "guerdon score rollouts.jsonl --reward reward.py:reward",
        "f(action, observation) -> float",
        "A failure is never a score of 0",
    ):
        assert expected in text


def test_help_of_score_lists_options_and_exit_codes(guerdon):
    done = guerdon("score", "--help")
    assert done.returncode == 0
    for expected in (
        "ROLLOUTS", "--reward", "-r", "--out", "-o", "--workers", "-w", "--resume", "--by",
        "--passing", "--json", "--help", "standard input", "Exit codes: 0", "130", "--format",
        "--param", "--credit", "--gamma", "--omega", "--state-key", "--credit-option",
    ):  # fmt: skip
        assert expected in done.stdout


def test_help_of_tree_lists_options(guerdon):
    done = guerdon("tree", "--help")
    assert done.returncode == 0
    for expected in ("SPEC", "--json", "--help", "file.py:name", "module:name"):
        assert expected in done.stdout


def test_version_is_printed(guerdon):
    done = guerdon("--version")
    assert (done.returncode, done.stdout) == (0, f"guerdon {package.__version__}\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["scoer"], "No such command"),
        (["score", "rollouts.jsonl"], "--reward"),
        (["score", "x.jsonl", "-r", "a:b", "--workers", "0"], "--workers"),
        (["score", "x.jsonl", "-r", "a:b", "--passing", "high"], "--passing"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_message(tmp_path, args, message):
    done = run_inside(tmp_path, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("no game"), "OSError: no game"),
        (FileNotFoundError(2, "No such file", "maze.txt"), "No such file"),
        (OSError(28, "No space left on device"), "can't write to standard output: No space left"),
    ],
)
def test_main_reports_an_os_error_with_its_text(monkeypatch, capsys, error, message):
    def fails(**_):
        raise error

    monkeypatch.setattr(app, "app", fails)
    monkeypatch.setattr(app, "_silence", lambda stream: None)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
