"""Rubrics that are written twice: `forward` waits, `forward_async` is awaited."""

import threading
from types import SimpleNamespace

import anyio
import pytest

from guerdon import Guarded, Rubric, RubricComposer, RubricDict, Sequential, WeightedSum

pytestmark = pytest.mark.anyio


class Asks(Rubric):
    """Records which version was called, and in which thread."""

    def __init__(self, score=1.0):
        super().__init__()
        self.score_given = score
        self._ways = []

    def forward(self, action, observation):
        self._ways.append(("sync", threading.get_ident()))
        return self.score_given

    async def forward_async(self, action, observation):
        await anyio.lowlevel.checkpoint()
        self._ways.append(("async", threading.get_ident()))
        return self.score_given

    @property
    def ways(self):
        return [way for way, _ in self._ways]


async def test_forward_async_rubric_call_is_sync_in_an_event_loop():
    rubric = Asks(0.5)
    assert rubric("a", "o") == 0.5
    assert rubric.ways == ["sync"]
    assert rubric.score("a", "o").value == 0.5


async def test_evaluate_awaits_forward_async_on_the_callers_loop():
    rubric = Asks(0.5)
    assert await rubric.evaluate("a", "o") == 0.5
    assert (await rubric.score_async("a", "o")).value == 0.5
    assert await rubric.evaluate_batch([("a", "o")] * 3) == [0.5] * 3
    assert rubric._ways == [("async", threading.get_ident())] * 5


@pytest.mark.parametrize(
    ("parent", "value"),
    [
        (lambda child: Sequential(child, child), 0.5),
        (lambda child: WeightedSum([child], [2.0]), 1.0),
        (lambda child: Guarded(child, timeout=5), 0.5),
        (lambda child: Guarded(child), 0.5),
    ],
    ids=["sequential", "weighted sum", "timeout", "guarded"],
)
async def test_containers_await_forward_async_of_their_children(parent, value):
    child = Asks(0.5)
    assert await parent(child).evaluate("a", "o") == value
    assert set(child.ways) == {"async"}


async def test_weighted_sum_awaits_forward_async_concurrently():
    meeting = anyio.Event(), anyio.Event()

    class Meets(Rubric):
        def __init__(self, mine, other):
            super().__init__()
            self._mine, self._other = mine, other

        def forward(self, action, observation):
            raise AssertionError("it was awaited")

        async def forward_async(self, action, observation):
            self._mine.set()
            await self._other.wait()
            return 1.0

    one, two = meeting
    with anyio.fail_after(5):
        assert await WeightedSum([Meets(one, two), Meets(two, one)], [1, 1]).evaluate(0, 0) == 2.0


async def test_components_are_in_tree_order_whichever_forward_async_ends_first():
    class Late(Asks):
        async def forward_async(self, action, observation):
            await first.wait()
            return 0.5

    class Soon(Asks):
        async def forward_async(self, action, observation):
            first.set()
            return 1.0

    first = anyio.Event()
    composer = RubricComposer({"late": Late(), "soon": Soon()}, [1.0, 1.0], normalize=False)
    with anyio.fail_after(5):
        _, components = await composer.compute_async("a", SimpleNamespace(done=True))
    assert list(components) == ["late", "soon"]


async def test_hand_written_parent_calls_forward_of_a_twin_in_its_thread():
    class Parent(Rubric):
        def __init__(self):
            super().__init__()
            self.child = Asks()

        def forward(self, action, observation):
            return self.child(action, observation) / 2

    parent = Parent()
    assert await parent.evaluate("a", "o") == 0.5
    assert parent.child.ways == ["sync"]


async def test_forward_async_exception_has_its_path():
    class Fails(Asks):
        async def forward_async(self, action, observation):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        await WeightedSum([Fails()], [1.0]).evaluate("a", "o")
    assert "rubric_0" in caught.value.__notes__[0]


async def test_forward_async_may_call_explain():
    class Explains(Asks):
        async def forward_async(self, action, observation):
            self.explain("because")
            return 1.0

    assert (await Explains().score_async("a", "o")).reason == "because"


async def test_forward_async_that_is_not_a_coroutine_function_is_ignored():
    class Odd(Rubric):
        def forward(self, action, observation):
            return 1.0

        def forward_async(self, action, observation):
            raise AssertionError("not called")

    assert await Odd().evaluate("a", "o") == 1.0
    with pytest.raises(Exception, match="RubricDict"):
        RubricDict({"a": Odd()})("a", "o")
