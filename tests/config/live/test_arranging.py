"""Having a tree score by a configuration: all of it or nothing, and back again."""

import pytest
from pydantic import BaseModel, model_validator

from guerdon import Rubric, RubricComposer
from guerdon.config.live.arranging import arrange
from guerdon.errors import RewardConfigError


class Bounds(BaseModel):
    low: float = 0.0
    high: float = 3.0

    @model_validator(mode="after")
    def _ordered(self):
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Shares(BaseModel):
    mine: float = 0.5
    yours: float = 0.5

    @model_validator(mode="after")
    def _whole(self):
        if self.mine + self.yours != 1.0:
            raise ValueError("they make no whole")
        return self


class Shared(Rubric):
    tunable = ("mine", "yours")

    def __init__(self):
        super().__init__()
        self.config = Shares()

    def forward(self, action, observation):
        return 1.0


class Within(Rubric):
    tunable = ("low", "high")

    def __init__(self):
        super().__init__()
        self._low, self._high = 0.0, 3.0

    low = property(lambda self: self._low, lambda self, value: self._set(value, self._high))
    high = property(lambda self: self._high, lambda self, value: self._set(self._low, value))

    def _set(self, low, high):
        if low > high:
            raise ValueError("low is above high")
        self._low, self._high = low, high

    def forward(self, action, observation):
        return 1.0


class Split(Rubric):
    tunable = ("low", "high")

    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, action, observation):
        return 1.0


def bounds(rubric):
    home = getattr(rubric, "config", rubric)
    return home.low, home.high


@pytest.mark.parametrize("make", [lambda: Split(Bounds()), Within], ids=["config", "attributes"])
@pytest.mark.parametrize(
    "tuned",
    [{"low": 5.0, "high": 10.0}, {"high": 10.0, "low": 5.0}, {"low": -9.0, "high": -5.0}],
    ids=["low first", "high first", "down"],
)
def test_fields_that_are_valid_together_are_taken_in_any_order(make, tuned):
    rubric = make()
    undo = arrange(rubric, {}, None, tuned)
    assert bounds(rubric) == (tuned["low"], tuned["high"])
    undo()
    assert bounds(rubric) == (0.0, 3.0)


@pytest.mark.parametrize("make", [lambda: Split(Bounds()), Within], ids=["config", "attributes"])
def test_fields_that_are_valid_one_by_one_but_not_together_are_refused_whole(make):
    rubric = make()
    with pytest.raises(RewardConfigError, match="low is above high"):
        arrange(rubric, {}, None, {"low": 2.0, "high": 1.0})
    assert bounds(rubric) == (0.0, 3.0)


def test_fields_that_can_only_change_at_once_do():
    rubric = Shared()
    arrange(rubric, {}, None, {"mine": 0.25, "yours": 0.75})
    assert (rubric.config.mine, rubric.config.yours) == (0.25, 0.75)


def test_each_field_that_is_refused_is_named():
    rubric = RubricComposer({"a": Shared(), "b": Within()}, {"a": 1.0, "b": 1.0}, normalize=False)
    tuned = {"a.mine": 0.9, "b.low": 1.0, "b.high": "x"}
    with pytest.raises(RewardConfigError) as caught:
        arrange(rubric, {}, None, tuned)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["a.mine", "b.high"]
    assert rubric.b.low == 0.0


def test_weights_that_are_not_there_leave_everything_as_it_was():
    rubric = RubricComposer({"b": Within()}, {"b": 1.0}, normalize=False)
    with pytest.raises(RewardConfigError, match="nobody"):
        arrange(rubric, {"nobody": 2.0}, None, {"b.low": 1.0})
    assert (rubric.b.low, rubric.weights) == (0.0, {"b": 1.0})


def test_a_tree_without_weights_takes_none():
    with pytest.raises(RewardConfigError, match="Within has none"):
        arrange(Within(), {"b": 2.0}, None, {})


def test_weights_and_factors_are_taken_back():
    rubric = RubricComposer({"b": Within()}, {"b": 1.0}, normalize=False)
    undo = arrange(rubric, {"b": 2.0}, {"b": 0.5}, {})
    assert rubric.effective_weights == {"b": 1.0}
    undo()
    assert (rubric.weights, rubric.factors) == ({"b": 1.0}, {})
