"""OpenRLHF: rewards for its single-turn executor, environments for its multi-turn executor."""

from __future__ import annotations

import copy
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from guerdon._background import run
from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, MissingExtraError
from guerdon.integrations.conversation_reward import (
    ConversationReward,
    component_names,
    score_of,
)
from guerdon.integrations.text_episode import ReadAction, TextEpisode
from guerdon.rubrics import Rubric
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.function import RubricLike

__all__ = ["agent", "reward_func"]

logger = logging.getLogger(__name__)

OBSERVATION = "{observation}"

# Texts of the special tokens with which the templates of common models end a turn.
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<eos>", "</s>",
    "<｜end▁of▁sentence｜>",
)  # fmt: skip


def _ground_truth(label: Any) -> dict[str, Any]:
    return {"ground_truth": label}


def reward_func(
    reward: RubricLike,
    *,
    on_invalid: Literal["raise"] | float = "raise",
    read_label: Callable[[Any], Mapping[str, Any]] = _ground_truth,
    end_tokens: Sequence[str] = END_TOKENS,
) -> Callable[[Sequence[str], Sequence[str], Sequence[Any]], dict[str, Any]]:
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
        reward: A rubric, or a pointwise reward function.
        on_invalid: What a failed reward does: ``"raise"``, with which OpenRLHF has no reward for
            the rollout and stops, or a number that is the reward instead.
        read_label: Returns the columns of the row for a label; by default it is the
            ``ground_truth``.
        end_tokens: Texts of special tokens, which are removed from the end of the response.

    Raises:
        RewardFunctionError: It is a reward function that scores batches.
    """
    scoring = ConversationReward(reward)

    def scored(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> Any:
        messages = [
            {"role": "user", "content": prompts[0]},
            {"role": "assistant", "content": _response(queries, prompts, end_tokens)},
        ]
        result = scoring.evaluate(messages, read_label(labels[0]))
        return run(result) if scoring.is_async else result

    def function(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]
    ) -> dict[str, Any]:
        components: Mapping[str, float | None] = dict.fromkeys(scoring.names)
        try:
            result = scored(queries, prompts, labels)
            components = scoring.components(result)
            score, failed = score_of(result), 0.0
        except Exception as error:
            score, failed = _substitute(error, on_invalid), 1.0
        logs = {**_floats(components), "reward_failed": failed}
        return {"rewards": score, "scores": score, "extra_logs": logs}

    return function


def _response(queries: Sequence[str], prompts: Sequence[str], end_tokens: Sequence[str]) -> str:
    if len(queries) != 1:
        raise InvalidArgumentError(f"OpenRLHF scores one rollout at a time, got {len(queries)}")
    if not queries[0].startswith(prompts[0]):
        raise InvalidArgumentError(
            "the query does not begin with its prompt, which was truncated or is decoded to "
            f"another text: {shown(queries[0])}"
        )
    text = queries[0][len(prompts[0]) :]
    while (end := next(filter(text.rstrip().endswith, end_tokens), None)) is not None:
        text = text.rstrip().removesuffix(end)
    return text


def _substitute(error: Exception, on_invalid: Literal["raise"] | float) -> float:
    """Return the number that replaces the reward; the error is logged, or raised again.

    OpenRLHF itself logs what a reward function raises as an information only.
    """
    logger.error("%s", describe_failure(error, "a reward for OpenRLHF failed"))
    if on_invalid == "raise":
        raise error
    return float(on_invalid)


def _floats(components: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in components.items()}


# Environments ------------------------------------------------------------------------------------


def _reset_arguments(label: Any) -> Any:
    return json.loads(label) if isinstance(label, str) and label.strip() else label or {}


def agent(
    env: Callable[[], Any],
    *,
    turn: str,
    on_invalid: Literal["raise"] | float = "raise",
    read_label: Callable[[Any], Mapping[str, Any]] = _reset_arguments,
    to_action: ReadAction | None = None,
    to_text: Callable[[Any], str] | None = None,
    step_timeout: float = 60.0,
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
        ...         "<|im_end|>\n<|im_start|>user\n{observation}<|im_end|>\n"
        ...         "<|im_start|>assistant\n"))

    Args:
        env: An environment class, or a function that returns an environment.
        turn: The text between two actions, in the model's template; ``{observation}`` in it, and
            in the prompt of the data set, is replaced with the text of the observation.
        on_invalid: What a failed reward, an environment that raises and an invalid action do:
            ``"raise"``, which stops OpenRLHF, or a number. It then is the reward of the whole
            rollout, which ends. A reset that fails always raises.
        read_label: Returns the arguments of the environment's reset for a label; by default the
            label is a JSON object of them, such as ``{"seed": 3}``, or empty.
        to_action: Returns the action for the model's text; by default the text is a JSON object,
            or the value of the action's only required field.
        to_text: Returns the text of an observation; by default its own text, or else its JSON.
        step_timeout: Seconds that the environment may take for a reset or a step.

    Raises:
        MissingExtraError: OpenRLHF is not installed.
        InvalidArgumentError: `turn` doesn't contain ``{observation}``.
    """
    if OBSERVATION not in turn:
        raise InvalidArgumentError(f"`turn` must contain {OBSERVATION}, got {shown(turn)}")
    try:
        from openrlhf.utils.agent import (  # type: ignore[import-not-found]
            AgentInstanceBase,
            MultiTurnAgentExecutor,
        )
    except ImportError as error:
        raise MissingExtraError(
            f"agent needs OpenRLHF, which can't be imported ({error}): pip install openrlhf"
        ) from error

    class Player(AgentInstanceBase):  # type: ignore[misc]
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
                _substitute(error, on_invalid)
                self.failure = error  # `execute` replaces the sum
            return {
                "rewards": np.float64(reward),  # which has `item`, as a tensor has
                "environment_feedback": feedback,
                "done": self.episode.done or self.failure is not None,
            }

    class AgentExecutor(MultiTurnAgentExecutor):  # type: ignore[misc]
        """Plays each rollout in an environment of its own."""

        def __init__(self) -> None:
            super().__init__(Player)

        async def execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            async with TextEpisode(
                env, to_action=to_action, to_text=to_text, step_timeout=step_timeout
            ) as episode:
                player, one = Player(episode), copy.copy(self)
                one.agent_instance_cls = lambda: player
                played: dict[str, Any] = await super(AgentExecutor, one).execute(*args, **kwargs)
            if player.failure is not None:
                played["reward"] = played["scores"] = float(on_invalid)
            played["extra_logs"] = _episode_logs(episode, failed=player.failure is not None)
            return played

    return AgentExecutor


def _episode_logs(episode: TextEpisode, *, failed: bool) -> dict[str, float]:
    rubric = getattr(episode.environment, "rubric", None)
    names = component_names(rubric) if isinstance(rubric, Rubric) else ()
    sums: dict[str, float | None] = {}
    for name in names:
        reached = [each[name] for each in episode.components if name in each]
        sums[name] = sum(reached) if reached else None
    return {**_floats(sums), "turns": float(len(episode.rewards)), "reward_failed": float(failed)}
