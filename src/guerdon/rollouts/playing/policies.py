"""`AgentPolicy`, which decides on the next action, and policies that need no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from guerdon._validation import check_integer, check_list, shown
from guerdon.errors import InvalidArgumentError, PolicyError
from guerdon.rollouts.json_forms import as_json, parse_json
from guerdon.rollouts.playing.record import RolloutRecord
from guerdon.types.action import Action
from guerdon.types.content import joined_text
from guerdon.types.message import Message, read_messages
from guerdon.types.rollout import Rollout, StepData

__all__ = ["AgentPolicy", "PolicyOutput", "ReplayPolicy", "ScriptedPolicy"]


class _Output(NamedTuple):
    action: Any
    raw_output: str
    logprobs: Any
    value_estimate: float | None


class PolicyOutput(_Output):
    """The decision of a policy: a tuple of four.

    Example:
        >>> from guerdon.rollouts import PolicyOutput
        >>> action, raw_output, logprobs, value = PolicyOutput({"column": 3}, "I take 3.")
        >>> action, raw_output, logprobs, value
        ({'column': 3}, 'I take 3.', None, None)

    Args:
        action: The structured action: any JSON value, or an `Action`.
        raw_output: The text that the action was read from.
        logprobs: The log-probabilities of the sampled tokens, if the policy reports them.
        value_estimate: The policy's own estimate of the return, if it has one.
        message: The assistant's message, if it contains more than `raw_output` and the tool calls
            of `action`. It is not a member of the tuple.
        info: Further data of the decision, such as why a model stopped; it becomes
            ``step_info["policy_info"]``. It is not a member of the tuple either.
    """

    message: Message | None = None
    info: Mapping[str, Any] | None = None

    def __new__(
        cls,
        action: Any,
        raw_output: str = "",
        logprobs: Any = None,
        value_estimate: float | None = None,
        *,
        message: Message | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create the tuple, with the message and the info as attributes."""
        output = super().__new__(cls, action, raw_output, logprobs, value_estimate)
        output.message = message
        output.info = info
        return output


@runtime_checkable
class AgentPolicy(Protocol):
    """An object that decides on the next action.

    `get_action` may also accept keywords that `RLRolloutWorker` passes: ``messages:
    list[Message]``, the conversation so far, and ``turn: int``, the number of steps taken; in an
    environment with several agents also ``agent: str``, the one that acts. A policy that reads all
    it needs from them has no state, and any number of episodes may share it.

    Example:
        >>> from guerdon import AgentPolicy
        >>> from guerdon.rollouts import PolicyOutput
        >>> class Middle:
        ...     async def get_action(self, observation, available_tools_specs=None):
        ...         return PolicyOutput({"column": 3}, "The middle is best.")
        >>> isinstance(Middle(), AgentPolicy)
        True
    """

    async def get_action(
        self, observation: Any, available_tools_specs: list[Any] | None = None
    ) -> tuple[Any, str, Any, float | None]:
        """Decide.

        Args:
            observation: The environment's observation.
            available_tools_specs: The available tools, in OpenAI's format.

        Returns:
            A `PolicyOutput`, or any tuple of the same four.
        """
        ...


class ScriptedPolicy:
    """Returns given actions in turn.

    The worker passes the turn, so that episodes may share the policy. Without it, the turn is the
    number of assistant messages in the conversation, or else each call is the next turn.

    Example:
        >>> import asyncio
        >>> from guerdon import ScriptedPolicy
        >>> policy = ScriptedPolicy([{"column": 3}, lambda observation: {"column": observation}])
        >>> asyncio.run(policy.get_action(None)).raw_output
        '{"column": 3}'
        >>> asyncio.run(policy.get_action(5)).action
        {'column': 5}

    Args:
        actions: One for each turn: an action (a string means ``{"type": "message", "content":
            …}``), a `PolicyOutput`, or a function of the observation that returns one of these.
        first_turn: How many assistant messages the conversation begins with, such as examples, for
            callers that pass messages and no turn; at least 0.
    """

    _what = "the script"
    _by_conversation = False  # whether the turn is that of the whole conversation

    def __init__(self, actions: Sequence[Any], *, first_turn: int = 0) -> None:
        self._actions = check_list("actions", actions)
        self._first_turn = check_integer("first_turn", first_turn, low=0)
        self._calls = 0

    async def get_action(
        self,
        observation: Any,
        available_tools_specs: list[Any] | None = None,
        *,
        messages: Sequence[Message] | None = None,
        turn: int | None = None,
    ) -> PolicyOutput:
        """Return the action of this turn.

        Raises:
            PolicyError: There are no more actions.
        """
        if messages is not None and (turn is None or self._by_conversation):
            turn = sum(message.role == "assistant" for message in messages) - self._first_turn
        elif turn is None:
            turn = self._calls
            self._calls += 1
        if not 0 <= turn < len(self._actions):
            raise PolicyError(
                f"{self._what} has {len(self._actions)} turns, and no turn {turn} (from 0)"
            )
        entry = self._actions[turn]
        return _output(entry(observation) if callable(entry) else entry)


class ReplayPolicy(ScriptedPolicy):
    """Replays the actions of a recording, turn by turn, with their messages.

    Example:
        >>> import asyncio
        >>> from guerdon.rollouts import ReplayPolicy
        >>> policy = ReplayPolicy([{"role": "user", "content": "6 × 7?"},
        ...                        {"role": "assistant", "content": "42"}])
        >>> asyncio.run(policy.get_action(None)).action
        {'type': 'message', 'content': '42'}

    Args:
        recording: A `Rollout`, a `RolloutRecord`, a list of messages, or a list of `StepData`.

    Raises:
        InvalidArgumentError: It is something else, has no assistant turn, or skips one.
    """

    _what = "the recording"

    def __init__(
        self, recording: Rollout | RolloutRecord | Sequence[Message | dict[str, Any] | StepData]
    ) -> None:
        steps = recording.steps if isinstance(recording, RolloutRecord) else recording
        if isinstance(steps, Sequence) and steps and isinstance(steps[0], StepData):
            turns = [_turn(step) for step in steps]
            if turns != list(range(turns[0], turns[0] + len(turns))):
                raise InvalidArgumentError(
                    f"the steps of a recording must be consecutive turns, got {turns!r:.80}"
                )
            super().__init__([_of_step(step) for step in steps], first_turn=turns[0])
        else:
            super().__init__(_of_messages(steps))
            self._by_conversation = True  # it may begin with examples, which are recorded, too


def _turn(step: Any) -> int:
    if not isinstance(step, StepData):
        raise InvalidArgumentError(
            f"a recording must consist of StepData or of messages, got {shown(step)}"
        )
    turn: int = step.step_info.get("assistant_turn_index", step.system_step_index)
    return turn


def _of_step(step: Any) -> PolicyOutput:
    spoken = [message for message in step.resulting_messages_history if message.role == "assistant"]
    place = _turn(step)
    message = spoken[place] if place < len(spoken) else None
    action = step.action_taken
    if message is not None and isinstance(action, Mapping) and action.get("role") == "assistant":
        action = action_of(message)  # the recorded action is the message itself
    return PolicyOutput(
        action,
        step.raw_policy_output or "",
        step.policy_logprobs,
        step.policy_value_estimate,
        message=message,
    )


def _of_messages(recording: Any) -> list[PolicyOutput]:
    messages = recording.messages if isinstance(recording, Rollout) else recording
    if not isinstance(messages, (list, tuple)):
        raise InvalidArgumentError(
            "a recording must be a Rollout, a RolloutRecord, or a list of messages or StepData, "
            f"got {shown(recording)}"
        )
    outputs = [
        PolicyOutput(action_of(message), joined_text(message.content), message=message)
        for message in read_messages(messages, "the recording")
        if message.role == "assistant"
    ]
    if not outputs:
        raise InvalidArgumentError("the recording has no assistant turn to replay")
    return outputs


def _output(entry: Any) -> PolicyOutput:
    if isinstance(entry, PolicyOutput):
        return entry
    if isinstance(entry, str):
        return PolicyOutput({"type": "message", "content": entry}, entry)
    if calls_of(entry):
        return PolicyOutput(entry)
    fields = entry.model_dump(exclude_unset=True) if isinstance(entry, Action) else entry
    if kind_of(entry) == "message":
        return PolicyOutput(entry, str(fields.get("content") or ""))
    return PolicyOutput(entry, json.dumps(as_json(fields), ensure_ascii=False))


def action_of(message: Message) -> dict[str, Any]:
    """Return the structured action of an assistant's message: its tool calls, or else its text.

    It is a `ToolAction` as JSON.

    Example:
        >>> action_of(Message(role="assistant", content="hi"))
        {'type': 'message', 'content': 'hi'}
    """
    calls = [_call(call) for call in message.tool_calls or ()]
    if not calls:
        return {"type": "message", "content": joined_text(message.content)}
    return calls[0] if len(calls) == 1 else {"type": "call_tools", "calls": calls}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    given = function.get("arguments")
    action = {"type": "call_tool", "tool_name": str(function.get("name") or ""), "arguments": {}}
    try:
        arguments = given if isinstance(given, Mapping) else parse_json(given or "{}")
    except (ValueError, TypeError, RecursionError) as error:
        return {**action, "arguments_error": f"the arguments are not valid JSON: {error}"}
    if not isinstance(arguments, Mapping):
        error_text = f"the arguments must be a JSON object, got {type(arguments).__name__}"
        return {**action, "arguments_error": error_text}
    return {**action, "arguments": dict(arguments)}


def calls_of(action: Any) -> list[dict[str, Any]]:
    """Return the tool calls of a structured action as JSON; empty if it has none.

    Example:
        >>> calls_of({"type": "call_tool", "tool_name": "look"})
        [{'type': 'call_tool', 'tool_name': 'look'}]
        >>> calls_of({"column": 3})
        []
    """
    kind = kind_of(action)
    if kind not in ("call_tool", "call_tools"):
        return []
    form = as_json(action)
    return [form] if kind == "call_tool" else list(form.get("calls") or ())


def kind_of(action: Any) -> Any:
    """Return the `type` of an action, if it has one.

    Example:
        >>> kind_of({"type": "terminate"})
        'terminate'
    """
    return action.get("type") if isinstance(action, Mapping) else getattr(action, "type", None)
