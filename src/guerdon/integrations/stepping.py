"""`LocalEnvironment`: one environment, called in the caller's thread; and rewards that failed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from guerdon._background import run
from guerdon.envs.environment import Environment
from guerdon.envs.runner import EnvAdapter, EnvRunner, EnvThreads, reset_arguments
from guerdon.errors import EnvError
from guerdon.rollouts.playing.observations import observation_text
from guerdon.types.observation import Observation

MakeEnv: TypeAlias = Callable[[], Environment[Any, Any, Any]]
OnInvalid: TypeAlias = Literal["raise"] | float

# Seconds that closing an environment in its own thread may take.
CLOSE_S = 60.0


class _InOwnThread:
    """Calls an environment in a thread of its own, as an `EnvAdapter` does in the caller's."""

    def __init__(self, env: MakeEnv) -> None:
        self._env = env
        run(self._open())
        self.environment = self._runner.adapter.environment

    async def _open(self) -> None:
        self._threads = EnvThreads(1)
        self._runner = EnvRunner(self._env, self._threads, timeout_s=math.inf)
        await self._runner.open()

    def reset(self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any]) -> Any:
        return run(self._runner.reset(seed, episode_id, extra))

    def step(self, action: Any) -> Any:
        return run(self._runner.step(action))

    def close(self) -> None:
        run(self._close())

    async def _close(self) -> None:
        failed = await self._runner.close(CLOSE_S, log=False)
        self._threads.close()
        if failed is not None:
            raise failed


def _adapter_of(env: MakeEnv) -> EnvAdapter | _InOwnThread:
    if not getattr(env, "own_thread", False):
        adapter = EnvAdapter(env())
        if not adapter.environment.own_thread:
            return adapter
        adapter.close()  # it was made in the caller's thread
    return _InOwnThread(env)


class LocalEnvironment:
    """One environment, called in the caller's thread or in its own, also if its methods are async.

    Example:
        >>> from examples.connect4.environment import Connect4Environment
        >>> from guerdon.integrations.stepping import LocalEnvironment
        >>> game = LocalEnvironment(Connect4Environment)
        >>> first = game.reset(3, {})
        >>> game.step({"column": 2}).reward
        0.0
        >>> game.close().agents
        ()

    Args:
        env: An environment class, or a function that returns an environment.
    """

    def __init__(self, env: MakeEnv) -> None:
        self._adapter = _adapter_of(env)
        self.environment: Environment[Any, Any, Any] = self._adapter.environment
        self._is_open = True
        self._last: Any = None

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Observation:
        """Begin an episode; the environment gets the options that its `reset` accepts."""
        given = reset_arguments(self.environment, options or {})
        return self._result(self._adapter.reset(seed, given.get("episode_id"), given))

    def step(self, action: Any) -> Observation:
        """Take a step; a failed rubric leaves no reward, everything else raises."""
        return self._result(self._adapter.step(action))

    def _result(self, returned: Any) -> Observation:
        self._last = run(returned) if inspect.iscoroutine(returned) else returned
        observation: Observation = self._last
        return observation

    def render(self, mode: str | None) -> str | None:
        """Return the text of the last observation, or its JSON, in the mode ``"ansi"``."""
        return observation_text(self._last) if mode == "ansi" else None

    def close(self) -> Environment[Any, Any, Any]:
        """Close the environment, and return it. Closing twice does nothing."""
        if self._is_open:
            self._is_open = False
            self._adapter.close()
        return self.environment


def failure_reason(metadata: Mapping[str, Any]) -> str:
    """Return why a step has no reward.

    Example:
        >>> from guerdon.integrations.stepping import failure_reason
        >>> failure_reason({"reward_error": "TimeoutError"}), failure_reason({})
        ('TimeoutError', 'the step set none')
    """
    return metadata.get("reward_error") or metadata.get("error") or "the step set none"


def reward_of(reward: Any, on_invalid: OnInvalid, observation: Observation, *, of: str) -> float:
    """Return a reward, or the number that takes its place if it failed.

    Raises:
        EnvError: It failed, and no number was chosen.
    """
    if reward is None and on_invalid == "raise":
        reason = failure_reason(observation.metadata)
        hint = "with on_invalid=<number>, such a step has this reward and truncates its episode"
        raise EnvError(f"the reward of {of} is unknown: {reason}; {hint}")
    return float(on_invalid if reward is None else reward)


def ends(observation: Observation, failed: bool) -> tuple[bool, bool]:
    """Return whether a step terminates and whether it truncates its episode.

    A step whose reward failed truncates it; one that is `done` does so if the observation is
    `truncated`, and terminates it otherwise.
    """
    if failed or not observation.done:
        return False, failed
    truncated = bool(observation.truncated)
    return not truncated, truncated
