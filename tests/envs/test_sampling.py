"""sample_actions: what is made up is valid, and the same for the same seed."""

import datetime
import enum
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model, field_validator

from guerdon import Action
from guerdon.envs.sampling import sample_actions, sample_calls
from guerdon.errors import InvalidArgumentError
from guerdon.types import CallToolAction, SayAction, Tool
from tests.envs.worlds import Deed, Move


class Way(enum.Enum):
    north = "n"
    south = "s"


class Level(enum.IntEnum):
    low = 1
    high = 5


class Place(BaseModel):
    x: int = Field(ge=0, le=7)
    y: int = Field(ge=0, le=7)


class Walk(BaseModel):
    kind: Literal["walk"]
    to: Place


class Wait(BaseModel):
    kind: Literal["wait"] = "wait"
    turns: int = Field(gt=0)


def bounded(low, high):
    return st.one_of(
        st.just(Field()),
        st.builds(lambda a: Field(ge=a), st.integers(low, high)),
        st.builds(lambda a: Field(le=a), st.integers(low, high)),
        st.builds(lambda a: Field(gt=a), st.integers(low, high)),
        st.builds(lambda a: Field(lt=a), st.integers(low, high)),
        st.builds(
            lambda a, size: Field(ge=a, le=a + size), st.integers(low, high), st.integers(0, 50)
        ),
        st.builds(
            lambda a, size: Field(gt=a, lt=a + size), st.integers(low, high), st.integers(2, 50)
        ),
    )


sizes = st.tuples(st.integers(0, 3), st.integers(3, 6))
leaves = st.one_of(
    st.builds(lambda field: Annotated[int, field], bounded(-1000, 1000)),
    st.builds(lambda field: Annotated[float, field], bounded(-1000, 1000)),
    st.sampled_from([bool, str, Any, Way, Level, Place, Literal[3], Literal["a", "b", 7], None]),
    st.builds(lambda size: Annotated[str, Field(min_length=size)], st.integers(0, 40)),
    st.builds(lambda size: Annotated[str, Field(max_length=size)], st.integers(0, 40)),
    st.just(Annotated[Walk | Wait, Field(discriminator="kind")]),
)
kinds = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda kind: Optional[kind], inner),  # noqa: UP045  # it may be None itself
        st.builds(lambda kind: list[kind], inner),
        st.builds(
            lambda kind, size: Annotated[list[kind], Field(min_length=size[0], max_length=size[1])],
            inner,
            sizes,
        ),
        st.builds(lambda kind: Annotated[list[kind], Field(min_length=5)], inner),
        st.builds(lambda kind: create_model("Inner", inside=(kind, ...)), inner),
    ),
    max_leaves=4,
)
fields = st.dictionaries(st.sampled_from("abcd"), st.tuples(kinds, st.booleans()), max_size=3)


def action_class(fields):
    """A class with fields, each of which is required or has a default."""
    return create_model(
        "Made",
        __base__=Action,
        **{
            name: (kind, ...) if required else (Optional[kind], None)  # noqa: UP045
            for name, (kind, required) in fields.items()
        },
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(fields, st.integers(0, 2**32))
def test_sample_actions_samples_are_valid_and_the_same_for_the_same_seed(fields, seed):
    kind = action_class(fields)
    made = sample_actions(kind, 5, seed=seed)
    assert len(made) == 5
    for action in made:
        assert type(action) is kind
        assert kind.model_validate_json(action.model_dump_json()) == action
    assert sample_actions(kind, 5, seed=seed) == made
    assert sample_actions(kind, 3, seed=seed) == made[:3]


@pytest.mark.parametrize("kind", [Move, Deed])
def test_sample_actions_fields_with_defaults_are_sometimes_left_out_and_sometimes_given(kind):
    given_fields = [action.model_fields_set for action in sample_actions(kind, 50)]
    assert any("value" in each for each in given_fields)
    assert any("value" not in each for each in given_fields)
    assert not any("metadata" in each for each in given_fields)


def test_sample_actions_another_seed_returns_other_actions():
    one, other = (sample_actions(Move, 20, seed=seed) for seed in (1, 2))
    assert one != other


def test_sample_actions_every_choice_is_made_sooner_or_later():
    kind = action_class({"a": (Way, True), "b": (Literal[1, 2, 3], True), "c": (bool, True)})
    made = sample_actions(kind, 100)
    assert {action.a for action in made} == set(Way)
    assert {action.b for action in made} == {1, 2, 3}
    assert {action.c for action in made} == {True, False}


def test_sample_actions_both_ends_of_a_range_of_integers_are_reached():
    kind = action_class({"a": (Annotated[int, Field(ge=-2, le=2)], True)})
    assert {action.a for action in sample_actions(kind, 200)} == {-2, -1, 0, 1, 2}


def test_sample_actions_a_pattern_that_some_words_have_is_kept_to():
    kind = action_class({"a": (Annotated[str, Field(pattern="^[a-z]+$")], True)})
    assert all(action.a.isalpha() for action in sample_actions(kind, 20))


def test_sample_actions_a_class_without_fields_has_actions_all_the_same():
    assert sample_actions(Action, 2) == [Action(), Action()]


def test_sample_actions_returns_an_empty_list_for_a_count_of_0():
    assert sample_actions(Move, 0) == []


def test_sample_actions_names_that_the_wire_knows_by_another_are_sampled_by_it():
    kind = create_model("Aliased", __base__=Action, column=(int, Field(alias="Column")))
    assert all(isinstance(action.column, int) for action in sample_actions(kind, 3))


class Folder(Action):
    """A required list of its own kind: what is made up has to end."""

    inside: list["Folder"]


class Chain(Action):
    after: "Chain | None"


@pytest.mark.parametrize("kind", [Folder, Chain])
def test_sample_actions_a_class_that_contains_itself_ends_somewhere(kind):
    assert len(sample_actions(kind, 50)) == 50


@pytest.mark.parametrize(
    "kind",
    [
        Annotated[str, Field(pattern="^[a-h][1-8]!$")],
        Annotated[int, Field(gt=0, lt=1)],
        Annotated[str, Field(min_length=5, max_length=2)],
        type(lambda: 0),
    ],
    ids=["a pattern", "an empty range", "an empty size", "no schema"],
)
def test_sample_actions_error_states_why_and_what_to_do(kind):
    made = (
        create_model("Made", __base__=Action, a=(kind, ...), model_config=None) if False else None
    )
    made = type(
        "Made",
        (Action,),
        {"__annotations__": {"a": kind}, "model_config": {"arbitrary_types_allowed": True}},
    )
    with pytest.raises(InvalidArgumentError, match=r"can't sample Made.*pass some actions"):
        sample_actions(made, 3)


def test_sample_actions_what_a_validator_refuses_is_left_out():
    class Even(Action):
        number: int = Field(ge=0, le=9)

        @field_validator("number")
        @classmethod
        def even(cls, value):
            if value % 2:
                raise ValueError("it is odd")
            return value

    made = sample_actions(Even, 30)
    assert len(made) == 30
    assert {action.number % 2 for action in made} == {0}


@pytest.mark.parametrize(
    "kind",
    [datetime.date, datetime.datetime, UUID, Decimal, bytes, tuple[int, str], dict[str, int],
     set[int]],
    ids=str,
)  # fmt: skip
def test_sample_actions_other_types_are_sampled_or_refused_in_words(kind):
    made = action_class({"a": (kind, True)})
    try:
        actions = sample_actions(made, 3)
    except InvalidArgumentError as error:
        assert "pass some actions" in str(error)  # noqa: PT017
    else:
        assert len(actions) == 3


def test_sample_calls_are_calls_of_the_tools_with_arguments_of_their_schemas():
    count = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tools = [
        Tool(name="count", description="", input_schema=count),
        Tool(name="look", description="", input_schema={"type": "object", "properties": {}}),
    ]
    made = sample_calls(tools, 32, seed=3)
    assert made == sample_calls(tools, 32, seed=3)
    calls = [each for each in made if isinstance(each, CallToolAction)]
    assert {each.tool_name for each in calls} == {"count", "look"}
    assert all(isinstance(each.arguments["a"], int) for each in calls if each.tool_name == "count")
    assert sum(isinstance(each, SayAction) for each in made) == 4


def test_sample_calls_without_tools_are_messages():
    assert {type(each) for each in sample_calls([], 3)} == {SayAction}
