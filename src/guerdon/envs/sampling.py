"""`sample_actions`: random actions from the schema of an action class."""

from __future__ import annotations

import math
import random
import re
import string
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from guerdon._validation import summarize
from guerdon.errors import InvalidArgumentError
from guerdon.types.action import Action
from guerdon.types.tool_calls import CallToolAction, SayAction, Tool, ToolAction

# The depth of nested values beyond which only required fields are sampled.
DEEPEST = 4
# One of so many actions is a message, where there are tools.
SAYS = 8
# Strings of each format.
FORMATS = {
    "date": "2024-02-29",
    "time": "12:30:00",
    "date-time": "2024-02-29T12:30:00Z",
    "uuid": "12345678-1234-5678-1234-567812345678",
}
WORDS = ("hello", "please", "north", "42", "return 0", "The answer is 7.", "a b c")


def sample_actions(action_type: type[Action], count: int, *, seed: int = 0) -> list[Action]:
    """Sample actions, the same ones for the same seed.

    Example:
        >>> from guerdon import Action
        >>> class Move(Action):
        ...     column: int = 3
        >>> len(sample_actions(Move, 5))
        5

    Args:
        action_type: The class of actions.
        count: The number of actions.
        seed: The seed.

    Raises:
        InvalidArgumentError: Actions that match the schema are not valid.
    """
    try:
        schema = action_type.model_json_schema()
    except PydanticInvalidForJsonSchema as error:
        raise InvalidArgumentError(
            f"can't sample {action_type.__name__}: it has no JSON Schema ({error.message}); pass "
            "some actions"
        ) from error
    chance = random.Random(seed)
    made: list[Action] = []
    failed: ValidationError | None = None
    for _ in range(count * 20):
        if len(made) == count:
            break
        try:
            made.append(action_type.model_validate(_sample(schema, schema, chance, DEEPEST)))
        except ValidationError as error:
            failed = error
        except RecursionError as error:
            raise InvalidArgumentError(
                f"can't sample {action_type.__name__}: it contains itself without end; pass some "
                "actions"
            ) from error
    if len(made) < count and failed is not None:
        raise InvalidArgumentError(
            f"can't sample {action_type.__name__} from its schema ({summarize(failed)}); pass "
            "some actions"
        ) from failed
    return made


def sample_calls(tools: Sequence[Tool], count: int, *, seed: int = 0) -> list[ToolAction]:
    """Sample calls of tools, with arguments from their schemas, and a few messages.

    Example:
        >>> from guerdon.types import Tool
        >>> schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        >>> tool = Tool(name="add", description="", input_schema=schema)
        >>> {call.tool_name for call in sample_calls([tool], 3)}
        {'add'}

    Args:
        tools: The tools; without any, all actions are messages.
        count: The number of actions.
        seed: The seed.
    """
    chance = random.Random(seed)
    made: list[ToolAction] = []
    for number in range(count):
        if not tools or number % SAYS == SAYS - 1:
            made.append(SayAction(content=chance.choice(WORDS)))
            continue
        tool = chance.choice(tools)
        arguments = _sample(tool.input_schema, tool.input_schema, chance, DEEPEST)
        made.append(CallToolAction(tool_name=tool.name, arguments=arguments))
    return made


def _sample(schema: dict[str, Any], root: dict[str, Any], chance: random.Random, deep: int) -> Any:
    """A value that matches the types, bounds and choices of a JSON Schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _sample(root["$defs"][name], root, chance, deep)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            choices = schema[key]
            plain = [each for each in choices if each.get("type") == "null"]
            return _sample(
                chance.choice(plain if plain and deep <= 0 else choices), root, chance, deep
            )
    if "allOf" in schema:
        return _sample(schema["allOf"][0], root, chance, deep)
    return _typed(schema, root, chance, deep - 1)


def _typed(schema: dict[str, Any], root: dict[str, Any], chance: random.Random, deep: int) -> Any:
    match schema.get("type"):
        case "object":
            return _object(schema, root, chance, deep)
        case "array":
            if "prefixItems" in schema:
                return [_sample(each, root, chance, deep) for each in schema["prefixItems"]]
            least = schema.get("minItems", 0)
            most = schema.get("maxItems", least + 3) if deep > 0 else least
            items = schema.get("items", {})
            return [_sample(items, root, chance, deep) for _ in range(chance.randint(least, most))]
        case "integer":
            low, high = _bounds(schema, 1)
            unit = schema.get("multipleOf", 1)
            low, high = math.ceil(low / unit), math.floor(high / unit)
            return chance.randint(low, max(low, high)) * unit
        case "number":
            return chance.uniform(*_bounds(schema, 1e-3))
        case "boolean":
            return chance.random() < 0.5
        case "string":
            word = FORMATS.get(schema.get("format", "")) or chance.choice(_words(schema))
            return word.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    return None


def _words(schema: dict[str, Any]) -> Sequence[str]:
    """Strings that match the schema's pattern, if some do."""
    if "pattern" not in schema:
        return WORDS
    try:
        pattern = re.compile(schema["pattern"])
    except re.error:  # pydantic uses another regex engine
        return WORDS
    some = (*WORDS, *string.ascii_letters, *string.digits)
    return [each for each in some if pattern.search(each)] or WORDS


def _object(
    schema: dict[str, Any], root: dict[str, Any], chance: random.Random, deep: int
) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    made = {
        name: _sample(each, root, chance, deep)
        for name, each in schema.get("properties", {}).items()
        if name in required
        or "const" in each  # the discriminator of a union
        or (name != "metadata" and deep > 0 and chance.random() < 0.5)
    }
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        for number in range(schema.get("minProperties", 0)):
            made[f"key_{number}"] = _sample(others, root, chance, deep)
    return made


def _bounds(schema: dict[str, Any], step: float) -> tuple[float, float]:
    """The lowest and the highest number; `step` is the distance from an exclusive bound."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + step
    if high is None and "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"] - step
    room = 10 * schema.get("multipleOf", 1)
    if low is None:
        low = 0 if high is None or high > 0 else high - room
    return low, low + room if high is None else high
