"""What JSON can hold of anything."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
from pydantic import BaseModel, Field

from guerdon.rollouts.json_forms import as_json, as_text, json_items


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
def test_as_json_converts_everything(value, form):
    assert as_json(value) == form
    json.dumps(as_json(value), allow_nan=False)


def test_json_items_leaves_out_what_json_does_not_have():
    items = {"components": {"a": 1.0}, 3: "three", "socket": object()}
    assert json_items(items) == {"components": {"a": 1.0}, "3": "three"}


# As text, for strict JSON


class Unsayable:
    def __repr__(self):
        raise OSError("no words")


class Unreadable:
    """An object whose attributes all raise."""

    def __getattr__(self, name):
        raise OSError(f"no {name}")


class Items(dict):
    def items(self):
        raise OSError("no items")


class Unending(list):
    def __iter__(self):
        raise OSError("no beginning")


def inside_itself():
    value = {"list": [1]}
    value["list"].append(value)
    return value


def deep(levels):
    value = {1}
    for _ in range(levels):
        value = [value]
    return value


INFINITY = float("inf")
SHARED = [INFINITY]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        pytest.param(inside_itself(), {"list": [1, "…"]}, id="inside itself"),
        pytest.param(CIRCLE, ["…"], id="circle"),
        pytest.param([SHARED, SHARED], [["inf"], ["inf"]], id="twice is no circle"),
        pytest.param({Unsayable(): INFINITY}, {"(unreadable: OSError)": "inf"}, id="key"),
        pytest.param([Unsayable()], ["(unreadable: OSError)"], id="value"),
        pytest.param([Unreadable()], ["(unreadable: OSError)"], id="unreadable"),
        pytest.param([Items({1: {2}})], ["(unreadable: OSError)"], id="items"),
        pytest.param([Unending([{2}])], ["(unreadable: OSError)"], id="list"),
        pytest.param({(1, 2): {3}, 4: 5}, {"(1, 2)": [3], "4": 5}, id="keys of any kind"),
        pytest.param({"b", "a", "c"}, ["a", "b", "c"], id="set"),
        pytest.param({frozenset("b"), "a"}, ["a", ["b"]], id="set in a set"),
        pytest.param(np.array([1.0, INFINITY]), [1.0, "inf"], id="array"),
        pytest.param({np.int64(3): np.float64("nan")}, {"3": "nan"}, id="numbers of numpy"),
        pytest.param(np.arange(4).reshape(2, 2), [[0, 1], [2, 3]], id="matrix"),
        pytest.param((1, INFINITY), [1, "inf"], id="tuple"),
        pytest.param(MappingProxyType({"a": {1}}), {"a": [1]}, id="mapping"),
        pytest.param(3 + 4j, "(3+4j)", id="complex"),
    ],
)
def test_as_text_converts_everything(value, form):
    text = as_text(value)
    assert text == form
    json.dumps(text, allow_nan=False)


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, "é"]}, (1, 2), "text", 5, None], ids=str)
def test_as_text_returns_json_data_unchanged(value):
    assert as_text(value) is value


def test_as_text_cuts_off_deep_values():
    text = as_text(deep(5_000))
    assert json.dumps(text, ensure_ascii=False).strip("[]") == '"…"'
    assert as_text(deep(5)) == [[[[[[1]]]]]]


@pytest.mark.edge
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_as_text_orders_sets_alike_in_every_process(seed):
    code = (
        "import json; from guerdon.rollouts.json_forms import as_text; "
        "print(json.dumps(as_text({'a': set('abcdef'), 'b': frozenset({(1, 'x'), (0, 'y')})})))"
    )
    environ = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == {"a": list("abcdef"), "b": [[0, "y"], [1, "x"]]}
