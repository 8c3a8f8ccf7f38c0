"""Hooks: their order, their errors, async ones; on leaves and on containers."""

import logging

import anyio
import pytest

from guerdon.errors import AsyncRubricError
from guerdon.rubrics import (
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
)


class Leaf(Rubric):
    def __init__(self, log, name="leaf", value=1.0):
        super().__init__()
        self._record = log
        self._name = name
        self._value = value

    def forward(self, action, observation):
        self._record.append(self._name)
        return self._value


class AsyncLeaf(Leaf):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        self._record.append(self._name)
        return self._value


def hook_everything(rubric, log):
    for number in (1, 2):
        rubric.register_forward_pre_hook(lambda r, a, o, n=number: log.append(f"before {n}"))
        rubric.register_forward_hook(lambda r, a, o, result, n=number: log.append(f"after {n}"))


def hook_everything_async(rubric, log):
    for number in (1, 2):

        async def before(r, a, o, n=number):
            await anyio.lowlevel.checkpoint()
            log.append(f"before {n}")

        async def after(r, a, o, result, n=number):
            await anyio.lowlevel.checkpoint()
            log.append(f"after {n}")

        rubric.register_forward_pre_hook(before)
        rubric.register_forward_hook(after)


ORDER = ["before 1", "before 2", "leaf", "after 1", "after 2"]
WRAPS = {
    "leaf": lambda leaf: leaf,
    "Sequential": lambda leaf: Sequential(leaf),
    "Gate": lambda leaf: Gate(leaf),
    "WeightedSum": lambda leaf: WeightedSum([leaf], [1.0]),
    "Guarded": lambda leaf: Guarded(leaf),
}


# Order


@pytest.mark.parametrize("wrap", WRAPS)
def test_hooks_run_in_order_before_and_after_forward(wrap):
    log = []
    rubric = WRAPS[wrap](Leaf(log))
    hook_everything(rubric, log)
    assert rubric(None, None) == 1.0
    assert log == ORDER


@pytest.mark.anyio
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("leaf", [Leaf, AsyncLeaf])
@pytest.mark.parametrize("hook", [hook_everything, hook_everything_async])
async def test_hooks_are_awaited_in_order_by_evaluate(wrap, leaf, hook):
    log = []
    rubric = WRAPS[wrap](leaf(log))
    hook(rubric, log)
    assert await rubric.evaluate(None, None) == 1.0
    assert log == ORDER


@pytest.mark.anyio
@pytest.mark.parametrize("wrap", WRAPS)
async def test_hooks_that_are_async_are_awaited_on_async_trees(wrap):
    log = []
    rubric = WRAPS[wrap](AsyncLeaf(log))
    hook_everything_async(rubric, log)
    hook_everything(rubric, log)
    assert await rubric(None, None) == 1.0
    assert log == [
        "before 1", "before 2", "before 1", "before 2",
        "leaf",
        "after 1", "after 2", "after 1", "after 2",
    ]  # fmt: skip


def test_hooks_of_parents_and_children_nest():
    log = []
    child = Leaf(log, "child")
    parent = Sequential(child)
    for name, rubric in (("parent", parent), ("child", child)):
        rubric.register_forward_pre_hook(lambda r, a, o, n=name: log.append(f"before {n}"))
        rubric.register_forward_hook(lambda r, a, o, v, n=name: log.append(f"after {n}"))
    parent(None, None)
    assert log == ["before parent", "before child", "child", "after child", "after parent"]


def test_hooks_receive_rubric_action_observation_and_result():
    seen = []
    rubric = Leaf([], value=0.5)
    rubric.register_forward_pre_hook(lambda *args: seen.append(args))
    rubric.register_forward_hook(lambda *args: seen.append(args))
    rubric("act", "obs")
    assert seen == [(rubric, "act", "obs"), (rubric, "act", "obs", 0.5)]


def test_forward_hooks_see_the_new_last_score():
    rubric, seen = Leaf([], value=0.5), []
    rubric.register_forward_hook(lambda r, a, o, result: seen.append(r.last_score))
    rubric(None, None)
    assert seen == [0.5]


def test_hooks_return_values_are_ignored():
    rubric = Leaf([], value=0.5)
    rubric.register_forward_pre_hook(lambda r, a, o: 9.0)
    rubric.register_forward_hook(lambda r, a, o, result: 9.0)
    assert rubric(None, None) == 0.5


def test_hooks_of_a_skipped_child_do_not_run():
    log = []
    rubric = Sequential(Leaf(log, "zero", 0.0), Leaf(log, "never"))
    hook_everything(rubric.rubric_1, log)
    rubric(None, None)
    assert log == ["zero"]


# Handles


def test_hook_handle_removes_its_hook_alone():
    rubric, log = Leaf([]), []
    first = rubric.register_forward_hook(lambda r, a, o, v: log.append(1))
    rubric.register_forward_hook(lambda r, a, o, v: log.append(2))
    before = rubric.register_forward_pre_hook(lambda r, a, o: log.append(0))
    rubric(None, None)
    first.remove()
    first.remove()
    before.remove()
    rubric(None, None)
    assert log == [0, 1, 2, 2]


def test_hook_handle_is_a_context_manager():
    rubric, log = Sequential(Leaf([])), []
    with rubric.register_forward_hook(lambda r, a, o, v: log.append(v)):
        rubric(None, None)
    rubric(None, None)
    assert log == [1.0]


def test_hook_may_remove_itself():
    rubric, log = Leaf([]), []

    def once(r, a, o, result):
        log.append(result)
        handle.remove()

    handle = rubric.register_forward_hook(once)
    rubric.register_forward_hook(lambda r, a, o, v: log.append("other"))
    rubric(None, None)
    rubric(None, None)
    assert log == [1.0, "other", "other"]


@pytest.mark.parametrize("evaluated", [False, True])
def test_hook_of_a_child_takes_effect_in_its_ancestors(evaluated):
    log = []
    rubric = Sequential(Gate(Leaf([])))
    if evaluated:
        rubric(None, None)
    rubric.rubric_0.rubric.register_forward_hook(lambda r, a, o, v: log.append(v))
    rubric(None, None)
    assert log == [1.0]


# Errors


def test_pre_hook_exception_is_raised_to_the_caller():
    log, error = [], OSError("not now")
    rubric = Gate(Leaf(log))

    def refuse(r, a, o):
        raise error

    rubric.rubric.register_forward_pre_hook(refuse)
    with pytest.raises(OSError, match="not now") as caught:
        rubric(None, None)
    assert caught.value is error
    assert log == []
    assert error.__notes__ == ["raised in rubric 'rubric' of Gate"]


@pytest.mark.anyio
async def test_async_pre_hook_exception_is_raised_to_the_caller():
    log = []

    async def refuse(r, a, o):
        raise OSError("not now")

    rubric = WeightedSum([AsyncLeaf(log)], [1.0])
    rubric.register_forward_pre_hook(refuse)
    with pytest.raises(OSError, match="not now"):
        await rubric(None, None)
    assert log == []


def test_forward_hook_exception_is_logged_and_reported_and_the_score_kept(caplog):
    log = []
    rubric = Sequential(Leaf(log, value=0.5))

    def broken(r, a, o, result):
        raise OSError("disk full")

    rubric.rubric_0.register_forward_hook(broken)
    rubric.rubric_0.register_forward_hook(lambda r, a, o, v: log.append("after"))
    with caplog.at_level(logging.ERROR, logger="guerdon.rubrics"):
        assert rubric(None, None) == 0.5
    assert log == ["leaf", "after"]
    (record,) = caplog.records
    assert "broken: OSError: disk full" in record.getMessage()
    assert "Leaf" in record.getMessage()
    assert record.exc_info[0] is OSError
    caplog.clear()
    score = rubric.score(None, None)
    assert (score.value, score.status, score.hook_errors) == (0.5, "scored", ())
    (reported,) = score["rubric_0"].hook_errors
    assert reported.endswith("broken: OSError: disk full")
    assert (score["rubric_0"].value, score["rubric_0"].status) == (0.5, "scored")
    assert len(caplog.records) == 1


@pytest.mark.anyio
async def test_async_forward_hook_exception_leaves_the_score(caplog):
    async def broken(r, a, o, result):
        await anyio.lowlevel.checkpoint()
        raise OSError("disk full")

    rubric = Sequential(AsyncLeaf([], value=0.5))
    rubric.register_forward_hook(broken)
    assert await rubric(None, None) == 0.5
    score = await rubric.score_async(None, None)
    assert score.value == 0.5
    assert [reported.endswith("broken: OSError: disk full") for reported in score.hook_errors] == [
        True
    ]
    assert len(caplog.records) == 2


# Async hooks where nothing awaits


async def async_hook(*args):
    raise AssertionError("never awaited")


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_async_hook_on_a_sync_tree_is_an_error_that_names_it(register, wrap):
    log = []
    rubric = WRAPS[wrap](Leaf(log))
    getattr(rubric, register)(async_hook)
    with pytest.raises(
        AsyncRubricError, match=f"hook async_hook of {type(rubric).__name__} returns an awaitable"
    ):
        rubric(None, None)
    assert log == []


def test_async_hook_on_a_sync_child_names_the_path_and_is_a_failure():
    rubric = Sequential(Leaf([]), Gate(Leaf([])))
    rubric.rubric_1.rubric.register_forward_hook(async_hook)
    with pytest.raises(AsyncRubricError) as caught:
        rubric(None, None)
    assert caught.value.rubric_path == "rubric_1.rubric"
    score = rubric.score(None, None)
    assert score.status == score["rubric_1.rubric"].status == "failed"


@pytest.mark.parametrize("hooks", [1, 2])
def test_hook_that_returns_a_coroutine_is_reported_and_the_coroutine_closed(hooks, caplog):
    rubric = Leaf([], value=0.5)
    for _ in range(hooks):
        rubric.register_forward_hook(lambda *args: async_hook(*args))
    score = rubric.score(None, None)
    assert score.value == 0.5
    assert len(score.hook_errors) == hooks
    assert "awaitable" in score.hook_errors[-1]
    with rubric.register_forward_pre_hook(lambda *args: async_hook(*args)):
        assert rubric.score(None, None).status == "failed"


# Hooks on rubrics with an episode


def test_hooks_on_a_trajectory_rubric_and_a_dispatcher():
    class Length(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return float(len(trajectory))

        def compute_step_rewards(self):
            return [1.0] * len(self.trajectory)

    class ByTask(Rubric):
        def __init__(self):
            super().__init__()
            self.tasks = RubricDict({"a": Length()})

        def forward(self, action, observation):
            return self.tasks["a"](action, observation)

    rubric, seen = ByTask(), []
    rubric.register_forward_hook(lambda r, a, o, v: seen.append(("parent", v)))
    rubric.tasks["a"].register_forward_hook(lambda r, a, o, v: seen.append(("child", v)))
    rubric("x", {"done": False})
    rubric("y", {"done": True})
    assert seen == [("child", 0.0), ("parent", 0.0), ("child", 2.0), ("parent", 2.0)]
    assert rubric.compute_step_rewards() == [1.0, 1.0]
