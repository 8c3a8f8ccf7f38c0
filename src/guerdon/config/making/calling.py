"""Calling what an entry names: which of its parameters are whose."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from typing import Any

from guerdon.config.making.arguments import Argument
from guerdon.config.making.config_classes import hints
from guerdon.rubrics.rubric import Rubric

__all__ = ["called", "given_first", "is_score", "without_scored"]

SCORED = ("action", "observation")


def is_score(found: Any, given: Collection[str]) -> bool:
    """Whether a function gives scores itself, of an action and an observation.

    Otherwise it makes what does: as a class, and as a function that needs nothing, or says that
    it gives a rubric.

    Example:
        >>> def polite(action, observation, *, word="please"): ...
        >>> def made(word="please", strict=True): ...
        >>> is_score(polite, ()), is_score(made, ())
        (True, False)

    Args:
        found: What is called.
        given: The names of the parameters that aren't the action's or the observation's.
    """
    if isinstance(found, type):
        return False
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return False
    if set(SCORED) <= signature.parameters.keys():
        return True
    result = hints(found).get("return")
    if isinstance(result, type) and issubclass(result, Rubric):
        return False
    kept = [each for name, each in signature.parameters.items() if name not in given]
    try:
        signature.replace(parameters=kept).bind(None, None)
    except (TypeError, ValueError):
        return False
    return kept[0].default is Parameter.empty


def without_scored(arguments: list[Argument]) -> list[Argument]:
    """The arguments of a function that gives scores, without the action and the observation.

    Example:
        >>> [each.name for each in without_scored(list(map(Argument, ("a", "o", "limit"))))]
        ['limit']
    """
    if {each.name for each in arguments}.issuperset(SCORED):
        return [each for each in arguments if each.name not in SCORED]
    return arguments[2:]


def given_first(found: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that takes the action and the observation; the rest is given.

    Example:
        >>> def longer(config, action, observation): return float(len(action) > config["limit"])
        >>> given_first(longer, {"config": {"limit": 3}})("please", None)
        1.0
    """
    if not given:
        return found
    positional, named = _split(found, given)
    return functools.partial(found, *positional, **named)


def called(make: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """What is made with arguments by name, also by one that takes some by position alone.

    Example:
        >>> def made(first, /, second): return first, second
        >>> called(made, {"first": 1, "second": 2})
        (1, 2)
    """
    try:
        positional, named = _split(make, given)
    except (TypeError, ValueError):  # a callable from C may have no signature
        return make(**given)
    return make(*positional, **named)


def _split(found: Callable[..., Any], given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that come first, and the others by name."""
    positional, named = [], dict(given)
    for each in inspect.signature(found).parameters.values():
        if each.kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            break
        if each.name not in named:
            break
        positional.append(named.pop(each.name))
    return positional, named
