"""Making rubrics: what is refused, names of children, hooks' registration, reset, copies."""

import copy
import pickle
import subprocess
import sys

import pytest

from guerdon.errors import RubricDefinitionError, RubricError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Rubric,
    RubricDict,
    RubricList,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)


class Fixed(Rubric):
    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


class Mean(Rubric):
    def __init__(self, *values):
        super().__init__()
        self.parts = RubricList(Fixed(value) for value in values)

    def forward(self, action, observation):
        return sum(part(action, observation) for part in self.parts) / len(self.parts)


class Won(ExponentialDiscountingTrajectoryRubric):
    def score_trajectory(self, trajectory):
        return float(trajectory[-1][1]["won"])


class Counting(Rubric):
    def __init__(self):
        super().__init__()
        self.resets = 0

    def forward(self, action, observation):
        return 1.0

    def reset(self):
        self.resets += 1


class CountingWithSuper(Counting):
    def reset(self):
        super().reset()


def collect(rubric, action, observation, result):
    SEEN.append((type(rubric).__name__, result))


SEEN: list = []


# Construction


def test_rubric_can_not_be_instantiated():
    with pytest.raises(TypeError, match=r"Rubric can't be .*: implement forward") as caught:
        Rubric()
    assert isinstance(caught.value, RubricDefinitionError)


def test_trajectory_rubric_can_not_be_instantiated():
    with pytest.raises(TypeError, match="compute_step_rewards and score_trajectory"):
        TrajectoryRubric()
    with pytest.raises(TypeError, match="score_trajectory"):
        ExponentialDiscountingTrajectoryRubric()


def test_rubric_subclass_without_forward_can_not_be_instantiated():
    class Empty(Rubric):
        pass

    with pytest.raises(RubricDefinitionError, match=r"Empty can't be .*: implement forward"):
        Empty()


def test_rubric_without_super_init_and_children_is_an_error():
    class Forgetful(Rubric):
        def __init__(self):
            self.threshold = 3

        def forward(self, action, observation):
            return 1.0

    with pytest.raises(RubricDefinitionError, match=r"Forgetful\.__init__ must call super"):
        Forgetful()


def test_rubric_without_super_init_with_children_is_an_error():
    class Forgetful(Rubric):
        def __init__(self):
            self.child = Fixed()

        def forward(self, action, observation):
            return 1.0

    with pytest.raises(RubricDefinitionError, match=r"Forgetful\.__init__ must call super"):
        Forgetful()


def test_trajectory_rubric_without_super_init_is_an_error():
    class Forgetful(Won):
        def __init__(self):
            self.bonus = 1

    with pytest.raises(RubricDefinitionError, match=r"Forgetful\.__init__ must call super"):
        Forgetful()


def test_rubric_used_before_super_init_names_the_class():
    class Late(Rubric):
        def __init__(self):
            self.register_forward_hook(print)
            super().__init__()

        def forward(self, action, observation):
            return 1.0

    with pytest.raises(RubricDefinitionError, match="Late"):
        Late()


# Calling


def test_rubric_call_returns_the_score():
    assert Fixed(0.5)("a", "o") == 0.5


def test_rubric_forward_gets_action_and_observation():
    class Echo(Rubric):
        def forward(self, action, observation):
            return action - observation

    assert Echo()(3.0, 1.0) == 2.0


def test_rubric_last_score_is_none_before_the_first_call():
    rubric = Fixed(0.25)
    assert rubric.last_score is None
    rubric(None, None)
    assert rubric.last_score == 0.25


def test_rubric_last_score_is_that_of_the_latest_call_in_the_whole_tree():
    rubric = Mean(0.0, 1.0)
    rubric(None, None)
    assert rubric.last_score == 0.5
    assert [part.last_score for part in rubric.parts] == [0.0, 1.0]
    rubric.parts[0].value = 1.0
    rubric(None, None)
    assert rubric.last_score == 1.0


# Assigning children


def test_rubric_setattr_registers_children_in_order():
    rubric = Fixed()
    rubric.second = Fixed()
    rubric.first = Fixed()
    assert list(rubric.named_children()) == [("second", rubric.second), ("first", rubric.first)]
    assert list(rubric.children()) == [rubric.second, rubric.first]


def test_rubric_setattr_rejects_a_class():
    rubric = Fixed()
    with pytest.raises(
        RubricDefinitionError,
        match=r"Fixed\.child must be a rubric, got .* Fixed; .* Fixed\(…\)",
    ):
        rubric.child = Fixed


@pytest.mark.parametrize(
    "name", ["forward", "score", "children", "last_score", "_children", "reset", "_log", "__call__"]
)
def test_rubric_setattr_rejects_a_child_named_like_an_attribute(name):
    rubric = Fixed()
    with pytest.raises(RubricDefinitionError, match="would hide an attribute"):
        setattr(rubric, name, Fixed())
    assert list(rubric.children()) == []


def test_rubric_setattr_does_not_replace_a_child_by_another_value():
    rubric = Fixed()
    rubric.child = child = Fixed()
    with pytest.raises(RubricDefinitionError, match="assign a rubric, or None"):
        rubric.child = 3
    assert rubric.child is child
    assert list(rubric.children()) == [child]


def test_rubric_setattr_of_other_values_registers_no_children():
    rubric = Fixed()
    rubric.text, rubric.nothing = "x", None
    assert list(rubric.children()) == []


# Hooks


def test_register_forward_hook_rejects_what_is_not_callable():
    with pytest.raises(RubricError, match="a hook must be a function, got int"):
        Fixed().register_forward_hook(3)
    with pytest.raises(RubricError, match="a hook must be a function, got str"):
        Fixed().register_forward_pre_hook("x")


# Reset


def test_reset_reaches_every_rubric_once():
    leaf, shared = Counting(), Counting()
    Sequential(Gate(leaf), shared, WeightedSum([shared], [1.0])).reset()
    assert (leaf.resets, shared.resets) == (1, 1)


@pytest.mark.parametrize("with_super", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_reset_reaches_children_once_however_the_parent_is_written(with_super, by_hand):
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.child = Counting()
            self.resets = 0

        def forward(self, action, observation):
            return self.child(action, observation)

        def reset(self):
            self.resets += 1
            if by_hand:
                self.child.reset()
            if with_super:
                super().reset()

    parent = Parent()
    Sequential(parent).reset()
    assert (parent.resets, parent.child.resets) == (1, 1)
    parent.reset()
    assert (parent.resets, parent.child.resets) == (2, 2)


def test_reset_runs_each_inherited_reset_once():
    rubric = CountingWithSuper()
    rubric.reset()
    assert rubric.resets == 1


def test_reset_runs_in_every_pass():
    rubric = Sequential(Counting())
    for _ in range(3):
        rubric.reset()
    assert rubric.rubric_0.resets == 3


def test_reset_that_raises_does_not_break_the_next():
    class Breaks(Counting):
        broken = True

        def reset(self):
            if self.broken:
                raise OSError("no")
            super().reset()

    rubric = Sequential(Breaks())
    with pytest.raises(OSError, match="no"):
        rubric.reset()
    rubric.rubric_0.broken = False
    rubric.reset()
    assert rubric.rubric_0.resets == 1


def test_reset_of_an_object_that_is_used_as_a_function_is_called():
    class Judge:
        resets = 0

        def __call__(self, action, observation):
            return 1.0

        def reset(self):
            self.resets += 1

    judge = Judge()
    Sequential(judge).reset()
    assert judge.resets == 1


# Copies


def copies(rubric):
    return [copy.deepcopy(rubric), pickle.loads(pickle.dumps(rubric))]


def test_rubric_copies_evaluate_alike_and_are_independent():
    rubric = WeightedSum([Mean(0.0, 1.0), Gate(Fixed(0.5), threshold=0.5)], [2.0, -1.0])
    for other in copies(rubric):
        assert other(None, None) == 0.5
        assert [name for name, _ in other.named_rubrics()] == [
            name for name, _ in rubric.named_rubrics()
        ]
        other.rubric_0.parts[0].value = 1.0
        other.weights = [1.0, 0.0]
        assert other(None, None) == 1.0
        assert rubric(None, None) == 0.5
        assert rubric.weights == [2.0, -1.0]


def test_rubric_copies_of_collections_are_collections():
    rubric = RubricDict({"a": Fixed(0.1), "b": RubricList([Fixed(0.2), Fixed(0.3)])})
    for other in copies(rubric):
        assert list(other) == ["a", "b"]
        other["b"].append(Fixed(0.4))
        assert [part(None, None) for part in other["b"]] == [0.2, 0.3, 0.4]
        assert len(rubric["b"]) == 2


def test_rubric_copies_keep_shared_children_shared():
    shared = Fixed()
    rubric = Sequential(Gate(shared), shared)
    for other in copies(rubric):
        assert other.rubric_0.rubric is other.rubric_1
        assert len(list(other.rubrics())) == 2


def test_rubric_copies_keep_hooks():
    rubric = Sequential(Fixed(0.5))
    rubric.rubric_0.register_forward_hook(collect)
    for other in copies(rubric):
        SEEN.clear()
        assert other(None, None) == 0.5
        assert SEEN == [("Fixed", 0.5)]


def test_rubric_copies_notice_changes_below():
    for other in copies(Sequential(Gate(Fixed(1.0)))):
        assert other(None, None) == 1.0
        seen = []
        other.rubric_0.rubric.register_forward_hook(lambda r, a, o, v, seen=seen: seen.append(v))
        assert other(None, None) == 1.0
        assert seen == [1.0]
        other.rubric_0.rubric = Fixed(0.0)
        assert other(None, None) == 0.0


def test_rubric_copies_of_an_episode_continue_independently():
    rubric = Won(gamma=0.5)
    rubric("a", {"done": False})
    for other in copies(rubric):
        assert other("b", {"done": True, "won": True}) == 1.0
        assert other.compute_step_rewards() == [0.5, 1.0]
        assert len(rubric.trajectory) == 1


def test_rubric_copies_keep_equal_steps_apart():
    rubric, nothing = Won(gamma=0.5), {"done": False, "won": True}
    rubric("a", nothing)
    rubric("a", nothing)
    for other in copies(rubric):
        assert len(other.trajectory) == 2
        assert other.compute_step_rewards() == [0.5, 1.0]


def test_rubric_that_hooks_its_child_can_be_copied():
    class Watching(Rubric):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.child = Fixed(0.5)
            self.child.register_forward_hook(self.watch)

        def watch(self, rubric, action, observation, result):
            self.seen.append(result)

        def forward(self, action, observation):
            return self.child(action, observation)

    rubric = Watching()
    other = copy.deepcopy(rubric)
    assert other(None, None) == 0.5
    assert (other.seen, rubric.seen) == ([0.5], [])
    child = copy.deepcopy(rubric.child)
    assert child(None, None) == 0.5


def half(action, observation):
    return 0.5


def test_function_rubric_can_be_copied():
    for other in copies(Sequential(half, WeightedSum([half], [3.0]))):
        assert other(None, None) == 1.5
        assert repr(other.rubric_0) == "half()"


def test_rubric_copied_during_an_evaluation_is_independent():
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.child = Fixed(0.5)

        def forward(self, action, observation):
            other = copy.deepcopy(self.child)
            other.value = 0.25
            return self.child(action, observation) + other(action, observation)

    score = Gate(Parent(), threshold=0.0).score(None, None)
    assert score.value == 0.75
    assert score.components() == {"rubric": 0.75, "rubric.child": 0.5}


# Import


@pytest.mark.edge
def test_rubrics_import_is_light():
    code = (
        "import sys, guerdon.rubrics as r; r.Rubric, r.Guarded;"
        "heavy = {'numpy', 'pydantic', 'starlette', 'uvicorn', 'torch', 'jsonschema'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_rubric_repr_draws_the_tree():
    rubric = WeightedSum([Fixed(0.5), Gate(Fixed(1.0), threshold=0.5)], [2, -1])
    assert repr(rubric) == (
        "WeightedSum()\n"
        "  rubric_0: 2 × Fixed(value=0.5)\n"
        "  rubric_1: -1 × Gate(threshold=0.5)\n"
        "    rubric: Fixed(value=1.0)"
    )
