import inspect

import pytest

from guerdon import Gate, Rubric, WeightedSum
from guerdon.errors import RubricDefinitionError


def test_classes_tell_how_they_are_made():
    assert list(inspect.signature(Gate).parameters) == ["rubric", "threshold"]
    assert inspect.signature(Gate).parameters["threshold"].default == 1.0
    assert list(inspect.signature(WeightedSum).parameters) == ["rubrics", "weights"]


def test_a_class_that_writes_its_own_init_tells_that():
    class Mine(Rubric):
        def __init__(self, longest=5, *, words=()):
            super().__init__()

        def forward(self, action, observation):
            return 1.0

    assert str(inspect.signature(Mine)) == "(longest=5, *, words=())"


def test_what_must_be_written_is_named():
    with pytest.raises(RubricDefinitionError, match=r"Rubric can't be .*: implement forward"):
        Rubric()


def test_a_forgotten_init_is_told_when_the_rubric_is_made():
    class Forgot(Rubric):
        def __init__(self):
            self.limit = 3

        def forward(self, action, observation):
            return 1.0

    with pytest.raises(RubricDefinitionError, match=r"Forgot\.__init__ must call super\(\)"):
        Forgot()
