"""The harness of `make worlds`: it plays a world in a real server, and names what failed."""

import re
import sys

import pytest

from examples import worlds
from examples.connect4.environment import Connect4Environment
from examples.worlds import WORLDS, World, main
from guerdon.rubrics import as_rubric

pytestmark = pytest.mark.edge  # real servers


def output_of(capsys, monkeypatch, *names):
    monkeypatch.setattr(sys, "argv", ["worlds", *names])
    code = main()
    return code, capsys.readouterr().out


def test_main_prints_a_row_for_each_world(capsys, monkeypatch):
    code, output = output_of(capsys, monkeypatch, "connect4")
    assert code == 0
    assert "connect4" in output
    assert "1 of 1 worlds played" in output


def test_main_names_a_world_that_does_not_start_and_plays_the_others(capsys, monkeypatch):
    missing = World("missing", "examples.missing.environment:Missing")
    monkeypatch.setattr(worlds, "WORLDS", (missing, WORLDS[0]))
    code, output = output_of(capsys, monkeypatch)
    assert code == 1
    assert "missing failed: LaunchError: " in output
    assert "there is no module 'examples.missing'" in output
    assert "1 of 2 worlds played" in output


class Refusing(Connect4Environment):
    def step(self, action, timeout_s=None, **kwargs):
        raise ArithmeticError("refused")


class Unscored(Connect4Environment):
    def __init__(self):
        super().__init__()
        self.rubric = as_rubric(lambda action, observation: 1 / 0)


class Endless(Connect4Environment):
    def step(self, action, timeout_s=None, **kwargs):
        observation = super().reset()
        observation.reward = 0.0
        return observation


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (Refusing, "step 1 of slot .* has no reward: .* ArithmeticError: refused"),
        (Unscored, "step 1 of slot .* has no reward: ZeroDivisionError"),
        (Endless, "slot .* has 20 steps, no end yet"),
    ],
)
def test_main_names_a_world_with_a_failing_step(environment, problem, capsys, monkeypatch):
    spec = f"tests.examples.test_worlds:{environment.__name__}"
    monkeypatch.setattr(worlds, "WORLDS", (World("connect4", spec),))
    monkeypatch.setattr(worlds, "MOST_STEPS", 20)
    code, output = output_of(capsys, monkeypatch)
    assert code == 1
    assert re.search(f"connect4 failed: RuntimeError: .*{problem}", output.replace("\n", " "))
    assert "0 of 1 worlds played" in output


def test_main_rejects_an_unknown_world(capsys, monkeypatch):
    code, output = output_of(capsys, monkeypatch, "connect5")
    assert code == 2
    assert "unknown: connect5; the worlds: connect4, " in output
