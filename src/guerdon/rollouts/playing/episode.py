"""`play`: one episode, turn by turn, from the policy's decision to the recorded step."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from guerdon.envs.runner import EnvRunner
from guerdon.errors import PolicyError
from guerdon.rollouts.json_forms import as_json, json_items
from guerdon.rollouts.playing.adapters import read_result
from guerdon.rollouts.playing.observing import (
    answer_messages,
    first_messages,
    shown,
)
from guerdon.rollouts.playing.policies import PolicyOutput, calls_of
from guerdon.rollouts.playing.record import Ending, RolloutRecord
from guerdon.rubrics.failure import say_failure
from guerdon.types.message import INSTRUCTION_ROLES, Message
from guerdon.types.numbers import FiniteFloat
from guerdon.types.step_data import StepData
from guerdon.types.step_result import StepResult

__all__ = ["Rules", "ToMessages", "bind_policy", "play"]

logger = logging.getLogger("guerdon.rollouts")

# Makes messages of an observation and of the tool calls that it answers.
ToMessages: TypeAlias = Callable[[Any, list[dict[str, Any]]], list[Message]]
_Decide: TypeAlias = Callable[..., Any]
_value = TypeAdapter(FiniteFloat | None)

# Seconds that a policy has to end once it was cancelled.
GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """How episodes are played.

    Attributes:
        decide: Asks the policy: takes an observation, tools, messages and the turn.
        max_steps: Steps of an episode, at most.
        policy_timeout: Seconds that the policy may take for a decision.
        tools: The tools there are; None: what the environment says.
        to_action: Makes the environment's action of the policy's.
        to_messages: Makes messages of an observation and of the tool calls that it answers.
        stop_pattern: Ends the episode where it is found in the policy's output.
        first_observation: Whether the conversation shows the first observation.
    """

    decide: _Decide
    max_steps: int
    policy_timeout: float
    tools: list[Any] | None
    to_action: Callable[[Any], Any] | None
    to_messages: ToMessages | None
    stop_pattern: re.Pattern[str] | None
    first_observation: str


def bind_policy(policy: Any) -> _Decide:
    """How to ask a policy, found out once: whether it takes the conversation, and the turn.

    Example:
        >>> import asyncio
        >>> from guerdon import ScriptedPolicy
        >>> decide = bind_policy(ScriptedPolicy([{"column": 3}]))
        >>> asyncio.run(decide(None, None, messages=[], turn=0)).action
        {'column': 3}

    Raises:
        AttributeError: It has no `get_action`.
    """
    ask = policy.get_action
    parameters = inspect.signature(ask).parameters.values()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    named = {each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY}
    takes_messages = takes_any or "messages" in named
    takes_turn = takes_any or "turn" in named

    def decide(observation: Any, tools: Any, *, messages: list[Message], turn: int) -> Any:
        more: dict[str, Any] = {"messages": list(messages)} if takes_messages else {}
        if takes_turn:
            more["turn"] = turn
        return ask(observation, tools, **more)

    return decide


async def play(
    runner: EnvRunner, rules: Rules, *, record: RolloutRecord, reset: Mapping[str, Any]
) -> None:
    """Play an episode in an open environment; the record is written as it goes.

    Args:
        runner: Runs the environment.
        rules: How it is played.
        record: Has its name, its seed and what the task says of the conversation.
        reset: Further arguments of the environment's reset.
    """
    episode = _Episode(runner, rules, record)
    try:
        await episode.begin(reset)
        while True:
            ended = await episode.turn()
            if ended is not None:
                break
    except (Exception, SystemExit) as error:  # what ends the program ends an episode here
        record.ended, record.error = "error", say_failure(error, episode.doing)
        if record.steps:
            last = record.steps[-1].step_info
            last["error" if episode.is_stepping else "episode_error"] = record.error
    else:
        record.ended = ended


class _Episode:
    """An episode that is being played.

    Attributes:
        doing: What is being done, for the error's text.
        is_stepping: Whether the last recorded step is being taken still.
    """

    def __init__(self, runner: EnvRunner, rules: Rules, record: RolloutRecord) -> None:
        self.doing = "reset"
        self.is_stepping = False
        self._runner = runner
        self._rules = rules
        self._record = record
        self._tools = rules.tools if rules.tools is not None else runner.adapter.tools
        self._result: StepResult[Any] = StepResult(None)
        self._data: Any = None  # the result, as it is recorded
        self._reset_metadata: dict[str, Any] = {}
        self._turns = 0  # the assistant's, in the whole conversation

    async def begin(self, reset: Mapping[str, Any]) -> None:
        """Reset the environment, and begin the conversation."""
        record = self._record
        if record.seed is not None and not self._runner.adapter.takes_seed:
            logger.warning(
                "the environment's reset takes no seed, so that %r may begin unlike the others of "
                "its group",
                record.id,
            )
            record.seed = None
        answer = await self._runner.reset(record.seed, record.id, reset)
        self._result = read_result(answer, "reset")
        self._reset_metadata = json_items(self._result.metadata)
        messages = record.messages
        shows = self._rules.first_observation
        if shows == "auto":
            only_told = all(each.role in INSTRUCTION_ROLES for each in messages)
            shows = "always" if only_told else "never"
        self._see(None, answering=shows == "always")
        self._turns = sum(message.role == "assistant" for message in messages)
        record.first_turn = self._turns

    async def turn(self) -> Ending | None:
        """Have the policy decide, and take the step; how the episode ends with it, if it does."""
        record, rules = self._record, self._rules
        self.doing = f"the policy at step {self._turns}"
        output = await self._decide()
        self.doing = f"step {self._turns}"
        message = _spoken(output, self._turns)
        record.messages.append(message)
        step = self._open_step(output)
        self.is_stepping = True
        action = output.action
        if rules.to_action is not None and not _terminates(action):
            action = rules.to_action(action)
        if _terminates(action):
            step.is_done = True
            self._close_step(step)
            return "terminate"
        answer = await self._runner.step(action, self._runner.timeout_s)
        self._result = result = read_result(answer, "step")
        step.is_done = result.done
        step.step_info["env_reward"] = result.reward
        self._see(message.tool_calls or [])
        if metadata := json_items(result.metadata):
            step.step_info["env_metadata"] = metadata
        self._close_step(step)
        if result.done:
            return "done"
        if rules.stop_pattern is not None and rules.stop_pattern.search(output.raw_output):
            return "pattern"
        return "max_steps" if len(record.steps) == rules.max_steps else None

    async def _decide(self) -> PolicyOutput:
        limit = self._rules.policy_timeout
        record = self._record
        asking = self._rules.decide(
            self._result.observation, self._tools, messages=record.messages, turn=len(record.steps)
        )
        if not inspect.isawaitable(asking):
            raise PolicyError(f"get_action gave {asking!r:.60}; it is async and gives it awaited")
        return _checked(await _within(asking, limit))

    def _open_step(self, output: PolicyOutput) -> StepData:
        step = StepData(
            system_step_index=len(self._record.steps),
            observation_data=self._data,
            action_taken=as_json(output.action),
            raw_policy_output=output.raw_output,
            resulting_messages_history=self._record.messages,
            policy_logprobs=output.logprobs,
            policy_value_estimate=output.value_estimate,
            step_info=self._info(output),
        )
        self._record.steps.append(step)
        self._turns += 1
        return step

    def _info(self, output: PolicyOutput) -> dict[str, Any]:
        info: dict[str, Any] = {"assistant_turn_index": self._turns, "env_reward": None}
        if output.info:
            info["policy_info"] = as_json(output.info)
        if self._record.group is not None:
            info["group"] = self._record.group
        if self._reset_metadata and not self._record.steps:
            info["reset_metadata"] = self._reset_metadata
        return info

    def _close_step(self, step: StepData) -> None:
        step.resulting_messages_history = list(self._record.messages)
        self.is_stepping = False

    def _see(self, calls: list[dict[str, Any]] | None, *, answering: bool = True) -> None:
        """Keep what the environment shows, and put it into the conversation."""
        result = self._result
        view = shown(result.observation)
        self._data = view
        if not answering:
            return
        if self._rules.to_messages is not None:
            made = self._rules.to_messages(result.observation, calls or [])
            added = [
                each if isinstance(each, Message) else Message.model_validate(each) for each in made
            ]
        else:
            added = first_messages(view) if calls is None else answer_messages(view, calls)
        self._record.messages.extend(added)


async def _within(asking: Awaitable[Any], limit: float) -> Any:
    """Await a policy; it is cancelled if it takes too long or its caller is cancelled."""
    task = asyncio.ensure_future(_ending(asking))
    try:
        done, _ = await asyncio.wait((task,), timeout=limit)
        if not done:
            raise PolicyError(f"the policy took longer than {limit:g} s")
        if task.cancelled():
            raise PolicyError("the policy ended itself with CancelledError")
        return task.result()
    finally:
        task.add_done_callback(_retrieve)
        if task.cancel():
            await asyncio.wait((task,), timeout=GRACE_S)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve an exception that no caller waits for, so that asyncio doesn't report it."""
    if not task.cancelled():
        task.exception()


async def _ending(asking: Awaitable[Any]) -> Any:
    """What a policy gives; where it ends the program, it fails, and the program goes on."""
    try:
        return await asking
    except SystemExit as error:
        raise PolicyError(f"the policy raised {error!r}") from error


def _checked(output: Any) -> PolicyOutput:
    """What a policy gave, if it is what a policy gives."""
    if isinstance(output, PolicyOutput):
        checked = output
    elif isinstance(output, tuple) and len(output) == 4:
        checked = PolicyOutput(*output)
    else:
        size = f" of {len(output)}" if isinstance(output, (tuple, list)) else ""
        raise PolicyError(
            f"get_action gave {output!r:.60} ({type(output).__name__}{size}); it gives a tuple of "
            "action, raw output, logprobs and value estimate"
        )
    if not isinstance(checked.raw_output, str):
        raise PolicyError(f"the policy's raw output is {checked.raw_output!r:.60}; it is a text")
    if checked.message is not None and checked.message.role != "assistant":
        raise PolicyError(f"the policy's message is of {checked.message.role!r}, no assistant's")
    try:
        _value.validate_python(checked.value_estimate)
    except ValidationError:
        raise PolicyError(
            f"the policy's value estimate is {checked.value_estimate!r:.60}; it is a finite "
            "number or None"
        ) from None
    return checked


def _terminates(action: Any) -> bool:
    kind = action.get("type") if isinstance(action, Mapping) else getattr(action, "type", None)
    return isinstance(kind, str) and kind == "terminate"


def _spoken(output: PolicyOutput, turn: int) -> Message:
    """The assistant's message: the policy's own, or made of its output."""
    if output.message is not None:
        return output.message
    fields: dict[str, Any] = {"role": "assistant", "content": output.raw_output}
    calls = [
        {
            "id": call.get("id") or f"call_{turn}_{number}",
            "type": "function",
            "function": {"name": call.get("name"), "arguments": _as_text(call.get("arguments"))},
        }
        for number, call in enumerate(calls_of(output.action))
    ]
    if calls:
        fields.update(content=output.raw_output or None, tool_calls=calls)
    return Message(**fields)


def _as_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return json.dumps(as_json(arguments or {}), ensure_ascii=False)
