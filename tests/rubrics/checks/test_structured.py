"""Whether a text is JSON that fits a schema."""

import copy
import json
import pickle
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError, MissingInputError, StateError
from guerdon.rubrics.checks import ValidJson

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer", "multipleOf": 0.5}},
    "required": ["city"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(JSON)
def test_valid_json_accepts_whatever_json_writes(value):
    assert ValidJson(fenced=False)(json.dumps(value), None) == 1.0


@pytest.mark.parametrize(
    "text",
    ["", "nul", "[1,]", "{'a': 1}", '"a":1', "NaN", "[Infinity]", '{"a": -Infinity}', "1e999",
     "// no\n1", "\ufeff{}", "[" + "1" * 5000 + "]", "Sure: {}"],
)  # fmt: skip
def test_valid_json_scores_zero_with_a_reason_for_other_text(text):
    score = ValidJson().score(text, None)
    assert score.value == 0.0
    assert score.reason.startswith("is not JSON: ")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_valid_json_deep_nesting_is_rejected_at_the_same_depth_everywhere(opening, closing):
    def nested(depth):
        return opening * depth + "0" + closing * depth

    assert ValidJson()(nested(100), None) == 1.0
    for depth in (101, 10**5):
        assert "deeper than 100 levels" in ValidJson().score(nested(depth), None).reason


def test_valid_json_accepts_many_shallow_brackets():
    assert ValidJson()("[" + "[]," * 500 + "[]]", None) == 1.0


def test_valid_json_a_fenced_block_is_read_and_the_last_one_counts():
    assert ValidJson()('Here:\n```json\n{"a": 1}\n```\nDone.', None) == 1.0
    assert ValidJson(CITY)('```json\n{}\n```\nno:\n```json\n{"city": "Oslo"}\n```', None) == 1.0
    assert ValidJson(fenced=False)("```json\n{}\n```", None) == 0.0


def test_valid_json_the_schema_has_to_fit():
    assert ValidJson(CITY)('{"city": "Oslo"}', None) == 1.0
    score = ValidJson(CITY).score('{"city": 3}', None)
    assert score.value == 0.0
    assert score.reason == "does not fit the schema: at $.city: 3 is not of type 'string'"


def test_valid_json_a_number_too_large_to_check_does_not_fit():
    text = json.dumps({"city": "Oslo", "size": 10**400 + 1})
    assert ValidJson(CITY).score(text, None).value == 0.0


def test_valid_json_duplicate_keys_are_noted():
    score = ValidJson().score('{"a": 1, "a": 2, "b": 3}', None)
    assert (score.value, score.reason) == (1.0, "fits, with duplicate keys: 'a'")


@pytest.mark.parametrize(
    "schema",
    [{"type": "city"}, {"pattern": "("}, {"required": "city"}, {"$schema": "http://else.where/"},
     {"$schema": 5}, {"a": float("nan")}, {"a": object()}, [1], "text", 5, {"$ref": "#"},
     {"allOf": [{"$ref": "#"}]}],
)  # fmt: skip
def test_valid_json_rejects_an_invalid_schema(schema):
    with pytest.raises(InvalidArgumentError, match=r"^`schema"):
        ValidJson(schema)


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:9/x.json", "file:///etc/passwd", "other.json", "#/$defs/no", "#no"]
)
def test_valid_json_rejects_external_references(target, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(InvalidArgumentError, match="nothing is fetched"):
        ValidJson({"properties": {"a": {"items": True, "not": {"$ref": target}}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"},
        {"$defs": {"n": {"$anchor": "n", "type": "integer"}}, "$ref": "#n"},
        {"$id": "http://a.example/x", "$defs": {"n": {"$id": "n", "type": "integer"}}, "$ref": "n"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"n": {}},
         "items": {"$ref": "#/definitions/n"}},
        {"const": 3, "examples": [{"$ref": "http://a.example"}]},
        {"properties": {"$ref": {"type": "string"}}},
        True,
    ],
)  # fmt: skip
def test_valid_json_references_within_the_schema_are_followed(schema):
    assert ValidJson(schema)("3", None) == 1.0


def test_valid_json_a_recursive_schema_fits_down_to_the_deepest_accepted_level():
    tree = {"type": "object", "properties": {"c": {"$ref": "#"}}, "additionalProperties": False}
    assert ValidJson(tree)('{"c":' * 99 + "{}" + "}" * 99, None) == 1.0
    assert ValidJson(tree)('{"c":' * 98 + '{"d":1}' + "}" * 98, None) == 0.0


def test_valid_json_the_schema_is_a_copy_and_belongs_to_the_state():
    schema = copy.deepcopy(CITY)
    rubric = ValidJson(schema)
    schema["required"] = []
    assert rubric("{}", None) == 0.0
    other = ValidJson()
    other.load_state_dict(rubric.state_dict())
    assert other("{}", None) == 0.0
    with pytest.raises(StateError):
        other.load_state_dict({**other.state_dict(), "schema": {"type": "city"}})
    assert other("{}", None) == 0.0


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda rubric: pickle.loads(pickle.dumps(rubric))]
)
def test_valid_json_survives_copying(again):
    assert again(ValidJson(CITY))("{}", None) == 0.0
    assert again(ValidJson())("{}", None) == 1.0


def test_valid_json_raises_where_there_is_no_text():
    with pytest.raises(MissingInputError):
        ValidJson()(None, None)


def test_valid_json_leaves_out_reasoning():
    assert ValidJson()('<think>{"draft": </think>\n{"city": "Oslo"}', None) == 1.0
    assert ValidJson()('<think>{"city": "Oslo"}', None) == 0.0
    assert ValidJson(reasoning_tags=["plan"])("<plan>[</plan>[]", None) == 1.0
