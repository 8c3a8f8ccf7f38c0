"""The conversation and the ground truth of a row, from the columns that other libraries write."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from guerdon.errors import InvalidArgumentError

# The columns of a prompt and of what a model answered, texts or messages; the first one counts.
PROMPTS = ("prompt", "question", "query", "input")
COMPLETIONS = ("completion", "response", "output")

# The roles of ShareGPT's turns.
ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "model": "assistant", "chatgpt": "assistant", "function_call": "assistant", "system": "system",
    "tool": "tool", "observation": "tool", "function_response": "tool",
}  # fmt: skip


def with_messages(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without messages with those of its other columns.

    Example:
        >>> row = with_messages({"prompt": "6 × 7?", "completion": "42"})
        >>> [message["role"] for message in row["messages"]]
        ['user', 'assistant']

    Args:
        row: It has ``prompt`` and ``completion``, each a text or messages, or ``conversations``,
            as of ShareGPT. Instead of ``prompt`` it may have ``question``, ``query`` or ``input``,
            instead of ``completion`` ``response`` or ``output``. The assistant's turns of a prompt
            are examples: ``first_turn`` is the number of them.

    Raises:
        InvalidArgumentError: It has none of them, or one that can't be read.
    """
    if row.get("conversations") is not None:
        turns = _listed("conversations", row["conversations"], "user")
        system = [{"role": "system", "content": row["system"]}] if row.get("system") else []
        return {**row, "messages": system + [_openai(*turn) for turn in enumerate(turns)]}
    prompt, completion = _name_in(PROMPTS, row), _name_in(COMPLETIONS, row)
    if completion is None:
        raise InvalidArgumentError(
            "a rollout needs `messages`, or `prompt` and `completion` (or `response`), each a text "
            f"or messages, or `conversations`; its columns are {', '.join(map(str, row))}"
        )
    before = _listed(prompt, row[prompt], "user") if prompt is not None else []
    examples = sum(isinstance(turn, dict) and turn.get("role") == "assistant" for turn in before)
    messages = [*before, *_listed(completion, row[completion], "assistant")]
    return {**({"first_turn": examples} if examples else {}), **row, "messages": messages}


def texts_of(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the prompt and the completion of a row whose columns are texts; otherwise None.

    Example:
        >>> texts_of({"question": "6 × 7?", "response": "42"}), texts_of({"messages": []})
        (('6 × 7?', '42'), None)
    """
    prompt, completion = _name_in(PROMPTS, row), _name_in(COMPLETIONS, row)
    question = "" if prompt is None else row[prompt]
    answer = None if completion is None else row[completion]
    return (question, answer) if isinstance(question, str) and isinstance(answer, str) else None


def column_of(row: Mapping[str, Any], name: str) -> Any:
    """Return a column of a row, or an entry of one.

    Example:
        >>> column_of({"reward_model": {"ground_truth": "42"}}, "reward_model.ground_truth")
        '42'

    Raises:
        InvalidArgumentError: There is no such column.
    """
    value: Any = row
    for part in [name] if name in row else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise InvalidArgumentError(
                f"there is no column {name!r}; the columns are {', '.join(map(str, row))}"
            )
        value = value[part]
    return value


def _name_in(names: tuple[str, ...], row: Mapping[str, Any]) -> str | None:
    return next((name for name in names if row.get(name) is not None), None)


def _listed(name: str, value: Any, role: str) -> list[Any]:
    """The messages of a column."""
    value = value.tolist() if hasattr(value, "tolist") else value  # an array of pandas
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list | tuple):
        raise InvalidArgumentError(
            f"`{name}` must be a text or messages, got {reprlib.repr(value)}"
        )
    return list(value)


def _openai(index: int, turn: Any) -> Any:
    """A turn of ShareGPT as a message of OpenAI; any other is unchanged."""
    if isinstance(turn, dict) and "value" in turn and "role" in turn and "content" not in turn:
        turn = {"from": turn["role"], **turn}
    if not isinstance(turn, dict) or "from" not in turn:
        return turn
    rest = {name: value for name, value in turn.items() if name not in ("from", "value")}
    if turn["from"] not in ROLES:
        raise InvalidArgumentError(
            f"conversations[{index}]: `from` must be one of {', '.join(ROLES)}, got "
            f"{reprlib.repr(turn['from'])}"
        )
    if "value" not in turn:
        raise InvalidArgumentError(f"conversations[{index}] has no `value`: {reprlib.repr(turn)}")
    value = turn["value"]
    if turn["from"] == "function_call" and str(value).lstrip()[:1] in ("{", "["):  # as of Hermes
        value = f"<tool_call>{value}</tool_call>"
    return {**rest, "role": ROLES[turn["from"]], "content": value}
