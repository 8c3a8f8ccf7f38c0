"""Conversations in the formats of other models and libraries, read as OpenAI's chat format."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from guerdon._validation import shown
from guerdon.types.content import (
    is_reasoning_part,
    is_text_part,
    joined_text,
    reasoning_of,
    text_or_parts,
)
from guerdon.types.reasoning import split_reasoning

# The ends of the types of parts with a call or its result, or the keys that contain one.
CALLS = ("tool_use", "toolUse", "tool_call", "tool-call", "function_call", "functionCall")
GEMINI = ("function_response", "functionResponse")
RESULTS = ("tool_result", "toolResult", "tool-result", "call_output", *GEMINI)
INNER = ("function", "custom", *CALLS, *RESULTS)
# The types, or keys, of parts that are no calls, beside those of text.
DATA = re.compile(
    r"refusal|(?:input_|output_)?(?:image|audio|video|file|document)(?:_url)?|citation\w*|cachePoint"
    r"|(?:inline|file)(?:_d|D)ata|source-\w+|step-start|container_upload"
)
# The names of a message's fields with calls that aren't read.
FIELDS = re.compile(r"(?i)(?:invalid_)?(?:tool|function)_?(?:call|use|invocation)s?")
# The roles of Gemini, OpenAI's older format and Llama.
ROLES = {"model": "assistant", "function": "tool", "ipython": "tool"}
# The names of the fields in calls and results, in the order in which they are looked up.
IDS = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "toolUseId", "id")
NAMES = ("name", "toolName")
ARGUMENTS = ("arguments", "args", "input", "parameters")
OUTPUTS = ("content", "output", "result", "response", "value", "error")
FAILED = ("is_error", "isError")
KNOWN = {*IDS, *NAMES, *ARGUMENTS, *OUTPUTS, *FAILED, *INNER, "type", "status"}

# Calls and results in texts. Mistral's mark is read as Hermes', so that a pattern for both begins
# with a literal character, which `re` finds a hundred times faster. Marks in backquotes are none.
MISTRAL, HERMES, LLAMA = "[TOOL_CALLS]", "<tool_call>", "<|python_tag|>"
CALL_MARK = re.compile(r"<(?<!`<)(?:tool_call>|\|python_tag\|>)")
CALL_END = re.compile(r"</tool_call>|\[/TOOL_CALLS\]|</s>|<\|(?:eom_id|eot_id|im_end)\|>")
MISTRAL_MARKS = re.compile(r"\[CALL_ID\]\w+|\[ARGS\]")
PARAMETER = re.compile(
    r"<(?:parameter=|arg_key>)([^<>]+)(?:>\n?|</arg_key>\s*<arg_value>)(.*?)"
    r"\n?</(?:parameter|arg_value)>",
    re.DOTALL,
)
RESPONSE = re.compile(r"<tool_response>(.*?)(?:</tool_response>|\Z)", re.DOTALL)
# Also the marks of formats that aren't read.
ANY_MARK = re.compile(
    r"<(?<!`<)(?:[|｜]?(?:start_|\w+:)?(?:tool|function)[_▁]?(?:call|use>|code>)|\|python_tag\|>"
    r"|tool>|TOOLCALL>|\w+_tool_call>|search>|function=|(?:\w+:)?invoke name=|｜DSML｜"
    r"|\|(?:channel|start)\|>\w+ to=|\|(?:action_start|plugin|START_ACTION)\|>)"
)
LABELS = re.compile(r"\nAction Input:|```tool_code\b|\nAction: ?```json")
# The beginnings of answers that are calls as a whole.
BARE_CALL = re.compile(
    r"\A\s*(?:functools\[|\[[A-Za-z_][\w.]*\(\w+=|"
    r'\[?\s*\{\s*"name":\s*"[\w.-]+",\s*"(?:parameters|arguments)":\s*\{)'
)


def is_openai(messages: Iterable[Any]) -> bool:
    """Whether the calls of a conversation are in OpenAI's format; most are.

    It is asked for each conversation that is read, so it looks at no more than it must.

    Raises:
        LookupError | TypeError: A message is none.
    """
    for message in messages:
        role = message["role"]
        if role == "assistant":
            if message.get("function_call") is not None:
                return False
            if calls := message.get("tool_calls"):
                for call in calls:
                    if "arguments" not in call["function"]:
                        return False
            else:
                text = message["content"]
                if type(text) is not str or ("_" in text and _has_mark(text)):
                    return False
        elif role == "function" or (role == "user" and type(message["content"]) is not str):
            return False
    return True


def _has_mark(text: str) -> bool:
    return HERMES in text or MISTRAL in text or LLAMA in text


# Calls --------------------------------------------------------------------------------------------


def is_openai_call(call: Any) -> bool:
    """Whether a call is ``{"function": {"name": …, "arguments": …}, …}``."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or type(function.get("name")) is not str:
        return False
    return "arguments" in function or function.keys().isdisjoint(ARGUMENTS)


def openai_call(call: Any) -> Any:
    """Return a call in OpenAI's format, or unchanged if it isn't recognised.

    Example:
        >>> from guerdon.types.message_formats import openai_call
        >>> openai_call({"type": "tool_use", "id": "1", "name": "look", "input": {"at": "door"}})
        {'id': '1', 'type': 'function', 'function': {'name': 'look', 'arguments': '{"at": "door"}'}}
    """
    if is_openai_call(call) or not isinstance(call, Mapping):
        return call
    fields, id = _fields(call)
    name, arguments = _first(fields, NAMES), _first(fields, ARGUMENTS)
    if not isinstance(name, str) or not isinstance(arguments, str | Mapping | None):
        return call
    if "custom" in str(call.get("type")) and isinstance(arguments, str):  # not JSON
        arguments = {"input": arguments}
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False, default=str)
    function = {"name": name, "arguments": arguments or "{}"}
    return id | {"type": "function", "function": function} | _others(call)


def _fields(part: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The fields of a call or a result, which may be in one of them, and its ID as a field."""
    inner = _first(part, INNER)
    fields = inner if isinstance(inner, Mapping) else part
    id = _first(fields, IDS) or _first(part, IDS)
    return fields, {} if id is None else {"id": id}


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _others(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in KNOWN}


def calls_of_text(text: str) -> list[Any]:
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


def _calls_of(text: str) -> list[Any]:
    if text.startswith("<function=") or re.match(r"[\w.-]+\s*(?:<arg_key>|\Z)", text):
        # of Qwen3-Coder and of GLM
        name = re.split("[<>]", text.removeprefix("<function="))[0]
        value: Any = {key: _value(argument) for key, argument in PARAMETER.findall(text)}
    else:
        text = MISTRAL_MARKS.sub("", text)
        name = re.split(r"[{\[]", text, maxsplit=1)[0]
        value = _value(text.removeprefix(name))
    name, values = name.strip(), value if isinstance(value, list) else [value]
    if values and all(isinstance(fields, Mapping) for fields in values):
        calls = [
            openai_call({"name": name, "arguments": fields} if name else fields)
            for fields in values
        ]
        if all(map(is_openai_call, calls)):
            return calls
    named = re.search(r"""["']name["']\s*:\s*["']([^"']+)""", text)
    return [openai_call({"name": named[1] if named else "", "arguments": text or "?"})]


def _value(text: str) -> Any:
    """The value of JSON or of Python in a text, else the text."""
    for read in (partial(json.loads, strict=False), ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(text)
    return text


# Messages -----------------------------------------------------------------------------------------


def openai_messages(messages: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the messages of a conversation in OpenAI's format, with the index of what they were.

    Calls become ``tool_calls`` of the assistant's message, and each of their results a message of
    the role ``tool``. The text of a call stays in the content. Whatever isn't recognised stays as
    it is.

    Args:
        messages: Messages, or items of OpenAI's Responses API, in any of the formats.

    Example:
        >>> from guerdon.types.message_formats import openai_messages
        >>> result = {"type": "tool_result", "tool_use_id": "1", "content": "a door"}
        >>> list(openai_messages([{"role": "user", "content": [result]}]))
        [(0, {'role': 'tool', 'content': 'a door', 'tool_call_id': '1'})]
    """
    waiting: list[Any] = []  # the calls of the last turn without a result
    for index, message in _turns(messages):
        parts = _split(message, waiting) if isinstance(message, Mapping) else [message]
        yield from ((index, part) for part in parts)


def _turns(items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield messages as dicts; the items of one turn of the Responses API as one message."""
    turn: list[Any] = []
    start = 0
    for index, item in enumerate(items):
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
    names = (part.get("type"), *part)
    return any(isinstance(name, str) and name.endswith(kinds) for name in names)


def _split(original: Mapping[str, Any], waiting: list[Any]) -> list[dict[str, Any]]:
    """Return a message without the calls and results in its content, and a message for each result.

    Args:
        original: The message.
        waiting: The calls of the last turn that have no result; it is updated.
    """
    message, role = _renamed(original)
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    calls = [openai_call(part) for part in parts if _is_of(CALLS, part)]
    results = [_result(part) for part in parts if _is_of(RESULTS, part)]
    if results or any(map(is_openai_call, calls)):
        unread = [call for call in calls if not is_openai_call(call)]
        others = [part for part in parts if not _is_of((*CALLS, *RESULTS), part)]
        message["content"] = others + unread or None
    if role == "assistant":
        _add_calls(message, list(filter(is_openai_call, calls)))
        made = message.get("tool_calls")
        waiting[:] = filter(is_openai_call, made if isinstance(made, list) else ())
    elif waiting and isinstance(content, str) and "<tool_response>" in content:
        results = [_result_of_text(text.strip()) for text in RESPONSE.findall(content)]
        message["content"] = RESPONSE.sub("", content).strip()
    elif role == "tool" and not results:
        results, message = [message], {}
    for result in results:
        _find_call(result, waiting)
    if results and role != "assistant" and not message.get("content"):
        extra = {name: value for name, value in message.items() if name not in ("role", "content")}
        return [extra | results[0], *results[1:]]
    return [message, *results] if role == "assistant" else [*results, message]


def _renamed(original: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """A message, and its role, as OpenAI's chat format names it."""
    message = dict(original)
    if "role" not in message and _is_of(RESULTS, message):  # of the Responses API
        message = {"role": "tool", "content": [message]}
    if message.get("type") == "message":  # of that, too
        del message["type"]
    if "content" not in message and "parts" in message:  # of Gemini
        message["content"] = message.pop("parts")
    role = message.get("role")
    if isinstance(role, str) and role in ROLES:
        message["role"] = role = ROLES[role]
    return message, role


def _add_calls(message: dict[str, Any], calls: list[Any]) -> None:
    """Add the calls in the content, or in the text, of an assistant's message to its own."""
    own = message.get("tool_calls") or []
    if not isinstance(own, list):
        return  # which is refused
    own = [openai_call(call) for call in own]
    function_call = openai_call(message.get("function_call"))
    if is_openai_call(function_call):
        del message["function_call"]
        calls = [*calls, function_call]
    if own:  # a call may be in the content, too
        known = [None, *(call.get("id") for call in own if isinstance(call, Mapping))]
        calls = [call for call in calls if call.get("id") not in known]
    content = message.get("content")
    if not own and not calls and isinstance(content, str | list):
        calls = calls_of_text(joined_text(content))
    if own or calls:
        message["tool_calls"] = own + calls


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message for the result of a call."""
    fields, id = _fields(part)
    content, name = _first(fields, OUTPUTS), _first(fields, NAMES)
    failed = fields.get("status") == "error" or any(fields.get(key) is True for key in FAILED)
    if isinstance(content, Mapping) and len(content.keys() - {"type"}) == 1:
        failed = failed or "error" in content or "error" in str(content.get("type"))
        content = _first(content, OUTPUTS) or content
    are_parts = isinstance(content, list) and all(isinstance(part, Mapping) for part in content)
    if not are_parts and not isinstance(content, str | None):
        content = json.dumps(content, ensure_ascii=False, default=str)
    message = {"role": "tool", "content": content or ""} | _others(part)
    optional = {"tool_call_id": id.get("id"), "name": name, "is_error": failed or None}
    return message | {key: value for key, value in optional.items() if value is not None}


def _result_of_text(text: str) -> dict[str, Any]:
    value = _value(text)
    if isinstance(value, Mapping) and {"content"} <= value.keys() <= {"content", "name", *IDS}:
        return _result(value)
    return {"role": "tool", "content": text}


def _find_call(result: dict[str, Any], waiting: list[Any]) -> None:
    """Remove the call of a result from those that wait, and let the result have its ID."""
    id, name = _first(result, IDS[:-1]), result.get("name")
    if id is not None:
        calls = [call for call in waiting if call.get("id") == id]
    else:
        calls = [call for call in waiting if call["function"]["name"] == name] or waiting[:1]
    for call in calls[:1]:
        waiting.remove(call)
        id = call.get("id")
    if id is not None:
        result["tool_call_id"] = id


# What isn't read ----------------------------------------------------------------------------------


def unread_call(
    content: Any, calls: Any = (), others: Mapping[str, Any] | None = None
) -> str | None:
    """Describe what is or may be a call of an assistant's message in none of the formats.

    Args:
        content: The content of the message.
        calls: Its ``tool_calls``.
        others: Its fields that OpenAI's format doesn't have.

    Example:
        >>> from guerdon.types.message_formats import unread_call
        >>> unread_call("<function=look></function>")
        "a tool call in a format that isn't read: '<function='"
        >>> unread_call(None, [{"id": "1"}])
        "a tool call in a format that isn't read: {'id': '1'}"
    """
    unread = [call for call in calls or () if not is_openai_call(call)]
    for name, value in (others or {}).items():
        if value and FIELDS.fullmatch(name):
            unread.append(value)
    if isinstance(content, list):
        unread += [part for part in content if not _is_data(part)]
    if not unread and not calls:
        text = split_reasoning(joined_text(content).replace(MISTRAL, HERMES))[1]
        unread += BARE_CALL.findall(text) or ANY_MARK.findall(text) or LABELS.findall(text)
    return f"a tool call in a format that isn't read: {shown(unread[0])}" if unread else None


def _is_data(part: Any) -> bool:
    """Whether a part of a content is known to be no call."""
    if is_text_part(part) or is_reasoning_part(part) or _is_of(RESULTS, part):
        return True
    names = [part["type"]] if part.get("type") else part
    return any(DATA.fullmatch(str(name)) for name in names)
