"""Tokens, which are bytes and marks of messages and tool calls; prompts; reading of answers."""

from __future__ import annotations

import codecs
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["MessageReader", "prompt_of", "token_text"]

BEGIN, END, CALL, CALL_END = range(256, 260)
MARKS = {BEGIN: "<|im_start|>", END: "<|im_end|>", CALL: "<tool_call>", CALL_END: "</tool_call>"}
TOKENS = 256 + len(MARKS)
NEWLINE = 10

Record = dict[str, Any]


def prompt_of(messages: Sequence[Mapping[str, Any]], tools: Mapping[str, Any]) -> list[int]:
    """Return the tokens of a conversation, up to where the assistant's answer begins.

    The tools are listed at the beginning, with the names of their arguments.

    Example:
        >>> from examples.tiny_model.tokens import prompt_of, token_text
        >>> tools = {"look": {"properties": {"where": {"type": "string"}}}}
        >>> prompt = prompt_of([{"role": "user", "content": "Hi"}], tools)
        >>> print("".join(map(token_text, prompt)))
        <|im_start|>tools
        look(where)<|im_end|>
        <|im_start|>user
        Hi<|im_end|>
        <|im_start|>assistant
        <BLANKLINE>

    Args:
        messages: The conversation, in OpenAI's format.
        tools: The schemas of the tools' arguments by name.
    """
    tokens: list[int] = []
    if tools:
        lines = (f"{name}({', '.join(each.get('properties', ()))})" for name, each in tools.items())
        tokens += _message("tools", "\n".join(lines))
    for message in messages:
        tokens += _message(message["role"], message.get("content"), message.get("tool_calls"))
    return [*tokens, BEGIN, *b"assistant\n"]


def _message(
    role: str, content: Any, calls: Iterable[Mapping[str, Any]] | None = None
) -> list[int]:
    if isinstance(content, list):  # in parts
        content = "".join(part.get("text", "") for part in content)
    tokens = [BEGIN, *_bytes(f"{role}\n{content or ''}")]
    for call in calls or ():
        function = call["function"]
        tokens += [CALL, *_bytes(f"{function['name']}\n{function['arguments']}"), CALL_END]
    return [*tokens, END, NEWLINE]


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def token_text(token: int) -> str:
    r"""Return the text of a token; that of a byte which is not a character is escaped.

    Example:
        >>> from examples.tiny_model.tokens import token_text
        >>> token_text(65), token_text(0xFF), token_text(256)
        ('A', '\\xff', '<|im_start|>')
    """
    return MARKS.get(token) or bytes([token]).decode(errors="backslashreplace")


class MessageReader:
    r"""Reads an answer token by token, as the parts of a stream in OpenAI's format.

    Example:
        >>> from examples.tiny_model.tokens import CALL, CALL_END, MessageReader
        >>> reader = MessageReader()
        >>> for token in (*b"Hi", CALL, *b"look\n{}", CALL_END):
        ...     _ = reader.feed(token)
        >>> reader.message["content"], reader.message["tool_calls"][0]["function"]
        ('Hi', {'name': 'look', 'arguments': '{}'})

    Attributes:
        message: The message so far. A call whose name isn't complete is not part of it.
    """

    def __init__(self) -> None:
        self.message: Record = {"role": "assistant", "content": ""}
        self._name: bytearray | None = None  # of the call that begins
        self._in_call = False
        self._begin_text()

    def feed(self, token: int) -> Record:
        """Return what a token adds to the message; it may be nothing."""
        if token in MARKS:
            added = self.end()
            self._in_call = False
            self._name = bytearray() if token == CALL else None
            return added
        if self._name is None:
            return self._text(bytes([token]))
        if token != NEWLINE:
            self._name.append(token)
            return {}
        function = {"name": self._name.decode(errors="replace"), "arguments": ""}
        call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
        calls = self.message.setdefault("tool_calls", [])
        calls.append(call)
        self._name, self._in_call = None, True
        return {"tool_calls": [{"index": len(calls) - 1, **call, "function": dict(function)}]}

    def end(self) -> Record:
        """Return what is left of an incomplete character."""
        added = self._text(b"", final=True)
        self._begin_text()
        return added

    def _begin_text(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def _text(self, data: bytes, *, final: bool = False) -> Record:
        text = self._decoder.decode(data, final)
        if not text:
            return {}
        if not self._in_call:
            self.message["content"] += text
            return {"content": text}
        calls = self.message["tool_calls"]
        calls[-1]["function"]["arguments"] += text
        return {"tool_calls": [{"index": len(calls) - 1, "function": {"arguments": text}}]}
