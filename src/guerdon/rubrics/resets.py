"""Resetting a whole tree, each rubric once, however authors write their own `reset`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["once_per_pass", "reset_tree"]

# What has run in the pass that is under way: authors mix super().reset(), child.reset() and
# neither.
_done: ContextVar[set[tuple[int, object]] | None] = ContextVar("guerdon_resets", default=None)


def once_per_pass(reset: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make of an author's `reset` one that runs once a pass and resets the children too."""

    @functools.wraps(reset)
    def once(self: Rubric) -> None:
        done = _done.get()
        token = None
        if done is None:
            token = _done.set(done := set())
        try:
            if (id(self), reset) not in done:
                done.add((id(self), reset))
                reset(self)
                if reset is not _reset_tree:
                    reset_tree(self)
        finally:
            if token is not None:
                _done.reset(token)

    return once


def _reset_tree(self: Rubric) -> None:
    self._log.clear()
    self._reset_own()
    for child in list(self._children.values()):
        child.reset()


reset_tree = once_per_pass(_reset_tree)
