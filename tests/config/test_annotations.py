"""Config classes of every kind, in a module with postponed annotations."""

from __future__ import annotations

import re
import typing
from dataclasses import InitVar, dataclass, field
from typing import (
    TYPE_CHECKING,
    Annotated,  # noqa: F401 - named in an annotation
    Any,
    Generic,
    TypeVar,
)

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel

from guerdon import Rubric
from guerdon.config import RubricEntry, build_rubric
from guerdon.errors import RewardConfigError

if TYPE_CHECKING:
    from guerdon import MCPClient

T = TypeVar("T")


@dataclass
class Inner:
    a: int
    b: float = 0.5


@dataclass
class Outer:
    n: int = 1
    inner: Inner | None = None
    many: list[Inner] = field(default_factory=list)
    named: dict[str, Inner] = field(default_factory=dict)
    pair: tuple[int, Inner] | None = None
    free: dict[str, Any] = field(default_factory=dict)


@dataclass
class Seeded:
    n: int
    seed: InitVar[int] = 0

    def __post_init__(self, seed: int) -> None:
        self.seeded = seed


@dataclass
class Pair(Generic[T]):
    n: T
    rest: list[T] = field(default_factory=list)


class Aliased(BaseModel):
    n: int = Field(1, alias="count")


class Chosen(BaseModel):
    n: int = Field(validation_alias=AliasChoices("count", AliasPath("deep", "n")))


class ByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    n: int = Field(alias="count")


class Nested(BaseModel):
    inner: Inner | None = None


class Root(RootModel[dict[str, int]]):
    pass


class Plain:
    pass


class Protocol(typing.Protocol):
    n: int


class Scored(Rubric):
    def forward(self, action, observation):
        return 1.0


def takes(kind: Any) -> type[Rubric]:
    """Return a class of rubrics whose config is annotated with a type."""

    class Takes(Scored):
        def __init__(self, config, mcp_client: MCPClient | None = None) -> None:
            super().__init__()
            self.config = config

    Takes.__init__.__annotations__["config"] = kind
    return Takes


def made(kind: Any, config: dict[str, Any]) -> Any:
    return build_rubric(RubricEntry(name="it", rubric=takes(kind), config=config)).config


def refused(kind: Any, config: dict[str, Any]) -> list[str]:
    with pytest.raises(RewardConfigError) as caught:
        made(kind, config)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    [
        pytest.param("Inner", {"a": 3}, Inner(3), id="name"),
        pytest.param("Inner | None", {"a": 3}, Inner(3), id="optional"),
        pytest.param("Annotated[Inner | None, 'x']", {"a": 3}, Inner(3), id="annotated"),
        pytest.param("None | Annotated[Inner, 'x']", {"a": 3}, Inner(3), id="inner_annotated"),
        pytest.param("Pair[int]", {"n": 3, "rest": [1]}, Pair(3, [1]), id="generic"),
        pytest.param("Pair", {"n": "x"}, Pair("x"), id="generic_bare"),
        pytest.param("Root", {"n": 3}, Root({"n": 3}), id="root_model"),
        pytest.param("Aliased", {"count": 3}, Aliased(count=3), id="alias"),
        pytest.param("Chosen", {"count": 3}, Chosen(count=3), id="alias_choice"),
        pytest.param("Chosen", {"deep": {"n": 3}}, Chosen(count=3), id="alias_path"),
        pytest.param("ByName", {"n": 3}, ByName(n=3), id="by_name"),
        pytest.param("dict[str, int]", {"n": 3}, {"n": 3}, id="dict"),
        pytest.param("Any", {"n": 3}, {"n": 3}, id="any"),
        pytest.param("Protocol", {"n": 3}, {"n": 3}, id="protocol"),
        pytest.param("Nowhere", {"n": 3}, {"n": 3}, id="of_a_checker"),
        pytest.param("Outer", {"free": {"x": 1}}, Outer(free={"x": 1}), id="free_inside"),
        pytest.param("Outer", {"pair": [1, {"a": 2}]}, Outer(pair=(1, Inner(2))), id="pair"),
    ],
)
def test_build_rubric_converts_the_config_to_its_annotation(kind, config, expected):
    found = made(kind, config)
    assert found == expected
    assert type(found) is type(expected)


def test_build_rubric_accepts_init_only_fields():
    assert made("Seeded", {"n": 1, "seed": 4}).seeded == 4


UNKNOWN = "unknown key; "


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        pytest.param("Inner", {"a": 1, "c": 2}, f"c: {UNKNOWN}known: 'a', 'b'", id="unknown"),
        pytest.param("Pair[int]", {"n": "x"}, 'n: must be an integer, got "x"', id="generic"),
        pytest.param("Pair[int]", {"n": 1, "rest": ["x"]}, "rest[0]: must be", id="generic_list"),
        pytest.param("Aliased", {"n": 3}, f"n: {UNKNOWN}known: 'count'", id="name_of_alias"),
        pytest.param("Root", {"n": "x"}, 'n: must be an integer, got "x"', id="root_model"),
        pytest.param("dict[str, int]", {"n": "x"}, 'n: must be an integer, got "x"', id="dict"),
        pytest.param("Outer", {"inner": {"a": 1, "c": 2}}, f"inner.c: {UNKNOWN}", id="inner"),
        pytest.param("Outer", {"many": [{"a": 1}, {"a": 1, "c": 2}]}, "many[1].c: ", id="list"),
        pytest.param("Outer", {"named": {"x": {"a": 1, "c": 2}}}, "named.x.c: ", id="values"),
        pytest.param("Outer", {"pair": [1, {"a": 1, "c": 2}]}, "pair[1].c: ", id="tuple"),
        pytest.param("Nested", {"inner": {"a": 1, "c": 2}}, "inner.c: ", id="inner_of_model"),
    ],
)
def test_build_rubric_reports_nested_mistakes_with_their_places(kind, config, message):
    assert [each for each in refused(kind, config) if each.startswith(f"config.{message}")]


def test_build_rubric_reports_unknown_keys_beside_invalid_values():
    assert len(refused("Outer", {"inner": {"a": "x", "c": 2}})) == 2


@pytest.mark.parametrize("kind", ["Plain", "str", "int"])
def test_build_rubric_refuses_configs_of_other_classes(kind):
    assert re.match(r"config: must be .*, got a mapping", refused(kind, {"n": 1})[0])


def test_build_rubric_checks_types_beside_one_that_cannot_be_resolved():
    class Odd(Scored):
        def __init__(self, limit: int = 3, thing: Nowhere = None) -> None:  # type: ignore[name-defined]  # noqa: F821
            super().__init__()

    with pytest.raises(RewardConfigError, match="must be an integer"):
        build_rubric(RubricEntry(name="it", rubric=Odd, config={"limit": "x"}))


def test_build_rubric_refuses_null_for_a_config_class():
    class Bounded(Scored):
        def __init__(self, limits: Inner, named: Aliased) -> None:
            super().__init__()

    entry = RubricEntry(name="it", rubric=Bounded, config={"limits": None, "named": None})
    with pytest.raises(RewardConfigError) as caught:
        build_rubric(entry)
    assert caught.value.problems == (
        "config.limits: must be a mapping, got null",
        "config.named: must be a mapping, got null",
    )
