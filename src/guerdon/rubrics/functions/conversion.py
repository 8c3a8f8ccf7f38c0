"""`as_reward_function`: a rubric as a reward function, which replays it over a conversation."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from guerdon.rubrics.copies import RubricCopies
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.functions.function import RewardFunction, failed, takes_messages
from guerdon.rubrics.replay import Replay, replay, replay_async
from guerdon.rubrics.rubric import Rubric
from guerdon.types.evaluate_result import EvaluateResult, StepOutput
from guerdon.types.message import Message, read_messages
from guerdon.types.rollout import Rollout

__all__ = ["as_reward_function"]


def as_reward_function(rubric: RubricLike, *, prefer_async: bool = False) -> RewardFunction:
    """Make a pointwise reward function of a rubric, or of anything that `as_rubric` accepts.

    Each assistant turn is an action, and the messages after it are its observation; the rubric is
    reset and replayed over them. The score is the sum of the steps' scores, each step has a step
    output, and the components are the metrics. If the rubric fails, the result is invalid, names
    the step and the rubric in its error, and has the components that were scored until then.

    It can be pickled if all functions and classes in the tree are defined at the top of a module.

    Example:
        >>> from guerdon import NumericAnswer
        >>> from guerdon.rubrics import as_reward_function
        >>> solved = as_reward_function(NumericAnswer())
        >>> result = solved([{"role": "user", "content": "6 × 7?"},
        ...                  {"role": "assistant", "content": "A: 42"}], ground_truth="42")
        >>> result.score, result.step_outputs[0].step_index
        (1.0, 0)

    Args:
        rubric: The rubric. With an async tree, the function is async. Several threads or tasks may
            call the function at once, but nothing else may call the rubric meanwhile. Concurrent
            calls of an async tree that remembers steps are scored by copies of it, at most 32 at a
            time; one that can't be copied, or contains a composer with ``normalize="observed"``,
            scores one call at a time.
        prefer_async: Whether the function is also async with a tree that can be called either way,
            such as one with an `LLMJudge`: concurrent calls then wait for its answers together.

    Raises:
        RubricDefinitionError: It is not a rubric.
    """
    if isinstance(rubric, RewardFunction):
        return rubric
    return _RubricRewardFunction(as_rubric(rubric), prefer_async)


def as_reward(reward: Any) -> Rubric | RewardFunction:
    """Return a reward unchanged, or make one of a function: of messages, or of a step.

    Example:
        >>> as_reward(lambda messages: float(len(messages)))
        <pointwise reward function <lambda>>

    Raises:
        RubricDefinitionError: It is neither.
        RewardFunctionError: It is a function of messages that has invalid parameters.
    """
    if isinstance(reward, RewardFunction):
        return reward
    return RewardFunction(reward) if takes_messages(reward) else as_rubric(reward)


class _RubricRewardFunction(RewardFunction):
    """A rubric as a reward function.

    Attributes:
        rubric: The rubric.
    """

    def __init__(self, rubric: Rubric, prefer_async: bool) -> None:
        self.rubric, self._prefer_async = rubric, prefer_async
        self._copies = RubricCopies(rubric)
        traits = rubric._find_traits()
        is_async = traits.is_async or (traits.waits and prefer_async)
        super().__init__(self._replay_async if is_async else self._replay)
        self.__name__ = self.__qualname__ = rubric._title()
        self.__doc__ = rubric.__doc__

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the rubric."""
        return self.rubric.fingerprint()

    def evaluate(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """Score as a call does, with further arguments in a dict."""
        done, columns = ConversationReplay(), self.parameters.arguments(ground_truth, others or {})
        if self.is_async:
            return _settled(done, self._replay_into_async(done, messages, columns))
        try:
            return self._replay_into(done, messages, columns)
        except (Exception, SystemExit) as error:  # nothing else: it may be a cancellation
            return done.failed(error)

    def _replay(self, messages: list[Message], **columns: Any) -> EvaluateResult:
        return self._replay_into(ConversationReplay(), messages, columns)

    async def _replay_async(self, messages: list[Message], **columns: Any) -> EvaluateResult:
        return await self._replay_into_async(ConversationReplay(), messages, columns)

    def _replay_into(
        self, done: ConversationReplay, messages: Any, columns: dict[str, Any]
    ) -> EvaluateResult:
        steps = done.read(messages, columns)
        with self._copies.one_sync() as rubric:
            replay(rubric, steps, done)
        return done.result()

    async def _replay_into_async(
        self, done: ConversationReplay, messages: Any, columns: dict[str, Any]
    ) -> EvaluateResult:
        steps = done.read(messages, columns)
        async with self._copies.one() as rubric:
            await replay_async(rubric, steps, done)
        return done.result()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _RubricRewardFunction, (self.rubric, self._prefer_async)


async def _settled(
    done: ConversationReplay, result: Coroutine[Any, Any, EvaluateResult]
) -> EvaluateResult:
    try:
        return await result
    except (Exception, SystemExit) as error:  # nothing else: it may be a cancellation
        return done.failed(error)


class ConversationReplay(Replay):
    """A replay over a conversation, and the result of it, also of one that failed.

    Example:
        >>> from guerdon import NumericAnswer
        >>> done = ConversationReplay()
        >>> steps = done.read([{"role": "assistant", "content": "A: 42"}], {"ground_truth": "42"})
        >>> replay(NumericAnswer(), steps, done)
        >>> done.result().score
        1.0
    """

    first_turn = 0

    def read(self, messages: Any, columns: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Return the steps of a conversation.

        Raises:
            RolloutError: It has no assistant message, or an invalid message.
        """
        rollout = Rollout.from_row({**columns, "messages": read_messages(messages)})
        self.first_turn = rollout.first_turn
        self._turns = [action.turn for action, _ in rollout.steps]
        return list(rollout.steps)

    def result(self) -> EvaluateResult:
        """Return the result of a replay that succeeded."""
        steps = self.steps if len(self.steps) > 1 else [{}]  # else they are the result's metrics
        outputs = [
            StepOutput(step_index=turn, base_reward=reward, metrics=components)
            for turn, reward, components in zip(self._turns, self.rewards, steps, strict=True)
        ]
        return EvaluateResult(
            score=self.score,
            metrics=self.components(),
            step_outputs=outputs,
            error="; ".join(self.handled) or None,
        )

    def failed(self, error: BaseException) -> EvaluateResult:
        """Return the invalid result of a replay that raised, with the components until then."""
        result = failed(error, where=self.where(self.first_turn))
        result.metrics = self.components()
        return result
