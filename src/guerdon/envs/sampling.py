"""`sample_actions`: actions made up from the schema of an action class, for trying things out."""

from __future__ import annotations

import random
from typing import Any

from pydantic import ValidationError

from guerdon.envs.invalid import say_invalid
from guerdon.errors import InvalidArgumentError
from guerdon.models.action import Action

__all__ = ["sample_actions"]

WORDS = ("hello", "please", "north", "42", "return 0", "The answer is 7.", "a b c")


def sample_actions(action_type: type[Action], count: int, *, seed: int = 0) -> list[Action]:
    """Make up actions, the same ones for the same seed.

    Example:
        >>> from guerdon import Action
        >>> class Move(Action):
        ...     column: int = 3
        >>> len(sample_actions(Move, 5))
        5

    Args:
        action_type: The class of actions.
        count: How many.
        seed: Which ones.

    Raises:
        InvalidArgumentError: What the schema says is not enough for an action to be valid.
    """
    schema = action_type.model_json_schema()
    chance = random.Random(seed)
    made: list[Action] = []
    failed: ValidationError | None = None
    for _ in range(count * 20):
        if len(made) == count:
            break
        try:
            made.append(action_type.model_validate(_sample(schema, schema, chance)))
        except ValidationError as error:
            failed = error
    if len(made) < count and failed is not None:
        raise InvalidArgumentError(
            f"no {action_type.__name__} can be made up from its schema ({say_invalid(failed)}); "
            "give some actions"
        ) from failed
    return made


def _sample(schema: dict[str, Any], root: dict[str, Any], chance: random.Random) -> Any:
    """A value that a JSON Schema allows, as far as it says so in types, bounds and choices."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _sample(root["$defs"][name], root, chance)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _sample(chance.choice(schema[key]), root, chance)
    if "allOf" in schema:
        return _sample(schema["allOf"][0], root, chance)
    return _typed(schema, root, chance)


def _typed(schema: dict[str, Any], root: dict[str, Any], chance: random.Random) -> Any:
    match schema.get("type"):
        case "object":
            required = set(schema.get("required", ()))
            properties = schema.get("properties", {}).items()
            return {
                name: _sample(each, root, chance)
                for name, each in properties
                if name in required or (name != "metadata" and chance.random() < 0.5)
            }
        case "array":
            size = chance.randint(schema.get("minItems", 0), schema.get("maxItems", 3))
            return [_sample(schema.get("items", {}), root, chance) for _ in range(size)]
        case "integer":
            low, high = _bounds(schema, 1)
            return chance.randint(int(low), int(high))
        case "number":
            return chance.uniform(*_bounds(schema, 0))
        case "boolean":
            return chance.random() < 0.5
        case "string":
            word = chance.choice(WORDS)
            return word.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    return None


def _bounds(schema: dict[str, Any], step: float) -> tuple[float, float]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + step
    if high is None and "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"] - step
    if low is None:
        low = 0 if high is None or high >= 0 else high - 10
    return low, low + 10 if high is None else high
