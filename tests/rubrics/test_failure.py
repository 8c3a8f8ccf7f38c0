"""describe_failure and describe_handled: what a failed evaluation is called."""

import pytest

from guerdon import Gate, Rubric, RubricError, Sequential
from guerdon.errors import InvalidScoreError
from guerdon.rubrics.failure import describe_failure, describe_handled


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
    ("error", "expected"),
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
def test_describe_failure_contains_the_type_and_the_text(error, expected):
    assert describe_failure(error) == expected
    assert describe_failure(error, "step 2") == f"step 2: {expected}"


def test_describe_failure_contains_the_path_of_the_rubric():
    error = raised(Sequential(Gate(Sequential(Down()))))
    assert (
        describe_failure(error) == "rubric 'rubric_0.rubric.rubric_0': OSError: the judge is down"
    )
    assert describe_failure(error, "row 3").startswith("row 3: rubric 'rubric_0.rubric.rubric_0': ")


def test_describe_failure_of_a_root_has_no_path():
    assert describe_failure(raised(Down())) == "OSError: the judge is down"


def test_describe_failure_contains_a_path_once_also_if_the_message_has_it():
    error = raised(Sequential(Nothing()))
    assert isinstance(error, InvalidScoreError)
    text = describe_failure(error)
    assert text.startswith("rubric 'rubric_0': InvalidScoreError: Nothing.forward returned None")
    assert text.count("rubric_0") == 1


def test_describe_handled_contains_the_names():
    caught = {"style": ValueError("odd"), "": OSError("down"), "a.b": KeyError("x")}
    assert describe_handled(caught) == (
        "rubric 'style': ValueError: odd; OSError: down; rubric 'a.b': KeyError: 'x'"
    )
    assert describe_handled(caught, "row 3: ").startswith("row 3: rubric 'style': ")


def test_describe_handled_names_the_rubric_that_raised_first():
    error, other = OSError("down"), OSError("down")
    text = describe_handled({"a": error, "a.b": error, "a.b.c": error, "d": other})
    assert text == "rubric 'a.b.c': OSError: down; rubric 'd': OSError: down"


def test_describe_handled_of_nothing_is_empty():
    assert describe_handled({}) == ""


def test_describe_failure_shortens_long_messages():
    text = describe_failure(ValueError("x" * 4_000_000))
    assert "characters left out" in text
    assert len(text) < 2_100
