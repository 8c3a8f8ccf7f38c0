"""The grammars and tokens of the tiny model, with random choices in place of a model's."""

import json
import random

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.tiny_model.grammar import answer, json_value, tool_call
from examples.tiny_model.tokens import (
    CALL,
    CALL_END,
    END,
    MARKS,
    MessageReader,
    prompt_of,
    token_text,
)

LOOK = {"properties": {"where": {"type": "string"}}, "required": ["where"]}
MOVE = {
    "properties": {
        "to": {"$ref": "#/$defs/Place"},
        "speed": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    },
    "required": ["to"],
    "$defs": {"Place": {"properties": {"x": {"type": "integer"}}, "required": ["x"]}},
}
TOOLS = {"look": LOOK, "look_up": {}, "move": MOVE}

leaves = st.sampled_from(
    [
        *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null")),
        {"type": ["integer", "null"]},
        {"enum": ["a", "ab", 1, 12, None, "é"]},
        {"const": "one"},
        {"anyOf": [{"type": "boolean"}, {"type": "string"}]},
        {"$ref": "#/$defs/Leaf"},
    ]
)


def objects(schemas):
    names = st.dictionaries(st.sampled_from(["a", "ab", "b", 'c"', "é"]), schemas, max_size=4)
    return names.flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties) or [""])).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required & properties.keys()),
                "additionalProperties": False,
            }
        )
    )


schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(lambda each: {"type": "array", "items": each}), objects(inner)
    ),
    max_leaves=6,
)


def sampled(grammar, seed, most=2000):
    """Return the tokens of a random answer."""
    choose, tokens = random.Random(seed).choice, []
    try:
        allowed = next(grammar)
        while len(tokens) < most:
            tokens.append(choose(list(allowed)))
            allowed = grammar.send(tokens[-1])
    except StopIteration:
        pass
    return tokens


def read(tokens):
    """Return the message, and the parts that it came in."""
    reader = MessageReader()
    parts = [reader.feed(token) for token in tokens if token != END]
    return reader, [*parts, reader.end()]


@given(schemas, st.integers())
def test_json_value_allows_only_values_of_the_schema(schema, seed):
    definitions = {"Leaf": {"type": "array", "items": {"type": "integer"}}}
    text = bytes(sampled(json_value(schema, definitions), seed)).decode()
    jsonschema.validate(json.loads(text), {**schema, "$defs": definitions})


@given(st.integers())
def test_tool_call_allows_one_call_with_valid_arguments(seed):
    reader, _ = read(sampled(tool_call(TOOLS), seed))
    assert reader.message["content"] == ""
    [call] = reader.message["tool_calls"]
    schema = {"type": "object", **TOOLS[call["function"]["name"]]}
    jsonschema.validate(json.loads(call["function"]["arguments"]), schema)


@given(st.integers())
def test_answer_allows_any_text_in_calls_of_known_tools(seed):
    tokens = sampled(answer(TOOLS), seed)
    reader, _ = read(tokens)
    calls = reader.message.get("tool_calls", [])
    assert {call["function"]["name"] for call in calls} <= TOOLS.keys()
    assert len(calls) <= tokens.count(CALL) <= len(calls) + 1  # the last may have no name yet


@given(st.integers())
def test_answer_without_tools_allows_no_call(seed):
    assert {CALL, CALL_END}.isdisjoint(sampled(answer({}), seed))


@given(st.lists(st.sampled_from([*"aé€\n".encode(), 0xFF, CALL, CALL_END])))
def test_message_reader_returns_parts_that_add_up_to_the_message(tokens):
    reader, parts = read(tokens)
    assert "".join(part.get("content", "") for part in parts) == reader.message["content"]
    calls = {}
    for part in parts:
        for call in part.get("tool_calls", ()):
            calls.setdefault(call["index"], []).append(call["function"]["arguments"])
    whole = [each["function"]["arguments"] for each in reader.message.get("tool_calls", [])]
    assert ["".join(each) for each in calls.values()] == whole


def test_message_reader_replaces_what_is_not_utf_8():
    reader, _ = read([*"é".encode(), 0xC3, CALL, *b"look\n", 0xE2, 0x82, CALL_END, 0xFF])
    assert reader.message["content"] == "é\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    assert reader.message["tool_calls"][0]["function"] == {
        "name": "look",
        "arguments": "\N{REPLACEMENT CHARACTER}",
    }


def test_message_reader_leaves_out_a_call_without_its_whole_name():
    reader, _ = read([*b"Hi", CALL, *b"loo"])
    assert reader.message == {"role": "assistant", "content": "Hi"}


@pytest.mark.parametrize("content", ["<|im_end|>", [{"type": "text", "text": "<|im_end|>"}]])
def test_prompt_of_has_no_marks_of_a_message(content):
    prompt = prompt_of([{"role": "user", "content": content}], {})
    assert "".join(map(token_text, prompt)) == (
        "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )
    assert sum(token in MARKS for token in prompt) == 3


def test_prompt_of_has_the_calls_of_the_conversation():
    function = {"name": "look", "arguments": '{"where": "north"}'}
    call = {"id": "c0", "type": "function", "function": function}
    prompt = prompt_of([{"role": "assistant", "content": None, "tool_calls": [call]}], {})
    assert "".join(map(token_text, prompt)).startswith(
        '<|im_start|>assistant\n<tool_call>look\n{"where": "north"}</tool_call><|im_end|>\n'
    )
