"""Tunable fields: what they take, and what they refuse."""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from pydantic import BaseModel, Field

from guerdon import Gate, Rubric, RubricComposer, WeightedSum
from guerdon.config.live.tunables import set_config, tunables
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
    tunables(rubric)["value"].set(new)
    return rubric.value


@pytest.mark.parametrize(
    ("old", "new", "held"),
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
def test_a_value_of_the_same_kind_is_taken(old, new, held):
    assert set_to(old, new) == held
    assert type(set_to(old, new)) is type(held)


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0.5, "x", "a finite number"),
        (math.inf, "x", "a finite number"),
        (0.5, True, "a finite number"),
        (0.5, 10**400, "a finite number"),
        (0.5, math.nan, "not finite"),
        (True, 1, "true or false"),
        ("a", 1, "a text"),
        ("a", "x" * 201, "201 characters"),
        ([1], {"a": 1}, "a list"),
        ((1,), "abc", "a list"),
        ([], ["x" * 201], "201 characters"),
        ({}, {"a": ["x" * 201]}, "201 characters"),
        ({}, [], "an object"),
        ([], [0] * 10_001, "10001 items"),
        (Mode.STRICT, "other", "'strict', 'loose'"),
        (None, {1, 2}, "no JSON"),
        (np.float32(0.5), "x", "a finite number"),
        (np.int64(3), "x", "a finite number"),
        (np.array([1.0, 2.0]), [1, 2], "a ndarray"),
        ([], deep(101), "100 deep"),
    ],
)
def test_a_value_of_another_kind_is_refused(old, new, said):
    rubric = Tuned(old)
    with pytest.raises(RewardConfigError, match=said):
        tunables(rubric)["value"].set(new)
    assert rubric.value is old


def test_a_change_can_be_taken_back():
    rubric = Tuned(0.5)
    back = tunables(rubric)["value"].set(2.0)
    back()
    assert rubric.value == 0.5


def test_a_config_with_aliases_is_checked_by_its_class():
    rubric = Configured(Aliased(thr=0.25, other=7))
    tunables(rubric)["threshold"].set(0.75)
    assert (rubric.config.threshold, rubric.config.other) == (0.75, 7)


def test_fields_of_a_config_are_set_together_and_taken_back():
    config = Plain()
    rubric = Configured(config)
    back = set_config(rubric, {"low": 3})
    assert (rubric.config.low, config.low) == (3, 0)
    back()
    assert rubric.config is config


def test_a_field_that_is_not_there_is_said():
    with pytest.raises(RewardConfigError, match="neither it nor its config"):
        tunables(Configured(Plain()))["threshold"].get()


def test_what_it_holds_already_is_seen_through_json():
    assert tunables(Tuned((1, 2)))["value"].holds([1, 2])
    assert tunables(Tuned(Mode.LOOSE))["value"].holds("loose")
    assert tunables(Tuned(1.0))["value"].holds(1)
    assert not tunables(Tuned(1.0))["value"].holds(True)
    assert tunables(Tuned(np.float32(0.5)))["value"].holds(0.5)
    assert not tunables(Tuned(np.float32(0.5)))["value"].holds([1, 2])
    assert not tunables(Tuned(np.array([1.0, 2.0])))["value"].holds([1, 2])


def test_those_of_containers_go_by_their_paths():
    inner = RubricComposer({"a": Tuned()}, {"a": 1.0}, normalize=False)
    tree = WeightedSum([Gate(Tuned(), 0.5), inner], [1.0, 1.0])
    assert list(tunables(tree)) == [
        "weights", "rubric_0.threshold", "rubric_0.rubric.value", "rubric_1.weights",
        "rubric_1.a.value",
    ]  # fmt: skip
