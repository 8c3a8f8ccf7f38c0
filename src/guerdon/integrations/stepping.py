"""`LocalEnvironment`: one environment, called in the caller's thread; and rewards that failed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias, cast

from guerdon._background import run
from guerdon.envs.environment import Environment
from guerdon.envs.runner import EnvAdapter, OwnCalls, reset_arguments
from guerdon.errors import EnvError
from guerdon.rollouts.playing.observations import observation_text
from guerdon.types.observation import Observation

MakeEnv: TypeAlias = Callable[[], Environment[Any, Any, Any]]
OnInvalid: TypeAlias = Literal["raise"] | float


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
        self._own = OwnCalls()
        self._thread: ThreadPoolExecutor | None = None
        if not getattr(env, "own_thread", False):
            self._adapter = EnvAdapter(env())
        if getattr(env, "own_thread", False) or self._adapter.environment.own_thread:
            if hasattr(self, "_adapter"):
                self._adapter.close()  # it was made in the caller's thread
            self._thread = ThreadPoolExecutor(1, "guerdon-env")
            self._adapter = self._call(lambda: EnvAdapter(env()))
        self.environment: Environment[Any, Any, Any] = self._adapter.environment
        self._is_open = True
        self._last: Any = None

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call a function of the environment in its thread, and run what it awaits."""
        if self._thread is not None:
            return self._thread.submit(self._own.completed, function).result()
        result = function()
        return run(result) if inspect.iscoroutine(result) else result

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Observation:
        """Begin an episode; the environment gets the options that its `reset` accepts."""
        given = reset_arguments(self.environment, options or {})
        name = given.get("episode_id")
        self._last = self._call(lambda: self._adapter.reset(seed, name, given))
        return cast("Observation", self._last)

    def step(self, action: Any) -> Observation:
        """Take a step; a failed rubric leaves no reward, everything else raises."""
        self._last = self._call(lambda: self._adapter.step(action))
        return cast("Observation", self._last)

    def render(self, mode: str | None) -> str | None:
        """Return the text of the last observation, or its JSON, in the mode ``"ansi"``."""
        return observation_text(self._last) if mode == "ansi" else None

    def close(self) -> Environment[Any, Any, Any]:
        """Close the environment, and return it. Closing twice does nothing."""
        if self._is_open:
            self._is_open = False
            try:
                self._call(self._adapter.close)
            finally:
                if self._thread is not None:
                    self._thread.submit(self._own.close)
                    self._thread.shutdown(wait=False)
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
