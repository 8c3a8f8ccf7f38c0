"""What JSON can hold of anything."""

import json
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
from pydantic import BaseModel, Field

from guerdon.rollouts.json_forms import as_json, json_items


@dataclass
class Point:
    x: int
    y: float


class Card(BaseModel):
    face: str
    hidden: str = Field(default="ace", exclude=True)


class Plain:
    def __init__(self):
        self.shown = 1
        self._own = 2


CIRCLE: list = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(Point(1, 0.5), {"x": 1, "y": 0.5}, id="dataclass"),
        pytest.param(Card(face="king"), {"face": "king"}, id="model"),
        pytest.param(Plain(), {"shown": 1}, id="object"),
        pytest.param(MappingProxyType({"a": (1, 2)}), {"a": [1, 2]}, id="mapping"),
        pytest.param(np.arange(3), [0, 1, 2], id="array"),
        pytest.param({"n": np.float32(0.5)}, {"n": 0.5}, id="array's number"),
        pytest.param([float("nan"), float("-inf")], ["NaN", "-Infinity"], id="not finite"),
        pytest.param(["\ud800", float("nan")], ["\ud800", "NaN"], id="lone surrogate"),
        pytest.param({"kind": int}, {"kind": "<class 'int'>"}, id="class"),
        pytest.param(CIRCLE, "[[...]]", id="circle"),
    ],
)
def test_everything_has_a_form(value, form):
    assert as_json(value) == form
    json.dumps(as_json(value), allow_nan=False)


def test_items_that_json_cant_hold_are_left_out():
    items = {"components": {"a": 1.0}, 3: "three", "socket": object()}
    assert json_items(items) == {"components": {"a": 1.0}, "3": "three"}
