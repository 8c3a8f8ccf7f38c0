"""Names that every tracker takes, and that never meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.tracking import metric_name

PARTS = st.text(alphabet="ab_-./ é\ud800é", max_size=6)


@pytest.mark.parametrize("name", ["style", "a.b", "a-b_c", "9", "_x", "Style", "a" * 80])
def test_a_name_that_every_tracker_takes_stays(name):
    assert metric_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["total", "weights", "invalid", "", ".", "..", "a b", "a/b", "é", "a" * 81, "-a", "\ud800",
     "a-0123abcd", "a\n"],
    ids=ascii,
)  # fmt: skip
def test_another_gets_eight_digits_of_its_own(name):
    made = metric_name(name)
    assert made != name
    assert made.rpartition("-")[2].isalnum()
    assert len(made) <= 80
    assert made.isascii()
    assert made[0].isalnum() or made[0] == "_"
    assert "/" not in made


@given(st.sets(PARTS | st.text(max_size=100), max_size=20))
def test_different_names_never_meet(names):
    assert len({metric_name(name) for name in names}) == len(names)


@given(PARTS)
def test_a_name_is_never_what_another_is_written_as(name):
    made = metric_name(name)
    assert made == name or metric_name(made) != made
