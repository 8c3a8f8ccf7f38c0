"""Loading a reward from ``module:name`` or ``file.py:name``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from guerdon._loading import code_failed, library_of, load_object
from guerdon._validation import shown
from guerdon.errors import GuerdonError, LoadError, RubricDefinitionError
from guerdon.rubrics.conventions import refusal
from guerdon.rubrics.functions import libraries
from guerdon.rubrics.functions.conversion import as_reward
from guerdon.rubrics.functions.function import RewardFunction, takes_messages
from guerdon.rubrics.rubric import Rubric

__all__ = ["load_reward"]


def load_reward(spec: str) -> Rubric | RewardFunction:
    """Load a reward by its name.

    Example:
        >>> from guerdon.rubrics import load_reward
        >>> load_reward("guerdon.rubrics:NumericAnswer")
        NumericAnswer(tolerance=0.0, field='content', expected=None)

    Args:
        spec: ``module:name`` or ``file.py:name`` of a rubric, of a rubric class or a factory that
            needs no arguments, of a function ``f(action, observation) -> float``, or of a reward
            function on ``messages``. ``trl:``, ``verl:``, ``verifiers:`` or ``openrlhf:`` before it
            names a function of that library, as in ``trl:rewards.py:correct``.

    Returns:
        A rubric; or a `RewardFunction`, which `as_rubric` turns into one.

    Raises:
        LoadError: It can't be found or imported, or is not a reward. If the user's own code
            raised, the error has the traceback of that code alone.
    """
    return reward_of(load_object(spec), spec)


def reward_of(found: Any, spec: str) -> Rubric | RewardFunction:
    """Return the reward that a loaded object is or makes; see `load_reward`.

    Args:
        found: The loaded object.
        spec: Its spec, for errors.

    Raises:
        LoadError: It is not a reward and makes none.
    """
    library, _ = library_of(spec)
    if library is None and isinstance(found, type) and not issubclass(found, Rubric):
        raise LoadError(f"{spec}: {found.__name__} is a class, but not a Rubric", spec=spec)
    is_reward = isinstance(found, Rubric | RewardFunction) or takes_messages(found)
    is_made = isinstance(found, type) or (library is None and is_factory(found))
    if not is_reward and is_made:
        found = _made(spec, found)
    try:
        if library is not None:
            return getattr(libraries, f"from_{library}")(found)  # type: ignore[no-any-return]
        is_ours = isinstance(found, Rubric | RewardFunction)
        if not is_ours and (refused := refusal(found, takes_step=True, spec=spec)):
            raise RubricDefinitionError(refused)
        return as_reward(found)
    except GuerdonError as error:
        raise LoadError(f"{spec}: {error}", spec=spec) from error


def _made(spec: str, make: Callable[[], Any]) -> Any:
    name = getattr(make, "__name__", spec)
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise LoadError(
            f"{spec}: {name} needs arguments ({error}); write a function in your file that makes "
            "it, and load that",
            spec=spec,
        ) from None
    try:
        made = make()
    except (Exception, SystemExit) as error:
        raise code_failed(spec, f"{name}() raised", error) from error
    if inspect.iscoroutine(made):
        made.close()
        raise LoadError(f"{spec}: {name} is async; a factory must be a plain function", spec=spec)
    if not callable(made):
        raise LoadError(
            f"{spec} takes no arguments, so it must return a rubric, got {shown(made)}", spec=spec
        )
    return made


def is_factory(found: Any) -> bool:
    """Return whether an object can be called without arguments, but not with two."""
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
