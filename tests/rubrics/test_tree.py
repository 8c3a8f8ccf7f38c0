"""The tree: names, paths, replacing and removing children, shared ones, cycles."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import RubricDefinitionError, RubricPathError
from guerdon.rubrics import (
    Ensemble,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    WeightedSum,
)


class Fixed(Rubric):
    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


class Product(Rubric):
    """Multiplies the scores of its children."""

    def forward(self, action, observation):
        score = 1.0
        for child in self.children():
            score *= child(action, observation)
        return score


def names(rubric, prefix=""):
    return [name for name, _ in rubric.named_rubrics(prefix)]


# Names


def test_named_children_of_sequential_and_weighted_sum_are_numbered():
    for rubric in (Sequential(Fixed(), Fixed()), WeightedSum([Fixed(), Fixed()], [1, 2])):
        assert [name for name, _ in rubric.named_children()] == ["rubric_0", "rubric_1"]
        assert rubric.rubric_1 is list(rubric.children())[1]


def test_named_children_of_gate_and_guarded_are_called_rubric():
    for rubric in (Gate(Fixed()), Guarded(Fixed())):
        assert [name for name, _ in rubric.named_children()] == ["rubric"]


def test_named_children_of_collections_have_their_places_and_keys():
    assert names(RubricList([Fixed(), Fixed()])) == ["rubric_0", "rubric_1"]
    assert names(RubricDict({"pong": Fixed(), "go": Fixed()})) == ["pong", "go"]


def test_named_rubrics_are_depth_first_with_dotted_names():
    rubric = Sequential(Gate(Fixed()), WeightedSum([Fixed(), Gate(Fixed())], [1, 1]))
    expected = [
        "rubric_0",
        "rubric_0.rubric",
        "rubric_1",
        "rubric_1.rubric_0",
        "rubric_1.rubric_1",
        "rubric_1.rubric_1.rubric",
    ]
    assert names(rubric) == expected
    assert [rubric.get_rubric(name) for name in expected] == list(rubric.rubrics())


def test_named_rubrics_prefix_is_put_before_each_name():
    assert names(Gate(Fixed()), "env") == ["env.rubric"]


def test_get_rubric_returns_the_rubric_at_a_path():
    rubric = Product()
    rubric.code = Product()
    rubric.code.syntax = leaf = Fixed()
    assert rubric.get_rubric("code.syntax") is leaf
    assert rubric.get_rubric("") is rubric


@pytest.mark.parametrize("path", ["style", "code.style", "code.syntax.more", ".", "code."])
def test_get_rubric_missing_path_is_a_key_error_that_lists_the_paths(path):
    rubric = Product()
    rubric.code = Product()
    rubric.code.syntax = Fixed()
    with pytest.raises(KeyError) as caught:
        rubric.get_rubric(path)
    assert isinstance(caught.value, RubricPathError)
    assert caught.value.path == path
    assert str(caught.value) == f"no rubric at {path!r}; there are ['code', 'code.syntax']"


# Changing


def test_setattr_of_a_child_takes_effect_in_evaluation():
    rubric = Product()
    rubric.a = Fixed(2.0)
    assert rubric(None, None) == 2.0
    rubric.a = Fixed(3.0)
    assert rubric(None, None) == 3.0
    assert len(list(rubric.children())) == 1


def test_setattr_of_a_child_keeps_its_place():
    rubric = Sequential(Fixed(1.0), Fixed(0.5), Fixed(0.25))
    rubric.rubric_0 = Fixed(0.75)
    assert names(rubric) == ["rubric_0", "rubric_1", "rubric_2"]
    assert rubric(None, None) == 0.25


def test_delattr_of_a_child_removes_it_from_the_tree():
    rubric = Product()
    rubric.a, rubric.b = Fixed(2.0), Fixed(3.0)
    assert rubric(None, None) == 6.0
    del rubric.a
    assert names(rubric) == ["b"]
    assert rubric(None, None) == 3.0
    assert not hasattr(rubric, "a")


def test_setattr_of_none_removes_a_child():
    rubric = Product()
    rubric.a, rubric.b = Fixed(2.0), Fixed(3.0)
    rubric.a = None
    assert rubric.a is None
    assert names(rubric) == ["b"]
    assert rubric(None, None) == 3.0
    rubric.a = Fixed(5.0)
    assert names(rubric) == ["b", "a"]
    assert rubric(None, None) == 15.0


def test_delattr_of_a_missing_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError):
        del Fixed().nothing


@pytest.mark.parametrize(
    "remove", [lambda r: delattr(r, "rubric_0"), lambda r: setattr(r, "rubric_0", None)]
)
def test_sequential_follows_changes_of_its_children(remove):
    rubric = Sequential(Fixed(0.0), Fixed(0.5))
    assert rubric(None, None) == 0.0
    remove(rubric)
    assert rubric(None, None) == 0.5
    assert len(rubric) == 1


def test_weighted_sum_weights_follow_changes_of_its_children():
    rubric = WeightedSum([Fixed(1.0), Fixed(10.0), Fixed(100.0)], [1.0, 2.0, 3.0])
    assert rubric(None, None) == 321.0
    del rubric.rubric_1
    assert rubric.weights == [1.0, 3.0]
    assert rubric(None, None) == 301.0
    rubric.rubric_0 = None
    assert rubric.weights == [3.0]
    assert rubric(None, None) == 300.0
    rubric.rubric_1 = Fixed(10.0)
    rubric.rubric_0 = Fixed(1.0)
    assert names(rubric) == ["rubric_0", "rubric_1", "rubric_2"]
    assert rubric.weights == [1.0, 2.0, 3.0]
    assert rubric(None, None) == 321.0


def test_container_child_that_is_restored_has_its_old_place():
    rubric = Sequential(Fixed(1.0), Fixed(2.0))
    first, rubric.rubric_0 = rubric.rubric_0, None
    rubric.rubric_0 = first
    assert names(rubric) == ["rubric_0", "rubric_1"]
    assert rubric(None, None) == 2.0


def test_container_forward_follows_changes_of_its_children():
    rubric = Sequential(Fixed(0.5))
    assert rubric.forward(None, None) == 0.5
    rubric.rubric_0 = Fixed(0.25)
    assert rubric.forward(None, None) == 0.25
    assert WeightedSum([Fixed(1.0)], [2.0]).forward(None, None) == 2.0
    assert Gate(Fixed(1.0)).forward(None, None) == 1.0


def test_weighted_sum_rejects_a_child_without_a_weight():
    rubric = WeightedSum([Fixed()], [1.0])
    with pytest.raises(RubricDefinitionError, match="no weight for 'extra'"):
        rubric.extra = Fixed()
    assert rubric(None, None) == 1.0


def test_gate_without_its_child_is_an_error():
    rubric = Gate(Fixed())
    rubric.rubric = None
    with pytest.raises(Exception, match="a Gate has one child; this one has \\[\\]"):
        rubric(None, None)


@pytest.mark.parametrize("evaluated", [False, True])
def test_ancestors_notice_changes_below(evaluated):
    rubric = Sequential(Gate(WeightedSum([Fixed(1.0)], [1.0])))
    if evaluated:
        assert rubric(None, None) == 1.0
    rubric.rubric_0.rubric.rubric_0 = Fixed(2.0)
    assert rubric(None, None) == 2.0
    assert rubric.get_rubric("rubric_0.rubric.rubric_0").value == 2.0


def test_removed_child_does_not_affect_its_parent():
    rubric, child = Product(), Product()
    rubric.child = child
    del rubric.child
    child.parent = rubric  # no cycle any more
    assert names(child) == ["parent"]


@pytest.mark.parametrize("make", [lambda *r: Sequential(*r), lambda *r: WeightedSum(r, [1.0, 1.0])])
def test_children_that_change_during_an_evaluation_count_from_the_next_call_on(make):
    rubric = make(Fixed(1.0), Fixed(2.0))
    before = rubric(None, None)
    handle = rubric.rubric_0.register_forward_hook(lambda *args: setattr(rubric, "rubric_1", None))
    assert rubric(None, None) == before
    handle.remove()
    assert rubric(None, None) == 1.0


# Sharing


def test_named_rubrics_contain_a_shared_child_once():
    shared = Gate(Fixed())
    rubric = Sequential(shared, WeightedSum([shared], [1.0]))
    assert names(rubric) == ["rubric_0", "rubric_0.rubric", "rubric_1"]
    assert len(list(rubric.rubrics())) == 3
    assert rubric.get_rubric("rubric_1.rubric_0") is shared


def test_shared_child_is_evaluated_in_each_place():
    calls = []
    shared = Gate(lambda a, o: calls.append(1) or 2.0)
    assert WeightedSum([shared, shared], [1.0, 10.0])(None, None) == 22.0
    assert len(calls) == 2


def test_shared_child_removed_in_one_place_stays_in_the_other():
    shared = Fixed(3.0)
    rubric = WeightedSum([shared, shared], [1.0, 10.0])
    del rubric.rubric_0
    assert rubric(None, None) == 30.0
    shared.value = 4.0
    shared.extra = Fixed()
    assert names(rubric) == ["rubric_1", "rubric_1.extra"]


def test_deeply_shared_trees_change_quickly():
    rubric = leaf = Product()
    for _ in range(40):
        rubric = WeightedSum([rubric, rubric], [0.5, 0.5])
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += 1
        if calls > 200_000:  # by then it is exponential in the depth
            raise AssertionError("too many calls")

    sys.setprofile(count)
    try:
        leaf.more = Fixed()
        leaf.register_forward_hook(lambda *args: None)
        found = names(rubric)
    finally:
        sys.setprofile(None)
    assert len(found) == 41


# Cycles


def test_setattr_rejects_a_rubric_as_its_own_child():
    rubric = Product()
    with pytest.raises(RubricDefinitionError, match="Product can't become 'me' of Product"):
        rubric.me = rubric
    assert names(rubric) == []


def test_setattr_rejects_an_indirect_cycle():
    outer, middle, inner = Product(), Product(), Product()
    outer.middle, middle.inner = middle, inner
    with pytest.raises(RubricDefinitionError, match="can't become 'outer'"):
        inner.outer = outer
    assert names(outer) == ["middle", "middle.inner"]
    assert outer(None, None) == 1.0


@pytest.mark.parametrize(
    "wrap",
    [
        lambda r: Sequential(Fixed(), r),
        lambda r: Gate(r),
        lambda r: WeightedSum([r], [1.0]),
        lambda r: Guarded(r),
        lambda r: RubricList([r]),
        lambda r: RubricDict({"a": r}),
    ],
)
def test_setattr_rejects_a_cycle_through_a_container(wrap):
    inner = Product()
    outer = wrap(inner)
    with pytest.raises(RubricDefinitionError):
        inner.outer = outer
    assert names(inner) == []


def test_setattr_rejects_a_cycle_through_collections_and_changes_nothing():
    rubrics, first, second = RubricList(), Fixed(), Fixed()
    rubrics.extend([first, second])
    parent = Gate(Product())
    parent.rubric.all = rubrics
    for attempt in (
        lambda: rubrics.append(parent),
        lambda: rubrics.insert(0, parent),
        lambda: rubrics.extend([Fixed(), parent]),
        lambda: rubrics.__setitem__(0, parent),
    ):
        with pytest.raises(RubricDefinitionError):
            attempt()
        assert list(rubrics) == [first, second]
    keyed = RubricDict({"a": first})
    parent.rubric.keyed = keyed
    with pytest.raises(RubricDefinitionError):
        keyed["b"] = parent
    with pytest.raises(RubricDefinitionError):
        keyed.update({"b": Fixed(), "c": parent})
    assert list(keyed) == ["a"]


def test_setattr_that_would_make_a_cycle_keeps_the_old_child():
    outer, inner = Product(), Product()
    outer.inner = inner
    inner.leaf = leaf = Fixed(2.0)
    with pytest.raises(RubricDefinitionError):
        inner.leaf = outer
    assert inner.leaf is leaf
    assert outer(None, None) == 2.0


# Random trees


def trees():
    leaf = st.builds(Fixed, st.floats(-2, 2))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda r: Sequential(*r)),
            st.builds(Gate, inner),
            st.lists(inner, max_size=3).map(lambda r: WeightedSum(r, [1.0] * len(r))),
            st.lists(inner, min_size=1, max_size=3).map(Ensemble),
            st.lists(inner, max_size=3).map(RubricList),
            st.dictionaries(st.sampled_from(["a", "b", "c-d", "e f"]), inner).map(RubricDict),
        ),
        max_leaves=12,
    )


@settings(max_examples=60)
@given(trees())
def test_get_rubric_finds_every_name_of_named_rubrics(rubric):
    named = list(rubric.named_rubrics())
    assert len({name for name, _ in named}) == len(named)
    for name, descendant in named:
        assert rubric.get_rubric(name) is descendant
    assert [descendant for _, descendant in named] == list(rubric.rubrics())
