"""verl: rewards, environments for its agent loops, estimators, and credit for steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from uuid import uuid4

import numpy as np

from guerdon.credit.batch import StepBatch
from guerdon.credit.estimators import ESTIMATORS
from guerdon.envs import reset_arguments
from guerdon.errors import InvalidArgumentError, RewardFunctionError
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
from guerdon.integrations.token_advantages import ESTIMATORS_OF_OUTCOMES, Estimate, token_advantages
from guerdon.rollouts.playing.observations import observation_text
from guerdon.rubrics.functions.libraries import from_verl
from guerdon.types.evaluate_result import EvaluateResult

__all__ = [
    "StepCredit", "agent_loop", "compute_score", "from_verl", "register", "step_advantages",
]  # fmt: skip

INSTALL = "pip install 'verl[verl-core]'"

_logger = logging.getLogger(__name__)


def compute_score(reward: RewardLike, *, on_invalid: OnInvalid = "raise") -> Callable[..., Any]:
    """Return the function of the file that ``reward.custom_reward_function.path`` names.

    The conversation that is scored has one message, the response, from the assistant: verl doesn't
    pass the prompt. The entries of ``extra_info`` and the ``data_source`` are the further columns.
    With a reward that is async or asks a judge, the function is async.

    The result has the same keys in every row, as verl requires: each component of the tree, NaN if
    it was not reached, ``reward_failed``, 0 or 1, and ``score``. A reward function has no component
    names that are known before it is called, so its metrics are left out. The fingerprint of the
    reward is logged once.

    Example:
        >>> from guerdon import NumericAnswer
        >>> from guerdon.integrations.verl import compute_score
        >>> function = compute_score(NumericAnswer())
        >>> function(data_source="gsm8k", solution_str="A: 42", ground_truth="42", extra_info={})
        {'reward_failed': 0.0, 'score': 1.0}

    Args:
        reward: A rubric, a pointwise reward function, or the name of one: the path of a
            pipeline's file, ``module:name`` or ``file.py:name``.
        on_invalid: What a failed reward does: ``"raise"``, with which verl leaves the rollout out
            of its group, or a number that is the reward instead. With NaN, the estimators of
            `register` give the rollout the advantage 0; verl's own give NaN to its whole group.

    Raises:
        RewardFunctionError: It is a reward function that scores batches.
        InvalidArgumentError: The file has schedules or a curriculum.
    """
    scoring = one_at_a_time(reward)

    def evaluate(
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        columns = {**(extra_info or {}), "data_source": data_source, "ground_truth": ground_truth}
        return scoring.evaluate([{"role": "assistant", "content": solution_str}], columns)

    def row(result: EvaluateResult) -> dict[str, float]:
        components = scoring.components(result) if scoring.names else {}
        try:
            score, failed = score_of(result), 0.0
        except RewardFunctionError as error:
            score, failed = substitute(error, on_invalid, "verl"), 1.0
        return or_nan(components) | {"reward_failed": failed, "score": score}

    def function(*args: Any, **kwargs: Any) -> dict[str, float]:
        return row(evaluate(*args, **kwargs))

    async def function_async(*args: Any, **kwargs: Any) -> dict[str, float]:
        return row(await evaluate(*args, **kwargs))

    return function_async if scoring.is_async else function


# Environments ------------------------------------------------------------------------------------


@cache  # once in each process
def _log_reward(name: str, fingerprint: str | None) -> None:
    _logger.info("the reward of the agent loop %s has the fingerprint %s", name, fingerprint)


class _Loops:
    """The classes that `agent_loop` made: verl finds a class by its module and qualified name."""


def agent_loop(
    env: MakeEnv,
    *,
    name: str,
    on_invalid: OnInvalid = "raise",
    to_action: ToAction = None,
    observation_text: ToText = observation_text,
) -> type[Any]:
    """Register an agent loop that plays an environment, and return its class.

    Each rollout plays an episode in an environment of its own, which is closed afterwards, until
    the environment ends it, ``multi_turn.max_assistant_turns`` is reached, or the conversation
    after the prompt has ``response_length`` tokens. In the messages of the prompt,
    ``{observation}`` is replaced with the text of the first observation; each later one is a
    message of the user. The reset gets the entries of ``extra_info`` that it accepts, such as
    ``seed``.

    The loop returns an output for each step: its response is the action, its prompt the
    conversation before it. ``extra_fields`` has ``state``, the text of the observation before the
    step, and ``step_reward``, for `StepCredit`. The score of the rollout is the sum of the rewards.
    ``reward_extra_info`` of the last output has the sum over the steps of each component of the
    tree, NaN if it was never reached, ``turns``, and ``reward_failed``, 0 or 1. The fingerprint of
    the reward is logged once.

    Example:
        >>> from guerdon.integrations.verl import agent_loop
        >>> def register_loop(environment):
        ...     agent_loop(environment, name="lock")  # in a module of VERL_USE_EXTERNAL_MODULES

    Args:
        env: An environment class, or a function that returns an environment.
        name: The name of the loop, for the column ``agent_name`` of the data set or
            ``actor_rollout_ref.rollout.agent.default_agent_loop``; without dots.
        on_invalid: What a failed reward, an environment that raises and an invalid action do:
            ``"raise"``, with which verl leaves the rollout out of its group, or a number. It then
            is the score of the whole rollout, which ends, and its steps have no reward. A reset
            that fails always raises.
        to_action: Returns the action for the model's text; by default the text is a JSON object,
            or the value of the action's only required field.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.

    Raises:
        MissingExtraError: verl is not installed.
    """
    framework = import_framework("verl.experimental.agent_loop.agent_loop", INSTALL)

    class Loop(framework.AgentLoopBase):  # type: ignore[name-defined]
        async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[Any]:
            playing = TextEpisode.open(env, to_action=to_action, observation_text=observation_text)
            async with playing as episode:
                outputs, failed = await self._play(episode, sampling_params, row)
            if not failed:
                for output, reward in zip(outputs, episode.rewards, strict=True):
                    output.extra_fields["step_reward"] = reward
            _log_reward(name, episode.fingerprint)
            last = outputs[-1]
            last.reward_score = float(on_invalid) if failed else math.fsum(episode.rewards)
            counts = {"turns": float(len(episode.rewards)), "reward_failed": float(failed)}
            last.extra_fields["reward_extra_info"] = or_nan(episode.component_sums()) | counts
            return outputs

        async def _play(
            self, episode: TextEpisode, sampling_params: dict[str, Any], row: Mapping[str, Any]
        ) -> tuple[list[Any], bool]:
            """The outputs of the steps, and whether the last one failed."""
            arguments = reset_arguments(episode.environment, row["extra_info"])
            text = await episode.reset(arguments)
            messages = with_observation(row["raw_prompt"], text)
            tokens = await self.ct_build_initial_tokens(messages)
            most_tokens = len(tokens) + self.rollout_config.response_length
            most_turns = self.rollout_config.multi_turn.max_assistant_turns or math.inf
            session = uuid4().hex
            outputs: list[Any] = []
            while not episode.done and len(outputs) < most_turns and len(tokens) < most_tokens:
                generated = await self.server_manager.generate(
                    request_id=session, prompt_ids=tokens, sampling_params=sampling_params
                )
                output = framework.AgentLoopOutput(
                    prompt_ids=tokens,
                    response_ids=generated.token_ids,
                    response_mask=[1] * len(generated.token_ids),
                    response_logprobs=generated.log_probs or None,
                    routed_experts=generated.routed_experts,
                    num_turns=2 * len(outputs) + 2,
                    metrics={},
                    extra_fields={**generated.extra_fields, "state": text},
                )
                outputs.append(output)
                action = self.tokenizer.decode(generated.token_ids, skip_special_tokens=True)
                try:
                    text = await episode.step(action)
                except Exception as error:
                    substitute(error, on_invalid, "verl")  # `run` sets the number
                    return outputs, True
                answered = [*messages, {"role": "assistant", "content": action}]
                messages = [*answered, {"role": "user", "content": text}]
                tokens = tokens + generated.token_ids
                merged, *_ = await self.ct_merge_context_msg(answered, messages, tokens, [])
                tokens = merged.token_ids
            return outputs, False

    Loop.__module__, Loop.__qualname__ = __name__, f"{_Loops.__name__}.{name}"
    setattr(_Loops, name, Loop)
    loop: type[Any] = framework.register(name)(Loop)
    return loop


# Advantages --------------------------------------------------------------------------------------


def _named(method: str | Estimate) -> Estimate:
    return ESTIMATORS[method] if isinstance(method, str) else method


def register() -> tuple[str, ...]:
    """Register the estimators that fit in verl's registry, for ``algorithm.adv_estimator``.

    verl passes an estimator the reward and the group of each row, not its step or state; for
    estimators that need those, see `step_advantages`. A row whose reward is NaN has advantage 0 and
    takes part in no statistic; so does a group of one, where verl's own take the reward itself.

    Example:
        >>> from guerdon.integrations.verl import register
        >>> def extend_verl():
        ...     register()  # in a module that VERL_USE_EXTERNAL_MODULES names

    Returns:
        Their names: ``guerdon_grpo``, ``guerdon_dr_grpo``, ``guerdon_rloo``.

    Raises:
        MissingExtraError: verl is not installed.
    """
    registry = import_framework("verl.trainer.ppo.core_algos", INSTALL)
    for name, function in ESTIMATORS_OF_OUTCOMES.items():
        registry.register_adv_est(name)(function)
    return tuple(ESTIMATORS_OF_OUTCOMES)


def step_advantages(data: Any, *, method: str | Estimate = "gigpo") -> Any:
    """Return an advantage for each token of a `DataProto` whose rows are steps.

    The reward of a step is the sum of its ``token_level_rewards``; a trajectory with a reward that
    is NaN has advantage 0 and takes part in no statistic. ``non_tensor_batch`` has these columns:

    - ``uid``: the group, which is the prompt.
    - ``trajectory``: the trajectory, with an id that is unique in the batch.
    - ``step``: the number of the step in its trajectory.
    - ``state``: what the policy saw before the step, for GiGPO and HGPO.

    Example:
        >>> from guerdon.integrations.verl import step_advantages
        >>> def with_step_credit(data):
        ...     data.batch["advantages"] = step_advantages(data)

    Args:
        data: A `DataProto`, or anything with its ``batch`` and ``non_tensor_batch``.
        method: The name of an estimator, or a function of a `StepBatch`, such as
            ``functools.partial(gigpo, gamma=0.95)``.

    Returns:
        A tensor (rows, tokens), 0 where ``response_mask`` is 0.

    Raises:
        InvalidArgumentError: No estimator has this name.
        CreditError: A column is invalid, or missing for this estimator.
    """
    columns = data.non_tensor_batch
    return token_advantages(
        _named(method),
        data.batch["token_level_rewards"],
        data.batch["response_mask"],
        trajectory=columns["trajectory"],
        step=columns["step"],
        group=columns["uid"],
        state=columns.get("state"),
    )


class StepCredit:
    """A mixin for verl's trainers: an advantage for each output of an agent loop.

    An agent loop that returns a list of outputs returns one for each step. Each output may have in
    its ``extra_fields``:

    - ``state``: what the policy saw before the step, for GiGPO and HGPO.
    - ``step_reward``: the reward of the step. Without any, the rollout's score is the reward of its
      last step. The score is verl's reward of the last output, which verl copies to all.

    A rollout whose score is NaN has advantage 0 and takes part in no statistic, as does a row that
    verl adds to fill a mini-batch. The advantages replace those of ``algorithm.adv_estimator``,
    whose returns are kept.

    Example:
        >>> from functools import partial
        >>> from guerdon.credit import gigpo
        >>> from guerdon.integrations.verl import StepCredit
        >>> def register_trainers():
        ...     from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
        ...     @register_trainer("gigpo")
        ...     class GiGPOTrainer(StepCredit, PPOTrainerSync):
        ...         method = partial(gigpo, gamma=0.95)

    Attributes:
        method: The name of an estimator, or a function of a `StepBatch`.
    """

    method: Any = "gigpo"
    config: Any

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self.config.algorithm.use_kl_in_reward:
            raise InvalidArgumentError(
                "step credit needs the KL penalty in the loss: set "
                "algorithm.use_kl_in_reward=False and actor_rollout_ref.actor.use_kl_loss=True"
            )
        trainer: Any = super()
        batch = trainer._compute_advantage(batch, metrics)
        queue = import_framework("transfer_queue", INSTALL)
        padding = import_framework("verl.workers.utils.padding", INSTALL)
        tensordict = import_framework("tensordict", INSTALL)
        place = {"keys": batch.keys, "partition_id": batch.partition_id}
        fields = ["response_mask", "rm_scores", "extra_fields"]
        data = queue.kv_batch_get(**place, select_fields=fields)
        mask = data["response_mask"]
        advantages = _of_outputs(
            _named(type(self).method),
            batch.keys,
            data["rm_scores"].to_padded_tensor(0.0),
            mask.to_padded_tensor(0),
            data.pop("extra_fields").tolist(),
            [bool(tag.get("is_padding")) for tag in batch.tags],
        )
        output = {"advantages": padding.response_to_nested(advantages, mask)}
        stored = tensordict.TensorDict(output, batch_size=len(batch))
        return queue.kv_batch_put(**place, fields=stored)


def _of_outputs(
    estimate: Estimate,
    keys: list[str],
    rewards: Any,
    mask: Any,
    extra_fields: list[dict[str, Any]],
    is_padding: list[bool],
) -> Any:
    """The advantages of outputs, whose keys are ``{uid}_{session}_{index}``."""
    places = [key.rsplit("_", 2) for key in keys]
    has_states = "state" in extra_fields[0]
    scores = rewards.sum(-1).double().cpu().numpy()
    step_rewards: list[Any] = [fields.get("step_reward") for fields in extra_fields]
    batch = StepBatch.from_arrays(
        step_rewards,
        trajectory=[(uid, session) for uid, session, _ in places],
        step=[int(index) for *_, index in places],
        group=[uid for uid, *_ in places],
        state=[fields["state"] for fields in extra_fields] if has_states else None,
        episode_score=scores,
        valid=~(np.isnan(scores) | is_padding),
    )
    return rewards.new_tensor(estimate(batch).advantage)[:, None] * mask
