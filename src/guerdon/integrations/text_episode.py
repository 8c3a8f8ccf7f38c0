"""`TextEpisode`: an episode of an environment that is played with texts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, TypeAlias

from guerdon.envs.runner import EnvRunner, EnvThreads
from guerdon.errors import EnvError, InvalidActionError
from guerdon.integrations.stepping import failure_reason
from guerdon.rollouts.playing.adapters import adapter_of, read_result
from guerdon.rollouts.playing.observations import observation_text
from guerdon.rubrics.state import classes_of
from guerdon.rubrics.step_rewards import exact_sum

# What a text of a data set or of a caller has in the place of an observation.
OBSERVATION = "{observation}"

MakeEnv: TypeAlias = Callable[[], Any]
ToAction: TypeAlias = Callable[[str], Any] | None
ToText: TypeAlias = Callable[[Any], str]


class TextEpisode:
    """An episode of an environment, for a framework in which a model's text is an action.

    Example:
        >>> import asyncio
        >>> from examples.connect4.environment import Connect4Environment
        >>> from guerdon.integrations.text_episode import TextEpisode
        >>> async def play():
        ...     async with TextEpisode.open(Connect4Environment) as episode:
        ...         await episode.reset({"seed": 3})
        ...         await episode.step("2")
        ...         return episode.rewards, episode.done
        >>> asyncio.run(play())
        ([0.0], False)

    Args:
        runner: Runs the environment, which is open.
        to_action: Returns the action for a text; by default see `read_action_text`.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.

    Attributes:
        rewards: The rewards of the steps.
        components: The components of each step's reward.
        done: Whether the environment has ended the episode.
        fingerprint: The fingerprint of the reward, after the first step.
        environment: The environment.
    """

    def __init__(
        self,
        runner: EnvRunner,
        to_action: ToAction = None,
        observation_text: ToText = observation_text,
    ) -> None:
        self.environment = runner.adapter.environment
        self._runner, self._observation_text = runner, observation_text
        self._to_action = to_action or partial(read_action_text, self.environment.action_type)
        self.rewards: list[float] = []
        self.components: list[Mapping[str, float]] = []
        self.done = False
        self.fingerprint: str | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, env: MakeEnv, **options: Any) -> AsyncIterator[Self]:
        """Make an environment, and close it at the end.

        Args:
            env: An environment class, or a function that returns an environment.
            **options: Those of the class.
        """
        threads = EnvThreads(1, name="guerdon-episode")
        runner = EnvRunner(env, threads, adapt=adapter_of)
        try:
            await runner.open()
            yield cls(runner, **options)
        finally:
            try:  # which may be cancelled
                await runner.close(timeout_s=10.0)
            finally:
                threads.close()

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
        return self._observation_text(result.observation)

    async def step(self, text: str) -> str:
        """Take a step, and return the text of its observation.

        Raises:
            InvalidActionError: The text isn't a valid action.
            EnvError: The reward failed.
            Exception: What the environment raised.
        """
        result = read_result(await self._runner.step(self._to_action(text)), "step")
        metadata, self.done = result.metadata, result.done
        self.fingerprint = metadata.get("reward_fingerprint")
        if result.reward is None:
            reason = failure_reason(metadata)
            raise EnvError(f"the reward of step {len(self.rewards)} failed: {reason}")
        self.rewards.append(result.reward)
        self.components.append(metadata.get("reward_components") or {})
        return self._observation_text(result.observation)

    def component_sums(self) -> dict[str, float | None]:
        """Return the sum over the steps of each component of the tree; None if never reached."""
        names = classes_of(self.environment.rubric)
        reached = {name: [each[name] for each in self.components if name in each] for name in names}
        return {name: exact_sum(scores) if scores else None for name, scores in reached.items()}


def with_observation(prompt: str | Sequence[Mapping[str, Any]], text: str) -> Any:
    """Return a prompt, a text or messages, with the text of an observation for ``{observation}``.

    Example:
        >>> from guerdon.integrations.text_episode import with_observation
        >>> with_observation([{"role": "user", "content": "Play. {observation}"}], "Your turn.")
        [{'role': 'user', 'content': 'Play. Your turn.'}]
    """
    if isinstance(prompt, str):
        return prompt.replace(OBSERVATION, text)
    return [{**each, "content": each["content"].replace(OBSERVATION, text)} for each in prompt]


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
    fields = action_type.model_fields
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
