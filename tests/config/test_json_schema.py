"""The JSON Schema of a reward's file: what it accepts and rejects."""

import json
from dataclasses import dataclass
from typing import Generic, TypeVar

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from guerdon import Rubric, reward_function
from guerdon.config.json_schema import reward_schema
from guerdon.config.registry import RubricRegistry
from guerdon.config.schema import RewardConfig
from guerdon.errors import RewardConfigError

T = TypeVar("T")


class Limits(BaseModel):
    longest: int


class Brief(Rubric):
    def __init__(self, config: Limits):
        super().__init__()

    def forward(self, action, observation):
        return 1.0


def broken(action, observation, *, longest: int = 3, unit="words", **others):
    return 1.0


SCHEMA = reward_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def file(**entry):
    return {"schema_version": "1.0", "per_turn": [{"name": "a", "rubric": "RegexMatch"} | entry]}


def test_json_schema_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    "data",
    [
        file(config={"pattern": "x"}),
        file(rubric="my_package.rubrics.Thing", config={"anything": 1}),
        file(rubric="reward.py:thing", weight=-3, private=["x"]),
        file(config={"pattern": "x"}, schedule={"piecewise": [[0, 1.0], [9, 0.0]]}),
        file(config={"pattern": "x"})
        | {"mcp_services": {"judge": {"type": "mcp", "endpoint": "http://localhost/mcp"}}},
        file(config={"pattern": "x"}) | {"curriculum": [{"name": "all"}]},
    ],
)
def test_json_schema_accepts_valid_files(data):
    VALIDATOR.validate(data)
    RewardConfig.from_dict(data)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (file(wieght=3), ["per_turn", 0]),
        (file(weight="3"), ["per_turn", 0, "weight"]),
        (file(name="a b"), ["per_turn", 0, "name"]),
        (file(rubric="Nothing"), ["per_turn", 0, "rubric"]),
        (file(config={"patern": "x"}), ["per_turn", 0, "config"]),
        (file(config={"pattern": 3}), ["per_turn", 0, "config", "pattern"]),
        (file(schedule={"pieces": []}), ["per_turn", 0, "schedule"]),
        (file() | {"mcp_services": {"j": {"type": "openai"}}}, ["mcp_services", "j"]),
        (file() | {"normalise": True}, []),
        (file() | {"schema_version": "2"}, ["schema_version"]),
    ],
)
def test_json_schema_marks_a_mistake_at_its_place(data, place):
    assert place in [list(error.absolute_path) for error in VALIDATOR.iter_errors(data)]


def test_json_schema_includes_registered_rubrics_with_their_configs():
    registry = RubricRegistry()
    registry.register("brief", Brief)
    registry.register("broken", broken)
    registry.register("gone", "nowhere.at.all")
    entry = reward_schema(registry)["$defs"]["RubricEntry"]
    assert entry["properties"]["rubric"]["anyOf"][0] == {"enum": ["brief", "broken", "gone"]}
    brief, function = entry["allOf"]
    assert brief["if"]["properties"] == {"rubric": {"const": "brief"}}
    assert brief["then"]["properties"]["config"]["required"] == ["longest"]
    assert brief["then"]["properties"]["config"]["additionalProperties"] is False
    config = function["then"]["properties"]["config"]
    assert config["properties"]["longest"] == {"type": "integer", "default": 3}
    assert sorted(config["properties"]) == ["longest", "unit"]
    assert config["additionalProperties"] is True


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "a b", "1"]), "rubric": st.sampled_from(["x.Y", "x:y", 3])},
        optional={
            "weight": st.sampled_from([1, 0.5, "1", True, None]),
            "config": st.sampled_from([{}, {"x": 1}, [], None]),
            "private": st.sampled_from([[], ["x"], "x", [1]]),
            "other": st.just(1),
        },
    )
)
def test_json_schema_accepts_what_from_dict_accepts(entry):
    data = {"schema_version": "1.0", "per_turn": [entry]}
    try:
        RewardConfig.from_dict(data)
        is_read = True
    except RewardConfigError:
        is_read = False
    assert VALIDATOR.is_valid(data) == is_read


class Inner(BaseModel):
    """Within.

    Attributes:
        a: What it is
            called.
    """

    a: int = 0


class Holding(BaseModel):
    inner: Inner = Inner()
    many: list[Inner] = []


@dataclass
class Pair(Generic[T]):
    n: T
    inner: Inner | None = None


def nested(config: Holding):
    return Brief(Limits(longest=1))


def generic(config: Pair[int]):
    return Brief(Limits(longest=1))


def named_otherwise(text, seen, longest: int = 3):
    return 1.0


@reward_function
def on_messages(messages, limit=3):
    return 1.0


def validator(**rubrics):
    registry = RubricRegistry()
    for name, rubric in rubrics.items():
        registry.register(name, rubric)
    schema = reward_schema(registry)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("rubric", "config", "is_valid"),
    [
        pytest.param(nested, {"inner": {"a": 1}, "many": [{}, {"a": 2}]}, True, id="model"),
        pytest.param(nested, {"inner": {"b": 1}}, False, id="model_inner_key"),
        pytest.param(nested, {"many": [{"a": "x"}]}, False, id="model_inner_value"),
        pytest.param(nested, {"inn": {}}, False, id="model_key"),
        pytest.param(generic, {"n": 1, "inner": {"a": 1}}, True, id="generic"),
        pytest.param(generic, {"n": "x"}, False, id="generic_value"),
        pytest.param(generic, {"n": 1, "inner": {"b": 1}}, False, id="generic_inner_key"),
        pytest.param(generic, {}, False, id="generic_missing"),
        pytest.param(named_otherwise, {}, True, id="function"),
        pytest.param(named_otherwise, {"longest": 3}, True, id="function_key"),
        pytest.param(named_otherwise, {"longst": 3}, False, id="function_unknown"),
        pytest.param(on_messages, {}, True, id="on_messages"),
        pytest.param(on_messages, {"limit": 3}, False, id="on_messages_key"),
    ],
)
def test_json_schema_includes_nested_config_classes(rubric, config, is_valid):
    check = validator(it=rubric, other=rubric)
    assert check.is_valid(file(rubric="it", config=config)) is is_valid


def test_json_schema_describes_keys():
    schema = validator(it=nested).schema
    assert schema["description"].startswith("A reward: its rubrics with their weights")
    assert ">>>" not in json.dumps(schema)
    assert schema["properties"]["normalize"]["description"] == (
        "Map the scores of each rubric to [0, 1], by its declared range, or by the observed one "
        "(observed)."
    )
    assert schema["$defs"]["it.Inner"]["description"] == "Within."
    assert schema["$defs"]["it.Inner"]["properties"]["a"]["description"] == "What it is called."
    assert schema["$defs"]["StageCondition"]["properties"]["component"]["description"]


@pytest.mark.parametrize("version", ["1.0", 1.0])
def test_json_schema_accepts_the_version_with_quotes_or_without(version):
    assert VALIDATOR.is_valid(file(config={"pattern": "x"}) | {"schema_version": version})
    assert not VALIDATOR.is_valid(file(config={"pattern": "x"}) | {"schema_version": "1.1"})


def test_json_schema_requires_the_type_of_a_service():
    service = {"endpoint": "http://localhost/mcp"}
    data = file(config={"pattern": "x"}) | {"mcp_services": {"judge": service}}
    assert not VALIDATOR.is_valid(data)
