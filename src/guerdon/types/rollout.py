"""`Rollout`: a recorded conversation, the steps that rubrics score in it, and their `StepData`."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.types.agents import AGENT, AGENT_REWARDS
from guerdon.types.columns import column_of, with_messages
from guerdon.types.content import joined_text, text_or_parts
from guerdon.types.message import Message, read_messages
from guerdon.types.numbers import FiniteFloat
from guerdon.types.turn_tokens import TURN_TOKENS, check_turn_tokens

__all__ = ["MessageAction", "MessageObservation", "Rollout", "StepData"]

# What `ended` is in the row of a document of another format that isn't a rollout.
INVALID = "invalid"


class StepData(BaseModel):
    """One step of a rollout, which is recorded, scored and credited.

    The last three fields are filled in later: the aligner sets `base_reward`, credit assignment
    the other two.

    Example:
        >>> from guerdon import StepData
        >>> step = StepData(system_step_index=3, action_taken={"column": 2},
        ...                 step_info={"assistant_turn_index": 3})
        >>> step.base_reward is None
        True

    Attributes:
        system_step_index: The index of the step in its rollout, from 0.
        observation_data: The input of the policy's decision: in a played episode, the observation;
            in a recorded conversation, the text of the message before, or its parts if they aren't
            all text.
        action_taken: The structured action.
        raw_policy_output: The text that the action was parsed from.
        resulting_messages_history: The conversation after the step.
        policy_logprobs: The log-probabilities of the sampled tokens, if the policy reports them.
        policy_value_estimate: The policy's own estimate of the return, if it has one.
        is_done: Whether the episode ended with this step.
        step_info: Further data of the step: ``assistant_turn_index``, by which results are
            aligned, and optionally a ``step_id``, and ``prompt_token_ids``,
            ``completion_token_ids`` and ``loss_mask``, as in `TurnTokens`.
        base_reward: The step's own reward; None if it has none.
        advantage: Its advantage; None if no credit was assigned.
        return_to_go: The discounted sum of the rewards from this step on, or the estimator's
            equivalent; None if no credit was assigned.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, ser_json_inf_nan="constants"
    )

    system_step_index: StrictInt
    observation_data: Any = None
    action_taken: Any = None
    raw_policy_output: str | None = None
    resulting_messages_history: list[Message] = Field(default_factory=list)
    policy_logprobs: Any = None
    policy_value_estimate: FiniteFloat | None = None
    is_done: bool = False
    step_info: dict[str, Any] = Field(default_factory=dict)
    base_reward: FiniteFloat | None = None
    advantage: FiniteFloat | None = None
    return_to_go: FiniteFloat | None = None


@dataclass(slots=True)
class MessageAction:
    """One assistant turn of a recorded conversation.

    Example:
        >>> rollout = Rollout.from_row({"messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> action, observation = rollout.steps[0]
        >>> action.content, action.turn, [message.role for message in action.history]
        ('42', 0, ['user'])

    Attributes:
        content: Its text, ``""`` if it only calls tools; its parts if they aren't all text.
            Reasoning in tags is in the text, reasoning in parts is in ``raw.reasoning``.
        tool_calls: The tool calls, in OpenAI's format.
        turn: The index of the assistant turn in the conversation, from 0.
        conversation: The whole conversation.
        place: The index of its message, from 0.
    """

    content: str | list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]
    turn: int
    conversation: list[Message]
    place: int

    def __str__(self) -> str:
        """Return the text for a judge; tool calls, and parts that aren't text, as JSON."""
        if isinstance(self.content, str) and not self.tool_calls:
            return self.content
        both: Any = self.content
        if self.tool_calls:
            both = {"content": self.content, "tool_calls": self.tool_calls}
        return json.dumps(both, ensure_ascii=False, default=str)

    @property
    def message(self) -> str | list[dict[str, Any]]:
        """The content, under the name that some environments use."""
        return self.content

    @property
    def raw(self) -> Message:
        """The message itself."""
        return self.conversation[self.place]

    @property
    def step_id(self) -> str | None:
        """The message's own ``step_id``, if it has one."""
        found = (self.raw.model_extra or {}).get("step_id")
        return found if isinstance(found, str) else None

    @property
    def history(self) -> list[Message]:
        """The messages before it."""
        return self.conversation[: self.place]


@dataclass(slots=True)
class MessageObservation:
    """What followed an assistant turn of a recorded conversation.

    Example:
        >>> rollout = Rollout.from_row({"ground_truth": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> action, observation = rollout.steps[0]
        >>> observation.done, observation.metadata["ground_truth"]
        (True, '42')

    Attributes:
        done: Whether the turn was the last.
        metadata: The row's columns, such as ``ground_truth``; ``messages`` are those that followed
            the turn, up to the next one.
        reward: Always None: a recording has no score.
    """

    done: bool
    metadata: dict[str, Any]
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """A recorded conversation, ready to be scored.

    Example:
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"},
        ...     {"role": "assistant", "content": "41"},
        ...     {"role": "user", "content": "Sure?"},
        ...     {"role": "assistant", "content": "42"}]})
        >>> [(action.content, len(observation.metadata["messages"]), observation.done)
        ...  for action, observation in rollout.steps]
        [('41', 1, False), ('42', 0, True)]

    Attributes:
        id: Its id; by default the line number.
        group: The id that rollouts of one task share, if the row has one.
        messages: The whole conversation.
        columns: The whole row.
    """

    id: Any
    group: Any
    messages: list[Message]
    columns: Mapping[str, Any]
    _steps: list[tuple[MessageAction, MessageObservation]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def first_turn(self) -> int:
        """The index of the first assistant turn that was played; earlier ones are examples."""
        return int(self.columns.get("first_turn") or 0)

    @property
    def steps(self) -> list[tuple[MessageAction, MessageObservation]]:
        """The assistant turns with what followed each: pairs of an action and an observation.

        The last observation is `done`. They are created on first access.
        """
        found = self._steps
        if found is None:
            found = _steps(self.messages, self.columns, self.first_turn)
            object.__setattr__(self, "_steps", found)
        return found

    @classmethod
    def from_row(
        cls, row: Any, *, line: int | None = None, ground_truth: str | None = None
    ) -> Rollout:
        """Read a rollout from a row of a JSONL file.

        Args:
            row: ``{"id", "group", "messages": [{"role", "content", …}], "ground_truth", …}``.
                Instead of ``messages`` it may have ``prompt`` and ``completion``, each a text or
                messages, or ShareGPT's ``conversations``.
                ``first_turn`` is the index of the first assistant turn that was played, from 0:
                earlier ones are examples, not steps. ``agents``, ``agent_rewards`` and
                ``turn_tokens`` are lists with an entry for each played turn.
            line: Its line in the file, from 1.
            ground_truth: The column that has the ground truth, such as ``answer`` or
                ``reward_model.ground_truth``; None is ``ground_truth``.

        Raises:
            RolloutError: The row is not an object, has no conversation, an invalid message, no
                assistant message, or no such column.
        """
        if not isinstance(row, dict):
            raise RolloutError(
                f"a rollout must be an object with 'messages', got {type(row).__name__}",
                line=line,
                row=row,
            )
        if row.get("ended") == INVALID and "messages" not in row:
            raise RolloutError(str(row.get("error")), line=line, row=row)
        try:
            if ground_truth is not None:
                row = {**row, "ground_truth": column_of(row, ground_truth)}
            if row.get("messages") is None:
                row = with_messages(row)
            messages = _read(row)
        except InvalidArgumentError as error:
            failed = _failure(row)  # the reason why there is nothing to read
            problem = f"{failed}; {error}" if failed else str(error)
            raise RolloutError(problem, line=line, row=row) from None
        return cls(row.get("id", line), row.get("group"), messages, row)

    @property
    def failure(self) -> str | None:
        """Why the episode failed, if its row contains an error, like that of a `RolloutRecord`."""
        return _failure(self.columns)

    def to_step_data(self) -> list[StepData]:
        """Return the assistant turns as `StepData`, ready for alignment and credit.

        If the row has ``agents`` (who acted) and ``agent_rewards``, one for each turn, so have the
        steps. If it has ``turn_tokens``, their ``logprobs`` are the `policy_logprobs` of the steps,
        and the token ids and loss masks are in `step_info`.

        Example:
            >>> rollout = Rollout.from_row({"messages": [
            ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
            >>> [step] = rollout.to_step_data()
            >>> step.raw_policy_output, step.step_info, step.is_done
            ('42', {'assistant_turn_index': 0}, True)
        """
        ends = [action.place for action, _ in self.steps[1:]] + [len(self.messages)]
        data = []
        for (action, observation), end in zip(self.steps, ends, strict=True):
            info: dict[str, Any] = {"assistant_turn_index": action.turn}
            known = {"step_id": action.step_id, "group": self.group}
            info |= {name: value for name, value in known.items() if value is not None}
            before = _content(self.messages[action.place - 1]) if action.place else None
            step = StepData(
                system_step_index=action.turn,
                observation_data=before,
                action_taken=action.raw.to_openai(),
                raw_policy_output=joined_text(action.raw.content),
                is_done=observation.done,
                step_info=info,
                resulting_messages_history=self.messages[:end],
            )
            data.append(step)
        if AGENT_REWARDS in self.columns:
            agents, rewards = self.columns["agents"], self.columns[AGENT_REWARDS]
            for step, agent, given in zip(data, agents, rewards, strict=True):
                step.step_info |= {AGENT: agent, AGENT_REWARDS: given}
        if TURN_TOKENS in self.columns:
            for step, tokens in zip(data, self.columns[TURN_TOKENS], strict=True):
                known = {name: each for name, each in (tokens or {}).items() if each is not None}
                step.policy_logprobs = known.pop("logprobs", None)
                step.step_info |= known
        if self.failure is not None:
            data[-1].step_info["episode_error"] = self.columns.get("error") or self.failure
        return data


def _read(row: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a row, which must include a played turn."""
    given = row["messages"]
    given = given.tolist() if hasattr(given, "tolist") else given  # an array of pandas
    if not isinstance(given, list | tuple) or not given:
        raise InvalidArgumentError(
            f"`messages` must be a non-empty list of {{role, content}}, got {reprlib.repr(given)}"
        )
    messages = read_messages(given)
    turns = [*map(attrgetter("role"), messages)].count("assistant")
    if not turns:
        roles = sorted({message.role for message in messages})
        raise InvalidArgumentError(
            f"the rollout has no assistant turn to score, only the roles {roles}"
        )
    _check_turn_columns(row, turns - _first_turn(row, turns))
    return messages


def _first_turn(row: Mapping[str, Any], turns: int) -> int:
    """Return which of the assistant turns was played first."""
    first = row.get("first_turn")
    if first is None:
        return 0
    if type(first) not in (int, float) or first % 1 != 0 or not 0 <= first < turns:
        raise InvalidArgumentError(
            f"`first_turn` must be the index of one of the {turns} assistant turns, from 0, got "
            f"{reprlib.repr(first)}"
        )
    return int(first)


def _check_turn_columns(row: Mapping[str, Any], played: int) -> None:
    """Check the columns that have an entry for each of the turns that were played."""
    for name in ("agents", AGENT_REWARDS) if AGENT_REWARDS in row else ():
        given = row.get(name)
        if not isinstance(given, list) or len(given) != played:
            raise InvalidArgumentError(
                f"`{name}` must be a list with an entry for each of the {played} assistant turns, "
                f"got {reprlib.repr(given)}"
            )
    if TURN_TOKENS in row:
        check_turn_tokens(row, played)


def _content(message: Message) -> Any:
    """The text of a message; its parts, without reasoning, if they aren't all text."""
    content = message.content
    return content if isinstance(content, str) else text_or_parts(content) or ""


def _failure(row: Mapping[str, Any]) -> str | None:
    if row.get("ended") != "error":
        return None
    return f"the episode ended with an error: {row.get('error') or 'unknown'}"


def _steps(
    messages: list[Message], columns: Mapping[str, Any], first: int
) -> list[tuple[MessageAction, MessageObservation]]:
    turns = [place for place, message in enumerate(messages) if message.role == "assistant"]
    steps = []
    for turn, place in enumerate(turns[first:], start=first):
        last = turn + 1 == len(turns)
        message = messages[place]
        action = MessageAction(
            _content(message),
            message.tool_calls or [],
            turn,
            messages,
            place,
        )
        metadata = {**columns, "messages": messages[place + 1 : None if last else turns[turn + 1]]}
        steps.append((action, MessageObservation(last, metadata)))
    return steps
