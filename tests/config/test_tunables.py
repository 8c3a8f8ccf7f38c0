"""`configure`: the values that tunable fields accept, all or nothing, and how to undo it."""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from pydantic import BaseModel, Field, model_validator

from guerdon import Gate, Rubric, RubricComposer, WeightedSum
from guerdon.config.tunables import configure, tunable_fields
from guerdon.errors import RewardConfigError


class Mode(Enum):
    STRICT = "strict"
    LOOSE = "loose"


class Tuned(Rubric):
    tunable = ("value",)

    def __init__(self, value=0.5):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return 1.0


class Aliased(BaseModel):
    threshold: float = Field(default=0.5, alias="thr")
    other: int = 1


@dataclass
class Plain:
    low: int = 0


class Configured(Rubric):
    tunable = ("threshold", "low")

    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, action, observation):
        return 1.0


def set_to(old, new):
    rubric = Tuned(old)
    configure(rubric, tuned={"value": new})
    return rubric.value


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (0.5, 2, 2),
        (math.inf, 3.0, 3.0),
        (True, False, False),
        ("a", "b", "b"),
        ([1], [2, 3], [2, 3]),
        ((1, 2), [3], (3,)),
        ({"a": 1}, {"b": 2}, {"b": 2}),
        (Mode.STRICT, "loose", Mode.LOOSE),
        (None, 0.5, 0.5),
    ],
    ids=["number", "infinite", "flag", "text", "list", "tuple", "object", "enum", "none"],
)
def test_configure_accepts_a_value_of_the_same_type(old, new, expected):
    assert set_to(old, new) == expected
    assert type(set_to(old, new)) is type(expected)


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (0.5, "x", "a finite number"),
        (math.inf, "x", "a finite number"),
        (0.5, True, "a finite number"),
        (0.5, 10**400, "a finite number"),
        (0.5, math.nan, "finite numbers"),
        (True, 1, "true or false"),
        ("a", 1, "a string"),
        ("a", "x" * 201, "got 201"),
        ([1], {"a": 1}, "a list"),
        ((1,), "abc", "a list"),
        ([], ["x" * 201], "got 201"),
        ({}, {"a": ["x" * 201]}, "got 201"),
        ({}, [], "an object"),
        ([], [0] * 10_001, "got 10001"),
        (Mode.STRICT, "other", "'strict', 'loose'"),
        (None, {1, 2}, "must be JSON"),
        (np.float32(0.5), "x", "a finite number"),
        (np.int64(3), "x", "a finite number"),
        (np.array([1.0, 2.0]), [1, 2], "a ndarray"),
        ([], deep(101), "100 levels deep"),
    ],
)
def test_configure_refuses_a_value_of_another_type(old, new, message):
    rubric = Tuned(old)
    with pytest.raises(RewardConfigError, match=message):
        configure(rubric, tuned={"value": new})
    assert rubric.value is old


def test_configure_can_be_undone():
    rubric = Tuned(0.5)
    back = configure(rubric, tuned={"value": 2.0})
    back()
    assert rubric.value == 0.5


def test_configure_checks_a_config_with_aliases():
    rubric = Configured(Aliased(thr=0.25, other=7))
    configure(rubric, tuned={"threshold": 0.75})
    assert (rubric.config.threshold, rubric.config.other) == (0.75, 7)


def test_configure_replaces_and_restores_a_config():
    config = Plain()
    rubric = Configured(config)
    back = configure(rubric, tuned={"low": 3})
    assert (rubric.config.low, config.low) == (3, 0)
    back()
    assert rubric.config is config


def test_configure_reports_a_field_that_does_not_exist():
    with pytest.raises(RewardConfigError, match="neither the rubric nor its config has"):
        configure(Configured(Plain()), tuned={"threshold": 1.0})


def test_tunable_field_has_compares_as_json():
    assert tunable_fields(Tuned((1, 2)))["value"].has([1, 2])
    assert tunable_fields(Tuned(Mode.LOOSE))["value"].has("loose")
    assert tunable_fields(Tuned(1.0))["value"].has(1)
    assert not tunable_fields(Tuned(1.0))["value"].has(True)
    assert tunable_fields(Tuned(np.float32(0.5)))["value"].has(0.5)
    assert not tunable_fields(Tuned(np.float32(0.5)))["value"].has([1, 2])
    assert not tunable_fields(Tuned(np.array([1.0, 2.0])))["value"].has([1, 2])


def test_tunable_fields_have_dotted_names():
    inner = RubricComposer({"a": Tuned()}, {"a": 1.0}, normalize=False)
    tree = WeightedSum([Gate(Tuned(), 0.5), inner], [1.0, 1.0])
    assert list(tunable_fields(tree)) == [
        "weights", "rubric_0.threshold", "rubric_0.rubric.value", "rubric_1.weights",
        "rubric_1.a.value",
    ]  # fmt: skip


# Several fields, and weights


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
def test_configure_accepts_fields_in_any_order(make, tuned):
    rubric = make()
    undo = configure(rubric, tuned=tuned)
    assert bounds(rubric) == (tuned["low"], tuned["high"])
    undo()
    assert bounds(rubric) == (0.0, 3.0)


@pytest.mark.parametrize("make", [lambda: Split(Bounds()), Within], ids=["config", "attributes"])
def test_configure_refuses_fields_that_are_invalid_together(make):
    rubric = make()
    with pytest.raises(RewardConfigError, match="low is above high"):
        configure(rubric, tuned={"low": 2.0, "high": 1.0})
    assert bounds(rubric) == (0.0, 3.0)


def test_configure_sets_fields_of_a_config_at_once():
    rubric = Shared()
    configure(rubric, tuned={"mine": 0.25, "yours": 0.75})
    assert (rubric.config.mine, rubric.config.yours) == (0.25, 0.75)


def test_configure_names_each_refused_field():
    rubric = RubricComposer({"a": Shared(), "b": Within()}, {"a": 1.0, "b": 1.0}, normalize=False)
    tuned = {"a.mine": 0.9, "b.low": 1.0, "b.high": "x"}
    with pytest.raises(RewardConfigError) as caught:
        configure(rubric, tuned=tuned)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["a.mine", "b.high"]
    assert rubric.b.low == 0.0


def test_configure_with_unknown_weights_changes_nothing():
    rubric = RubricComposer({"b": Within()}, {"b": 1.0}, normalize=False)
    with pytest.raises(RewardConfigError, match="missing"):
        configure(rubric, weights={"missing": 2.0}, tuned={"b.low": 1.0})
    assert (rubric.b.low, rubric.weights) == (0.0, {"b": 1.0})


def test_configure_refuses_weights_of_a_tree_without_a_composer():
    with pytest.raises(RewardConfigError, match="Within has no weights"):
        configure(Within(), weights={"b": 2.0})


def test_configure_restores_weights_and_factors():
    rubric = RubricComposer({"b": Within()}, {"b": 1.0}, normalize=False)
    undo = configure(rubric, weights={"b": 2.0}, factors={"b": 0.5})
    assert rubric.effective_weights == {"b": 1.0}
    undo()
    assert (rubric.weights, rubric.factors) == ({"b": 1.0}, {})
