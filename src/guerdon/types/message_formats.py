"""Conversations in the formats of other models and libraries, read as OpenAI's chat format."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from guerdon._validation import shown
from guerdon.types.content import (
    TEXT_TYPES,
    is_reasoning_part,
    joined_text,
    reasoning_of,
    text_or_parts,
)
from guerdon.types.reasoning import split_reasoning

# The types of parts with a call or its result, or the keys that contain one; the end of a type.
CALLS = ("tool_use", "toolUse", "tool_call", "tool-call", "function_call", "functionCall")
RESULTS = (
    *("tool_result", "toolResult", "tool-result", "call_output"),
    *("functionResponse", "function_response"),
)
# The roles of Gemini, OpenAI's older format and Llama.
ROLES = {"model": "assistant", "function": "tool", "ipython": "tool"}
# The names of the fields in calls and results, in the order in which they are looked up.
IDS = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "toolUseId", "id")
NAMES = ("name", "toolName")
ARGUMENTS = ("arguments", "args", "input", "parameters")
OUTPUTS = ("content", "output", "result", "response")
FAILED = ("is_error", "isError")

# Calls and results in texts. Mistral's mark is read as Hermes', so that a pattern for both begins
# with a literal character, which `re` finds a hundred times faster. Marks in backquotes are none.
MISTRAL, HERMES = "[TOOL_CALLS]", "<tool_call>"
CALL_MARK = re.compile(r"<(?<!`<)(?:tool_call>|\|python_tag\|>)")
CALL_END = re.compile(r"</tool_call>|\[/TOOL_CALLS\]|</s>|<\|(?:eom_id|eot_id|im_end)\|>")
SEPARATOR = re.compile(r"[\s;,]*")
RESPONSE = re.compile(r"<tool_response>(.*?)(?:</tool_response>|\Z)", re.DOTALL)
# Also the marks of formats that aren't read.
ANY_MARK = re.compile(
    r"<(?<!`<)(?:tool_call>|\|python_tag\|>|function=|function_calls>|invoke name=|\|tool_call"
    r"|｜tool▁call|\|channel\|>commentary to=|\|action_start\|>|\|plugin\|>)"
)

_decode = json.JSONDecoder().raw_decode


def is_openai(messages: Iterable[Any]) -> bool:
    """Whether the calls of a conversation are in OpenAI's format; most are.

    It is asked for each conversation that is read, so it looks at no more than it must: at the
    messages of assistants, since there is no result without a call.

    Raises:
        LookupError | TypeError: A message is none.
    """
    for message in messages:
        role = message["role"]
        if role == "assistant":
            if "function_call" in message and message["function_call"] is not None:
                return False
            calls = message.get("tool_calls")
            if calls:
                for call in calls:
                    if "function" not in call:
                        return False
            else:
                text = message["content"]
                if type(text) is not str or ("_" in text and _is_marked(text)):
                    return False
        elif role == "function":
            return False
    return True


def _is_marked(text: str) -> bool:
    return HERMES in text or MISTRAL in text or "<|python_tag|>" in text


# Calls --------------------------------------------------------------------------------------------


def is_openai_call(call: Any) -> bool:
    """Whether a call is ``{"function": {"name": …, "arguments": …}, …}``."""
    function = call.get("function") if isinstance(call, dict) else None
    if type(function) is not dict or type(function.get("name")) is not str:
        return False
    return "arguments" in function or function.keys().isdisjoint(ARGUMENTS)


def openai_calls(calls: list[Any]) -> list[Any]:
    """Return calls in OpenAI's format; those that aren't recognised as they are."""
    if all(map(is_openai_call, calls)):
        return calls
    return [openai_call(call) or call for call in calls]


def openai_call(call: Any) -> dict[str, Any] | None:
    """Return a call in OpenAI's format; None if it isn't recognised.

    Example:
        >>> from guerdon.types.message_formats import openai_call
        >>> openai_call({"type": "tool_use", "id": "1", "name": "look", "input": {"at": "door"}})
        {'id': '1', 'type': 'function', 'function': {'name': 'look', 'arguments': '{"at": "door"}'}}
    """
    if not isinstance(call, Mapping):
        return None
    if is_openai_call(call):
        return dict(call)
    fields = _fields(call, ("function", *CALLS))
    name, arguments = _first(fields, NAMES), _first(fields, ARGUMENTS)
    if isinstance(call.get("function"), str):
        name = call["function"]
    if not isinstance(name, str) or not isinstance(arguments, str | Mapping | None):
        return None
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False, default=str)
    id = _first(fields, IDS) or _first(call, IDS)
    made = {} if id is None else {"id": id}
    made |= {"type": "function", "function": {"name": name, "arguments": arguments or "{}"}}
    return made | _others(call, (*IDS, *NAMES, *ARGUMENTS, *CALLS, "type", "function"))


def _fields(part: Mapping[str, Any], keys: Iterable[str]) -> Mapping[str, Any]:
    """The fields of a call or a result: those of a part, or of the value of one of the keys."""
    inner = _first(part, keys)
    return inner if isinstance(inner, Mapping) else part


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _others(fields: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    known = set(known)
    return {name: value for name, value in fields.items() if name not in known}


def calls_of_text(text: str) -> list[dict[str, Any]]:
    r"""Return the calls that a model has written as text, in the formats of Hermes, Mistral, Llama.

    A call that can't be read is one whose arguments are its text.

    Example:
        >>> from guerdon.types.message_formats import calls_of_text
        >>> text = '<think>…</think><tool_call>{"name": "look", "arguments": {}}</tool_call>'
        >>> calls_of_text(text)
        [{'type': 'function', 'function': {'name': 'look', 'arguments': '{}'}}]
    """
    pieces = CALL_MARK.split(split_reasoning(text)[1].replace(MISTRAL, HERMES))[1:]
    return [call for piece in pieces for call in _calls_of(CALL_END.split(piece)[0].strip())]


def _calls_of(text: str) -> list[dict[str, Any]]:
    if text.startswith("<function="):  # of Qwen3-Coder
        name, _, rest = text.removeprefix("<function=").partition(">")
        found = re.findall(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", rest, re.DOTALL)
        values = [{"name": name.strip(), "arguments": {key: _value(one) for key, one in found}}]
    else:
        name, values = _name_and_values(text)
        if name:
            values = [{"name": name, "arguments": each} for each in values]
    calls = [openai_call(each) for each in values]
    if calls and None not in calls:
        return calls
    named = re.search(r"""["']name["']\s*:\s*["']([^"']+)""", text)
    return [openai_call({"name": named[1] if named else "", "arguments": text or "?"})]


def _name_and_values(text: str) -> tuple[str, list[Any]]:
    """Return the name before values of JSON, and the values, those of a list one by one."""
    name = re.match(r"[^{\[]*", text.replace("[ARGS]", ""))[0]
    start, values = text.find("[ARGS]") + len("[ARGS]") if "[ARGS]" in text else len(name), []
    while start < len(text):
        try:
            value, start = _decode(text, start)
        except (ValueError, RecursionError):
            value, start = _value(text[start:]), len(text)
        values += value if isinstance(value, list) else [value]
        start = SEPARATOR.match(text, start).end()
    return name.strip(), values


def _value(text: str) -> Any:
    """The value of JSON or of Python in a text, else the text."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            pass
    return text


# Messages -----------------------------------------------------------------------------------------


def openai_messages(given: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the messages of a conversation in OpenAI's format, with the index of what they were.

    Calls become ``tool_calls`` of the assistant's message, and each of their results a message of
    the role ``tool``. The text of a call stays in the content. Whatever isn't recognised stays as
    it is.

    Args:
        given: Messages, or items of OpenAI's Responses API, in any of the formats.

    Example:
        >>> from guerdon.types.message_formats import openai_messages
        >>> result = {"type": "tool_result", "tool_use_id": "1", "content": "a door"}
        >>> list(openai_messages([{"role": "user", "content": [result]}]))
        [(0, {'role': 'tool', 'tool_call_id': '1', 'content': 'a door'})]
    """
    waiting: list[Any] = []  # the calls of the last turn without a result
    for index, message in _turns(given):
        for each in _split(message, waiting) if isinstance(message, dict) else [message]:
            yield index, each


def _turns(given: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield messages as dicts; the items of one turn of the Responses API as one message."""
    turn: list[Any] = []
    start = 0
    for index, item in enumerate(given):
        message = item.to_openai() if hasattr(item, "to_openai") else item
        parts = _parts_of_item(message) if isinstance(message, Mapping) else []
        if turn and not (parts and (_is_of(CALLS, parts[0]) or not joined_text(turn))):
            yield start, _message_of(turn)
            turn = []
        if not parts:
            yield index, message
        elif not turn:
            start = index
        turn += parts
    if turn:
        yield start, _message_of(turn)


def _parts_of_item(item: Mapping[str, Any]) -> list[Any]:
    """The parts of the assistant's message that an item of the Responses API belongs to."""
    if "role" not in item:
        return [item] if _is_of(CALLS, item) or is_reasoning_part(item) else []
    if item["role"] != "assistant" or item.get("type") != "message":
        return []
    content = item.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _message_of(turn: list[Any]) -> dict[str, Any]:
    calls = [part for part in turn if _is_of(CALLS, part)]
    content = text_or_parts([part for part in turn if not _is_of(CALLS, part)])
    message = {"role": "assistant", "content": content or None}
    if reasoning := reasoning_of(turn):
        message["reasoning_content"] = reasoning
    return message | ({"tool_calls": calls} if calls else {})


def _is_of(kinds: tuple[str, ...], part: Any) -> bool:
    """Whether a part is of one of the types, or contains it under its name."""
    if not isinstance(part, Mapping):
        return False
    return str(part.get("type", "")).endswith(kinds) or not part.keys().isdisjoint(kinds)


def _split(given: Mapping[str, Any], waiting: list[Any]) -> list[dict[str, Any]]:
    """Return a message without the calls and results in its content, and a message for each result.

    Args:
        given: The message.
        waiting: The calls of the last turn that have no result; it is updated.
    """
    message = _renamed(given)
    content, role = message.get("content"), message.get("role")
    parts = content if isinstance(content, list) else []
    calls = [openai_call(part) for part in parts if _is_of(CALLS, part)]
    results = [_result(part) for part in parts if _is_of(RESULTS, part)]
    if parts:
        rest = [_openai_part(part) for part in parts if not _is_of(RESULTS, part)]
        rest = [part for part in rest if openai_call(part) is None or not _is_of(CALLS, part)]
        message["content"] = rest if rest or not (calls or results) else None
    if role == "assistant":
        _add_calls(message, [call for call in calls if call is not None])
        made = message.get("tool_calls")
        waiting[:] = made if isinstance(made, list) else ()
    elif waiting and isinstance(content, str) and "<tool_response>" in content:
        results = [_result_of_text(each.strip()) for each in RESPONSE.findall(content)]
        message["content"] = RESPONSE.sub("", content).strip()
    elif role == "tool" and not results:
        results, message["content"] = [dict(message)], None
    for result in results:
        _find_call(result, waiting)
    if role == "assistant":
        return [message, *results]
    if results and not message["content"]:
        results[0] = _others(message, ("role", "content")) | results[0]
        return results
    return [*results, message]


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """A message with OpenAI's roles and names of fields."""
    if "role" not in given and _is_of(RESULTS, given):  # of the Responses API
        return {"role": "tool", "content": [given]}
    message = dict(given)
    role = message.get("role")
    if isinstance(role, str):
        message["role"] = ROLES.get(role, role)
    if "content" not in message and isinstance(message.get("parts"), list):
        message["content"] = message.pop("parts")
    return message


def _openai_part(part: Any) -> Any:
    is_text = isinstance(part, Mapping) and part.get("type") in TEXT_TYPES
    return {**part, "type": "text"} if is_text else part


def _add_calls(message: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    """Add the calls in the content, or in the text, of an assistant's message to its own."""
    own = message.get("tool_calls") or []
    if not isinstance(own, list):
        return  # which is refused
    own = openai_calls(own)
    function_call = openai_call(message.get("function_call"))
    if function_call is not None:
        del message["function_call"]
        calls.append(function_call)
    known = [call.get("id") for call in own if isinstance(call, Mapping)]
    if known:  # a call may be in the content, too
        known.append(None)
    calls = own + [call for call in calls if call.get("id") not in known]
    content = message.get("content")
    if not calls and isinstance(content, str | list):
        calls = calls_of_text(joined_text(content))
    if calls:
        message["tool_calls"] = calls


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message for the result of a call."""
    fields = _fields(part, RESULTS)
    content, id, name = (_first(fields, names) for names in (OUTPUTS, IDS[:-1], NAMES))
    failed = fields.get("status") == "error" or any(fields.get(key) is True for key in FAILED)
    if isinstance(content, Mapping) and (content.keys() == {"type", "value"} or len(content) == 1):
        failed = failed or str(content.get("type", "")).startswith("error") or "error" in content
        content = _first(content, ("value", *OUTPUTS, "error")) or content
    if not isinstance(content, str) and not _are_parts(content):
        content = "" if content is None else json.dumps(content, ensure_ascii=False, default=str)
    known = {"tool_call_id": id, "name": name, "content": content, "is_error": failed or None}
    message = {"role": "tool"} | {key: each for key, each in known.items() if each is not None}
    others = (*IDS, *NAMES, *OUTPUTS, *FAILED, *RESULTS, "type", "status")
    return message | _others(part, others)


def _are_parts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, Mapping) and ("type" in part or "text" in part) for part in content
    )


def _result_of_text(text: str) -> dict[str, Any]:
    value = _value(text)
    if isinstance(value, Mapping) and {"content"} <= value.keys() <= {"content", "name", *IDS}:
        return _result(value)
    return {"role": "tool", "content": text}


def _find_call(result: dict[str, Any], waiting: list[Any]) -> None:
    """Remove the call of a result from those that wait, and let the result have its id."""
    id, name = _first(result, IDS[:-1]), result.get("name")
    calls = list(filter(is_openai_call, waiting))
    if id is not None:
        found = [call for call in calls if call.get("id") == id]
        result.setdefault("tool_call_id", id)
    else:
        found = [call for call in calls if call["function"].get("name") == name] or calls
    if found:
        waiting.remove(found[0])
        if id is None and "id" in found[0]:
            result["tool_call_id"] = found[0]["id"]


# What isn't read ----------------------------------------------------------------------------------


def unread_call(content: Any, calls: Iterable[Any], function_call: Any = None) -> str | None:
    """Describe a call of an assistant's message that is in none of the formats that are read.

    Example:
        >>> from guerdon.types.message_formats import unread_call
        >>> unread_call("<function=look></function>", [])
        "a tool call in a format that isn't read: '<function='"
        >>> unread_call(None, [{"id": "1"}])
        "a tool call in a format that isn't read: {'id': '1'}"
    """
    parts = content if isinstance(content, list) else ()
    unread = [call for call in calls if not is_openai_call(call)]
    unread += [part for part in parts if _is_of(CALLS, part)]
    unread += [] if function_call is None else [function_call]
    if not unread and not calls:
        text = joined_text(content).replace(MISTRAL, HERMES)
        if ANY_MARK.search(text):
            unread += ANY_MARK.findall(split_reasoning(text)[1])
    return f"a tool call in a format that isn't read: {shown(unread[0])}" if unread else None
