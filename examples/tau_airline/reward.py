"""The reward: tau-bench's own verdict, recomputed, and what each write was worth.

The verdict is 1 or 0 and says nothing of a step. The steps are told by what they write: a write
that the task asks for earns, one that it doesn't ask for costs, one that failed costs a little.
Where nothing was to be written, a resolved conversation earns at its last turn.
Only turns that write, or that hold a call which can't be read, have a step output: whether a
question or a look-up was worth anything can't be known from the database.

A write is matched to an asked one by its effect on the database, not by its arguments, because the
verdict sees the database alone: a payment method that is never charged, 348.0 for 348, or another
order of two writes is no difference. (New reservations are numbered in order, so two bookings the
other way round are both paid, and yet the verdict is 0.) Each asked write is paid once; again, it
is one too many.
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

ASKED_IN_ALL = 1.0  # what all asked writes earn together
UNASKED = -0.5  # a write that leaves what nobody asked for: the task is lost, unless it is undone
FAILED = -0.05  # a write that the tool refused, or a call that it can't read: only time is lost
MOST_NAMED = 5  # differences in a reason


def judge(
    messages: Sequence[Message | Mapping[str, Any]], task: Any, *, data: AirlineData
) -> EvaluateResult:
    """Say whether a conversation did what its task asks for, and what each write was worth.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.reward import judge
        >>> data = AirlineData(users={}, flights={}, reservations={})
        >>> chat = [{"role": "assistant", "content": "I can't do that."},
        ...         {"role": "user", "content": "Well then. ###STOP###"}]
        >>> result = judge(chat, {"actions": [], "outputs": []}, data=data)
        >>> result.score, result.reason
        (1.0, 'the database is as the task asks; nothing had to be said')

    Args:
        messages: The conversation, in OpenAI's chat format.
        task: The ground truth: ``actions``, each with ``name`` and ``kwargs``, and ``outputs``.
        data: What the conversation started from.

    Raises:
        InvalidArgumentError: The task is none.
    """
    read = Task.of(task)
    done = replay([Message.model_validate(message) for message in messages], read, data=data)
    outputs = len(read.outputs)
    asked = _asked(done)
    last = sum(Message.model_validate(each).role == "assistant" for each in messages) - 1
    return EvaluateResult(
        score=float(done.solved),
        reason=_reason(done, outputs),
        metrics={
            "asked_writes": asked.total(),
            "database_equal": int(not done.differences),
            "ended": int(done.ended),
            "outputs": outputs,
            "outputs_said": outputs - len(done.unsaid),
            "writes": sum(bool(played.effect) for played in done.played),
        },
        step_outputs=list(_steps(done, asked, last)) or None,
    )


@reward_function
def resolved(
    messages: Sequence[Message],
    ground_truth: Any = None,
    *,
    data: AirlineData | str | os.PathLike[str] | None = None,
    **columns: Any,
) -> EvaluateResult:
    """Recompute tau-bench's reward of a recorded conversation: 1.0 resolved, 0.0 not.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.reward import resolved
        >>> data = AirlineData(users={}, flights={}, reservations={})
        >>> result = resolved([{"role": "assistant", "content": "Hello!"}],
        ...                   ground_truth={"actions": []}, data=data)
        >>> result.score, result.reason
        (0.0, 'the episode never ended')

    Args:
        messages: The conversation.
        ground_truth: The task, as a record has it in ``info["task"]``.
        data: The data, or its folder; see `data.data_path` for where it is looked for.
        **columns: The row's other columns; none is read, the published reward least of all.

    Raises:
        InvalidArgumentError: The ground truth is no task, or the data isn't there.
    """
    loaded = data if isinstance(data, AirlineData) else load_data(data)
    return judge(messages, ground_truth, data=loaded)


def _asked(done: Replay) -> Counter[str]:
    """The effects that the task asks for, and how often."""
    return Counter(played.effect for played in done.asked if played.effect)


def _steps(done: Replay, asked: Counter[str], last: int) -> Iterator[StepOutput]:
    """A step output for each assistant turn of which something is known."""
    left, share = asked.copy(), ASKED_IN_ALL / max(1, asked.total())
    wanted = {each.call.title for each in done.asked if each.effect}
    turns: dict[int, list[tuple[float, str]]] = {}
    for each in done.played:
        if each.failed and (each.call.name in WRITES or not each.call.readable):
            worth = FAILED, each.answer
        elif each.call.name not in WRITES:
            continue
        elif not each.effect:
            worth = 0.0, "changes nothing"
        elif left[each.effect] > 0:
            left[each.effect] -= 1
            worth = share, "as asked"
        elif each.effect in asked:
            worth = UNASKED, "once more than asked for"
        else:
            other = each.call.title in wanted
            worth = UNASKED, "other than asked for" if other else "not asked for"
        turns.setdefault(each.call.turn, []).append((worth[0], f"{each.call.title}: {worth[1]}"))
    if turns and done.solved and not asked:  # else what time was lost would be all that is seen
        turns.setdefault(last, []).append((ASKED_IN_ALL, "resolved, with nothing to write"))
    for turn, worths in turns.items():
        rewards, reasons = zip(*worths, strict=True)
        yield StepOutput(step_index=turn, base_reward=sum(rewards), reason="; ".join(reasons))


def _reason(done: Replay, outputs: int) -> str:
    """Why it is 1, or all that keeps it from being 1."""
    if done.solved:
        said = f"all {outputs} outputs were said" if outputs else "nothing had to be said"
        return f"the database is as the task asks; {said}"
    told = [] if done.ended else ["the episode never ended"]
    if done.differences:
        told.append(f"the database differs from the one asked for in {_listed(done.differences)}")
    if done.unsaid:
        told.append(f"not said: {_listed(done.unsaid)}")
    return "; ".join(told)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
