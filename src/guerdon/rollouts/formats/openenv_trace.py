"""OpenEnv's traces of model calls: `TraceEntry` lists and `TrainingTrace`, read and written.

The types are those of ``openenv.core.harness``, version 0.10. An entry is one call of the model:
the request with the whole conversation so far, the response, and the engine's tokens.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from guerdon._validation import as_finite, shown
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.formats.documents import (
    OWN,
    as_dict,
    by_turn,
    check_document,
    check_tokens,
    invalid_row,
    other_columns,
    tools_of,
)
from guerdon.types.content import text_or_parts
from guerdon.types.message import Message, read_messages
from guerdon.types.rollout import Rollout
from guerdon.types.turn_tokens import TURN_TOKENS

__all__ = ["read_openenv_trace", "to_trace_entries", "to_training_trace"]

# The column with the metadata of each played turn's call.
CALL_METADATA = "call_metadata"

# The keys under which documents have their entries; Harbor's contract also has other `turns`.
ENTRIES = ("trace_entries", "entries", "turns")

# The tokens of an entry, and their names in `TurnTokens`.
TOKENS = {
    "prompt_token_ids": "prompt_token_ids", "completion_token_ids": "completion_token_ids",
    "per_token_logps": "logprobs", "loss_mask": "loss_mask",
}  # fmt: skip


class _Request(BaseModel):
    messages: list[Any]
    tools: list[Any] | None = None


class _Choice(BaseModel):
    message: dict[str, Any]
    finish_reason: str | None = None


class _Response(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)

    request: _Request
    response: _Response
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class _Turn(_Entry):
    """A turn of a `TrainingTrace`; the tokens are checked as `TurnTokens`."""

    node_id: Annotated[str, Field(min_length=1)]
    prompt_token_ids: Annotated[list[Any], Field(min_length=1)]
    completion_token_ids: list[Any]
    per_token_logps: list[Any]
    loss_mask: list[Any]


class _Own(BaseModel):
    """What `to_trace_entries` adds to the metadata of the first entry."""

    columns: dict[str, Any] = Field(default_factory=dict)
    last_messages: list[dict[str, Any]] = Field(default_factory=list)


_entry = TypeAdapter(_Entry)
_turn = TypeAdapter(_Turn)
_own = TypeAdapter(_Own)


# Reading -----------------------------------------------------------------------------------------


def read_openenv_trace(document: Any) -> list[Rollout]:
    """Read the rollouts of an OpenEnv trace.

    The calls with the same ``metadata.harness_session_id`` are one rollout, in the given order;
    most traces are one. Its conversation is the messages of the last request with the response,
    and each call is the assistant turn that its response is. The conversation of each call must
    continue that of the call before: roles, texts, and names and arguments of tool calls are
    compared, IDs of calls and other fields aren't. Fields that only a response has, such as
    ``reasoning_content``, are added to its message.

    The columns of a rollout are ``turn_tokens`` (see `TurnTokens`), ``call_metadata`` (the metadata
    of each call, with its ``finish_reason``), ``tools`` (those of the last request), ``reward``
    (None if the rollout is unscored), ``first_turn`` if the first request contains assistant turns,
    and the fields beside the entries. A turn without an entry has None in the lists. Other fields
    of requests, responses and entries, such as ``completion_tokens``, are dropped.

    Example:
        >>> from guerdon.rollouts import read_openenv_trace
        >>> [rollout] = read_openenv_trace([{
        ...     "request": {"messages": [{"role": "user", "content": "6 × 7?"}], "tools": None},
        ...     "response": {"choices": [{"message": {"role": "assistant", "content": "42"}}]},
        ...     "completion_token_ids": [52, 50], "per_token_logps": [-0.1, -0.2]}])
        >>> [step] = rollout.to_step_data()
        >>> step.policy_logprobs, step.step_info["completion_token_ids"], rollout.columns["reward"]
        ([-0.1, -0.2], [52, 50], None)

    Args:
        document: A list of ``TraceEntry``, a ``TrainingTrace`` as a model or a dict, the answer of
            the capture proxy (``{"session_id", "entries"}``), or Harbor's training contract
            (``{"trace_entries", "session_id", "task_id", "reward", …}``).

    Returns:
        The rollouts: one for each session of the harness.

    Raises:
        RolloutError: The document isn't a trace, or its calls aren't one conversation. The message
            has the number of the entry, from 0.
    """
    return [Rollout.from_row(row) for row in _rows(as_dict(document))]


def trace_rows(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a document, or of a list of documents; an invalid one has one row."""
    for each in document if _is_list_of_traces(document) else [document]:
        try:
            yield from _rows(each)
        except RolloutError as error:
            name = each.get("session_id") if isinstance(each, dict) else None
            yield invalid_row(error, id=name)


def _is_list_of_traces(document: Any) -> bool:
    return isinstance(document, list) and all(
        isinstance(each, list) or (isinstance(each, dict) and any(key in each for key in ENTRIES))
        for each in document
    )


@dataclass(frozen=True, slots=True)
class _Call:
    """A checked entry."""

    number: int
    messages: list[Message]
    answer: Message
    tools: list[Any] | None
    tokens: dict[str, Any] | None
    reward: float | None
    metadata: dict[str, Any]

    @property
    def turn(self) -> int:
        """The index of the assistant turn, from 0."""
        return sum(message.role == "assistant" for message in self.messages)


def _rows(document: Any) -> list[dict[str, Any]]:
    columns, entries = _entries(document)
    sessions: dict[Any, list[_Call]] = {}
    for number, entry in enumerate(entries):
        call = _call(entry, number)
        session = call.metadata.get("harness_session_id")
        sessions.setdefault(session if isinstance(session, str) else None, []).append(call)
    if not sessions:
        raise RolloutError("a trace must have at least one entry")
    rows = []
    for session, calls in sessions.items():
        outer = columns.get("session_id")
        name = session or outer if len(sessions) > 1 else outer or session
        rows.append(({} if name is None else {"id": name}) | _row(columns, calls))
    return rows


def _entries(document: Any) -> tuple[dict[str, Any], list[Any]]:
    """The columns that a document has beside its entries, and the entries."""
    if isinstance(document, list):
        return {}, document
    key = next((key for key in ENTRIES if isinstance(document, dict) and key in document), None)
    entries = None if key is None else document[key]
    if not isinstance(entries, list):
        raise RolloutError(
            "a trace must be a list of entries, or an object with a list of `turns`, "
            f"`trace_entries` or `entries`, got {shown(document)}"
        )
    if document.get("schema_version", 1) != 1:
        raise RolloutError(f"schema_version must be 1, got {shown(document['schema_version'])}")
    rest = {name: each for name, each in document.items() if name not in ENTRIES}
    rest.pop("schema_version", None)
    if "task_id" in rest:
        rest["group"] = rest["task_id"]
    return rest, _entries_of_turns(entries) if key == "turns" else entries


def _entries_of_turns(turns: list[Any]) -> list[Any]:
    """The entries of the turns of a `TrainingTrace`, which must have all fields."""
    entries: dict[str, Any] = {}
    for number, given in enumerate(turns):
        turn = check_document(_turn, given, place=f"entry {number}")
        if turn.node_id in entries:
            raise RolloutError(f"entry {number}: `node_id` {shown(turn.node_id)} is there twice")
        entries[turn.node_id] = given | {"metadata": turn.metadata | {"node_id": turn.node_id}}
    return list(entries.values())


def _call(given: Any, number: int) -> _Call:
    place = f"entry {number}"
    entry = check_document(_entry, given, place=place)
    try:
        messages = read_messages(entry.request.messages, f"{place}: request.messages")
        choice = entry.response.choices[0]
        answer = {"role": "assistant", **choice.message}
        [answered] = read_messages([answer], f"{place}: the message of the response")
    except InvalidArgumentError as error:
        raise RolloutError(str(error)) from None
    if answered.role != "assistant":
        raise RolloutError(f"{place}: the response must be of the assistant, got {answered.role!r}")
    tokens = check_tokens({TOKENS[key]: given.get(key) for key in TOKENS}, place=place)
    metadata = dict(entry.metadata)
    if choice.finish_reason is not None:
        metadata["finish_reason"] = choice.finish_reason
    return _Call(number, messages, answered, entry.request.tools, tokens, entry.reward, metadata)


def _row(columns: dict[str, Any], calls: list[_Call]) -> dict[str, Any]:
    first, last = calls[0], calls[-1]
    place = f"entry {first.number}: metadata.{OWN}"
    own = check_document(_own, first.metadata.pop(OWN, {}), place=place)
    messages = [message.to_openai() for message in last.messages]
    for call, following in itertools.pairwise(calls):
        _check_continues(call, following)
        turn = len(call.messages)
        messages[turn] = call.answer.to_openai() | messages[turn]
    row = columns | own.columns
    row["messages"] = [*messages, last.answer.to_openai(), *own.last_messages]
    if first.turn:  # its earlier turns are examples
        row["first_turn"] = first.turn
    called = {call.turn: call for call in calls}
    turns = [called.get(turn) for turn in range(first.turn, last.turn + 1)]
    row[CALL_METADATA] = [None if call is None else call.metadata for call in turns]
    if any(call.tokens for call in calls):
        row[TURN_TOKENS] = [None if call is None else call.tokens for call in turns]
    if last.tools is not None:
        row["tools"] = last.tools
    reward = _reward(calls)
    row["reward"] = row.get("reward") if reward is None else reward
    return row


def _reward(calls: list[_Call]) -> float | None:
    """The reward of the rollout, which each entry repeats; None if it is unscored."""
    scored = [call for call in calls if call.reward is not None]
    for call in scored:
        if call.reward != scored[0].reward:
            raise RolloutError(
                f"entry {call.number}: `reward` must be that of the rollout, "
                f"{scored[0].reward} in entry {scored[0].number}, got {call.reward}"
            )
    return scored[0].reward if scored else None


def _check_continues(call: _Call, following: _Call) -> None:
    """Raise unless the request of a call begins with the conversation of the call before."""
    for place, expected in enumerate([*call.messages, call.answer]):
        got = following.messages[place] if place < len(following.messages) else None
        if got is None or _said(got) != _said(expected):
            raise RolloutError(
                f"entry {following.number}: its request doesn't continue the conversation of entry "
                f"{call.number}: messages[{place}] must be {shown(_said(expected))}, got "
                f"{'no message' if got is None else shown(_said(got))}. Calls of another "
                "conversation need another metadata.harness_session_id, or a trace of their own"
            )


def _said(message: Message) -> tuple[Any, ...]:
    """What two forms of the same message have in common."""
    content = text_or_parts(message.content) or ""
    text = content.strip() if isinstance(content, str) else content
    calls = []
    for call in message.tool_calls or ():
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        calls.append((function.get("name"), _arguments(function.get("arguments"))))
    return (message.role, text, calls) if calls else (message.role, text)


def _arguments(given: Any) -> Any:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


# Writing -----------------------------------------------------------------------------------------


def to_trace_entries(rollout: Rollout) -> list[dict[str, Any]]:
    """Write a rollout as OpenEnv's ``TraceEntry`` list: one entry for each played turn.

    Each entry has the reward of the rollout, from its column ``reward``: None if it has none, which
    means "unscored". ``metadata["guerdon"]`` of the first entry has what OpenEnv has no field for:
    the other columns, and the messages after the last turn. `read_openenv_trace` is the inverse.

    Example:
        >>> from guerdon import Rollout
        >>> from guerdon.rollouts import to_trace_entries
        >>> rollout = Rollout.from_row({"messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> [entry] = to_trace_entries(rollout)
        >>> entry["response"]["choices"][0]["message"]["content"], entry["reward"]
        ('42', None)

    Args:
        rollout: The rollout. Its columns ``tools``, ``turn_tokens`` and ``call_metadata`` are used
            as `read_openenv_trace` returns them; a call without metadata gets a ``node_id``.

    Raises:
        InvalidArgumentError: `call_metadata` hasn't one entry for each turn.
    """
    messages = [message.to_openai() for message in rollout.messages]
    tools, reward = tools_of(rollout), as_finite(rollout.columns.get("reward"))
    entries: list[dict[str, Any]] = []
    columns = zip(by_turn(rollout, CALL_METADATA), by_turn(rollout, TURN_TOKENS), strict=True)
    for (action, _), (known, tokens) in zip(rollout.steps, columns, strict=True):
        metadata = {"node_id": f"turn-{action.turn}"} | known
        reason = metadata.get("finish_reason")
        if not entries:
            metadata[OWN] = _beside(rollout)
        written = {
            key: tokens[name] for key, name in TOKENS.items() if tokens.get(name) is not None
        }
        answer = {"message": messages[action.place], "finish_reason": reason}
        entries.append(
            {
                "request": {"messages": messages[: action.place], "tools": tools},
                "response": {"choices": [answer]},
                **written,
                "reward": reward,
                "metadata": metadata,
            }
        )
    return entries


def _beside(rollout: Rollout) -> dict[str, Any]:
    known = ("messages", TURN_TOKENS, CALL_METADATA)
    after = rollout.messages[rollout.steps[-1][0].place + 1 :]
    return {
        "columns": other_columns(rollout, known),
        "last_messages": [message.to_openai() for message in after],
    }


def to_training_trace(rollout: Rollout) -> dict[str, Any]:
    """Write a rollout as OpenEnv's ``TrainingTrace``, for ``TrainingTrace.model_validate``.

    A ``TrainingTrace`` has no reward: it is among the columns in ``metadata["guerdon"]`` of the
    first turn. `read_openenv_trace` is the inverse.

    Example:
        >>> from guerdon import Rollout
        >>> from guerdon.rollouts import to_training_trace
        >>> tokens = {"prompt_token_ids": [1, 2], "completion_token_ids": [7], "logprobs": [-0.5],
        ...           "loss_mask": [0, 0, 1]}
        >>> rollout = Rollout.from_row({"turn_tokens": [tokens], "messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> to_training_trace(rollout)["turns"][0]["per_token_logps"]
        [-0.5]

    Args:
        rollout: The rollout; see `to_trace_entries`.

    Raises:
        InvalidArgumentError: A turn lacks tokens, log-probabilities or a loss mask: a training
            trace requires all, and none can be inferred.
    """
    turns = []
    for entry, (action, _) in zip(to_trace_entries(rollout), rollout.steps, strict=True):
        missing = [name for name in TOKENS if name not in entry]
        if missing:
            raise InvalidArgumentError(
                f"turn {action.turn} has no {missing[0]!r}: a TrainingTrace requires the tokens, "
                "log-probabilities and loss mask of each turn; to_trace_entries doesn't"
            )
        del entry["reward"]
        turns.append({"node_id": str(entry["metadata"]["node_id"]), **entry})
    return {"schema_version": 1, "turns": turns}
