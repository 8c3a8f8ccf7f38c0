"""OpenRLHF: rewards for its single-turn executor, environments for its multi-turn executor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from guerdon._background import run
from guerdon._validation import shown
from guerdon.errors import EnvError, InvalidArgumentError
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
    OBSERVATION,
    MakeEnv,
    TextEpisode,
    ToAction,
    ToText,
)
from guerdon.rollouts.playing.observations import observation_text
from guerdon.rubrics.functions.libraries import from_openrlhf

__all__ = ["agent", "from_openrlhf", "reward_func"]

# Texts of the special tokens with which the templates of common models end a turn.
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<eos>", "</s>",
    "<｜end▁of▁sentence｜>",
)  # fmt: skip


def _ground_truth(label: Any) -> dict[str, Any]:
    return {"ground_truth": label}


def reward_func(
    reward: RewardLike,
    *,
    on_invalid: OnInvalid = "raise",
    read_label: Callable[[Any], Mapping[str, Any]] = _ground_truth,
    end_tokens: Sequence[str] = END_TOKENS,
) -> Callable[..., dict[str, Any]]:
    r"""Return the `reward_func` of the file that ``--reward.remote_url`` names.

    The conversation that is scored has two messages: the prompt, with its template, from the user,
    and the response from the assistant. OpenRLHF calls the function with one rollout at a time.

    ``extra_logs`` contains each component of the tree, NaN if it was not reached, and
    ``reward_failed``, 0 or 1. The fingerprint of the reward is logged once.

    Example:
        >>> from guerdon import NumericAnswer
        >>> from guerdon.integrations.openrlhf import reward_func
        >>> function = reward_func(NumericAnswer())
        >>> function(["6 × 7?\nA: 42<|im_end|>"], ["6 × 7?\n"], ["42"])
        {'rewards': 1.0, 'scores': 1.0, 'extra_logs': {'reward_failed': 0.0}}

    Args:
        reward: A rubric, a pointwise reward function, or the name of one: the path of a
            pipeline's file, ``module:name`` or ``file.py:name``.
        on_invalid: What a failed reward does: ``"raise"``, with which OpenRLHF has no reward for
            the rollout and stops, or a number that is the reward instead.
        read_label: Returns the columns of the row for a label; by default it is the
            ``ground_truth``.
        end_tokens: Texts of special tokens, which are removed from the end of the response.

    Raises:
        RewardFunctionError: It is a reward function that scores batches.
        InvalidArgumentError: The file has schedules or a curriculum.
    """
    scoring = one_at_a_time(reward)

    def function(queries: Any, prompts: Any, labels: Any) -> dict[str, Any]:
        [query], [prompt], [label] = queries, prompts, labels
        components: Mapping[str, float | None] = dict.fromkeys(scoring.names)
        try:
            response = _response(query, prompt, end_tokens)
            question = {"role": "user", "content": prompt}
            answer = {"role": "assistant", "content": response}
            result = scoring.evaluate([question, answer], read_label(label))
            result = run(result) if scoring.is_async else result
            components = scoring.components(result)
            score, failed = score_of(result), 0.0
        except Exception as error:
            score, failed = substitute(error, on_invalid, "OpenRLHF"), 1.0
        logs = or_nan(components) | {"reward_failed": failed}
        return {"rewards": score, "scores": score, "extra_logs": logs}

    return function


def _response(query: str, prompt: str, end_tokens: Sequence[str]) -> str:
    if not query.startswith(prompt):  # it was truncated, or is decoded to another text
        raise InvalidArgumentError(f"the query does not begin with its prompt: {shown(query)}")
    text = query.removeprefix(prompt)
    while end := next(filter(text.rstrip().endswith, end_tokens), ""):
        text = text.rstrip().removesuffix(end)
    return text


# Environments ------------------------------------------------------------------------------------


def _reset_arguments(label: Any) -> Any:
    return json.loads(label) if isinstance(label, str) and label.strip() else label or {}


def agent(
    env: MakeEnv,
    *,
    turn: str,
    on_invalid: OnInvalid = "raise",
    read_label: Callable[[Any], Mapping[str, Any]] = _reset_arguments,
    to_action: ToAction = None,
    observation_text: ToText = observation_text,
) -> type[Any]:
    r"""Return the class `AgentExecutor` of the file that ``--train.agent_func_path`` names.

    Each rollout plays an episode in an environment of its own, which is closed afterwards. The
    reward of the rollout is the sum of the rewards of its steps. ``extra_logs`` contains the sum
    over the steps of each component of the tree, NaN if it was never reached, ``turns``, and
    ``reward_failed``, 0 or 1.

    Example:
        >>> from guerdon.integrations.openrlhf import agent
        >>> def executor_of(environment):
        ...     return agent(environment, turn=(
        ...         "\n<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n"))

    Args:
        env: An environment class, or a function that returns an environment.
        turn: The text between two actions, in the model's template, after the token that ends the
            model's turn; ``{observation}`` in it, and in the prompt of the data set, is replaced
            with the text of the observation.
        on_invalid: What a failed reward, an environment that raises, an invalid action and an
            episode without a step do: ``"raise"``, which stops OpenRLHF, or a number. It then is
            the reward of the whole rollout, which ends. A reset that fails always raises.
        read_label: Returns the arguments of the environment's reset for a label; by default the
            label is a JSON object of them, such as ``{"seed": 3}``, or empty.
        to_action: Returns the action for the model's text; by default the text is a JSON object,
            or the value of the action's only required field.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.

    Raises:
        MissingExtraError: OpenRLHF is not installed.
        InvalidArgumentError: `turn` doesn't contain ``{observation}``.
    """
    if OBSERVATION not in turn:
        raise InvalidArgumentError(f"`turn` must contain {OBSERVATION}, got {shown(turn)}")
    framework = import_framework("openrlhf.utils.agent", "pip install openrlhf")

    class Player(framework.AgentInstanceBase):  # type: ignore[name-defined]
        """Plays one episode, as OpenRLHF calls it."""

        failure: Exception | None = None

        def __init__(self, episode: TextEpisode) -> None:
            self.episode = episode

        async def reset(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            text = await self.episode.reset(read_label(states["label"]))
            return {**states, "observation": states["observation"].replace(OBSERVATION, text)}

        async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            reward, feedback = 0.0, ""
            try:
                text = await self.episode.step(state_dict["action_text"])
                reward = self.episode.rewards[-1]
                feedback = "" if self.episode.done else turn.replace(OBSERVATION, text)
            except Exception as error:
                substitute(error, on_invalid, "OpenRLHF")
                self.failure = error  # `execute` replaces the sum
            done = self.episode.done or self.failure is not None
            # A number of numpy has `item`, as a tensor has.
            return {"rewards": np.float64(reward), "environment_feedback": feedback, "done": done}

    class AgentExecutor(framework.AgentExecutorBase):  # type: ignore[name-defined]
        """Plays each rollout in an environment of its own."""

        async def execute(self, *args: Any, **kwargs: Any) -> Any:
            async with TextEpisode.open(
                env, to_action=to_action, observation_text=observation_text
            ) as episode:
                player, executor = Player(episode), framework.MultiTurnAgentExecutor(Player)
                executor.agent_instance_cls = lambda: player
                played = await executor.execute(*args, **kwargs)
            if not (episode.rewards or player.failure):  # its prompt left no token for the model
                player.failure = EnvError("the episode ended before its first step")
                substitute(player.failure, on_invalid, "OpenRLHF")
            failed = player.failure is not None
            if failed:
                played["reward"] = played["scores"] = float(on_invalid)
            logs = {"turns": float(len(episode.rewards)), "reward_failed": float(failed)}
            return {**played, "extra_logs": or_nan(episode.component_sums()) | logs}

    return AgentExecutor
