"""`RubricCopies`: one tree for each of the rollouts that are scored at the same time."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import RunVar

from guerdon.rubrics.rubric import Rubric

__all__ = ["ROLLOUTS", "RubricCopies"]

T = TypeVar("T")

# Rollouts that an async tree scores at the same time, in one event loop.
ROLLOUTS = 32

# Seconds between two attempts to lock a rubric that another thread or task uses.
RETRY_S = 0.001


class RubricCopies:
    """Supplies a tree for each rollout, so that rollouts which are scored concurrently don't mix.

    In async code, a rubric that remembers the steps of an episode is copied, once for each of the
    rollouts that are scored at the same time. Hooks are shared, and what copies of a rubric share,
    such as clients and caches. If it can't be copied, or observes the range of its scores, one
    rollout is scored at a time; in sync code one is, in any case. A rubric that remembers nothing
    is used directly.

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

    def __init__(self, rubric: Rubric) -> None:
        traits = rubric._find_traits()
        self._rubric = rubric
        self._remembers = traits.stateful or traits.has_trajectory
        self._lock = _RubricLock()
        self._pools = _PerLoop(_Pool)

    @contextmanager
    def one_sync(self) -> Iterator[Rubric]:
        """The rubric, for one rollout in sync code."""
        if not self._remembers:
            yield self._rubric
            return
        with self._lock:
            yield self._rubric

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Rubric]:
        """The rubric or a copy, for one rollout in async code."""
        if not self._remembers:
            yield self._rubric
            return
        pool = self._pools.get()
        pool.rollouts += 1
        try:
            async with pool.turns:
                copied = pool.free.pop() if pool.free else self._copied()
                if copied is None:
                    async with self._lock:
                        yield self._rubric
                    return
                yield copied
                pool.free.append(copied)  # not after an exception: its code may still be running
        finally:
            pool.rollouts -= 1
            if not pool.rollouts:  # the configuration may change before the next
                pool.free.clear()

    def _copied(self) -> Rubric | None:
        """Return a copy; None if there can be none."""
        nodes = [self._rubric, *self._rubric.rubrics()]
        if any(getattr(each, "_observing", None) for each in nodes):
            return None
        hooks = [
            hook for each in nodes for hook in (*each._pre_hooks.values(), *each._hooks.values())
        ]
        try:
            return copy.deepcopy(self._rubric, {id(hook): hook for hook in hooks})
        except Exception:  # an author's rubric that contains a lock, for example
            return None


class _Pool:
    """The copies in one event loop."""

    def __init__(self) -> None:
        self.turns = anyio.Semaphore(ROLLOUTS)
        self.free: list[Rubric] = []
        self.rollouts = 0


class _PerLoop(Generic[T]):
    """An object for each event loop."""

    _numbers = itertools.count()

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # Some versions of anyio distinguish variables by their names alone.
        self._made: RunVar[T] = RunVar(f"guerdon_{next(self._numbers)}")

    def get(self) -> T:
        """Return the object of the running loop."""
        made = self._made.get(None)
        if made is None:
            made = self._make()
            self._made.set(made)
        return made


class _RubricLock:
    """A lock for threads and for tasks of any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The tasks of a loop queue before the thread lock, so that only one of them polls it.
        self._queue = _PerLoop(anyio.Lock)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    async def __aenter__(self) -> None:
        async with self._queue.get():
            while not self._lock.acquire(blocking=False):
                await anyio.sleep(RETRY_S)

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()
