"""difference: where two nested values differ first."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.envs.checking import difference

NAN = float("nan")

nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=10,
)


@given(nested)
def test_difference_a_value_does_not_differ_from_its_copy_also_where_it_contains_nan(value):
    assert difference(value, copy.deepcopy(value)) == ""


@given(nested, nested)
def test_difference_two_values_differ_both_ways_or_not_at_all(one, other):
    assert bool(difference(one, other)) == bool(difference(other, one))


@given(st.lists(nested, min_size=1, max_size=4), st.data())
def test_difference_a_list_in_which_one_thing_was_replaced_differs_there(values, data):
    place = data.draw(st.integers(0, len(values) - 1))
    changed = [*values]
    changed[place] = object()
    assert difference({"x": values}, {"x": changed}).startswith(f"x[{place}] is <object")


@pytest.mark.parametrize(
    ("expected", "seen", "text"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1] is 3, not 2"),
        ({"a": 1}, {"a": 1, "b": 2}, "b is missing in one of them"),
        ({"a": 1, "b": 2}, {"a": 1}, "b is missing in one of them"),
        ({"a": 1}, {"a": True}, "a is True, not 1"),
        ({"a": 1}, {"a": 1.0}, "a is 1.0, not 1"),
        ({"a": [1]}, {"a": (1,)}, "a is (1,), not [1]"),
        ({"a": [1]}, {"a": [1, 1]}, "a[1] is missing in one of them"),
        ({"a": NAN}, {"a": 1.0}, "a is 1.0, not nan"),
        ({"a": {1}}, {"a": [1]}, "a is [1], not {1}"),
        ({"a": None}, {}, "a is missing in one of them"),
        ({1: "one"}, {"1": "one"}, "[1] is missing in one of them"),
        ([{"a": 1}], [{"a": 2}], "[0].a is 2, not 1"),
    ],
    ids=repr,
)  # fmt: skip
def test_difference_the_first_place_is_reported_with_both_values(expected, seen, text):
    assert difference(expected, seen) == text


def test_difference_long_values_are_cut():
    assert len(difference({"a": "x" * 1000}, {"a": "y" * 1000})) < 200


def test_difference_ignores_the_order_of_keys():
    assert difference({"a": 1, "b": 2}, {"b": 2, "a": 1}) == ""
