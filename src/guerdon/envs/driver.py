"""`Driver`: calls one environment, as a server and a pool both do.

Arguments go where the author's signature takes them, what comes back is checked, and the
components of the reward are told also where the author called the rubric by hand.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import anyio
from pydantic import ValidationError

from guerdon._background import no_waiting
from guerdon.envs.environment import Environment
from guerdon.envs.ownership import trajectory_owners
from guerdon.envs.scoring import attach, tell_again
from guerdon.errors import EnvDefinitionError, EnvError, InvalidObservationError
from guerdon.rubrics import frames
from guerdon.rubrics.frames import Frame
from guerdon.types.observation import Observation
from guerdon.types.state import State

__all__ = ["Driver", "make"]

# Threads for the sync leaves of one environment's async tree.
THREADS = 8


class _Takes(NamedTuple):
    """Which keywords a method takes.

    Attributes:
        positional: Those that are given by position, which no keyword may name.
        named: The others; None of a method that takes any.
    """

    positional: frozenset[str]
    named: frozenset[str] | None

    def taken(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Those of some arguments that the method takes."""
        positional, named = self
        if named is None:
            if positional.isdisjoint(arguments):
                return arguments
            named = frozenset(arguments) - positional
        return {name: value for name, value in arguments.items() if name in named}


class _Plan(NamedTuple):
    """What there is to know of an environment class, found out once."""

    reset_takes: _Takes
    step_takes: _Takes
    reset_is_async: bool
    step_is_async: bool


@functools.lru_cache(maxsize=256)
def _plan(cls: type[Environment[Any, Any, Any]]) -> _Plan:
    def is_async(name: str) -> bool:
        written = getattr(cls, f"{name}_async") is not getattr(Environment, f"{name}_async")
        return written or getattr(cls, name) is getattr(Environment, name)

    reset_is_async, step_is_async = is_async("reset"), is_async("step")
    return _Plan(
        _takes(cls.reset_async if reset_is_async else cls.reset, 1),
        _takes(cls.step_async if step_is_async else cls.step, 2),
        reset_is_async,
        step_is_async,
    )


def _takes(method: Callable[..., Any], positional: int) -> _Takes:
    """Which keywords a method takes beside so many arguments that are given by position."""
    parameters = list(inspect.signature(method).parameters.values())
    first = frozenset(each.name for each in parameters[:positional])
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return _Takes(first, None)
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    rest = parameters[positional:]
    return _Takes(first, frozenset(each.name for each in rest if each.kind in by_name))


class Driver:
    """Calls one environment.

    Args:
        environment: The environment. Nobody else may call it meanwhile.

    Attributes:
        reset_is_async: Whether the author wrote `reset_async`, to be awaited in an event loop.
        step_is_async: The same of `step_async`.
    """

    __slots__ = ("_limiter", "_owned", "_plan", "environment", "reset_is_async", "step_is_async")

    def __init__(self, environment: Environment[Any, Any, Any]) -> None:
        self.environment = environment
        self._plan = _plan(type(environment))
        self._limiter: anyio.CapacityLimiter | None = None
        self._owned: list[int] = []  # what `trajectory_owners` knows its trajectory rubrics by
        self.reset_is_async = self._plan.reset_is_async
        self.step_is_async = self._plan.step_is_async

    def reset(
        self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any] | None = None
    ) -> Observation:
        """Begin an episode, in the thread of the caller.

        Args:
            seed: Makes the episode repeatable.
            episode_id: What to call it.
            extra: Further arguments, of which the environment gets those that it takes.

        Raises:
            InvalidObservationError: The environment gave no observation.
            EnvError: It called ``sys.exit``.
            Exception: What it raised.
        """
        try:
            observation = self.environment.reset(**self._reset_arguments(seed, episode_id, extra))
        except SystemExit as exit_:
            raise self._exited("reset", exit_) from exit_
        return self._checked(observation, "reset")

    async def reset_async(
        self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any] | None = None
    ) -> Observation:
        """The same for an environment whose reset is async."""
        arguments = self._reset_arguments(seed, episode_id, extra)
        try:
            with no_waiting("reset_async"):
                observation = await self.environment.reset_async(**arguments)
        except BaseException as end:
            failed = self._ended("reset_async", end)
            if failed is None:
                raise
            raise failed from end
        return self._checked(observation, "reset_async")

    def step(
        self, action: Any, timeout_s: float | None = None, extra: Mapping[str, Any] | None = None
    ) -> Observation:
        """Take a step, in the thread of the caller.

        Args:
            action: What the agent does.
            timeout_s: How long the caller will wait, in seconds.
            extra: Further arguments, of which the environment gets those that it takes.

        Returns:
            An observation; where the rubric failed, one without a reward that says why.

        Raises:
            InvalidObservationError: The environment gave no observation.
            EnvError: It called ``sys.exit``.
            Exception: What it raised.
        """
        recorder = self._recorder()
        token = frames.enter(recorder)
        try:
            observation = self.environment.step(action, **self._step_arguments(timeout_s, extra))
        except Exception as error:
            return self._salvaged(recorder, error)
        except SystemExit as exit_:
            raise self._exited("step", exit_) from exit_
        finally:
            frames.leave(token)
        return self._scored(observation, recorder, "step")

    async def step_async(
        self, action: Any, timeout_s: float | None = None, extra: Mapping[str, Any] | None = None
    ) -> Observation:
        """The same for an environment whose step is async."""
        arguments = self._step_arguments(timeout_s, extra)
        recorder = self._recorder()
        token = frames.enter(recorder)
        try:
            with no_waiting("step_async"):
                observation = await self.environment.step_async(action, **arguments)
        except Exception as error:
            return self._salvaged(recorder, error)
        except BaseException as end:
            failed = self._ended("step_async", end)
            if failed is None:
                raise
            raise failed from end
        finally:
            frames.leave(token)
        return self._scored(observation, recorder, "step_async")

    def state(self) -> State:
        """Where the episode stands.

        Raises:
            InvalidObservationError: What the environment gave is no state.
        """
        try:
            state = self.environment.state
        except SystemExit as exit_:
            raise self._exited("state", exit_) from exit_
        if not isinstance(state, State):
            raise InvalidObservationError(
                f"{self._name}.state gave {type(state).__name__}; it gives a State"
            )
        return state

    def close(self) -> None:
        """Close the environment.

        Raises:
            EnvError: It called ``sys.exit``.
            Exception: What it raised.
        """
        try:
            self.environment.close()
        except SystemExit as exit_:
            raise self._exited("close", exit_) from exit_
        finally:
            trajectory_owners.free(self.environment, self._owned)

    @property
    def _name(self) -> str:
        return type(self.environment).__name__

    def _exited(self, method: str, exit_: SystemExit) -> EnvError:
        return EnvError(
            f"{self._name}.{method} called sys.exit({exit_.code!r}), which ends no process here",
            exception=exit_,
        )

    def _ended(self, method: str, end: BaseException) -> EnvError | None:
        """What to raise where async code was ended; None where that was its caller's doing."""
        if isinstance(end, SystemExit):
            return self._exited(method, end)
        task = asyncio.current_task()
        cancelled = isinstance(end, asyncio.CancelledError)
        if isinstance(end, Exception) or task is None or (cancelled and task.cancelling()):
            return None
        return EnvError(f"{self._name}.{method} raised {end!r}", exception=end)

    def _reset_arguments(
        self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        arguments = {"seed": seed, "episode_id": episode_id}
        if extra:
            arguments = {**extra, **arguments}
        return self._plan.reset_takes.taken(arguments)

    def _step_arguments(
        self, timeout_s: float | None, extra: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {"timeout_s": timeout_s}
        if extra:
            arguments = {**extra, **arguments}
        return self._plan.step_takes.taken(arguments)

    def _checked(self, observation: Any, method: str) -> Observation:
        if not isinstance(observation, Observation):
            raise InvalidObservationError(
                f"{self._name}.{method} gave {observation!r:.60} "
                f"({type(observation).__name__}); it gives an Observation"
            )
        reward: Any = observation.reward
        if reward is not None and (reward.__class__ is not float or reward - reward != 0.0):
            if not isinstance(reward, (bool, int)):
                raise InvalidObservationError(
                    f"{self._name}.{method} gave a reward of {reward!r:.60}; it is a finite float "
                    "or None"
                )
            try:
                observation.reward = float(reward)
            except OverflowError as error:
                raise InvalidObservationError(
                    f"{self._name}.{method} gave a reward that is too large for a float"
                ) from error
        if observation.metadata.__class__ is not dict or observation.done.__class__ is not bool:
            raise InvalidObservationError(
                f"{self._name}.{method} gave an observation whose metadata are no dict, or whose "
                "done is no bool"
            )
        return observation

    def _recorder(self) -> Frame:
        """What records the evaluations of a step."""
        recorder = Frame(None)
        recorder.owner = self.environment
        if self.environment.rubric._look().is_async:
            # An async tree that the author calls by hand: its sync leaves go to threads.
            recorder.limiter = self._limiter = self._limiter or anyio.CapacityLimiter(THREADS)
        return recorder

    def _scored(self, observation: Any, recorder: Frame, method: str) -> Observation:
        checked = self._checked(observation, method)
        if recorder.entries:
            return attach(self.environment.rubric, checked, recorder)
        tell_again(checked, recorder)
        return checked

    def _salvaged(self, recorder: Frame, error: Exception) -> Observation:
        """The observation of a step whose rubric failed; other failures are raised."""
        rubric, entries = self.environment.rubric, recorder.entries
        failed = entries[-1][3].error if entries and entries[-1][0] is rubric else None
        observation = recorder.observed
        if failed is None or not isinstance(observation, Observation) or not _is(error, failed):
            raise error
        return attach(rubric, observation, recorder, failed)


def make(factory: Callable[[], Any]) -> Driver:
    """Make an environment and its driver.

    Raises:
        EnvDefinitionError: What the factory gave is no environment, or it has no rubric.
        EnvError: It called ``sys.exit``.
        Exception: What it raised.
    """
    try:
        environment = factory()
    except SystemExit as exit_:
        raise EnvError(
            f"making the environment called sys.exit({exit_.code!r})", exception=exit_
        ) from exit_
    if not isinstance(environment, Environment):
        raise EnvDefinitionError(
            f"the factory gave {environment!r:.60}; it gives an Environment with a rubric"
        )
    owned = trajectory_owners.take(environment)
    driver = Driver(environment)
    driver._owned = owned
    return driver


def _is(error: Exception, failed: Exception) -> bool:
    """Whether an exception is the rubric's own, also where setting the reward waited for it."""
    if error is failed:
        return True
    if not isinstance(error, ValidationError):
        return False
    return any(each.get("ctx", {}).get("error") is failed for each in error.errors())
