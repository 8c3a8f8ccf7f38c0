"""`Player`: plays episodes in environments to be checked, as a server would call them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from guerdon._background import run
from guerdon.envs.driver import Driver, make
from guerdon.errors import EnvError, EnvTimeoutError
from guerdon.types.action import Action
from guerdon.types.observation import Observation

__all__ = ["EPISODE", "Player", "Seen"]

# An id that environments may show: always the same one, so that it tells nothing of chance.
EPISODE = "check"

# What was seen after a reset or a step: the observation and the state.
Seen = dict[str, Any]


class Player:
    """Plays episodes: each call in a thread of its own, and none for ever.

    Args:
        env: Makes an environment.
        seed: What to reset with.
        timeout_s: Seconds that each call may take.
    """

    def __init__(self, env: Callable[[], Any], seed: int, timeout_s: float) -> None:
        self._env = env
        self._seed = seed
        self._timeout_s = timeout_s
        self._made: list[Driver] = []

    def new(self) -> Driver:
        """Make an environment."""
        driver: Driver = self.call(partial(make, self._env))
        self._made.append(driver)
        return driver

    def reset(self, driver: Driver) -> Observation:
        """Begin an episode."""
        begin: Callable[[], Any] = partial(driver.reset, self._seed, EPISODE)
        if driver.reset_is_async:
            begin = partial(_awaited, driver.reset_async, self._seed, EPISODE)
        observation: Observation = self.call(begin)
        return observation

    def step(self, driver: Driver, action: Action) -> Observation:
        """Take a step."""
        go_on: Callable[[], Any] = partial(driver.step, action)
        if driver.step_is_async:
            go_on = partial(_awaited, driver.step_async, action)
        observation: Observation = self.call(go_on)
        return observation

    def seen(self, driver: Driver, observation: Observation) -> Seen:
        """What there is to see: the observation, and the state without the episode's id."""
        state = self.call(driver.state)
        return {
            "observation": observation.model_dump(),
            "state": state.model_dump(exclude={"episode_id"}),
        }

    def episode(self, driver: Driver, actions: Sequence[Action]) -> list[Seen]:
        """Play an episode, to its end or that of the actions."""
        observation = self.reset(driver)
        trace = [self.seen(driver, observation)]
        for action in actions:
            if observation.done:
                break
            observation = self.step(driver, action)
            trace.append(self.seen(driver, observation))
        return trace

    def in_turn(self, drivers: Sequence[Driver], actions: Sequence[Action]) -> list[list[Seen]]:
        """Play an episode in each of several environments, a step in each in turn."""
        traces = [[self.seen(driver, self.reset(driver))] for driver in drivers]
        for action in actions:
            for driver, trace in zip(drivers, traces, strict=True):
                if not trace[-1]["observation"]["done"]:
                    trace.append(self.seen(driver, self.step(driver, action)))
        return traces

    def call(self, function: Callable[[], Any]) -> Any:
        """Call something in a thread, for so long.

        Raises:
            EnvTimeoutError: It took too long.
            EnvError: It raised what would end a process.
            Exception: What it raised.
        """
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put((function(), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=work, daemon=True, name="guerdon-check").start()
        try:
            result, error = answers.get(timeout=self._timeout_s)
        except queue.Empty:
            limit = self._timeout_s
            raise EnvTimeoutError(f"it took longer than {limit:g} s", seconds=limit) from None
        if error is None:
            return result
        if isinstance(error, Exception):
            raise error
        raise EnvError(f"it raised {error!r}", exception=error)

    def close(self) -> list[Exception]:
        """Close every environment that was made; what that raised."""
        raised = []
        for driver in self._made:
            try:
                self.call(driver.close)
            except Exception as error:
                raised.append(error)
        return raised


def _awaited(function: Callable[..., Any], *arguments: Any) -> Any:
    return run(function(*arguments))
