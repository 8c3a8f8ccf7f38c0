"""SkyRL: rewards and environments for SkyRL-Gym, and estimators that leave out failed rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import fmean
from typing import Any

from guerdon._background import run
from guerdon.envs.runner import reset_arguments
from guerdon.integrations.conversation_reward import (
    RewardLike,
    one_at_a_time,
    or_nan,
    score_of,
    substitute,
)
from guerdon.integrations.framework import import_framework
from guerdon.integrations.stepping import OnInvalid
from guerdon.integrations.text_episode import (
    MakeEnv,
    TextEpisode,
    ToAction,
    ToText,
    with_observation,
)
from guerdon.integrations.token_advantages import ESTIMATORS_OF_OUTCOMES
from guerdon.rollouts.playing.observations import observation_text

__all__ = ["environment", "register", "reward_environment"]


def _scored_turns(on_invalid: OnInvalid) -> Any:
    """The base of the environments: what a failed turn does, and what is logged."""
    framework = import_framework("skyrl_gym.envs.base_text_env", "pip install skyrl-gym")

    class ScoredTurns(framework.BaseTextEnv):  # type: ignore[name-defined]
        components: Mapping[str, float | None]  # until now

        def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
            super().__init__()
            self.extras = dict(extras or {})
            self.max_turns: int = self.extras.get("max_turns", 1)
            self.failed = False

        def step(self, action: str) -> dict[str, Any]:
            self.turns += 1
            turn: dict[str, Any] = {"observations": [], "done": True, "metadata": {}}
            try:
                turn |= self.play(action)
            except Exception as error:
                self.close()  # SkyRL doesn't close an environment that raised
                self.failed = True
                turn["reward"] = substitute(error, on_invalid, "SkyRL")
            return turn

        def get_metrics(self) -> dict[str, float]:
            logs = {"turns": float(self.turns), "reward_failed": float(self.failed)}
            return or_nan(self.components) | logs

        @staticmethod
        def aggregate_metrics(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
            """Return the mean of each metric over the episodes in which it isn't NaN."""
            names = dict.fromkeys(name for each in metrics for name in each)
            every = {name: [each.get(name, math.nan) for each in metrics] for name in names}
            known = {name: [x for x in every[name] if not math.isnan(x)] for name in names}
            return {name: fmean(known[name]) if known[name] else math.nan for name in names}

    return ScoredTurns


def reward_environment(reward: RewardLike, *, on_invalid: OnInvalid = "raise") -> type[Any]:
    """Return a class of SkyRL-Gym environments with one turn, which the reward scores.

    The conversation that is scored has the messages of the prompt, then the model's text; assistant
    messages of the prompt are not steps. The columns of the data set are the columns of the row.
    ``ground_truth`` is the column of this name, or else ``reward_spec["ground_truth"]``.

    SkyRL logs the mean of each component of the tree, over the rollouts that reached it, as
    ``environment/{name}``, beside ``environment/reward_failed``. The fingerprint is logged once.

    Example:
        >>> def register_environment():
        ...     import skyrl_gym
        ...     from guerdon import NumericAnswer
        ...     from guerdon.integrations.skyrl import reward_environment
        ...     skyrl_gym.register("sums", reward_environment(NumericAnswer()))

    Args:
        reward: A rubric, a pointwise reward function, or the name of one: the path of a
            pipeline's file, ``module:name`` or ``file.py:name``.
        on_invalid: What a failed reward does: ``"raise"``, with which SkyRL stops, or a number that
            is the reward instead. With NaN, the estimators of `register` give the rollout the
            advantage 0; SkyRL's own give NaN to its whole group.

    Raises:
        MissingExtraError: SkyRL-Gym is not installed.
        RewardFunctionError: It is a reward function that scores batches.
        InvalidArgumentError: The file has schedules or a curriculum.
    """
    scoring = one_at_a_time(reward)

    class RewardEnv(_scored_turns(on_invalid)):  # type: ignore[misc]
        """A prompt, whose completion is scored."""

        components = dict.fromkeys(scoring.names)

        def init(self, prompt: list[dict[str, Any]]) -> Any:
            self.prompt = [*prompt]  # SkyRL appends to the list
            return prompt, {}

        def play(self, action: str) -> dict[str, Any]:
            messages = [*self.prompt, {"role": "assistant", "content": action}]
            columns = {"ground_truth": (self.extras.get("reward_spec") or {}).get("ground_truth")}
            columns |= self.extras
            columns["first_turn"] = sum(each["role"] == "assistant" for each in self.prompt)
            result = scoring.evaluate(messages, columns)
            result = run(result) if scoring.is_async else result
            self.components = scoring.components(result)
            return {"reward": score_of(result)}

    return RewardEnv


def environment(
    env: MakeEnv,
    *,
    on_invalid: OnInvalid = "raise",
    to_action: ToAction = None,
    observation_text: ToText = observation_text,
) -> type[Any]:
    """Return a class of SkyRL-Gym environments that play episodes of an environment of guerdon.

    ``{observation}`` in the messages of the prompt is replaced with the text of the first
    observation; each later observation is a message of the user. The environment's reset gets the
    columns of the data set that it accepts, such as ``seed``. The reward of a turn is that of its
    step. An episode ends at the latest after ``generator.max_turns`` turns.

    SkyRL logs the mean over the episodes of ``environment/turns``, ``environment/reward_failed``
    and, as ``environment/{name}``, of each component of the tree, summed over the steps.

    Example:
        >>> def register_environment(environment_class):
        ...     import skyrl_gym
        ...     from guerdon.integrations.skyrl import environment
        ...     skyrl_gym.register("lock", environment(environment_class))

    Args:
        env: An environment class, or a function that returns an environment.
        on_invalid: What a failed reward, an environment that raises and an invalid action do:
            ``"raise"``, with which SkyRL stops, or a number, which then is the reward of the turn
            and ends the episode; NaN as for `reward_environment`. A reset that fails always raises.
        to_action: Returns the action for the model's text; by default the text is a JSON object,
            or the value of the action's only required field.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.

    Raises:
        MissingExtraError: SkyRL-Gym is not installed.
    """

    class PlayedEnv(_scored_turns(on_invalid)):  # type: ignore[misc]
        """An episode of the environment."""

        episode: TextEpisode

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.open = AsyncExitStack()

        def init(self, prompt: list[dict[str, Any]]) -> Any:
            playing = TextEpisode.open(env, to_action=to_action, observation_text=observation_text)
            self.episode = run(self.open.enter_async_context(playing))
            try:
                arguments = reset_arguments(self.episode.environment, self.extras)
                return with_observation(prompt, run(self.episode.reset(arguments))), {}
            except Exception:
                self.close()
                raise

        def play(self, action: str) -> dict[str, Any]:
            text = run(self.episode.step(action))
            done = self.episode.done or self.turns >= self.max_turns
            observations = [] if done else [{"role": "user", "content": text}]
            return {
                "observations": observations,
                "reward": self.episode.rewards[-1],
                "done": done,
                "metadata": {
                    "reward_components": self.episode.components[-1],
                    "reward_fingerprint": self.episode.fingerprint,
                },
            }

        @property
        def components(self) -> dict[str, float | None]:
            return self.episode.component_sums()

        def close(self) -> None:
            run(self.open.aclose())

    return PlayedEnv


def register() -> tuple[str, ...]:
    """Register estimators for ``trainer.algorithm.advantage_estimator`` that leave out failures.

    A rollout whose reward is NaN has advantage 0 and takes part in no statistic; so does a group of
    one, where SkyRL's GRPO takes the reward itself. Calling it again does nothing.

    Example:
        >>> from guerdon.integrations.skyrl import register
        >>> def main(config):
        ...     register()  # before the configuration is validated

    Returns:
        Their names: ``guerdon_grpo``, ``guerdon_dr_grpo``, ``guerdon_rloo``.

    Raises:
        MissingExtraError: SkyRL is not installed.
    """
    utils = import_framework("skyrl.backends.skyrl_train.utils.ppo_utils", "pip install skyrl")
    registry = utils.AdvantageEstimatorRegistry
    for name in ESTIMATORS_OF_OUTCOMES.keys() - set(registry.list_available()):
        registry.register(name, ESTIMATORS_OF_OUTCOMES[name])
    return tuple(ESTIMATORS_OF_OUTCOMES)
