"""RubricCopies: which rollouts get a copy of a tree, how many at a time, and what copies share."""

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    RegexMatch,
    Rubric,
    RubricComposer,
    Sequential,
)
from guerdon.rubrics.copies import ROLLOUTS, RubricCopies
from guerdon.rubrics.evaluation import in_thread

pytestmark = pytest.mark.anyio

SOON = 10


class Won(ExponentialDiscountingTrajectoryRubric):
    async def score_trajectory(self, trajectory):
        return 1.0


class Undeclared(Rubric):
    async def forward(self, action, observation):
        return 3.0

    def reset(self):
        """It remembers something."""


class Locked(Won):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


async def at_the_same_time(rubric, rollouts):
    """The most rollouts that had a tree at the same time, and the trees."""
    copies, inside, most, trees = RubricCopies(rubric), 0, 0, []
    leave = anyio.Event()

    async def one():
        nonlocal inside, most
        async with copies.one() as tree:
            trees.append(tree)
            inside += 1
            most = max(most, inside)
            await leave.wait()
            inside -= 1

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for _ in range(rollouts):
                tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            leave.set()
    return most, trees


async def test_rubric_copies_gives_each_rollout_a_copy_and_bounds_their_number():
    rubric = Sequential(RegexMatch("please"), Won(gamma=0.5))
    most, trees = await at_the_same_time(rubric, ROLLOUTS + 8)
    assert most == ROLLOUTS
    assert len({id(each) for each in [rubric, *trees]}) == ROLLOUTS + 1
    assert {each.fingerprint() for each in trees} == {rubric.fingerprint()}


async def test_rubric_copies_gives_all_rollouts_a_rubric_that_remembers_nothing():
    rubric = RegexMatch("please")
    most, trees = await at_the_same_time(rubric, ROLLOUTS + 8)
    assert most == ROLLOUTS + 8
    assert all(each is rubric for each in trees)


@pytest.mark.parametrize(
    "rubric",
    [Locked(), RubricComposer({"a": Undeclared()}, [1.0], normalize="observed")],
    ids=["not copied", "observes"],
)
async def test_rubric_copies_gives_one_rollout_at_a_time_a_rubric_that_has_no_copy(rubric):
    most, trees = await at_the_same_time(rubric, 4)
    assert (most, len(trees)) == (1, 4)
    assert all(each is rubric for each in trees)


async def test_rubric_copies_have_the_configuration_of_the_moment_and_the_same_hooks():
    class Sees:
        def __init__(self):
            self.scores = []

        def hook(self, rubric, action, observation, score):
            self.scores.append(score)

    sees, rubric = Sees(), Won(gamma=0.5)
    copies = RubricCopies(rubric)
    rubric.register_forward_hook(sees.hook)
    async with copies.one() as tree:
        assert tree.gamma == 0.5
    rubric.gamma = 0.25
    async with copies.one() as tree:
        assert tree is not rubric
        assert tree.gamma == 0.25
        await tree.evaluate("a", {"done": True})
    assert sees.scores == [1.0]
    assert rubric.trajectory == []


async def test_rubric_copies_uses_no_copy_again_that_raised():
    copies, trees = RubricCopies(Won()), []

    async def one(error):
        async with copies.one() as tree:
            trees.append(tree)
            if error is not None:
                raise error

    async with copies.one():  # so that the copies are kept
        await one(None)
        with pytest.raises(ValueError, match="no"):
            await one(ValueError("no"))
        await one(None)
    assert trees[0] is trees[1] is not trees[2]


class Late:
    """Code in a thread that runs until it is freed, after its rollout has ended."""

    def __init__(self):
        self.began, self.is_free = threading.Event(), threading.Event()
        self.events = []

    def run(self):
        self.began.set()
        assert self.is_free.wait(SOON)
        self.events.append("late code ended")

    async def abandon(self):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_thread, None, self.run)
            while not self.began.is_set():
                await checkpoint()
            tasks.cancel_scope.cancel()


async def test_rubric_copies_waits_for_the_late_code_of_a_rubric_that_has_no_copy():
    copies, late = RubricCopies(Locked()), Late()

    async def next_rollout():
        async with copies.one():
            late.events.append("next rollout began")

    async with copies.one():
        await late.abandon()
    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(next_rollout)
            for _ in range(10):
                await checkpoint()
            late.is_free.set()
    assert late.events == ["late code ended", "next rollout began"]


async def test_rubric_copies_uses_no_copy_again_whose_code_still_runs():
    copies, late, trees = RubricCopies(Won()), Late(), []
    async with copies.one():  # so that the copies are kept
        for abandon in (checkpoint, late.abandon, checkpoint):
            async with copies.one() as tree:
                trees.append(tree)
                await abandon()
    late.is_free.set()
    assert trees[0] is trees[1] is not trees[2]


async def test_rubric_copies_gives_one_rollout_at_a_time_a_stateless_rubric_that_observes():
    rubric = RubricComposer({"a": lambda action, observation: 3.0}, [1.0], normalize="observed")
    most, _ = await at_the_same_time(rubric, 4)
    assert most == 1
