"""RubricList and RubricDict: they change and iterate like nn.ModuleList and nn.ModuleDict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import NoAggregationError, RubricDefinitionError, RubricPathError
from guerdon.rubrics import (
    FunctionRubric,
    RegexMatch,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
)


class Fixed(Rubric):
    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


def values(rubrics):
    return [rubric(None, None) for rubric in rubrics]


# No aggregation of their own


@pytest.mark.parametrize(
    "rubric", [RubricList([Fixed()]), RubricDict({"a": Fixed()}), RubricList()]
)
def test_rubric_list_and_dict_have_no_forward(rubric):
    with pytest.raises(
        NotImplementedError, match=f"{type(rubric).__name__} can't combine the scores"
    ):
        rubric(None, None)
    with pytest.raises(NoAggregationError):
        Sequential(rubric)(None, None)


@pytest.mark.anyio
async def test_rubric_list_and_dict_can_not_be_evaluated():
    with pytest.raises(NoAggregationError):
        await RubricDict({"a": Fixed()}).evaluate(None, None)


def test_rubric_list_and_dict_are_true_when_empty():
    assert RubricList()
    assert RubricDict()


# RubricList


def test_rubric_list_append_extend_insert():
    rubrics = RubricList([Fixed(1.0)])
    rubrics.append(Fixed(2.0))
    rubrics.extend(Fixed(v) for v in (3.0, 4.0))
    rubrics.insert(1, Fixed(1.5))
    assert values(rubrics) == [1.0, 1.5, 2.0, 3.0, 4.0]
    assert [name for name, _ in rubrics.named_children()] == [f"rubric_{i}" for i in range(5)]
    assert rubrics.get_rubric("rubric_1").value == 1.5


def test_rubric_list_getitem():
    rubrics = RubricList([Fixed(1.0), Fixed(2.0), Fixed(3.0)])
    assert rubrics[0].value == 1.0
    assert rubrics[-1].value == 3.0
    assert rubrics.rubric_2 is rubrics[2]
    assert values(rubrics[1:]) == [2.0, 3.0]
    assert len(rubrics) == 3


@pytest.mark.parametrize("index", [3, -4])
def test_rubric_list_getitem_out_of_range_is_an_index_error(index):
    rubrics = RubricList([Fixed(), Fixed(), Fixed()])
    with pytest.raises(IndexError, match=f"no rubric at {index}: the list has 3"):
        rubrics[index]
    with pytest.raises(RubricPathError):
        rubrics[index] = Fixed()
    with pytest.raises(RubricPathError):
        del rubrics[index]
    assert len(rubrics) == 3


def test_rubric_list_setitem_and_delitem():
    rubrics = RubricList([Fixed(1.0), Fixed(2.0), Fixed(3.0)])
    rubrics[1] = Fixed(2.5)
    rubrics[-1] = Fixed(3.5)
    assert values(rubrics) == [1.0, 2.5, 3.5]
    del rubrics[0]
    assert values(rubrics) == [2.5, 3.5]
    assert [name for name, _ in rubrics.named_children()] == ["rubric_0", "rubric_1"]
    assert not hasattr(rubrics, "rubric_2")
    assert rubrics.pop().value == 3.5
    assert values(rubrics) == [2.5]


def test_rubric_list_contains():
    member, other = Fixed(), Fixed()
    rubrics = RubricList([member])
    assert member in rubrics
    assert other not in rubrics
    assert "rubric_0" not in rubrics


def test_rubric_list_may_change_during_iteration():
    rubrics = RubricList([Fixed(1.0), Fixed(2.0)])
    for rubric in rubrics:
        rubrics.append(Fixed(rubric.value + 10))
    assert values(rubrics) == [1.0, 2.0, 11.0, 12.0]


@pytest.mark.parametrize("bad", [Fixed, 3, None, "x"])
def test_rubric_list_rejects_what_is_not_a_rubric(bad):
    rubrics = RubricList([Fixed(1.0), Fixed(2.0)])
    for attempt in (
        lambda: rubrics.append(bad),
        lambda: rubrics.insert(0, bad),
        lambda: rubrics.extend([Fixed(), bad]),
        lambda: rubrics.__setitem__(0, bad),
        lambda: RubricList([bad]),
    ):
        with pytest.raises(RubricDefinitionError):
            attempt()
    assert values(rubrics) == [1.0, 2.0]


def test_rubric_list_member_removed_by_name_leaves_the_list():
    rubrics = RubricList([Fixed(1.0), Fixed(2.0), Fixed(3.0)])
    del rubrics.rubric_0
    assert values(rubrics) == [2.0, 3.0]
    assert rubrics[0].value == 2.0
    rubrics.append(Fixed(4.0))
    assert values(rubrics) == [2.0, 3.0, 4.0]


operations = st.lists(
    st.tuples(
        st.sampled_from(["append", "insert", "set", "del", "extend", "pop", "delslice"]),
        st.integers(-4, 4),
        st.floats(0, 1),
    ),
    max_size=15,
)


@settings(max_examples=80)
@given(operations)
def test_rubric_list_behaves_like_a_list(steps):  # noqa: C901
    mine, plain = RubricList(), []
    parent = Sequential(mine)
    for operation, index, value in steps:
        rubric = Fixed(value)
        outcomes = []
        for target in (mine, plain):
            try:
                match operation:
                    case "append":
                        target.append(rubric)
                    case "insert":
                        target.insert(index, rubric)
                    case "set":
                        target[index] = rubric
                    case "del":
                        del target[index]
                    case "extend":
                        target.extend([rubric])
                    case "pop":
                        outcomes.append(target.pop(index))
                    case "delslice":
                        del target[index:]
                outcomes.append("done")
            except IndexError:
                outcomes.append("IndexError")
        assert outcomes[: len(outcomes) // 2] == outcomes[len(outcomes) // 2 :]
        assert list(mine) == plain
        assert len(mine) == len(plain)
        assert [name for name, _ in mine.named_children()] == [
            f"rubric_{i}" for i in range(len(plain))
        ]
        assert list(parent.rubrics()) == [mine, *plain]
        for index in range(-len(plain), len(plain)):
            assert mine[index] is plain[index]


# RubricDict


def test_rubric_dict_getitem():
    rubrics = RubricDict({"pong": Fixed(1.0), "go": Fixed(2.0)})
    assert rubrics["go"].value == 2.0
    assert rubrics.pong is rubrics["pong"]
    assert list(rubrics) == list(rubrics.keys()) == ["pong", "go"]
    assert values(rubrics.values()) == [1.0, 2.0]
    assert list(rubrics.items()) == [("pong", rubrics["pong"]), ("go", rubrics["go"])]
    assert len(rubrics) == 2
    assert "go" in rubrics
    assert "chess" not in rubrics


def test_rubric_dict_missing_key_is_a_key_error_that_lists_the_keys():
    rubrics = RubricDict({"pong": Fixed()})
    with pytest.raises(KeyError) as caught:
        rubrics["go"]
    assert isinstance(caught.value, RubricPathError)
    assert str(caught.value) == "no rubric at 'go'; there are ['pong']"
    with pytest.raises(KeyError):
        del rubrics["go"]
    with pytest.raises(KeyError):
        rubrics.pop("go")


def test_rubric_dict_sets_replaces_updates_deletes():
    rubrics = RubricDict({"a": Fixed(1.0)})
    rubrics["b"] = Fixed(2.0)
    rubrics["a"] = Fixed(1.5)
    assert list(rubrics) == ["a", "b"]
    rubrics.update({"b": Fixed(2.5), "c": Fixed(3.0)})
    assert values(rubrics.values()) == [1.5, 2.5, 3.0]
    del rubrics["b"]
    assert list(rubrics) == ["a", "c"]
    assert [name for name, _ in rubrics.named_rubrics()] == ["a", "c"]
    assert rubrics.pop("c").value == 3.0
    rubrics.clear()
    assert list(rubrics) == []


@pytest.mark.parametrize(
    "key",
    ["keys", "update", "forward", "score", "reset", "pop", "last_score", "_children", "evaluate"],
)
def test_rubric_dict_rejects_a_key_that_hides_a_method(key):
    rubrics = RubricDict()
    with pytest.raises(RubricDefinitionError, match="would hide an attribute"):
        rubrics[key] = Fixed()
    with pytest.raises(RubricDefinitionError):
        RubricDict({key: Fixed()})
    assert list(rubrics) == []


@pytest.mark.parametrize("key", ["a.b", "", ".", 3, None, ("a",), b"a"])
def test_rubric_dict_rejects_an_invalid_key(key):
    rubrics = RubricDict()
    with pytest.raises(RubricDefinitionError, match="non-empty string without dots"):
        rubrics[key] = Fixed()
    assert list(rubrics) == []


def test_rubric_dict_keys_need_not_be_identifiers():
    rubrics = RubricDict({"space invaders": Fixed(0.5), "c++": Fixed(1.0), "für": Fixed(2.0)})
    assert Sequential(rubrics).get_rubric("rubric_0.space invaders").value == 0.5


def test_rubric_dict_rejected_update_changes_nothing():
    rubrics = RubricDict({"a": Fixed(1.0)})
    for bad in (
        {"b": Fixed(), "keys": Fixed()},
        {"a": Fixed(9.0), "b": 3},
        {"b": Fixed(), "c": Fixed},
    ):
        with pytest.raises(RubricDefinitionError):
            rubrics.update(bad)
    assert list(rubrics) == ["a"]
    assert rubrics["a"].value == 1.0


def test_rubric_dict_member_set_to_none_leaves_the_dict():
    rubrics = RubricDict({"a": Fixed(), "b": Fixed()})
    rubrics.a = None
    assert list(rubrics) == ["b"]
    assert "a" not in rubrics


def test_rubric_dict_converts_functions():
    rubrics = RubricDict({"short": lambda action, observation: float(len(action) < 3)})
    assert isinstance(rubrics["short"], FunctionRubric)
    assert rubrics["short"]("ab", None) == 1.0


keyed = st.lists(
    st.tuples(st.sampled_from(["set", "del", "update", "pop", "clear"]), st.sampled_from("abcd")),
    max_size=15,
)


@settings(max_examples=80)
@given(keyed)
def test_rubric_dict_behaves_like_a_dict(steps):
    mine, plain = RubricDict(), {}
    for operation, key in steps:
        rubric = Fixed()
        outcomes = []
        for target in (mine, plain):
            try:
                match operation:
                    case "set":
                        target[key] = rubric
                    case "del":
                        del target[key]
                    case "update":
                        target.update({key: rubric, "z": rubric})
                    case "pop":
                        outcomes.append(target.pop(key))
                    case "clear":
                        target.clear()
                outcomes.append("done")
            except KeyError:
                outcomes.append("KeyError")
        assert outcomes[: len(outcomes) // 2] == outcomes[len(outcomes) // 2 :]
        assert list(mine.items()) == list(plain.items())
        assert list(mine) == list(plain.keys())
        assert len(mine) == len(plain)
        assert all(key in mine for key in plain)
        assert [name for name, _ in mine.named_children()] == list(plain)


def test_rubric_list_append_and_extend_return_the_list():
    members = RubricList().append(RegexMatch("a")).extend([RegexMatch("b"), RegexMatch("c")])
    assert [member.pattern for member in members] == ["a", "b", "c"]
