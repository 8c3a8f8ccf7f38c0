"""Records: as metrics, and as lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.tracking import TrackedRecord
from guerdon.tracking.records import line_of, record_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_a_component_that_is_called_total_does_not_meet_the_total():
    record = TrackedRecord("1", "step", 0.0, 1, reward=1.0, components={"total": 2.0, "a": 3.0})
    assert sorted(record.metrics().values()) == [1.0, 2.0, 3.0]
    assert record.metrics()["reward/total"] == 1.0


def test_a_component_that_failed_and_is_called_total_does_not_meet_the_total():
    record = TrackedRecord("1", "step", 0.0, 1, reward=None, invalid={"total": "failed"})
    assert len(record.metrics()) == 2


def test_a_record_without_a_step_kind_has_no_total():
    assert TrackedRecord("1", "weights", 0.0, 1, weights={"a": 1.0}).metrics() == {
        "reward/weights/a": 1.0
    }


@given(st.dictionaries(st.text(), FINITE), st.text(), FINITE)
def test_a_line_is_read_as_it_was_written(components, env_id, reward):
    row = {
        "id": "s-1", "kind": "step", "time": 1.5, "step": 3, "episode": None, "env_id": env_id,
        "reward": reward, "components": components,
    }  # fmt: skip
    line = line_of(row)
    assert line.count(b"\n") == 1
    record = record_of(line)
    assert (record.components, record.env_id, record.reward) == (components, env_id, reward)
    assert record.line == line


@pytest.mark.parametrize("line", [b"", b"{", b"[]\n", b'{"id": 1}\n', b'{"other": 1}\n', b"\xff"])
def test_what_is_no_line_of_a_record_is_an_error(line):
    with pytest.raises(ValueError, match=r"."):
        record_of(line)


def test_names_that_no_encoding_holds_are_kept():
    line = line_of({"id": "1", "kind": "step", "time": 0.0, "step": 1, "env_id": "\ud800"})
    assert json.loads(line)["env_id"] == record_of(line).env_id == "\ud800"
