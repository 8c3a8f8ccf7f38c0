"""The state of an episode is no configuration; what can't work as an attribute is refused."""

import asyncio
import collections
import copy
import dataclasses
import types

import numpy as np
import pytest

from guerdon import (
    Gate,
    Guarded,
    RegexMatch,
    Rubric,
    RubricComposer,
    RubricDict,
    RubricList,
    ToolCost,
    TrajectoryRubric,
    WeightedSum,
)
from guerdon.errors import RubricDefinitionError
from guerdon.rubrics import as_rubric


class Fixed(Rubric):
    """Always 1."""

    def forward(self, action, observation):
        return 1.0


@dataclasses.dataclass
class Memory:
    seen: list = dataclasses.field(default_factory=list)


class Remembers(Rubric):
    """Has an attribute `it`, which its `forward` changes."""

    def __init__(self, it=None, change=None):
        super().__init__()
        self.it = it
        self._change = change

    def forward(self, action, observation):
        self._change(self)
        return 1.0


def bump(rubric):
    rubric.it += 1


def helped(rubric):
    def add():
        bump(rubric)

    add()


CHANGES = {
    "a helper": (0, bump),
    "a nested helper": (0, helped),
    "setattr": (0, lambda rubric: setattr(rubric, "it", rubric.it + 1)),
    "object.__setattr__": (0, lambda rubric: object.__setattr__(rubric, "it", 7)),
    "__dict__": (0, lambda rubric: rubric.__dict__.update(it=rubric.it + 1, other=1)),
    "a new name": (0, lambda rubric: setattr(rubric, "later", 1)),
    "deleted": (0, lambda rubric: rubric.__dict__.pop("it", None)),
    "another function": (len, lambda rubric: setattr(rubric, "it", max)),
    "a list": ([], lambda rubric: rubric.it.append(1)),
    "a list of objects": ([], lambda rubric: rubric.it.append(object())),
    "a nested dict": ({"a": {"b": []}}, lambda rubric: rubric.it["a"]["b"].append(1)),
    "a dict by number": ({}, lambda rubric: rubric.it.update({len(rubric.it): 1})),
    "a counter": (collections.Counter(), lambda rubric: rubric.it.update(["a"])),
    "a defaultdict": (collections.defaultdict(list), lambda rubric: rubric.it[1].append(2)),
    "a deque": (collections.deque(maxlen=3), lambda rubric: rubric.it.append(2)),
    "a set": (set(), lambda rubric: rubric.it.add(len(rubric.it))),
    "an array": (np.zeros(3), lambda rubric: rubric.it.__iadd__(1)),
    "an object": (Memory(), lambda rubric: rubric.it.seen.append(1)),
    "an object in a list": ([Memory()], lambda rubric: rubric.it[0].seen.append(1)),
}


@pytest.mark.parametrize("wrap", [lambda rubric: rubric, Gate, lambda rubric: Guarded(rubric, 5)])
@pytest.mark.parametrize("name", CHANGES)
def test_state_of_an_episode_changes_neither_fingerprint_nor_configuration(name, wrap):
    value, change = CHANGES[name]
    tree = wrap(Remembers(copy.deepcopy(value), change))
    before = tree.fingerprint(), tree.state_dict()
    for _ in range(2):
        tree("a", None)
    tree.score("a", None)
    tree.reset()
    tree("a", None)
    assert (tree.fingerprint(), tree.state_dict()) == before
    assert copy.deepcopy(tree).fingerprint() == before[0]


def stateful_callable():
    class Counts:
        def __init__(self):
            self.calls = 0

        def __call__(self, action, observation):
            self.calls += 1
            return 1.0

    return Counts()


def closure():
    calls = 0

    def counts(action, observation):
        nonlocal calls
        calls += 1
        return 1.0

    return counts


def with_default():
    def counts(action, observation, seen=[]):  # noqa: B006
        seen.append(1)
        return 1.0

    return counts


@pytest.mark.parametrize("make", [stateful_callable, closure, with_default])
def test_state_of_a_function_does_not_change_the_fingerprint(make):
    rubric = as_rubric(make())
    before = rubric.fingerprint()
    rubric("a", None)
    assert rubric.fingerprint() == before


def test_state_that_a_parent_a_hook_or_a_reset_writes_is_no_configuration():
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.child = Fixed()
            self.child.note = "none"

        def forward(self, action, observation):
            self.child.note = action
            return self.child(action, observation)

        def reset(self):
            self.child.note = "reset"

    parent = Parent()
    parent.child.register_forward_hook(lambda rubric, a, o, result: setattr(rubric, "note", result))
    before = parent.fingerprint()
    parent("a", None)
    parent.reset()
    assert parent.fingerprint() == before


def test_state_of_async_and_trajectory_rubrics_is_no_configuration():
    class Later(Rubric):
        def __init__(self, count=0):
            super().__init__()
            self.count = count

        async def forward(self, action, observation):
            await asyncio.sleep(0)
            self.count += 1
            return 1.0

        async def reset_async(self):
            self.count = -1

    class Best(TrajectoryRubric):
        best = 0

        def score_trajectory(self, trajectory):
            setattr(self, "best", self.best + 1)  # noqa: B010
            return 1.0

        def compute_step_rewards(self):
            self.best += 1
            return [1.0] * len(self.trajectory)

    later, best = WeightedSum([Later()], [1.0]), Best()
    before = later.fingerprint(), best.fingerprint()
    asyncio.run(later.evaluate("a", None))
    later.reset()
    asyncio.run(later.evaluate("a", None))
    best("a", {"done": True})
    best.compute_step_rewards()
    assert (later.fingerprint(), best.fingerprint()) == before


def test_a_list_of_the_class_is_state():
    class Shared(Rubric):
        seen = []  # noqa: RUF012

        def forward(self, action, observation):
            self.seen.append(action)
            return 1.0

    rubric = Shared()
    before = rubric.fingerprint()
    rubric("a", None)
    assert rubric.fingerprint() == before


def test_a_counter_of_the_class_is_state_unless_it_is_assigned_elsewhere():
    class Counts(Fixed):
        count = 0

        def forward(self, action, observation):
            type(self).count += 1
            type(self).later = action
            return 1.0

    class Below(Counts):
        pass

    rubric, below = Counts(), Below()
    before = rubric.fingerprint(), below.fingerprint()
    assert (rubric("a", None), below("a", None)) == (1.0, 1.0)
    assert (Counts.count, Below.count) == (1, 2)
    assert (Counts().fingerprint(), Below().fingerprint()) == before
    Fixed.limit = 1
    assert Counts().fingerprint() != before[0]
    del Fixed.limit


def test_configuration_that_is_assigned_outside_of_an_evaluation_counts():
    class Limited(Rubric):
        def __init__(self, limit=3):
            super().__init__()
            self.limit = limit

        def forward(self, action, observation):
            return 1.0

    rubric = Limited()
    rubric("a", None)
    rubric.limit = 4
    assert rubric.fingerprint() == Limited(4).fingerprint() != Limited().fingerprint()
    rubric.load_state_dict({"limit": 7})
    assert (rubric.limit, rubric.fingerprint()) == (7, Limited(7).fingerprint())


def test_configuration_that_is_loaded_counts_though_forward_changes_it():
    rubric = Remembers(0, bump)
    rubric("a", None)
    rubric.load_state_dict({"it": 5})
    assert (rubric.it, rubric.state_dict()) == (5, {"it": 5})


# Ranges that follow a setting


def test_tool_cost_range_follows_its_maximum():
    cost = ToolCost()
    composer = RubricComposer({"cost": cost}, {"cost": -1.5})
    composer.score("a", None)  # it fails, but the composer has derived the ranges
    cost.maximum = 4.0
    assert cost.score_range == composer.ranges()["cost"][:2] == (0.0, 4.0)
    composer.load_state_dict({**composer.state_dict(), "cost.maximum": 8.0})
    assert copy.deepcopy(cost).score_range == (0.0, 8.0)
    assert ToolCost(2.0).fingerprint() != ToolCost().fingerprint()


# What is refused


NAMES = ["score", "forward", "reset", "evaluate", "children", "explain", "fingerprint", "_log",
         "_hooks", "_mode", "_children"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_attribute_that_would_hide_one_of_the_framework_is_refused(name):
    class Hides(Fixed):
        def __init__(self):
            super().__init__()
            setattr(self, name, 3)

    with pytest.raises(RubricDefinitionError, match=f"Hides.{name} would hide .*another name"):
        Hides()


def test_a_class_attribute_that_would_hide_a_method_is_refused():
    with pytest.raises(RubricDefinitionError, match=r"Hides\.score would hide"):
        type("Hides", (Fixed,), {"score": 0.5})


def test_a_method_may_be_replaced_by_another():
    rubric = Fixed()
    rubric.forward = lambda action, observation: 0.5
    assert rubric("a", None) == 0.5
    rubric.name, rubric.hooks, rubric.weights = "a", 1, [2]


HIDDEN = {
    "list": lambda: [Fixed()],
    "tuple": lambda: (Fixed(),),
    "dict": lambda: {"a": Fixed()},
    "set": lambda: {Fixed()},
    "frozenset": lambda: frozenset([Fixed()]),
    "deque": lambda: collections.deque([Fixed()]),
    "keys": lambda: {Fixed(): 1.0},
    "pairs": lambda: [("a", 1.0, Fixed())],
    "nested": lambda: {"a": [Fixed()]},
    "deeper": lambda: [[({"x": Fixed()},)]],
}


@pytest.mark.parametrize("name", ["parts", "_parts"])
@pytest.mark.parametrize("kind", HIDDEN)
def test_rubrics_in_a_plain_container_are_refused(kind, name):
    class Holds(Fixed):
        def __init__(self):
            super().__init__()
            setattr(self, name, HIDDEN[kind]())

    with pytest.raises(RubricDefinitionError, match=f"Holds.{name} contains Fixed, .*RubricList"):
        Holds()
    rubric = Fixed()
    rubric("a", None)
    with pytest.raises(RubricDefinitionError, match="RubricDict"):
        setattr(rubric, name, HIDDEN[kind]())


def test_rubrics_that_are_appended_to_a_plain_list_are_refused():
    class Holds(Fixed):
        def __init__(self):
            super().__init__()
            self.parts = []
            self.parts.append(Fixed())

    with pytest.raises(RubricDefinitionError, match=r"Holds\.parts contains Fixed"):
        Holds()


def test_rubrics_that_come_later_to_a_plain_list_are_refused():
    class Holds(Fixed):
        def __init__(self):
            super().__init__()
            self.parts = []

    rubric = Holds()
    rubric.parts.append(Fixed())
    with pytest.raises(RubricDefinitionError, match=r"Holds\.parts contains Fixed"):
        rubric("a", None)

    class Makes(Fixed):
        def forward(self, action, observation):
            self.parts = [Fixed()]
            return self.parts[0](action, observation)

    with pytest.raises(RubricDefinitionError, match=r"Makes\.parts contains Fixed"):
        Makes()("a", None)


def test_a_plain_list_of_children_is_accepted():
    class Holds(Fixed):
        def __init__(self):
            super().__init__()
            self.parts = [Fixed(), Fixed()]
            self.one, self.other = self.parts
            self.more, self.by = RubricList([Fixed()]), RubricDict({"x": Fixed()})
            self.kinds = [Fixed, RegexMatch]
            self.spaces = types.SimpleNamespace(rubric=Fixed())

    assert Holds()("a", None) == 1.0
