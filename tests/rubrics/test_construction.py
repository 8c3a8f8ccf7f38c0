import inspect

import pytest

from guerdon import Gate, Rubric, WeightedSum
from guerdon.errors import RubricDefinitionError


def test_rubric_classes_have_the_signature_of_their_init():
    assert list(inspect.signature(Gate).parameters) == ["rubric", "threshold"]
    assert inspect.signature(Gate).parameters["threshold"].default == 1.0
    assert list(inspect.signature(WeightedSum).parameters) == ["rubrics", "weights"]


def test_rubric_class_with_its_own_init_has_that_signature():
    class Mine(Rubric):
        def __init__(self, longest=5, *, words=()):
            super().__init__()

        def forward(self, action, observation):
            return 1.0

    assert str(inspect.signature(Mine)) == "(longest=5, *, words=())"


def test_rubric_class_names_the_methods_that_must_be_implemented():
    with pytest.raises(RubricDefinitionError, match=r"Rubric can't be .*: implement forward"):
        Rubric()


def test_rubric_reports_a_missing_super_init_when_it_is_created():
    class Forgot(Rubric):
        def __init__(self):
            self.limit = 3

        def forward(self, action, observation):
            return 1.0

    with pytest.raises(RubricDefinitionError, match=r"Forgot\.__init__ must call super\(\)"):
        Forgot()


def test_rubric_with_an_async_reset_is_refused_when_the_class_is_defined():
    with pytest.raises(RubricDefinitionError, match=r"Other\.reset is async; call it reset_async"):

        class Other(Rubric):
            def forward(self, action, observation):
                return 1.0

            async def reset(self):
                self.seen = []
