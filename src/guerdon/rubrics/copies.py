"""`RubricCopies`: one tree for each of the rollouts that are scored at the same time."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

import anyio
from anyio.lowlevel import RunVar

from guerdon.rubrics.evaluation import ThreadCalls
from guerdon.rubrics.rubric import Rubric

# Rollouts that an async tree scores at the same time, in one event loop.
ROLLOUTS = 32

# Seconds between two attempts to lock a rubric that another thread or task uses.
RETRY_S = 0.001


class RubricCopies:
    """Supplies a tree for each rollout, so that rollouts which are scored concurrently don't mix.

    In async code, a rubric that remembers the steps of an episode is copied, once for each of the
    rollouts that are scored at the same time. Hooks are shared, and what copies of a rubric share,
    such as clients and caches. If it can't be copied, or observes the range of its scores, one
    rollout is scored at a time, also after one that failed whose code still runs in a thread; in
    sync code one is, in any case. A rubric that remembers nothing is used directly.

    Example:
        >>> import anyio
        >>> from guerdon import RegexMatch
        >>> async def main():
        ...     copies = RubricCopies(RegexMatch("please"))
        ...     async with copies.one() as rubric:
        ...         return rubric("please come", None)
        >>> anyio.run(main)
        1.0

    Args:
        rubric: The rubric. Nothing else may call it meanwhile.
    """

    _numbers = itertools.count()

    def __init__(self, rubric: Rubric) -> None:
        traits = rubric._find_traits()
        self._rubric = rubric
        self._remembers = traits.stateful or traits.has_trajectory or self._observes()
        self._lock = threading.Lock()
        # Some versions of anyio distinguish variables by their names alone.
        self._pools: RunVar[_Pool] = RunVar(f"guerdon_copies_{next(self._numbers)}")

    @contextmanager
    def one_sync(self) -> Iterator[Rubric]:
        """The rubric, for one rollout in sync code."""
        with self._lock if self._remembers else nullcontext():
            yield self._rubric

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Rubric]:
        """The rubric or a copy, for one rollout in async code."""
        if not self._remembers:
            yield self._rubric
            return
        pool = self._pools.get(None)
        if pool is None:
            pool = _Pool()
            self._pools.set(pool)
        pool.rollouts += 1
        try:
            async with pool.turns:
                copied = pool.free.pop() if pool.free else self._copied()
                if copied is None:
                    async with pool.alone(self._lock):
                        yield self._rubric
                    return
                calls = ThreadCalls(lambda: None)
                with calls.counting():
                    yield copied
                if not calls.running:  # else its code would write into the next rollout
                    pool.free.append(copied)
        finally:
            pool.rollouts -= 1
            if not pool.rollouts:  # the configuration may change before the next
                pool.free.clear()

    def _observes(self) -> bool:
        """Whether the scores of a rollout depend on those of the rollouts before."""
        nodes = [self._rubric, *self._rubric.rubrics()]
        return any(getattr(each, "_observing", None) for each in nodes)

    def _copied(self) -> Rubric | None:
        """Return a copy; None if there can be none."""
        if self._observes():
            return None
        nodes = [self._rubric, *self._rubric.rubrics()]
        hooks = (kind.values() for each in nodes for kind in (each._pre_hooks, each._hooks))
        try:
            return copy.deepcopy(self._rubric, {id(hook): hook for row in hooks for hook in row})
        except Exception:  # an author's rubric that contains a lock, for example
            return None


class _Pool:
    """The copies in one event loop."""

    def __init__(self) -> None:
        self.turns = anyio.Semaphore(ROLLOUTS)
        self.free: list[Rubric] = []
        self.rollouts = 0
        self._queue = anyio.Lock()

    @asynccontextmanager
    async def alone(self, lock: threading.Lock) -> AsyncIterator[None]:
        """Lock out threads and the tasks of any event loop."""
        async with self._queue:  # so that only one task of a loop polls the lock
            while not lock.acquire(blocking=False):
                await anyio.sleep(RETRY_S)
        with ThreadCalls(lock.release).counting():
            yield
