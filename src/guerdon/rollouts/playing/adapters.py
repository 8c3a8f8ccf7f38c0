"""Adapters of environments of any kind: guerdon's, OpenEnv's, clients, and others."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from guerdon.envs.environment import Environment, read_action
from guerdon.envs.runner import EnvAdapter, Keywords, OwnCalls
from guerdon.errors import InvalidArgumentError, InvalidObservationError
from guerdon.types.action import Action
from guerdon.types.numbers import FiniteFloat
from guerdon.types.observation import TRUNCATED, StepResult

# Fields of an observation that are not its content.
BESIDE = frozenset({"done", "reward", "metadata"})

_reward = TypeAdapter(FiniteFloat | None)


def adapter_of(
    environment: Any, *, release: Callable[[], None] | None = None, shared_with_sync: bool = False
) -> OwnAdapter | ForeignAdapter | Coroutine[Any, Any, OwnAdapter | ForeignAdapter]:
    """Return the adapter of an environment of any kind, or an awaitable of it.

    Example:
        >>> class Quiet:
        ...     def reset(self): ...
        ...     async def step(self, action): ...
        >>> adapter = adapter_of(Quiet())
        >>> adapter.reset_is_async, adapter.step_is_async
        (False, True)

    Args:
        environment: The environment, or an awaitable of it.
        release: Called, perhaps in another thread, instead of closing an environment that belongs
            to the caller.
        shared_with_sync: Whether sync code goes on with it, so that a client that can be both, as
            OpenEnv's can, is not made async.

    Raises:
        InvalidArgumentError: It has no reset and step.
        EnvDefinitionError: A trajectory rubric of it belongs to another environment.
    """
    if inspect.isawaitable(environment) and not hasattr(environment, "step"):
        return _awaited(environment)  # a client is one, too: it connects
    if isinstance(environment, Environment):
        return OwnAdapter(environment, release)
    return ForeignAdapter(environment, release, shared_with_sync=shared_with_sync)


async def _awaited(environment: Awaitable[Any]) -> OwnAdapter | ForeignAdapter:
    made = await environment
    return OwnAdapter(made) if isinstance(made, Environment) else ForeignAdapter(made)


class OwnAdapter(EnvAdapter):
    """Calls one of guerdon's environments.

    Attributes:
        takes_seed: Whether its reset accepts a seed.
    """

    def __init__(
        self, environment: Environment[Any, Any, Any], release: Callable[[], None] | None = None
    ) -> None:
        super().__init__(environment)
        self._release = release
        self.takes_seed = self._reset_takes.accepts("seed")

    @property
    def tools(self) -> list[Any] | None:
        """The tools that the environment declares now."""
        return _tools(self.environment)

    def close(self) -> Any:
        """Close the environment, or free it if it belongs to the caller."""
        return super().close() if self._release is None else self._release()


class ForeignAdapter:
    """Calls an environment of another library, or a client.

    Args:
        environment: An object with `reset` and `step`.
        release: See `adapter_of`.
        shared_with_sync: See `adapter_of`.

    Attributes:
        reset_is_async: Whether `reset` returns an awaitable.
        step_is_async: Whether `step` returns an awaitable.
        close_is_async: Whether `close` returns an awaitable.
        takes_seed: Whether its reset is known to accept a seed.
        own_calls: The calls of its own thread, if it has one.
    """

    own_calls: OwnCalls | None = None

    def __init__(
        self,
        environment: Any,
        release: Callable[[], None] | None = None,
        *,
        shared_with_sync: bool = False,
    ) -> None:
        self.environment = environment
        self._reset, self._step = _method(environment, "reset"), _method(environment, "step")
        if not callable(self._reset) or not callable(self._step):
            raise InvalidArgumentError(
                f"an environment, or what a factory returns, must have reset and step, got "
                f"{environment!r:.60}"
            )
        close = getattr(environment, "close", None) or getattr(environment, "aclose", None)
        self.close: Callable[[], Any] = release or (close if callable(close) else lambda: None)
        self._reset_takes = Keywords.of(self._reset)
        self._passes_timeout = "timeout_s" in Keywords.of(self._step).names
        self._action_type = _action_type(environment)
        self.takes_seed = self._reset_takes.accepts("seed")
        is_client = _is_async_client(environment) and not shared_with_sync
        self.reset_is_async, self.step_is_async, self.close_is_async = (
            inspect.iscoroutinefunction(method) or (is_client and method is not release)
            for method in (self._reset, self._step, self.close)
        )

    @property
    def tools(self) -> list[Any] | None:
        """The tools that the environment declares now."""
        return _tools(self.environment)

    def reset(self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any]) -> Any:
        """Begin an episode.

        Raises:
            InvalidArgumentError: The environment's reset doesn't accept one of `extra`.
            Exception: What the environment raised.
        """
        self._reset_takes.check(extra)
        given = {**extra, "seed": seed, "episode_id": episode_id}
        given = {name: value for name, value in given.items() if value is not None}
        return self._reset(**self._reset_takes.accepted(given))

    def step(
        self, action: Any, timeout_s: float | None = None, extra: Mapping[str, Any] | None = None
    ) -> Any:
        """Take a step; a dict becomes the environment's type of action, if that is known."""
        if self._action_type is not None and isinstance(action, Mapping):
            action = read_action(self._action_type, action)
        return (
            self._step(action, timeout_s=timeout_s) if self._passes_timeout else self._step(action)
        )


def _tools(environment: Any) -> list[Any] | None:
    tools = getattr(environment, "tools", None)
    return list(tools) if isinstance(tools, (list, tuple)) else None


def _method(environment: Any, name: str) -> Any:
    """The method of that name, or its async twin if OpenEnv's server would use that.

    OpenEnv's `Environment` has twins that call the sync methods; a class that overrides them
    prefers them.
    """
    twin = f"{name}_async"
    homes = [cls for cls in type(environment).__mro__ if twin in vars(cls)]
    is_overridden = len(homes) > 1 and homes[-1].__name__ == "Environment"
    return getattr(environment, twin if is_overridden else name, None)


def _is_async_client(environment: Any) -> bool:
    """Whether it is a client that is async in a running loop, though its methods don't show it.

    OpenEnv's are: called in a thread, they would start a loop of their own, and never end it.
    """
    is_client = hasattr(type(environment), "__aenter__") and hasattr(type(environment), "sync")
    return is_client and getattr(environment, "_execution_mode", None) != "sync"


def _action_type(environment: Any) -> type[BaseModel] | None:
    """The type of an environment's actions, if it is known.

    OpenEnv's environments and clients declare it only by their parameters, as in
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


def read_result(answer: Any, what: str) -> StepResult[Any]:
    """Return what an environment of any kind answered to a reset or a step as one result.

    Example:
        >>> read_result({"text": "hi", "reward": 1, "done": True}, "step").reward
        1.0

    Args:
        answer: An observation: a model, an object or a dict, with `done` and `reward`; or an
            object with an attribute `observation`, such as a `StepResult`.
        what: ``"reset"`` or ``"step"``, for the message.

    Raises:
        InvalidObservationError: It is something else, or its reward is not a finite number.
    """
    observation = _get(answer, "observation") if _is_wrapped(answer) else answer
    done = _get(answer, "done")
    if done is None and what == "reset":
        done = False
    if observation is None or isinstance(done, str) or done not in (True, False):
        raise InvalidObservationError(
            f"{what} must return an observation with a bool `done`, got {answer!r:.80}"
        )
    reward = _get(answer, "reward")
    try:
        number = _reward.validate_python(int(reward) if isinstance(reward, bool) else reward)
    except ValidationError:
        raise InvalidObservationError(
            f"the reward of {what} must be a finite number or None, got {reward!r:.60}"
        ) from None
    metadata = _get(answer, "metadata") or _get(observation, "metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidObservationError(
            f"the metadata of {what} must be a dict, got {metadata!r:.60}"
        )
    flags = _get(answer, TRUNCATED), _get(observation, TRUNCATED)
    truncated = bool(done) and any(each is True for each in flags)
    return StepResult(observation, number, bool(done), dict(metadata), truncated)


def _is_wrapped(answer: Any) -> bool:
    """Whether an object contains an observation, and isn't one itself."""
    if isinstance(answer, Mapping):
        return "observation" in answer and set(answer) <= BESIDE | {"observation", TRUNCATED}
    return hasattr(answer, "observation") and not isinstance(answer, BaseModel)


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
