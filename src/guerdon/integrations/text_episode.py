"""`TextEpisode`: an episode of an environment that is played with texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from guerdon.envs.runner import EnvRunner, EnvThreads
from guerdon.errors import EnvError, InvalidActionError
from guerdon.rollouts.playing.adapters import adapter_of, read_result
from guerdon.rollouts.playing.observations import answer_messages, content_of
from guerdon.types.observation import StepResult

__all__ = ["ReadAction", "TextEpisode", "read_action_text"]

ReadAction = Callable[[str], Any]

CLOSE_S = 10.0


class TextEpisode:
    """An episode of an environment, for a framework in which a model's text is an action.

    Example:
        >>> import asyncio
        >>> from examples.connect4.environment import Connect4Environment
        >>> from guerdon.integrations.text_episode import TextEpisode
        >>> async def play():
        ...     async with TextEpisode(Connect4Environment) as episode:
        ...         await episode.reset({"seed": 3})
        ...         await episode.step("2")
        ...         return episode.rewards, episode.done
        >>> asyncio.run(play())
        ([0.0], False)

    Args:
        env: An environment class, or a function that returns an environment.
        to_action: Returns the action for a text; by default see `read_action_text`.
        to_text: Returns the text for an observation; by default its own text, or else its JSON.
        step_timeout: Seconds that the environment may take for a reset or a step.

    Attributes:
        rewards: The rewards of the steps.
        components: The components of each step's reward.
        done: Whether the environment has ended the episode.
        fingerprint: The fingerprint of the reward, after the first step.
        environment: The environment.
    """

    def __init__(
        self,
        env: Callable[[], Any],
        *,
        to_action: ReadAction | None = None,
        to_text: Callable[[Any], str] | None = None,
        step_timeout: float = 60.0,
    ) -> None:
        self._env = env
        self._to_action = to_action
        self._to_text = to_text
        self._timeout = step_timeout
        self.rewards: list[float] = []
        self.components: list[Mapping[str, float]] = []
        self.done = False
        self.fingerprint: str | None = None

    async def __aenter__(self) -> Self:
        self._threads = EnvThreads(1, name="guerdon-episode")
        self._runner = EnvRunner(
            self._env, self._threads, timeout_s=self._timeout, adapt=adapter_of
        )
        try:
            await self._runner.open()
        except BaseException:
            self._threads.close()
            raise
        self.environment = self._runner.adapter.environment
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._runner.close(min(self._timeout, CLOSE_S))
        finally:
            self._threads.close()

    async def reset(self, arguments: Mapping[str, Any]) -> str:
        """Begin the episode, and return the text of the first observation.

        Args:
            arguments: Those of the environment's reset, such as ``seed``.

        Raises:
            InvalidArgumentError: The reset doesn't accept one of them.
            Exception: What the environment raised.
        """
        extra = dict(arguments)
        seed, name = extra.pop("seed", None), extra.pop("episode_id", None)
        result = read_result(await self._runner.reset(seed, name, extra), "reset")
        return await self._text(result)

    async def step(self, text: str) -> str:
        """Take a step, and return the text of its observation.

        Raises:
            InvalidActionError: The text is no action.
            EnvError: The reward failed.
            Exception: What the environment raised.
        """
        if self._to_action is not None:
            action = await asyncio.to_thread(self._to_action, text)
        else:
            action = read_action_text(getattr(self.environment, "action_type", None), text)
        result = read_result(await self._runner.step(action), "step")
        metadata = result.metadata
        self.done = result.done
        self.fingerprint = metadata.get("reward_fingerprint")
        if result.reward is None:
            reason = metadata.get("reward_error") or metadata.get("error") or "it was not set"
            raise EnvError(f"the reward of step {len(self.rewards)} failed: {reason}")
        self.rewards.append(result.reward)
        self.components.append(metadata.get("reward_components") or {})
        return await self._text(result)

    async def _text(self, result: StepResult[Any]) -> str:
        if self._to_text is not None:
            return self._to_text(result.observation)
        return str(answer_messages(content_of(result.observation), [])[0].content)


def read_action_text(action_type: Any, text: str) -> dict[str, Any]:
    """Return the action that a model wrote.

    It is a JSON object with fields of the action, or the value of its only required field.

    Example:
        >>> from guerdon import Action
        >>> class Drop(Action):
        ...     column: int
        >>> read_action_text(Drop, '{"column": 3}'), read_action_text(Drop, " 3 ")
        ({'column': 3}, {'column': '3'})

    Args:
        action_type: The class of actions.
        text: The model's text.

    Raises:
        InvalidActionError: It is neither.
    """
    is_model = isinstance(action_type, type) and issubclass(action_type, BaseModel)
    fields = action_type.model_fields if is_model else {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict) and given.keys() <= fields.keys():
        return given
    required = [name for name, each in fields.items() if each.is_required()]
    if len(required) == 1:
        return {required[0]: text.strip()}
    raise InvalidActionError(
        f"the action must be a JSON object with the fields {sorted(fields)}, got {text!r:.200}; "
        "pass `to_action` to read another form"
    )
