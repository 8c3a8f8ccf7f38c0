"""Hooks: functions that are called before or after a rubric's `forward`."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["ForwardHook", "ForwardPreHook", "HookHandle", "is_async_callable"]


class ForwardPreHook(Protocol):
    """Called before `forward`; may be async on an async rubric."""

    def __call__(self, rubric: Any, action: Any, observation: Any, /) -> Any: ...


class ForwardHook(Protocol):
    """Called after `forward` with its result; may be async on an async rubric."""

    def __call__(self, rubric: Any, action: Any, observation: Any, result: float, /) -> Any: ...


class HookHandle:
    """Removes a hook again; also a context manager that removes it at its end.

    Example:
        >>> from guerdon import Rubric
        >>> class Polite(Rubric):
        ...     '''The text says please.'''
        ...     def forward(self, action, observation):
        ...         return float("please" in action)
        >>> polite, seen = Polite(), []
        >>> with polite.register_forward_hook(lambda rubric, a, o, result: seen.append(result)):
        ...     polite("please", None)
        1.0
        >>> polite("now!", None), seen
        (0.0, [1.0])
    """

    _numbers = itertools.count()

    def __init__(self, rubric: Rubric, hooks: dict[int, Callable[..., Any]]) -> None:
        self._rubric = rubric
        self._hooks = hooks
        self._number = next(HookHandle._numbers)

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        self._hooks.pop(self._number, None)
        self._rubric._refresh()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def is_async_callable(function: Any) -> bool:
    """Whether calling it is known to give an awaitable."""
    while isinstance(function, functools.partial):
        function = function.func
    # The second: an object whose __call__ is async.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004
    )
