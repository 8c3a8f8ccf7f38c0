"""Placement: which step an output means."""

import pytest

from guerdon import StepOutput
from guerdon.rubrics.functions.placement import place_outputs, places_of


def placed(outputs, places):
    found, misfits = place_outputs(
        [StepOutput(step_index=index, base_reward=reward) for index, reward in outputs], places
    )
    return {place: output.base_reward for place, output in found.items()}, [
        (misfit.problem, misfit.step_index) for misfit in misfits
    ]


def test_place_outputs_steps_are_found_by_number_and_by_id():
    places = places_of([(0, "think"), (1, None), (2, "say")])
    assert places == {0: 0, 1: 1, 2: 2, "think": 0, "say": 2}
    assert placed([(1, 0.5), ("say", 1.0)], places) == ({1: 0.5, 2: 1.0}, [])


def test_place_outputs_numbers_need_not_begin_at_0():
    assert placed([(2, 0.5)], places_of([(1, None), (2, None)])) == ({1: 0.5}, [])


def test_places_of_an_ambiguous_name_is_none():
    places = places_of([(0, "s"), (1, "t"), (2, "s"), (2, None)])
    assert places == {0: 0, 1: 1, 2: None, "s": None, "t": 1}
    assert placed([("s", 1.0), (2, 1.0)], places) == (
        {},
        [("two steps of one number", "s"), ("two steps of one number", 2)],
    )


def test_places_of_a_name_of_three_steps_is_none():
    assert places_of([(None, "s")] * 3) == {"s": None}


def test_places_of_an_id_that_looks_like_a_number_is_an_id():
    places = places_of([(0, None), (1, "0")])
    assert placed([("0", 1.0), (0, 0.5)], places) == ({1: 1.0, 0: 0.5}, [])


def test_place_outputs_uses_neither_of_two_outputs_for_one_step():
    places = places_of([(0, "a"), (1, None)])
    assert placed([(0, 1.0), ("a", 2.0), (1, 3.0)], places) == (
        {1: 3.0},
        [("two outputs for one step", "a")],
    )


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ("0", "text for a number"),
        (" 0 ", "text for a number"),
        ("7", "no such step"),
        ("--0", "no such step"),
        ("9" * 5000, "no such step"),
        ("0.0", "no such step"),
        (7, "no such step"),
        (-1, "no such step"),
    ],
    ids=["text", "spaces", "beyond", "dashes", "long", "float", "number", "negative"],
)
def test_place_outputs_reports_unknown_steps(index, problem):
    assert placed([(index, 1.0)], places_of([(0, None)])) == ({}, [(problem, index)])
