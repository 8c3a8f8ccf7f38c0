"""Grammars: which tokens a model may sample next, in plain text, in tool calls and in JSON.

A grammar is a generator: it yields the tokens that may come next, and gets the one that was
sampled. It returns at the end of the answer. The tokens are bytes, and the marks of `tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from examples.tiny_model.tokens import CALL, CALL_END, END

__all__ = ["Grammar", "answer", "json_value", "tool_call"]

Allowed: TypeAlias = Collection[int]
Grammar: TypeAlias = Generator[Allowed, int, Any]

Schema: TypeAlias = Mapping[str, Any]

BYTES = tuple(range(256))
DIGITS = tuple(b"0123456789")
# What a string may contain without escapes.
CHARACTERS = tuple(byte for byte in range(32, 127) if byte not in b'"\\')
# A model that has learned nothing rarely ends a string, a number or an array.
MAX_STRING, MAX_DIGITS, MAX_ITEMS, MAX_OPTIONAL = 12, 3, 2, 2


def answer(tools: Mapping[str, Schema]) -> Grammar:
    """Allow text and tool calls; only the name of a tool is constrained.

    Example:
        >>> from examples.tiny_model.grammar import answer
        >>> from examples.tiny_model.tokens import CALL
        >>> CALL in next(answer({})), CALL in next(answer({"look": {}}))
        (False, True)

    Args:
        tools: The schemas of the tools' arguments by name.
    """
    text = (*BYTES, END, CALL) if tools else (*BYTES, END)
    while (token := (yield text)) != END:
        if token == CALL:
            yield from _one_of([f"{name}\n" for name in tools])
            while token not in (CALL_END, END):
                token = yield (*BYTES, CALL_END, END)
            if token == END:
                return


def tool_call(tools: Mapping[str, Schema]) -> Grammar:
    """Allow one call of a tool, whose arguments are valid.

    Example:
        >>> from examples.tiny_model.grammar import tool_call
        >>> from examples.tiny_model.tokens import CALL
        >>> list(next(tool_call({"look": {}}))) == [CALL]
        True

    Args:
        tools: The schemas of the tools' arguments by name.
    """
    yield (CALL,)
    name = yield from _one_of([f"{name}\n" for name in tools])
    schema = {"type": "object", **tools[name[:-1]]}
    yield from json_value(schema, definitions=schema.get("$defs", {}))
    yield (CALL_END,)


def json_value(schema: Schema, definitions: Mapping[str, Schema]) -> Grammar:
    """Allow a JSON value of a schema.

    Types, ``enum``, ``const``, ``anyOf``, ``properties``, ``required``, ``items`` and references to
    definitions are observed; bounds, patterns and formats are not.

    Example:
        >>> from examples.tiny_model.grammar import json_value
        >>> bytes(next(json_value({"type": "boolean"}, {})))
        b'tf'

    Args:
        schema: The JSON Schema.
        definitions: Its ``$defs`` by name.
    """
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        yield from _one_of([f"{json.dumps(value)} " for value in values])
        return
    options = schema.get("anyOf") or schema.get("oneOf")
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    if not options and isinstance(kinds, str):
        yield from _of_type(kinds, schema, definitions)
        return
    options = options or [{**schema, "type": kind} for kind in kinds]
    yield from _either([json_value(option, definitions) for option in options])


def _of_type(kind: str, schema: Schema, definitions: Mapping[str, Schema]) -> Grammar:
    match kind:
        case "object":
            yield from _object(schema, definitions)
        case "array":
            yield from _array(schema.get("items", {}), definitions)
        case "integer" | "number":
            yield from _number(is_integer=kind == "integer")
        case "boolean":
            yield from _one_of(["true", "false"])
        case "null":
            yield from _one_of(["null"])
        case _:
            yield from _one_of(['"'])
            yield from _several(CHARACTERS, MAX_STRING, end=b'"'[0])


def _object(schema: Schema, definitions: Mapping[str, Schema]) -> Grammar:
    properties = schema.get("properties", {})
    required = [name for name in schema.get("required", ()) if name in properties]
    optional = [name for name in properties if name not in required]
    yield from _one_of(["{"])
    for number in range(len(required) + MAX_OPTIONAL):
        names = required[number : number + 1] or optional
        comma = ", " if number else ""
        choices = {f"{comma}{json.dumps(name)}: ": name for name in names}
        ends = () if number < len(required) else ("}",)
        chosen = yield from _one_of([*choices, *ends])
        if chosen == "}":
            return
        name = choices[chosen]
        optional = [other for other in optional if other != name]
        yield from json_value(properties[name], definitions)
    yield from _one_of(["}"])


def _array(items: Schema, definitions: Mapping[str, Schema]) -> Grammar:
    yield from _one_of(["["])
    for number in range(MAX_ITEMS):
        if number and (yield from _one_of([", ", "]"])) == "]":
            return
        if number:
            yield from json_value(items, definitions)
        elif (yield from _either([_one_of(["]"]), json_value(items, definitions)])) == "]":
            return
    yield from _one_of(["]"])


def _number(*, is_integer: bool) -> Grammar:
    """Allow a number; a space ends it, which JSON permits there."""
    space, point = b" ."
    ends = (space,) if is_integer else (space, point)
    token = yield (*DIGITS, *b"-")
    if token == b"-"[0]:
        token = yield DIGITS
    if token == DIGITS[0]:  # no other digit may follow
        token = yield ends
    else:
        for _ in range(MAX_DIGITS):
            token = yield (*DIGITS, *ends)
            if token in ends:
                break
        else:
            token = yield ends
    if token == point:
        yield DIGITS
        yield from _several(DIGITS, MAX_DIGITS, end=space)


def _several(tokens: Sequence[int], most: int, *, end: int) -> Grammar:
    """Allow up to so many tokens, and the one that ends them."""
    for _ in range(most):
        if (yield (*tokens, end)) == end:
            return
    yield (end,)


def _one_of(texts: Sequence[str]) -> Generator[Allowed, int, str]:
    """Allow one of several texts, of which none is the beginning of another; return it."""
    left = [text.encode() for text in dict.fromkeys(texts)]
    place = 0
    while len(left) > 1 or place < len(left[0]):
        token = yield tuple(dict.fromkeys(text[place] for text in left))
        left = [text for text in left if text[place] == token]
        place += 1
    return left[0].decode()


def _either(grammars: Sequence[Grammar]) -> Grammar:
    """Allow one of several grammars, of which the first token chooses the first that allows it."""
    firsts = [next(grammar) for grammar in grammars]
    token = yield tuple(dict.fromkeys(_chain(firsts)))
    chosen = next(
        grammar for grammar, first in zip(grammars, firsts, strict=True) if token in first
    )
    while True:
        try:
            allowed = chosen.send(token)
        except StopIteration as end:
            return end.value
        token = yield allowed


def _chain(firsts: Sequence[Allowed]) -> Iterator[int]:
    return (token for first in firsts for token in first)
