"""Records: as metrics, as lines, and from observations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import RewardLogger, RubricComposer, StepResult
from guerdon.errors import InvalidArgumentError
from guerdon.tracking import TrackedRecord, metric_name, reward_fields
from guerdon.tracking.records import line_of, record_of
from tests.envs.worlds import Down, Half, Move, World

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_metrics_keep_a_component_called_total_apart():
    record = TrackedRecord("1", "step", 0.0, 1, reward=1.0, components={"total": 2.0, "a": 3.0})
    assert sorted(record.metrics().values()) == [1.0, 2.0, 3.0]
    assert record.metrics()["reward/total"] == 1.0


def test_metrics_keep_a_failed_component_called_total_apart():
    record = TrackedRecord("1", "step", 0.0, 1, reward=None, invalid={"total": "failed"})
    assert len(record.metrics()) == 2


def test_metrics_of_weights_have_no_total():
    assert TrackedRecord("1", "weights", 0.0, 1, weights={"a": 1.0}).metrics() == {
        "reward/weights/a": 1.0
    }


@given(st.dictionaries(st.text(), FINITE), st.text(), FINITE)
def test_record_of_returns_what_line_of_wrote(components, env_id, reward):
    row = {
        "id": "s-1", "kind": "step", "time": 1.5, "step": 3, "episode": None, "env_id": env_id,
        "reward": reward, "components": components,
    }  # fmt: skip
    line = line_of(row)
    assert line.count(b"\n") == 1
    record = record_of(line)
    assert (record.components, record.env_id, record.reward) == (components, env_id, reward)


@pytest.mark.parametrize("line", [b"", b"{", b"[]\n", b'{"id": 1}\n', b'{"other": 1}\n', b"\xff"])
def test_record_of_rejects_other_lines(line):
    with pytest.raises(ValueError, match=r"."):
        record_of(line)


def test_line_of_keeps_names_that_no_encoding_has():
    line = line_of({"id": "1", "kind": "step", "time": 0.0, "step": 1, "env_id": "\ud800"})
    assert json.loads(line)["env_id"] == record_of(line).env_id == "\ud800"


# Names of metrics

PARTS = st.text(alphabet="ab_-./ é\ud800é", max_size=6)


@pytest.mark.parametrize("name", ["style", "a.b", "a-b_c", "9", "_x", "Style", "a" * 80])
def test_metric_name_keeps_names_that_every_tracker_accepts(name):
    assert metric_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["total", "weights", "invalid", "", ".", "..", "a b", "a/b", "é", "a" * 81, "-a", "\ud800",
     "a-0123abcd", "a\n"],
    ids=ascii,
)  # fmt: skip
def test_metric_name_adds_eight_digits_to_other_names(name):
    made = metric_name(name)
    assert made != name
    assert made.rpartition("-")[2].isalnum()
    assert len(made) <= 80
    assert made.isascii()
    assert made[0].isalnum() or made[0] == "_"
    assert "/" not in made


@given(st.sets(PARTS | st.text(max_size=100), max_size=20))
def test_metric_name_keeps_different_names_different(names):
    assert len({metric_name(name) for name in names}) == len(names)


@given(PARTS)
def test_metric_name_never_returns_another_plain_name(name):
    made = metric_name(name)
    assert made == name or metric_name(made) != made


# Observations


def seen(rubric):
    world = World(rubric)
    world.reset()
    return world.step(Move())


def test_reward_fields_of_an_observation_are_logged(tmp_path):
    observation = seen(RubricComposer({"half": Half()}, {"half": 2.0}, normalize=False))
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, **reward_fields(observation))
    record = json.loads((tmp_path / "run" / "rewards.jsonl").read_text())
    assert record["metrics"] == {
        "reward/total": 1.0,
        "reward/half": 0.5,
        "reward/weights/half": 2.0,
    }


def test_reward_fields_leave_out_a_weight_that_no_float_can_represent():
    rubric = RubricComposer({"half": Half(), "big": Half()}, [2.0, 1e308], normalize=False)
    rubric.factors = {"big": 1e9}
    assert reward_fields(seen(rubric))["weights"] == {"half": 2.0}


def test_reward_fields_name_the_rubric_that_failed(tmp_path):
    observation = seen(RubricComposer({"half": Half(), "judge": Down()}, [1.0, 1.0]))
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, **reward_fields(observation))
    record = json.loads((tmp_path / "run" / "rewards.jsonl").read_text())
    assert record["metrics"] == {
        "reward/half": 0.5,
        "reward/invalid/judge": 1.0,
        "reward/invalid/total": 1.0,
        "reward/weights/half": 1.0,
        "reward/weights/judge": 1.0,
    }


def test_reward_fields_accept_a_step_result():
    result = StepResult({"text": "hi"}, 0.5, False, {"reward_components": {"a": 0.5}})
    assert reward_fields(result)["components"] == {"a": 0.5}
    assert reward_fields(StepResult({}, None, False, None))["components"] == {}


@pytest.mark.parametrize("thing", [None, 0.5, {"reward": 1.0}])
def test_reward_fields_reject_other_objects(thing):
    with pytest.raises(InvalidArgumentError, match="must be an observation"):
        reward_fields(thing)
