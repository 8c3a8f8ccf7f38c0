"""ATIF, Harbor's Agent Trajectory Interchange Format, read and written.

The fields are those of ATIF v1.0 to v1.8: a document is one trajectory of an agent, whose steps are
those of the system, the user and the agent. The answers of tools are on the step that called them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from guerdon._validation import shown
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
from guerdon.rollouts.json_forms import parse_json
from guerdon.types.content import is_text_part
from guerdon.types.rollout import Rollout
from guerdon.types.turn_tokens import TURN_TOKENS

__all__ = ["read_atif", "to_atif"]

# The column, and the key of messages and tool calls, with the fields that only ATIF has.
ATIF = "atif"

# What a document needs that a rollout doesn't have.
DEFAULTS: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "unknown", "version": "unknown"},
}

SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
TOKENS = ("prompt_token_ids", "completion_token_ids", "logprobs")

Extra: TypeAlias = dict[str, Any] | None
Content: TypeAlias = str | list[dict[str, Any]]


class _Part(BaseModel):
    """A part of a document; fields of other versions are kept."""

    model_config = ConfigDict(strict=True, extra="allow")

    extra: Extra = None


class _Call(_Part):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class _Result(_Part):
    source_call_id: str | None = None
    content: Content | None = None


class _Observation(_Part):
    results: list[_Result]


class _Metrics(_Part):
    """The token ids are checked as `TurnTokens`."""


class _Step(_Part):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: Content
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    is_copied_context: bool | None = None


class _Agent(_Part):
    name: str
    version: str
    tool_definitions: list[dict[str, Any]] | None = None


class _Trajectory(_Part):
    schema_version: Annotated[str, Field(pattern=r"^ATIF-v1\.\d+$")] | None = None
    agent: _Agent
    steps: Annotated[list[_Step], Field(min_length=1)]
    session_id: str | None = None
    trajectory_id: str | None = None


_trajectory = TypeAdapter(_Trajectory)


# Reading -----------------------------------------------------------------------------------------


def read_atif(document: Any) -> Rollout:
    """Read the rollout of an ATIF document.

    Each step is a message, and each agent step an assistant turn: turn 0 is the first of them. The
    results of its observation follow as messages of the role ``tool``, those that name no call
    without a ``tool_call_id``. The first agent steps that are ``is_copied_context`` are examples,
    which the agent didn't play (``first_turn``). Trajectories of subagents are not read: they are
    other conversations.

    The columns of the rollout are ``id`` (``trajectory_id``, or ``session_id``), ``tools`` (the
    definitions of the agent's tools), ``turn_tokens`` (from the metrics; see `TurnTokens`),
    ``reward`` (None if the rollout is unscored), those that `to_atif` wrote, and ``atif``, the
    other fields of the document. Other fields of a step, a result or a tool call, such as
    ``timestamp`` and ``metrics``, are in the key ``atif`` of their message or call. Content parts
    are kept as they are. Null fields are dropped.

    Example:
        >>> from guerdon.rollouts import read_atif
        >>> rollout = read_atif({"agent": {"name": "a", "version": "1"}, "steps": [
        ...     {"step_id": 1, "source": "user", "message": "2 + 3?"},
        ...     {"step_id": 2, "source": "agent", "message": "5",
        ...      "metrics": {"completion_token_ids": [20], "logprobs": [-0.1]}}]})
        >>> [step] = rollout.to_step_data()
        >>> step.raw_policy_output, step.policy_logprobs, rollout.columns["reward"]
        ('5', [-0.1], None)

    Args:
        document: The document as a dict or a pydantic model.

    Raises:
        RolloutError: The document isn't valid; the message has the ``step_id``.
    """
    return Rollout.from_row(_row(as_dict(document)))


def atif_rows(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the row of a document, or those of a list of documents; also of an invalid one."""
    for each in document if isinstance(document, list) else [document]:
        try:
            yield _row(each)
        except RolloutError as error:
            names = each if isinstance(each, dict) else {}
            yield invalid_row(error, id=names.get("trajectory_id") or names.get("session_id"))


def _row(document: Any) -> dict[str, Any]:
    check_document(_trajectory, document)
    root = _known(document)
    own = _take_own(root)
    messages: list[dict[str, Any]] = []
    tokens: list[dict[str, Any] | None] = []
    copied = 0
    for number, given in enumerate(root.pop("steps"), start=1):
        step = _known(given)
        _check_step(step, number)
        is_copied = step["source"] == "agent" and step.pop("is_copied_context", False)
        if is_copied and tokens:
            raise RolloutError(
                f"step_id {number}: an agent step with is_copied_context must be before those "
                "without it"
            )
        copied += is_copied
        if step["source"] == "agent" and not is_copied:
            tokens.append(_take_tokens(step, number))
        messages += _messages(step)
    row = {"id": root.get("trajectory_id") or root.get("session_id")}
    row = _known(row) | own | {"messages": messages, "reward": own.get("reward")}
    agent = _known(root["agent"])
    if "tool_definitions" in agent:
        row["tools"] = agent.pop("tool_definitions")
    if copied:
        row["first_turn"] = copied
    if any(tokens):
        row[TURN_TOKENS] = tokens
    return row | {ATIF: root | {"agent": agent}}


def _known(fields: Any) -> dict[str, Any]:
    """The fields that aren't null: those are absent ones."""
    return {name: each for name, each in fields.items() if each is not None}


def _take_own(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove from ``extra`` what guerdon wrote there, and return it."""
    extra = dict(fields.pop("extra", None) or {})
    own = extra.pop(OWN, {})
    if extra:
        fields["extra"] = extra
    return own if isinstance(own, dict) else {}


def _check_step(step: dict[str, Any], number: int) -> None:
    if step["step_id"] != number:
        raise RolloutError(f"step_id {number}: steps are numbered from 1, got {step['step_id']}")
    wrong = [name for name in AGENT_ONLY if name in step and step["source"] != "agent"]
    if wrong:
        raise RolloutError(
            f"step_id {number}: `{wrong[0]}` belongs to agent steps, not to {step['source']!r}"
        )
    calls = [call["tool_call_id"] for call in step.get("tool_calls", ())]
    for place, result in enumerate(step.get("observation", {}).get("results", ())):
        source = result.get("source_call_id")
        if source is not None and source not in calls:
            raise RolloutError(
                f"step_id {number}: observation.results.{place}.source_call_id must be a call of "
                f"this step, {shown(calls)}, got {shown(source)}"
            )


def _take_tokens(step: dict[str, Any], number: int) -> dict[str, Any] | None:
    """Remove the tokens from the metrics of a step, and return them."""
    metrics = _known(step.pop("metrics", {}))
    mask = _take_own(metrics).get("loss_mask")
    given = {name: metrics.pop(name, None) for name in TOKENS} | {"loss_mask": mask}
    if metrics:
        step["metrics"] = metrics
    return check_tokens(given, place=f"step_id {number}: metrics")


def _messages(step: dict[str, Any]) -> list[dict[str, Any]]:
    """The message of a step, and those of its observation."""
    del step["step_id"]
    role = {"agent": "assistant"}.get(step["source"], step["source"])
    message = {"role": role, "content": step.pop("message")}
    del step["source"]
    results = step.pop("observation", {}).get("results", ())
    if "reasoning_content" in step:
        message["reasoning_content"] = step.pop("reasoning_content")
    if calls := step.pop("tool_calls", None):
        message["tool_calls"] = [_chat_call(_known(call)) for call in calls]
    own = _take_own(step)
    return [_with_others(message, own, step), *(_answer(_known(each)) for each in results)]


def _with_others(
    message: dict[str, Any], own: dict[str, Any], others: dict[str, Any]
) -> dict[str, Any]:
    return message | own | ({ATIF: others} if others else {})


def _answer(result: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "tool", "content": result.pop("content", "")}
    if "source_call_id" in result:
        message["tool_call_id"] = result.pop("source_call_id")
    own = _take_own(result)
    return _with_others(message, own, result)


def _chat_call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call in OpenAI's format."""
    arguments = json.dumps(call.pop("arguments"))
    function = {"name": call.pop("function_name"), "arguments": arguments}
    chat = {"id": call.pop("tool_call_id"), "type": "function", "function": function}
    return _with_others(chat, {}, call)


# Writing -----------------------------------------------------------------------------------------


def to_atif(rollout: Rollout) -> dict[str, Any]:
    """Write a rollout as an ATIF document.

    ATIF has no reward and no loss mask, and its models reject unknown fields. So what it has no
    field for is in ``extra["guerdon"]``: of the document, the columns, with the ``reward``; of a
    step or a result, the fields of the message; of the metrics, the ``loss_mask``. Other readers
    ignore it, and `read_atif` is the inverse. Arguments of tool calls are objects in ATIF: if the
    text of the arguments is written in another way, or isn't a JSON object, the ``tool_calls`` of
    the message are in ``extra``, too.

    Example:
        >>> from guerdon import Rollout
        >>> from guerdon.rollouts import to_atif
        >>> rollout = Rollout.from_row({"id": "q7", "reward": 1.0, "messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> document = to_atif(rollout)
        >>> document["steps"][1]
        {'step_id': 2, 'source': 'agent', 'message': '42'}
        >>> document["extra"]
        {'guerdon': {'id': 'q7', 'reward': 1.0}}

    Args:
        rollout: The rollout. Its columns ``tools``, ``turn_tokens`` and ``atif`` are used as
            `read_atif` returns them; without ``atif`` the name of the agent is ``"unknown"``.

    Raises:
        InvalidArgumentError: A message has no place in ATIF: one of the role ``function``, a tool's
            answer that doesn't follow its call, or a tool call without an id or a name.
    """
    messages = [message.to_openai() for message in rollout.messages]
    played = [action.place for action, _ in rollout.steps]
    tokens = dict(zip(played, by_turn(rollout, TURN_TOKENS), strict=True))
    steps: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            _add_answer(steps, message, place)
            continue
        step = _step(message, place, len(steps) + 1)
        if message["role"] == "assistant" and place < played[0]:
            step["is_copied_context"] = True
        if tokens.get(place):
            step["metrics"] = _metrics(step.get("metrics", {}), tokens[place])
        steps.append(step)
    given = rollout.columns.get(ATIF)
    root = DEFAULTS | (given if isinstance(given, dict) else {})
    if (tools := tools_of(rollout)) is not None:
        root["agent"] = root["agent"] | {"tool_definitions": tools}
    if rollout.id is not None:
        root.setdefault("trajectory_id", str(rollout.id))
    own = other_columns(rollout, ("messages", TURN_TOKENS, ATIF))
    return _with_own(root | {"steps": steps}, own)


def _with_own(fields: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return fields | {"extra": fields.get("extra", {}) | {OWN: own}} if own else fields


def _split(message: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a message, and those of ATIF that were read with it."""
    others = message.get(ATIF)
    if not isinstance(others, dict):
        return dict(message), {}
    return {name: each for name, each in message.items() if name != ATIF}, dict(others)


def _beside(message: dict[str, Any], read: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message that aren't what is read from its step or result."""
    return {name: each for name, each in message.items() if name not in read or read[name] != each}


def _step(given: dict[str, Any], place: int, number: int) -> dict[str, Any]:
    message, others = _split(given)
    if message["role"] not in SOURCES:
        raise InvalidArgumentError(f"messages[{place}]: ATIF has no role {message['role']!r}")
    source = SOURCES[message["role"]]
    step = {"step_id": number, "source": source, "message": _content(message.get("content"))}
    if source == "agent":
        if isinstance(message.get("reasoning_content"), str):
            step["reasoning_content"] = message["reasoning_content"]
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [
                _call(call, f"messages[{place}].tool_calls[{at}]") for at, call in enumerate(calls)
            ]
    [read] = _messages(dict(step))
    return _with_own(others | step, _beside(message, read))


def _content(content: Any) -> Any:
    """The content in ATIF: a text, or the parts that it has a type for."""
    if not isinstance(content, list):
        return content or ""
    parts = [each for each in content if is_text_part(each) or isinstance(each.get("source"), dict)]
    return parts or ""


def _call(given: dict[str, Any], place: str) -> dict[str, Any]:
    call, others = _split(given)
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = function.get("name")
    if not isinstance(call.get("id"), str) or not isinstance(name, str):
        raise InvalidArgumentError(f"{place} must have an id and the name of a function")
    arguments = _values(function.get("arguments"))
    return others | {"tool_call_id": call["id"], "function_name": name, "arguments": arguments}


def _values(arguments: Any) -> dict[str, Any]:
    """The arguments as an object; ``{}`` if they aren't one."""
    try:
        values = parse_json(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _add_answer(steps: list[dict[str, Any]], given: dict[str, Any], place: int) -> None:
    """Add the answer of a tool to the step before, which made the call."""
    message, others = _split(given)
    source = message.get("tool_call_id")
    calls = [call["tool_call_id"] for call in steps[-1].get("tool_calls", ())] if steps else []
    if not steps or (source is not None and source not in calls):
        raise InvalidArgumentError(
            f"messages[{place}] answers the call {source!r}, which the message before doesn't "
            "make; in ATIF the answers of tools follow the step that calls them"
        )
    result = {"content": _content(message.get("content"))}
    if source is not None:
        result["source_call_id"] = source
    result = _with_own(others | result, _beside(message, _answer(dict(result))))
    steps[-1].setdefault("observation", {"results": []})["results"].append(result)


def _metrics(others: dict[str, Any], tokens: dict[str, Any]) -> dict[str, Any]:
    metrics = others | {name: tokens[name] for name in TOKENS if tokens.get(name) is not None}
    mask = tokens.get("loss_mask")
    return _with_own(metrics, {} if mask is None else {"loss_mask": mask})
