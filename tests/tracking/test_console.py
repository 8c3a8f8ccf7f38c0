"""Lines on a terminal."""

import io

import pytest

from guerdon.errors import InvalidArgumentError
from guerdon.tracking import ConsoleTracker, RewardLogger, TrackedRecord


def printed(*records, **options):
    stream = io.StringIO()
    ConsoleTracker(stream, **options).write(records)
    return stream.getvalue().splitlines()


def step(number, **more):
    return TrackedRecord(str(number), "step", 0.0, number, **({"reward": 0.5} | more))


def test_console_tracker_prints_a_step_as_a_line():
    record = step(7, episode=2, env_id="env-0", components={"tests": 1.0, "style": 0.25})
    assert printed(record) == ["step 7  episode 2  env-0  reward 0.5  tests=1  style=0.25"]


def test_console_tracker_prints_why_a_reward_is_invalid():
    record = step(7, reward=None, reward_error="judge down", invalid={"style": "timed out"})
    assert printed(record) == ["step 7  reward invalid (judge down)  style=invalid (timed out)"]


def test_console_tracker_prints_weights_and_changes():
    weights = TrackedRecord("1", "weights", 0.0, 3, weights={"style": 0.1})
    change = {"what": "style.weight", "from": 0.3, "to": 0.1, "who": "ann", "number": 1}
    assert printed(weights, TrackedRecord("2", "config", 0.0, 3, change=change)) == [
        "step 3  weight of style=0.1",
        "step 3  style.weight: 0.3 -> 0.1 by ann",
    ]


@pytest.mark.parametrize("who", [{}, {"who": None}, {"who": ""}], ids=str)
def test_console_tracker_prints_no_unknown_author(who):
    change = {"what": "style.weight", "from": 0.3, "to": 0.1, "number": 1, **who}
    assert printed(TrackedRecord("2", "config", 0.0, 3, change=change)) == [
        "step 3  style.weight: 0.3 -> 0.1",
    ]


def test_console_tracker_prints_every_nth_step_and_all_failures():
    records = [step(1), step(2), step(3, reward=None), step(4), step(5), step(6)]
    assert [line.split()[1] for line in printed(*records, every=2)] == ["2", "3", "5"]


def test_console_tracker_escapes_control_characters():
    [line] = printed(step(1, env_id="a\x1b[2J\nb\ud800"))
    assert "a\\x1b[2J\\nb\\ud800" in line


def test_console_tracker_escapes_what_the_encoding_lacks():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ConsoleTracker(stream).write([step(1, env_id="é")])
    assert stream.buffer.getvalue() == b"step 1  \\xe9  reward 0.5\n"


@pytest.mark.parametrize("every", [0, 1.5, True, "2"])
def test_console_tracker_rejects_an_invalid_every(every):
    with pytest.raises(InvalidArgumentError, match="`every` must be an integer >= 1"):
        ConsoleTracker(every=every)


def test_console_tracker_prints_to_stderr(tmp_path, capsys):
    with RewardLogger("console", path=tmp_path) as logger:
        logger.log_step(1, 0, 0.5, {})
    assert capsys.readouterr() == ("", "step 1  episode 0  reward 0.5\n")
