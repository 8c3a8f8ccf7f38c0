"""The differences of nested values."""

import copy
import json
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from guerdon.errors import MissingInputError
from guerdon.rubrics.checks.differences import Tolerance, difference_text, differences

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


class Cabin(Enum):
    ECONOMY = "economy"


class Passenger(BaseModel):
    name: str
    bags: int = 0


@dataclass(slots=True)
class Reservation:
    passengers: list[Passenger]
    day: date


def shown(expected, found):
    return [difference_text(*each) for each in differences(expected, found)]


@given(JSON)
def test_differences_of_a_value_and_its_copy_are_none(value):
    assert shown(value, copy.deepcopy(value)) == []
    assert shown(value, json.loads(json.dumps(value))) == []


@given(JSON, JSON)
def test_differences_are_none_only_for_equal_json(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (shown(one, other) == []) is same
    assert (shown(other, one) == []) is same


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (348, 348.0),
        (0.3, 0.1 + 0.2),
        (1e20, 1e20 * (1 + 1e-15)),
        (float("nan"), float("nan")),
        ((1, 2), [1, 2]),
        (deque((1, 2)), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        ({"a": 1, "b": 2}, OrderedDict(b=2, a=1)),
        ({"b", "a", "c"}, frozenset(("c", "a", "b"))),
        (Passenger(name="ann"), {"name": "ann", "bags": 0}),
        (
            Reservation([Passenger(name="ann")], date(2024, 5, 1)),
            {"passengers": [{"name": "ann", "bags": 0}], "day": "2024-05-01"},
        ),
        (Cabin.ECONOMY, "economy"),
        (Decimal("1.50"), Decimal("1.5")),
        (Decimal("5.1"), 5.1),
        (Decimal(5), 5),
        (Decimal(5), 5.0),
        (np.int64(5), Decimal("5.0")),
        ({Decimal(5), 3, 9}, {3.0, 5, 9}),
        (float("inf"), float("inf")),
        (Decimal("Infinity"), float("inf")),
        (1234567.89, 1234567.8900000001),
        (5e9 + 0.1 + 0.2, 5e9 + 0.3),
        (np.array([1.0, 2.0]), [1, 2]),
        ([np.float64(0.5), np.True_], [0.5, True]),
    ],
)
def test_differences_ignores_how_a_value_is_represented(expected, found):
    assert shown(expected, found) == []
    assert shown(found, expected) == []


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        (
            {"reservations": {"HAT001": {"cabin": "business"}}},
            {"reservations": {"HAT001": {"cabin": "economy"}}},
            "reservations.HAT001.cabin: 'economy', expected 'business'",
        ),
        ({"a": 1}, {}, "a: nothing, expected 1"),
        ({}, {"a": None}, "a: None, expected nothing"),
        ([1, 2], [1], "[1]: nothing, expected 2"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a[0].b: 2, expected 1"),
        (1, True, "the whole: True, expected 1"),
        (0, False, "the whole: False, expected 0"),
        (1, "1", "the whole: '1', expected 1"),
        ({}, [], "the whole: [], expected {}"),
        (2**53, 2**53 + 1, "the whole: 9007199254740993, expected 9007199254740992"),
        ([10**5000], [1.0], "[0]: 1.0, expected <int>"),
        (1760000000.0, 1760000001.0, "the whole: 1760000001.0, expected 1760000000.0"),
        (1760000000, 1760000001.0, "the whole: 1760000001.0, expected 1760000000"),
        (1760000000.5, 1760000000.501, "the whole: 1760000000.501, expected 1760000000.5"),
        (1.76e12, 1.76e12 + 1, "the whole: 1760000000001.0, expected 1760000000000.0"),
        (5e9, 5e9 + 4, "the whole: 5000000004.0, expected 5000000000.0"),
        (5, "5", "the whole: '5', expected 5"),
        (Decimal(5), "5", "the whole: '5', expected Decimal('5')"),
        (1.0, True, "the whole: True, expected 1.0"),
        (Decimal(1), True, "the whole: True, expected Decimal('1')"),
        (0.0, None, "the whole: None, expected 0.0"),
        (float("nan"), 1.0, "the whole: 1.0, expected nan"),
        (float("inf"), float("-inf"), "the whole: -inf, expected inf"),
        (1.0, float("inf"), "the whole: inf, expected 1.0"),
        ({1, 2}, {1, 3}, "[1]: 3, expected 2"),
    ],
)
def test_differences_have_the_path_and_both_values(expected, found, difference):
    assert shown(expected, found) == [difference]


@pytest.mark.parametrize(
    ("expected", "found", "tolerance", "equal"),
    [
        (10.0, 10.4, Tolerance(0.5, 0), True),
        (10, 12, Tolerance(2, 0), True),
        (10, 13, Tolerance(2, 0), False),
        (10.0, 10.4, Tolerance(0, 0.05), True),
        (10**9, 10**9 + 1, Tolerance(0, 0.5), False),
        (0.3, 0.1 + 0.2, Tolerance(0, 0), False),
        ({"a": [1.0]}, {"a": [1.4]}, Tolerance(0.5, 0), True),
    ],
)
def test_differences_of_numbers_are_those_beyond_the_tolerance(expected, found, tolerance, equal):
    for pair in (expected, found), (found, expected):
        assert (list(differences(*pair, tolerance=tolerance)) == []) is equal


def test_differences_are_in_the_order_of_the_expected_value():
    assert [path for path, _, _ in differences({"b": 1, "a": 1}, {"c": 0})] == ["b", "a", "c"]


def test_differences_are_short_as_text():
    key = "k" * 1000
    [text] = shown({key: {key: "x" * 1000}}, {key: {key: "y" * 1000}})
    assert len(text) < 250
    assert text.startswith("…kkk")


def nested(depth, leaf):
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def test_differences_of_values_that_are_nested_too_deeply_are_refused():
    assert len(shown(nested(100, 1), nested(100, 2))) == 1
    with pytest.raises(MissingInputError, match="nested deeper than 100 levels"):
        shown(nested(101, 1), nested(101, 2))
    cycle = []
    cycle.append(cycle)
    with pytest.raises(MissingInputError, match="nested deeper"):
        shown(cycle, [cycle])
    assert len(shown(1, nested(10**4, 2))) == 1


def test_differences_of_values_that_cannot_be_compared_are_refused():
    with pytest.raises(MissingInputError, match=r"<object .* can't be compared"):
        shown({"a": object()}, {"a": object()})
    with pytest.raises(MissingInputError, match="two keys have the same text"):
        shown({1: "a", "1": "b"}, {"1": "b"})
