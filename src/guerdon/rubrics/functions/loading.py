"""Loading a reward from ``module:name`` or ``file.py:name``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from guerdon._loading import code_failed, load_object
from guerdon.errors import GuerdonError, LoadError
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.functions.decorator import RewardFunction, takes_messages
from guerdon.rubrics.rubric import Rubric

__all__ = ["is_factory", "load_reward", "reward_of"]


def load_reward(spec: str) -> Rubric | RewardFunction:
    """Load the reward that a person named.

    Example:
        >>> load_reward("guerdon.rubrics:NumericAnswer")
        NumericAnswer(field='content', expected=None, tolerance=0.0)

    Args:
        spec: ``module:name`` or ``file.py:name``, where the name is that of a rubric, of a rubric
            class or a factory that needs no arguments, of a function
            ``f(action, observation) -> float``, or of a reward function on ``messages``.

    Returns:
        A rubric; or a `RewardFunction`, which `as_rubric` turns into one.

    Raises:
        LoadError: It can't be found or imported, or is none of these. Where the person's own
            code raised, the error carries the traceback of that code alone.
    """
    return reward_of(load_object(spec), spec)


def reward_of(found: Any, spec: str) -> Rubric | RewardFunction:
    """The reward that a loaded object stands for; see `load_reward`.

    Args:
        found: What a spec named.
        spec: The spec, for the error.

    Raises:
        LoadError: It is no reward and makes none.
    """
    if isinstance(found, type):
        if not issubclass(found, Rubric):
            raise LoadError(f"{spec}: {found.__name__} is a class, but no Rubric", spec=spec)
        found = _made(spec, found)
    elif not _is_reward(found) and is_factory(found):
        made = _made(spec, found)
        if not isinstance(made, Rubric | RewardFunction) and not callable(made):
            raise LoadError(
                f"{spec} takes no arguments, so that it should make a rubric, but it gave "
                f"{made!r:.60}",
                spec=spec,
            )
        found = made
    try:
        if isinstance(found, RewardFunction):
            return found
        return RewardFunction(found) if takes_messages(found) else as_rubric(found)
    except GuerdonError as error:
        raise LoadError(f"{spec}: {error}", spec=spec) from error


def _is_reward(found: Any) -> bool:
    return isinstance(found, Rubric | RewardFunction) or takes_messages(found)


def _made(spec: str, make: Callable[[], Any]) -> Any:
    name = getattr(make, "__name__", spec)
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise LoadError(
            f"{spec}: {name} can't be made without arguments ({error}); write a function in your "
            f"file that makes it, and name that",
            spec=spec,
        ) from None
    try:
        made = make()
    except (Exception, SystemExit) as error:
        raise code_failed(spec, f"{name}() raised", error) from error
    if inspect.iscoroutine(made):
        made.close()
        raise LoadError(f"{spec}: {name} is async; a factory is a plain function", spec=spec)
    return made


def is_factory(found: Any) -> bool:
    """Whether something can be called with nothing, but not with an action and an observation."""
    if not callable(found):
        return False
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return False
    return _binds(signature, 0) and not _binds(signature, 2)


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
