"""evaluate and evaluate_batch: threads, cancelling, order, bounds."""

import asyncio
import threading

import anyio
import anyio.from_thread
import pytest

from guerdon.errors import InvalidArgumentError, RubricError
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    Rubric,
    RubricDict,
    Sequential,
    WeightedSum,
)

pytestmark = pytest.mark.anyio


class Fixed(Rubric):
    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


class AsyncFixed(Fixed):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return self.value


class Echo(Rubric):
    def forward(self, action, observation):
        return action


class AsyncEcho(Rubric):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return action


class HandWritten(Rubric):
    def __init__(self):
        super().__init__()
        self.tasks = RubricDict({"a": Fixed(0.5)})

    def forward(self, action, observation):
        return self.tasks["a"](action, observation)


class AsyncHandWritten(Rubric):
    def __init__(self):
        super().__init__()
        self.judge = AsyncFixed(0.5)
        self.rule = Fixed(0.5)

    async def forward(self, action, observation):
        return await self.judge(action, observation) + self.rule(action, observation)


# evaluate


@pytest.mark.parametrize(
    ("rubric", "expected"),
    [
        (lambda: Fixed(0.5), 0.5),
        (lambda: AsyncFixed(0.5), 0.5),
        (lambda: Sequential(), 1.0),
        (lambda: Sequential(Fixed(1.0), AsyncFixed(0.25)), 0.25),
        (lambda: Gate(AsyncFixed(0.5), threshold=0.5), 0.5),
        (lambda: WeightedSum([Fixed(1.0), AsyncFixed(2.0)], [1, 2]), 5.0),
        (lambda: Guarded(Fixed(0.5), timeout=5), 0.5),
        (lambda: Guarded(AsyncFixed(0.5), timeout=5), 0.5),
        (HandWritten, 0.5),
        (AsyncHandWritten, 1.0),
        (lambda: Sequential(HandWritten(), Gate(AsyncHandWritten())), 1.0),
    ],
)
async def test_evaluate_works_on_every_tree(rubric, expected):
    rubric = rubric()
    assert await rubric.evaluate(None, None) == expected
    assert rubric.last_score == expected
    assert (await rubric.score_async(None, None)).value == expected


async def test_evaluate_runs_sync_leaves_in_threads_and_async_ones_on_the_loop():
    here, where = threading.get_ident(), {}

    def sync(action, observation):
        where["sync"] = threading.get_ident()
        return 1.0

    async def awaited(action, observation):
        where["async"] = threading.get_ident()
        return 1.0

    assert await WeightedSum([sync, awaited], [1, 1]).evaluate(None, None) == 2.0
    assert where["sync"] != here
    assert where["async"] == here


async def test_evaluate_runs_sync_children_of_a_weighted_sum_concurrently():
    barrier = threading.Barrier(3, timeout=5)

    def meet(action, observation):
        barrier.wait()
        return 1.0

    assert await WeightedSum([meet, meet, meet], [1, 2, 3]).evaluate(None, None) == 6.0


async def test_evaluate_runs_sync_and_async_children_concurrently():
    begun, released = anyio.Event(), threading.Event()

    def sync(action, observation):
        anyio.from_thread.run_sync(begun.set)
        assert released.wait(5)
        return 1.0

    async def awaited(action, observation):
        await begun.wait()
        released.set()
        return 10.0

    with anyio.fail_after(5):
        assert await WeightedSum([sync, awaited], [1, 1]).evaluate(None, None) == 11.0


async def test_evaluate_stops_a_sequential_at_zero():
    called = []
    rubric = Sequential(Fixed(0.0), lambda a, o: called.append(1) or 1.0)
    assert await rubric.evaluate(None, None) == 0.0
    assert called == []


async def test_evaluate_cancels_the_others_at_the_first_failure_and_raises_it():
    started, cancelled = anyio.Event(), []
    error = OSError("down")

    async def waits(action, observation):
        started.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise

    async def fails(action, observation):
        await started.wait()
        raise error

    for how in ("call", "evaluate"):
        rubric = WeightedSum([waits, fails], [1, 1])
        with anyio.fail_after(5), pytest.raises(OSError, match="down") as caught:
            await (rubric(None, None) if how == "call" else rubric.evaluate(None, None))
        assert caught.value is error
    assert cancelled == [True, True]


async def test_score_async_distinguishes_failed_and_cancelled():
    started = anyio.Event()

    async def waits(action, observation):
        started.set()
        await anyio.sleep_forever()

    async def fails(action, observation):
        await started.wait()
        raise OSError("down")

    with anyio.fail_after(5):
        score = await WeightedSum([waits, fails], [1, 1]).score_async(None, None)
    assert (score.status, score.error) == ("failed", "OSError: down")
    assert (score["rubric_1"].status, score["rubric_1"].error) == ("failed", "OSError: down")
    assert score["rubric_0"].status == "skipped"
    assert score["rubric_0"].reason is not None
    assert score["rubric_0"].error is None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_evaluate_fails_if_a_child_raises_the_exception_of_a_cancellation():
    async def cancelled(action, observation):
        raise asyncio.CancelledError

    rubric = WeightedSum([cancelled, lambda action, observation: 1.0], [1, 1])
    with anyio.fail_after(5), pytest.raises(RubricError, match="raised CancelledError"):
        await rubric.evaluate(None, None)


async def test_evaluate_can_be_cancelled():
    started = anyio.Event()

    async def waits(action, observation):
        started.set()
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(WeightedSum([waits], [1]).evaluate, None, None)
            await started.wait()
            group.cancel_scope.cancel()


async def test_evaluate_inside_an_async_forward_is_recorded():
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.rule = Fixed(0.5)
            self.judge = AsyncFixed(0.25)

        async def forward(self, action, observation):
            return await self.rule.evaluate(action, observation) + await self.judge.evaluate(
                action, observation
            )

    score = await Gate(Parent(), threshold=0.75).score_async(None, None)
    assert score.value == 0.75
    assert score.components() == {"rubric": 0.75, "rubric.rule": 0.5, "rubric.judge": 0.25}


# evaluate_batch


@pytest.mark.parametrize(
    "rubric", [Echo(), AsyncEcho(), Sequential(Echo()), Gate(AsyncEcho(), threshold=0)]
)
@pytest.mark.parametrize("max_workers", [1, 3, 32])
async def test_evaluate_batch_keeps_the_order_of_the_pairs(rubric, max_workers):
    pairs = [(float(i), None) for i in range(20)]
    assert await rubric.evaluate_batch(pairs, max_workers=max_workers) == [
        float(i) for i in range(20)
    ]


async def test_evaluate_batch_accepts_any_iterable_also_an_empty_one():
    assert await Echo().evaluate_batch((v, None) for v in (1.0, 2.0)) == [1.0, 2.0]
    assert await Echo().evaluate_batch([[1.0, None]]) == [1.0]
    assert await Echo().evaluate_batch([]) == []
    assert await AsyncEcho().evaluate_batch([]) == []


async def test_evaluate_batch_of_an_async_tree_runs_max_workers_at_a_time():
    running, most = 0, 0
    full = anyio.Event()

    async def count(action, observation):
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 4:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        running -= 1
        return 1.0

    with anyio.fail_after(5):
        await Sequential(count).evaluate_batch([(None, None)] * 13, max_workers=4)
    assert most == 4


async def test_evaluate_batch_of_a_sync_tree_runs_max_workers_at_a_time():
    lock, barrier = threading.Lock(), threading.Barrier(4, timeout=5)
    running, most = 0, 0

    def count(action, observation):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait()
        with lock:
            running -= 1
        return 1.0

    await Sequential(count).evaluate_batch([(None, None)] * 12, max_workers=4)
    assert most == 4


@pytest.mark.parametrize("kind", [Echo, AsyncEcho])
async def test_evaluate_batch_error_names_the_pair_and_the_rubric(kind):
    pairs = [(1.0, None), (2.0, None), (None, None), (4.0, None)]
    with pytest.raises(ValueError, match="returned None") as caught:
        await Sequential(kind()).evaluate_batch(pairs, max_workers=1)
    assert caught.value.rubric_path == "rubric_0"
    assert "in pair 2 of 4" in list(map(str, caught.value.__notes__))


@pytest.mark.parametrize("kind", [Echo, AsyncEcho])
async def test_evaluate_batch_stops_at_the_first_error(kind):
    seen = []
    rubric = Sequential(lambda a, o: seen.append(a) or 1.0, kind())
    with pytest.raises(ValueError, match="returned None"):
        await rubric.evaluate_batch([(1.0, None), (None, None), (3.0, None)], max_workers=1)
    assert seen == [1.0, None]


async def test_evaluate_batch_names_the_last_pair_alone_if_an_exception_is_raised_twice():
    error = OSError("down")

    def fails(action, observation):
        if action:
            raise error
        return 1.0

    for place, pairs in ((1, [(0, None), (1, None)]), (0, [(1, None), (0, None)])):
        with pytest.raises(OSError, match="down"):
            await Gate(fails).evaluate_batch(pairs, max_workers=1)
        assert sorted(map(str, error.__notes__)) == [
            f"in pair {place} of 2",
            "raised in rubric 'rubric' of Gate",
        ]


@pytest.mark.parametrize("kind", [Echo, AsyncEcho])
async def test_evaluate_batch_returns_exceptions_on_request(kind):
    results = await kind().evaluate_batch(
        [(1.0, None), (None, None), (3.0, None)], return_exceptions=True
    )
    assert results[0::2] == [1.0, 3.0]
    assert isinstance(results[1], ValueError)


@pytest.mark.parametrize("bad", [3, "ab", (1,), (1, 2, 3), None, {"a": 1, "b": 2}])
async def test_evaluate_batch_rejects_bad_pairs_before_any_is_evaluated(bad):
    seen = []
    rubric = Sequential(lambda a, o: seen.append(a) or 1.0)
    with pytest.raises(InvalidArgumentError, match=r"`pairs\[1\]` must be a pair"):
        await rubric.evaluate_batch([(1.0, None), bad])
    assert seen == []


@pytest.mark.parametrize("max_workers", [0, -1, 1.5, True, None, "4"])
async def test_evaluate_batch_rejects_a_bad_max_workers(max_workers):
    with pytest.raises(InvalidArgumentError, match=r"`max_workers` must be an integer"):
        await Echo().evaluate_batch([(1.0, None)], max_workers=max_workers)


async def test_evaluate_batch_of_a_trajectory_rubric_is_one_episode_in_order():
    class Length(ExponentialDiscountingTrajectoryRubric):
        def score_trajectory(self, trajectory):
            return float(len(trajectory))

    rubric = Sequential(Length(gamma=0.5))
    steps = [(i, {"done": i == 3}) for i in range(4)]
    assert await rubric.evaluate_batch(steps) == [0.0, 0.0, 0.0, 4.0]
    assert [action for action, _ in rubric[0].trajectory] == [0, 1, 2, 3]
    assert rubric.compute_step_rewards() == [0.5, 1.0, 2.0, 4.0]
