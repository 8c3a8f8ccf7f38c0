"""The reward: tau-bench's verdict, recomputed, and a reward for each write.

The verdict is 1 or 0 for the whole conversation. A step is rewarded for its writes: an expected
write gets a positive reward, an unexpected one a negative reward, and a failed one a small negative
reward. If no write is expected, a resolved conversation is rewarded at its last turn. Only turns
with a write or an invalid call have a step output, because the database doesn't show whether a
question or a look-up was useful.

A write matches an expected one if it has the same effect on the database, because the verdict
compares databases only. A payment method that is never charged, 348.0 for 348, or another order of
two writes makes no difference. (New reservations are numbered in order: two bookings in the wrong
order are both rewarded, but the verdict is 0.) Each expected write is rewarded once; a repetition
is unexpected.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from examples.tau_airline.data import AirlineData, load_data
from examples.tau_airline.replay import Replay, replay
from examples.tau_airline.task import Task
from examples.tau_airline.tools import WRITES
from guerdon import EvaluateResult, Message, StepOutput, reward_function

__all__ = ["judge", "resolved"]

EXPECTED = 1.0  # the sum for all expected writes
UNEXPECTED = -0.5  # for an unexpected write: the verdict is 0 unless it is undone
FAILED = -0.05  # for a failed write or an invalid call, which only loses time
MOST_NAMED = 5  # differences in a reason


def judge(
    messages: Sequence[Message | Mapping[str, Any]], task: Any, *, data: AirlineData
) -> EvaluateResult:
    """Score whether a conversation solved its task, and reward each write.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.reward import judge
        >>> data = AirlineData(users={}, flights={}, reservations={})
        >>> chat = [{"role": "assistant", "content": "I can't do that."},
        ...         {"role": "user", "content": "Well then. ###STOP###"}]
        >>> result = judge(chat, {"actions": [], "outputs": []}, data=data)
        >>> result.score, result.reason
        (1.0, 'the database is as expected; no outputs are required')

    Args:
        messages: The conversation, in OpenAI's chat format.
        task: The ground truth: ``actions``, each with ``name`` and ``kwargs``, and ``outputs``.
        data: The initial database.

    Raises:
        InvalidArgumentError: The task is invalid.
    """
    read = Task.of(task)
    done = replay([Message.model_validate(message) for message in messages], read, data=data)
    outputs = len(read.outputs)
    expected = _expected(done)
    last = sum(Message.model_validate(each).role == "assistant" for each in messages) - 1
    return EvaluateResult(
        score=float(done.solved),
        reason=_reason(done, outputs),
        metrics={
            "expected_writes": expected.total(),
            "database_equal": int(not done.differences),
            "ended": int(done.ended),
            "outputs": outputs,
            "outputs_stated": outputs - len(done.missing),
            "writes": sum(bool(played.effect) for played in done.played),
        },
        step_outputs=list(_steps(done, expected, last)) or None,
    )


@reward_function
def resolved(
    messages: Sequence[Message],
    ground_truth: Any = None,
    *,
    data: AirlineData | str | os.PathLike[str] | None = None,
    **columns: Any,
) -> EvaluateResult:
    """Recompute tau-bench's reward of a recorded conversation: 1.0 if resolved, otherwise 0.0.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.reward import resolved
        >>> data = AirlineData(users={}, flights={}, reservations={})
        >>> result = resolved([{"role": "assistant", "content": "Hello!"}],
        ...                   ground_truth={"actions": []}, data=data)
        >>> result.score, result.reason
        (0.0, 'the episode did not end')

    Args:
        messages: The conversation.
        ground_truth: The task, which a record has in ``info["task"]``.
        data: The data or its folder; see `data.data_path` for the default.
        **columns: The row's other columns, which are ignored.

    Raises:
        InvalidArgumentError: The ground truth is invalid, or the data is missing.
    """
    loaded = data if isinstance(data, AirlineData) else load_data(data)
    return judge(messages, ground_truth, data=loaded)


def _expected(done: Replay) -> Counter[str]:
    """Count the expected effects."""
    return Counter(played.effect for played in done.expected if played.effect)


def _steps(done: Replay, expected: Counter[str], last: int) -> Iterator[StepOutput]:
    """Yield a step output for each assistant turn with a write or an invalid call."""
    remaining, share = expected.copy(), EXPECTED / max(1, expected.total())
    titles = {each.call.title for each in done.expected if each.effect}
    turns: dict[int, list[tuple[float, str]]] = {}
    for each in done.played:
        if each.failed and (each.call.name in WRITES or not each.call.readable):
            reward, reason = FAILED, each.answer
        elif each.call.name not in WRITES:
            continue
        elif not each.effect:
            reward, reason = 0.0, "changes nothing"
        elif remaining[each.effect] > 0:
            remaining[each.effect] -= 1
            reward, reason = share, "as expected"
        elif each.effect in expected:
            reward, reason = UNEXPECTED, "more often than expected"
        else:
            differs = each.call.title in titles
            reward, reason = UNEXPECTED, "other than expected" if differs else "not expected"
        turns.setdefault(each.call.turn, []).append((reward, f"{each.call.title}: {reason}"))
    if turns and done.solved and not expected:  # otherwise the rewards would all be negative
        turns.setdefault(last, []).append((EXPECTED, "resolved without writes"))
    for turn, outcomes in turns.items():
        rewards, reasons = zip(*outcomes, strict=True)
        yield StepOutput(step_index=turn, base_reward=sum(rewards), reason="; ".join(reasons))


def _reason(done: Replay, outputs: int) -> str:
    """Return the reason for a verdict of 1, or all reasons for 0."""
    if done.solved:
        stated = f"all {outputs} outputs are stated" if outputs else "no outputs are required"
        return f"the database is as expected; {stated}"
    reasons = [] if done.ended else ["the episode did not end"]
    if done.differences:
        reasons.append(f"the database differs from the expected one in {_listed(done.differences)}")
    if done.missing:
        reasons.append(f"missing outputs: {_listed(done.missing)}")
    return "; ".join(reasons)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
