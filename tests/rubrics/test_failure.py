"""say_failure and say_caught: what a failed evaluation is called."""

import pytest

from guerdon import Gate, Rubric, RubricError, Sequential
from guerdon.errors import InvalidScoreError
from guerdon.rubrics.failure import say_caught, say_failure


class Down(Rubric):
    def forward(self, action, observation):
        raise OSError("the judge is down")


class Nothing(Rubric):
    def forward(self, action, observation):
        return None


class Unsayable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raised(rubric):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        rubric("a", "o")
    return caught.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no answer"), "ValueError: no answer"),
        (ValueError(), "ValueError"),
        (KeyError("answer"), "KeyError: 'answer'"),
        (TimeoutError(), "TimeoutError"),
        (SystemExit(3), "SystemExit: 3"),
        (RubricError("a child is not a rubric"), "RubricError: a child is not a rubric"),
        (Unsayable(), "Unsayable: (its message can't be shown: RuntimeError)"),
    ],
    ids=repr,
)
def test_an_error_is_told_by_its_type_and_its_text(error, said):
    assert say_failure(error) == said
    assert say_failure(error, "step 2") == f"step 2: {said}"


def test_the_path_of_the_rubric_that_raised_is_told():
    error = raised(Sequential(Gate(Sequential(Down()))))
    assert say_failure(error) == "rubric 'rubric_0.rubric.rubric_0': OSError: the judge is down"
    assert say_failure(error, "row 3").startswith("row 3: rubric 'rubric_0.rubric.rubric_0': ")


def test_a_root_that_raised_has_no_path_to_tell():
    assert say_failure(raised(Down())) == "OSError: the judge is down"


def test_a_path_is_told_once_also_where_the_error_says_it_itself():
    error = raised(Sequential(Nothing()))
    assert isinstance(error, InvalidScoreError)
    said = say_failure(error)
    assert said.startswith("rubric 'rubric_0': InvalidScoreError: Nothing.forward returned None")
    assert said.count("rubric_0") == 1


def test_what_was_caught_is_told_by_name():
    caught = {"style": ValueError("odd"), "": OSError("down"), "a.b": KeyError("x")}
    assert say_caught(caught) == (
        "rubric 'style': ValueError: odd; OSError: down; rubric 'a.b': KeyError: 'x'"
    )
    assert say_caught(caught, "row 3: ").startswith("row 3: rubric 'style': ")


def test_an_error_that_passed_through_several_is_told_where_it_began():
    error, other = OSError("down"), OSError("down")
    said = say_caught({"a": error, "a.b": error, "a.b.c": error, "d": other})
    assert said == "rubric 'a.b.c': OSError: down; rubric 'd': OSError: down"


def test_nothing_caught_is_nothing_to_tell():
    assert say_caught({}) == ""
