"""`EnvFace`: environments of any kind, guerdon's, OpenEnv's or others', called in one way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from guerdon.envs.driver import make
from guerdon.envs.environment import Environment
from guerdon.errors import InvalidArgumentError
from guerdon.types.action import Action

__all__ = ["EnvFace", "closer_of", "face_of", "is_pending"]


@dataclass(frozen=True, slots=True)
class EnvFace:
    """How an environment is called, found out once.

    Example:
        >>> class Quiet:
        ...     def reset(self): ...
        ...     async def step(self, action): ...
        >>> face_of(Quiet()).is_async
        (False, True, False)

    Attributes:
        reset: Takes a seed, an episode's name and further arguments.
        step: Takes an action and the seconds that the caller will wait.
        close: Takes nothing.
        is_async: Whether reset, step and close are awaited in the event loop, each.
        action_type: What a dict is made into before it is an action; None: it stays a dict.
        tools: The tools that the environment has, where it says so.
        takes_seed: Whether its reset takes a seed, as far as that is known here.
    """

    reset: Callable[[int | None, str | None, Mapping[str, Any]], Any]
    step: Callable[[Any, float], Any]
    close: Callable[[], Any]
    is_async: tuple[bool, bool, bool]
    action_type: type[BaseModel] | None
    tools: list[Any] | None
    takes_seed: bool


def face_of(environment: Any, *, lent_by_sync_code: bool = False) -> EnvFace:
    """How to call an environment of any kind.

    Args:
        environment: The environment.
        lent_by_sync_code: Whether sync code has it and will go on with it, so that a client that
            can be both, as OpenEnv's can, is not made async.

    Raises:
        InvalidArgumentError: It is none: it has no reset and step.
        EnvDefinitionError: A trajectory rubric of it is another environment's.
    """
    if isinstance(environment, Environment):
        return _face_of_ours(environment)
    reset, step = _method(environment, "reset"), _method(environment, "step")
    if not callable(reset) or not callable(step):
        raise InvalidArgumentError(
            f"{environment!r:.60} is no environment; it has no reset and step, and so has what "
            "a factory gives"
        )
    takes, takes_any = _takes(reset)
    takes_timeout = "timeout_s" in _takes(step)[0]
    close = closer_of(environment)

    def reset_it(seed: int | None, episode_id: str | None, extra: Mapping[str, Any]) -> Any:
        _check_taken(extra, takes, takes_any)
        given = {**extra, "seed": seed, "episode_id": episode_id}
        return reset(
            **{
                name: value
                for name, value in given.items()
                if value is not None and (takes_any or name in takes)
            }
        )

    def step_it(action: Any, timeout_s: float) -> Any:
        return step(action, timeout_s=timeout_s) if takes_timeout else step(action)

    if _is_async_client(environment) and not lent_by_sync_code:
        are_async = (True, True, True)
    else:
        is_async = inspect.iscoroutinefunction
        are_async = (is_async(reset), is_async(step), is_async(close))
    return EnvFace(
        reset_it,
        step_it,
        close,
        are_async,
        _action_type(environment),
        _tools(environment),
        takes_any or "seed" in takes,
    )


def _face_of_ours(environment: Environment[Any, Any, Any]) -> EnvFace:
    """How to call one of guerdon's own, in process."""
    driver = make(lambda: environment)
    takes, takes_any = _takes(
        environment.reset_async if driver.reset_is_async else environment.reset
    )
    reset = driver.reset_async if driver.reset_is_async else driver.reset

    def reset_it(seed: int | None, episode_id: str | None, extra: Mapping[str, Any]) -> Any:
        _check_taken(extra, takes, takes_any)
        return reset(seed, episode_id, extra)

    return EnvFace(
        reset_it,
        driver.step_async if driver.step_is_async else driver.step,
        driver.close,
        (driver.reset_is_async, driver.step_is_async, False),
        _action_type(environment),
        _tools(environment),
        takes_any or "seed" in takes,
    )


def _tools(environment: Any) -> list[Any] | None:
    tools = getattr(environment, "tools", None)
    return list(tools) if isinstance(tools, (list, tuple)) else None


def _check_taken(extra: Mapping[str, Any], takes: frozenset[str], takes_any: bool) -> None:
    """Refuse what a person wrote for a reset that doesn't take it."""
    unknown = [] if takes_any else sorted(extra.keys() - takes)
    if unknown:
        raise InvalidArgumentError(
            f"the environment's reset takes no {', '.join(map(repr, unknown))}; it takes "
            f"{', '.join(sorted(takes))}"
        )


def _method(environment: Any, name: str) -> Any:
    """The method of that name, or its async twin where OpenEnv's server would take that.

    Its `Environment` has twins that call the sync methods; a class that writes them means them.
    """
    twin = f"{name}_async"
    homes = [cls for cls in type(environment).__mro__ if twin in vars(cls)]
    is_written = len(homes) > 1 and homes[-1].__name__ == "Environment"
    return getattr(environment, twin if is_written else name, None)


def _is_async_client(environment: Any) -> bool:
    """Whether it is a client that is async where a loop runs, though its methods don't say so.

    OpenEnv's are: called in a thread, they would start a loop of their own, and never end it.
    """
    is_client = hasattr(type(environment), "__aenter__") and hasattr(type(environment), "sync")
    return is_client and getattr(environment, "_execution_mode", None) != "sync"


def _action_type(environment: Any) -> type[BaseModel] | None:
    """The type of an environment's actions, where it is known.

    OpenEnv's environments and clients tell it by their parameters alone, as in
    ``Environment[Say, Echoed, …]``.
    """
    kinds = [getattr(environment, "action_type", None)]
    client = getattr(environment, "async_client", environment)  # behind their .sync()
    for cls in type(client).__mro__:
        for base in cls.__dict__.get("__orig_bases__", ()):
            if getattr(get_origin(base), "__name__", "") in ("Environment", "EnvClient"):
                kinds += get_args(base)[:1]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not Action:
            return kind
    return None


def _takes(method: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """Which keywords a method takes by name, and whether it takes any other."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # of compiled code, which doesn't tell
        return frozenset(), False
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return (
        frozenset(each.name for each in parameters if each.kind in named),
        any(each.kind is each.VAR_KEYWORD for each in parameters),
    )


def closer_of(environment: Any) -> Callable[[], Any]:
    """How an environment is closed; one that can't be has nothing to close."""
    close = getattr(environment, "close", None) or getattr(environment, "aclose", None)
    return close if callable(close) else lambda: None


def is_pending(answer: Any) -> bool:
    """Whether an answer has to be awaited first.

    Clients don't, which some may be: to connect.
    """
    return inspect.isawaitable(answer) and not hasattr(answer, "step")
