"""NeMo Gym: a resources server that verifies rollouts with a reward."""

# Without `from __future__ import annotations`: FastAPI reads the annotations of `verify`, whose
# classes are local, and could not find them by name.

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ConfigDict

from guerdon._validation import check_number
from guerdon.errors import RewardFunctionError
from guerdon.integrations.conversation_reward import (
    RewardLike,
    one_at_a_time,
    score_of,
    substitute,
    with_ground_truth,
)
from guerdon.integrations.framework import import_framework
from guerdon.integrations.stepping import OnInvalid
from guerdon.rubrics.containers import WeightedSum
from guerdon.types.content import text_or_parts
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message_formats import openai_messages

__all__ = ["resources_server", "to_messages"]

# Of a message of the Responses API.
FIELDS = ("type", "role", "content")

# NeMo RL reads the first and leaves the sample out of the loss; NeMo Gym reads the second and
# writes the rollout to the file of failures.
FAILED = {"instance_config": {"mask_sample": True}, "_ng_failure_class": "reward_failed"}


def resources_server(
    reward: RewardLike, *, ground_truth: str = "expected_answer", on_invalid: OnInvalid = "raise"
) -> type[Any]:
    """Return a class of resources servers whose `verify` is a reward.

    It scores the messages of ``responses_create_params`` and of ``response``; assistant messages of
    the prompt are not steps. The fields of the task, and those of its ``verifier_metadata``, are
    the columns of the row.

    The answer has ``reward/{name}`` for each component of the tree over the turns, null if it was
    not reached, ``mask_sample``, ``failure_reason`` and ``reward_fingerprint``. With a
    `WeightedSum`, ``reward_components`` contains what each child adds to the reward; otherwise it
    is null.

    Example:
        >>> def serve():
        ...     from guerdon import NumericAnswer
        ...     from guerdon.integrations.nemo_gym import resources_server
        ...     resources_server(NumericAnswer()).run_webserver()

    Args:
        reward: A rubric, a pointwise reward function, or the name of one: the path of a
            pipeline's file, ``module:name`` or ``file.py:name``.
        ground_truth: The field of the task that contains the expected answer; if there is no such
            field, it is ``ground_truth``.
        on_invalid: What a failed reward does: with ``"raise"``, `verify` responds with status 500;
            with a finite number, it responds with this reward and ``mask_sample``.

    Returns:
        A subclass of `SimpleResourcesServer`.

    Raises:
        MissingExtraError: NeMo Gym is not installed.
        RewardFunctionError: It is a reward function that scores batches.
        InvalidArgumentError: The file has schedules or a curriculum, or `on_invalid` is not finite.
    """
    if on_invalid != "raise":
        check_number("on_invalid", on_invalid)
    gym: Any = import_framework("nemo_gym.base_resources_server", "pip install nemo-gym")
    scoring = one_at_a_time(reward)
    tree = getattr(scoring.function, "rubric", None)
    fingerprint = scoring.fingerprint

    class VerifyRequest(gym.BaseVerifyRequest):
        model_config = ConfigDict(extra="allow")

    class VerifyResponse(gym.BaseVerifyResponse):
        model_config = ConfigDict(extra="allow")

    class RewardResourcesServer(gym.SimpleResourcesServer):
        """Verifies rollouts with the reward."""

        async def verify(self, body: VerifyRequest) -> VerifyResponse:
            result = await scoring.evaluate_async(*_conversation(body.model_dump(), ground_truth))
            scored = {
                **{f"reward/{name}": each for name, each in scoring.components(result).items()},
                **_outcome(result, tree, on_invalid),
            }
            return VerifyResponse(
                responses_create_params=body.responses_create_params,
                response=body.response,
                reward_fingerprint=fingerprint,
                **scored,
            )

        async def aggregate_metrics(
            self, body: gym.AggregateMetricsRequest
        ) -> gym.AggregateMetrics:
            # NeMo Gym 0.4 passes failed rollouts, too.
            rows = body.verify_responses
            body.verify_responses = [row for row in rows if "_ng_failure_class" not in row]
            return await super().aggregate_metrics(body)

    return RewardResourcesServer


def _conversation(
    row: dict[str, Any], ground_truth: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and the columns of a task with its response."""
    asked, response = row.pop("responses_create_params"), row.pop("response")
    columns = with_ground_truth(row | (row.get("verifier_metadata") or {}), ground_truth)
    given, instructions = asked["input"], asked["instructions"]
    prompt = [{"role": "system", "content": instructions}] if instructions else []
    prompt += to_messages([{"role": "user", "content": given}] if isinstance(given, str) else given)
    columns["first_turn"] = sum(message["role"] == "assistant" for message in prompt)
    return prompt + to_messages(response["output"]), columns


def _outcome(result: EvaluateResult, tree: Any, on_invalid: OnInvalid) -> dict[str, Any]:
    try:
        score = score_of(result)
    except RewardFunctionError as error:
        failed = {"mask_sample": True, "failure_reason": str(error), "reward_components": None}
        return {"reward": substitute(error, on_invalid, "NeMo Gym"), **failed, **FAILED}
    added = _added(tree, result) if isinstance(tree, WeightedSum) else None
    succeeded = {"mask_sample": False, "failure_reason": None, "reward_components": added}
    return {"reward": score, **succeeded}


def _added(tree: WeightedSum, result: EvaluateResult) -> dict[str, float]:
    """What each child adds to the score."""
    return {name: tree._weight_of(name) * result.metrics[name] for name, _ in tree.named_children()}


# Messages ----------------------------------------------------------------------------------------


def to_messages(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return items of OpenAI's Responses API as messages of its chat format.

    The assistant's reasoning, its message and the function calls after it become one message.

    Example:
        >>> from guerdon.integrations.nemo_gym import to_messages
        >>> to_messages([{"type": "message", "role": "assistant",
        ...               "content": [{"type": "output_text", "text": "A: 42"}]}])
        [{'role': 'assistant', 'content': 'A: 42'}]

    Args:
        items: Messages, reasoning, function calls and their outputs.
    """
    known = [
        {name: item[name] for name in FIELDS if name in item} if "role" in item else item
        for item in items
    ]
    messages = [message for _, message in openai_messages(known)]
    return [message | {"content": text_or_parts(message["content"])} for message in messages]
