"""Replaying a tree over a recorded episode, step by step."""

import asyncio
import contextlib
import json
import math
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import InvalidScoreError, TrajectoryError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    Rubric,
    RubricComposer,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
    as_rubric,
)
from guerdon.rubrics.replay import Replay, replay, replay_async


class Echo(Rubric):
    """The action itself."""

    def forward(self, action, observation):
        if isinstance(action, Exception):
            raise action
        return action


class AsyncEcho(Echo):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return super().forward(action, observation)


class Final(ExponentialDiscountingTrajectoryRubric):
    """The number in the last action."""

    def score_trajectory(self, trajectory):
        return trajectory[-1][0]


class AsyncFinal(Final):
    async def score_trajectory(self, trajectory):
        await anyio.lowlevel.checkpoint()
        return trajectory[-1][0]


class Spreads(TrajectoryRubric):
    """Returns the rewards that it is given."""

    def __init__(self, rewards):
        super().__init__()
        self.rewards = rewards

    def score_trajectory(self, trajectory):
        return 1.0

    def compute_step_rewards(self):
        return self.rewards


def steps_of(*actions):
    last = len(actions) - 1
    return [
        (action, SimpleNamespace(done=place == last, metadata={}))
        for place, action in enumerate(actions)
    ]


def replayed(rubric, *actions):
    done = Replay()
    replay(rubric, steps_of(*actions), done)
    return done


async def replayed_async(rubric, *actions):
    done = Replay()
    await replay_async(rubric, steps_of(*actions), done)
    return done


def two():
    return WeightedSum([Echo(), lambda action, observation: 0.5], [0.5, 0.5])


# What comes out


def test_replay_score_is_the_sum_of_the_steps():
    done = replayed(Echo(), 0.25, 0.5, -1.0)
    assert (done.score, done.values, done.rewards) == (-0.25, [0.25, 0.5, -1.0], [0.25, 0.5, -1.0])
    assert not done.handled


def test_replay_of_one_step_has_its_score():
    done = replayed(Echo(), 0.25)
    assert (done.score, done.values, done.rewards) == (0.25, [0.25], [0.25])


def test_replay_of_no_steps_is_empty():
    done = replayed(Echo())
    assert (done.score, done.rewards, done.components()) == (0.0, [], {})
    assert done.where() is None


@given(st.lists(st.floats(-1e6, 1e6), max_size=6))
def test_replay_sum_is_exact(values):
    assert replayed(Echo(), *values).score == math.fsum(values)


def test_replay_spreads_the_score_of_a_trajectory_rubric():
    for actions, rewards in (((0.0, 0.0, 1.0), [0.25, 0.5, 1.0]), ((1.0,), [1.0])):
        done = replayed(Final(gamma=0.5), *actions)
        assert (done.score, done.rewards) == (1.0, rewards)
        assert done.values == [0.0] * (len(actions) - 1) + [1.0]


def test_replay_spreads_rewards_through_a_tree():
    done = replayed(WeightedSum([Final(gamma=0.5), Echo()], [0.5, 0.5]), 0.0, 1.0)
    assert (done.score, done.rewards) == (1.0, [0.25, 1.0])


@pytest.mark.anyio
async def test_replay_async_of_an_async_tree_agrees():
    for sync, later in (
        (Echo(), AsyncEcho()),
        (Final(gamma=0.5), AsyncFinal(gamma=0.5)),
        (two(), WeightedSum([AsyncEcho(), lambda action, observation: 0.5], [0.5, 0.5])),
        (Guarded(Echo()), Guarded(AsyncEcho())),
    ):
        for actions in ((1.0,), (0.5, 0.25, 1.0), ()):
            one, other = replayed(sync, *actions), await replayed_async(later, *actions)
            assert (one.score, one.rewards) == (other.score, other.rewards)
            assert one.values == other.values
            assert one.components() == other.components()
            assert list(one.handled) == list(other.handled)


@pytest.mark.anyio
async def test_replay_async_accepts_a_sync_tree_and_any_iterable():
    done = Replay()
    await replay_async(two(), iter(steps_of(0.5, 1.0)), done)
    assert (done.score, done.rewards) == (1.25, [0.5, 0.75])


# Components


def test_replay_components_are_added_up_over_the_steps():
    done = replayed(two(), 0.25, 0.75)
    assert done.components() == {"rubric_0": 1.0, "rubric_1": 1.0}


def test_replay_components_of_one_step_are_its_own():
    assert replayed(two(), 0.25).components() == {"rubric_0": 0.25, "rubric_1": 0.5}


def test_replay_components_that_only_some_steps_have_are_added_up_over_those():
    done = Replay()
    done.steps = [{"a": 1.0, "b": 2.0}, {"a": 0.0}, {"b": 4.0, "c": 1.0}]
    assert done.components() == {"a": 1.0, "b": 6.0, "c": 1.0}
    assert done.steps[-1] == {"b": 4.0, "c": 1.0}


# Resets


def test_replay_resets_the_tree_before_each_episode():
    rubric = Final(gamma=0.5)
    replayed(rubric, 0.0, 0.0)
    assert replayed(rubric, 0.0, 1.0).rewards == [0.5, 1.0]
    assert len(rubric.trajectory) == 2


@pytest.mark.anyio
async def test_replay_async_resets_the_tree_before_each_episode():
    rubric = AsyncFinal(gamma=0.5)
    await replayed_async(rubric, 0.0, 0.0)
    assert (await replayed_async(rubric, 0.0, 1.0)).rewards == [0.5, 1.0]


def test_replay_of_a_failed_episode_does_not_affect_the_next():
    tree = WeightedSum([Final(gamma=0.5), Echo()], [0.5, 0.5])
    with pytest.raises(ValueError, match="no answer"):
        replayed(tree, 0.0, ValueError("no answer"), 1.0)
    assert replayed(tree, 0.0, 1.0).rewards == [0.25, 1.0]


# Failures


@pytest.mark.anyio
async def test_replay_that_fails_keeps_the_earlier_steps():
    sync, later = Replay(), Replay()
    steps = steps_of(0.25, 0.5, ValueError("no answer"), 1.0)
    with pytest.raises(ValueError, match="no answer"):
        replay(two(), steps, sync)
    with pytest.raises(ValueError, match="no answer"):
        await replay_async(two(), steps, later)
    for done in (sync, later):
        assert len(done.values) == 2
        assert len(done.steps) == 3
        assert done.where() == "step 2"
        assert done.steps[:2] == [
            {"rubric_0": 0.25, "rubric_1": 0.5}, {"rubric_0": 0.5, "rubric_1": 0.5},
        ]  # fmt: skip


def test_replay_where_a_failure_at_the_first_step_is_step_0():
    done = Replay()
    with pytest.raises(ValueError, match="no answer"):
        replay(Echo(), steps_of(ValueError("no answer")), done)
    assert (done.where(), done.values, done.components()) == ("step 0", [], {})


@pytest.mark.anyio
async def test_replay_reports_what_a_guard_handled_with_its_step(caplog):
    actions = 0.25, ValueError("no answer"), KeyError("judge"), 0.5
    sync = replayed(Guarded(Echo(), on_error="zero"), *actions)
    later = await replayed_async(Guarded(AsyncEcho(), on_error="zero"), *actions)
    for done in (sync, later):
        assert (done.score, done.values) == (0.75, [0.25, 0.0, 0.0, 0.5])
        first, second = done.handled
        assert first.startswith("step 1: ")
        assert "ValueError: no answer" in first
        assert second.startswith("step 2: ")
        assert "KeyError" in second
    assert "no answer" in caplog.text


def test_replay_of_one_step_reports_what_a_guard_handled_without_a_number(caplog):
    [reported] = replayed(Guarded(Echo(), on_error="zero"), ValueError("no answer")).handled
    assert reported == "rubric 'rubric': ValueError: no answer"
    assert "no answer" in caplog.text


def test_replay_results_are_independent(caplog):
    tree = Guarded(Echo(), on_error="zero")
    replayed(tree, ValueError("no answer"), 1.0)
    assert not replayed(tree, 0.5, 1.0).handled
    assert not Replay().handled
    assert "no answer" in caplog.text


def test_replay_rejects_a_sum_that_is_not_finite():
    with pytest.raises(InvalidScoreError, match="inf"):
        replayed(Echo(), 1e308, 1e308)


@pytest.mark.parametrize("value", [math.nan, None, "1"], ids=repr)
def test_replay_rejects_an_invalid_score(value):
    with pytest.raises(InvalidScoreError):
        replayed(Echo(), 0.5, value)


@pytest.mark.parametrize(
    ("rewards", "error"),
    [
        ([1.0], TrajectoryError),
        ([1.0, 1.0, 1.0], TrajectoryError),
        ([1.0, math.nan], InvalidScoreError),
        ([1.0, None], InvalidScoreError),
    ],
    ids=["too few", "too many", "nan", "None"],
)
def test_replay_checks_step_rewards(rewards, error):
    with pytest.raises(error):
        replayed(Spreads(rewards), 0.0, 0.0)
    assert replayed(Spreads([0.25, 0.75]), 0.0, 0.0).rewards == [0.25, 0.75]


@pytest.mark.anyio
async def test_replay_async_can_be_cancelled():
    done = Replay()

    async def cancels(action, observation):
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return 1.0

    with anyio.CancelScope() as scope:
        await replay_async(WeightedSum([cancels], [1.0]), steps_of(0.0, 1.0), done)
    assert scope.cancelled_caught
    assert done.values == []


# Trees


async def outcome_of(rubric, actions, *, is_async, keeps_trees):
    """What a replay found, with or without trees, and the error that it raised."""
    done, error = Replay(keeps_trees=keeps_trees), None
    try:
        if is_async:
            await replay_async(rubric, steps_of(*actions), done)
        else:
            replay(rubric, steps_of(*actions), done)
    except ValueError as raised:
        error = str(raised)
    if keeps_trees:
        assert [tree.components() for tree in done.trees] == done.steps
    # In async code, the siblings of a rubric that fails may or may not have been scored.
    steps = done.steps[: len(done.values)] if is_async else done.steps
    return done.values, steps, list(done.handled), error


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_replay_with_trees_agrees_with_replay_without(is_async):
    for rubric in (two(), Gate(Echo()), Final(gamma=0.5), Guarded(Echo()), Echo()):
        for actions in ((1.0,), (0.5, 0.25, 1.0), (0.5, ValueError("no luck"), 1.0), ()):
            plain, with_trees = [
                await outcome_of(rubric, actions, is_async=is_async, keeps_trees=keeps_trees)
                for keeps_trees in (False, True)
            ]
            assert plain == with_trees


def test_replay_trees_end_with_the_step_that_failed():
    done = Replay(keeps_trees=True)
    with pytest.raises(ValueError, match="no luck"):
        replay(two(), steps_of(1.0, ValueError("no luck"), 1.0), done)
    first, failed = done.trees
    assert (first.status, first.value, failed.status, failed.value) == (
        "scored",
        0.75,
        "failed",
        None,
    )
    assert [each.status for each in failed.children] == ["failed", "skipped"]
    replay(two(), steps_of(1.0), done)  # a replay that is used again
    assert [tree.value for tree in done.trees] == [0.75]


class Twice(Rubric):
    """Calls its only rubric two times."""

    def __init__(self, rubric):
        super().__init__()
        self.rubric = rubric

    async def forward(self, action, observation):
        first = await self.rubric.evaluate(action, observation)
        return 0.5 * first + 0.5 * await self.rubric.evaluate(action, observation)


class SyncTwice(Twice):
    def forward(self, action, observation):
        first = self.rubric(action, observation)
        return 0.5 * first + 0.5 * self.rubric(action, observation)


WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, -1.0])
SHAPES = st.recursive(
    st.sampled_from(["echo", "fixed", "final", "hooked"]),
    lambda inner: st.one_of(
        st.tuples(st.just("gate"), inner, st.sampled_from([0.0, 0.5])),
        st.tuples(st.just("guarded"), inner),
        st.tuples(st.just("shared"), inner),
        st.tuples(st.just("twice"), inner),
        st.tuples(st.just("sequential"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("sum"), st.lists(st.tuples(inner, WEIGHTS), min_size=1, max_size=3)),
        st.tuples(st.just("composer"), st.lists(st.tuples(inner, WEIGHTS), min_size=1, max_size=3)),
    ),
    max_leaves=6,
)
ACTIONS = st.lists(st.sampled_from([0.0, 0.25, 1.0, ValueError("no luck")]), min_size=1, max_size=3)


def leaf_of(kind, *, is_async):
    if kind == "fixed":
        return as_rubric(lambda action, observation: 0.5)
    if kind == "final":
        return (AsyncFinal if is_async else Final)(gamma=0.5)
    rubric = AsyncEcho() if is_async else Echo()
    if kind == "hooked":
        rubric.register_forward_hook(fail_in_hook)
    return rubric


def rubric_of(shape, *, is_async):
    """The rubric of a shape."""
    if isinstance(shape, str):
        return leaf_of(shape, is_async=is_async)
    kind, inner, *more = shape
    if kind in ("sum", "composer", "sequential"):
        parts = [(each, 1.0) for each in inner] if kind == "sequential" else inner
        rubrics = [rubric_of(each, is_async=is_async) for each, _ in parts]
        weights = [weight for _, weight in parts]
        if kind == "sequential":
            return Sequential(*rubrics)
        if kind == "sum":
            return WeightedSum(rubrics, weights)
        names = [f"part{place}" for place in range(len(parts))]
        return RubricComposer(
            dict(zip(names, rubrics, strict=True)), dict(zip(names, weights, strict=True))
        )
    rubric = rubric_of(inner, is_async=is_async)
    if kind == "gate":
        return Gate(rubric, *more)
    if kind == "guarded":
        return Guarded(rubric)
    if kind == "shared":
        return WeightedSum([rubric, rubric], [0.5, 0.5])
    return Twice(rubric) if is_async else SyncTwice(rubric)


def fail_in_hook(rubric, action, observation, score):
    raise RuntimeError("the hook is broken")


def check_tree(rubric, score):
    """Check that the values of a tree are those that its containers return for its children."""
    values = [each.value for each in score.children if each.status != "skipped"]
    if score.status == "scored" and isinstance(rubric, WeightedSum):
        weights = [each.weight for each in score.children]
        assert score.value == math.fsum(w * v for w, v in zip(weights, values, strict=True))
    if score.status == "scored" and isinstance(rubric, RubricComposer):
        assert score.value == rubric.combine({each.name: each.value for each in score.children})
        for each in score.children:
            normalized = rubric._normalized(each.name, each.value)
            if normalized != each.value:  # the tree has both numbers
                assert f"{each.name} normalized to {normalized:.6g}" in score.reason
    if score.status == "scored" and isinstance(rubric, Sequential):
        assert score.value == values[-1]
        # A trajectory rubric that waits for the end of the episode stops nothing.
        assert all(values[:-1]) or "due at the end" in str(score)
    if score.status == "scored" and isinstance(rubric, Gate):
        assert score.value == (values[0] if values[0] >= rubric.threshold else 0.0)
    for each in score.children:
        assert (each.value is None) == (each.status == "skipped") or each.status == "failed"
        check_tree(rubric._children[each.name.partition("#")[0]], each)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_replay_trees_agree_with_the_scores(is_async, anyio_backend):
    @settings(max_examples=150, deadline=None)
    @given(SHAPES, ACTIONS)
    def check(shape, actions):
        done = Replay(keeps_trees=True)
        plain = Replay()
        for each in (done, plain):
            rubric = rubric_of(shape, is_async=is_async)
            with contextlib.suppress(ValueError, TrajectoryError):
                if is_async:
                    asyncio.run(replay_async(rubric, steps_of(*actions), each))
                else:
                    replay(rubric, steps_of(*actions), each)
        assert (done.values, list(done.handled)) == (plain.values, list(plain.handled))
        assert [tree.components() for tree in done.trees] == done.steps
        for place, tree in enumerate(done.trees):
            is_valid = place < len(done.values)
            assert tree.value == (done.values[place] if is_valid else None)
            assert is_valid or tree.status == "failed"
            check_tree(rubric, tree)
            assert json.loads(json.dumps(tree.to_dict(), allow_nan=False)) == tree.to_dict()

    await anyio.to_thread.run_sync(check)
