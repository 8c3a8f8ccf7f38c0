"""The content of a message: a text, or a list of parts of several types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The types of parts that are text: in OpenAI's chat format, and in its Responses API.
TEXT_TYPES = ("text", "output_text", "input_text")
# What the types of parts with a model's reasoning contain: "redacted_thinking", "reasoning_text".
REASONING = ("thinking", "reasoning", "thought")
# The fields of those parts that contain it, in Anthropic's, OpenAI's and Bedrock's formats.
REASONING_FIELDS = ("thinking", "reasoning", "text", "summary", "content", "reasoningText")


def text_or_parts(content: Any) -> Any:
    r"""Return the content without reasoning parts: as one text if all other parts are text.

    Texts of parts are joined by a line break.

    Example:
        >>> from guerdon.types.content import text_or_parts
        >>> text_or_parts([{"type": "text", "text": "6 × 7"}, {"type": "text", "text": "A: 42"}])
        '6 × 7\nA: 42'
        >>> text_or_parts([{"type": "thinking", "thinking": "6 × 7"}, {"type": "refusal"}])
        [{'type': 'refusal'}]
    """
    if not isinstance(content, list) or not content:
        return content
    parts = [part for part in content if not is_reasoning_part(part)]
    return joined_text(parts) if all(map(is_text_part, parts)) else parts


def joined_text(content: Any) -> str:
    r"""Return the text of a content; that of parts of other types is ``""``.

    Example:
        >>> from guerdon.types.content import joined_text
        >>> joined_text([{"type": "text", "text": "See"}, {"type": "image_url"}, {"text": "this."}])
        'See\nthis.'
    """
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if is_text_part(part))
    return content or ""


def reasoning_of(content: Any) -> str:
    """Return the text of the reasoning parts of a content, joined by a line break."""
    parts = filter(is_reasoning_part, content if isinstance(content, list) else ())
    return "\n".join(filter(None, map(_reasoning, parts)))


def is_text_part(part: Any) -> bool:
    """Whether a part of a message's content is text, such as ``{"type": "text", "text": …}``."""
    if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
        return False
    return part.get("type", "text") in TEXT_TYPES and not is_reasoning_part(part)


def is_reasoning_part(part: Any) -> bool:
    """Whether a part of a message's content is reasoning, such as ``{"type": "thinking", …}``."""
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    is_reasoning = isinstance(kind, str) and any(name in kind for name in REASONING)
    return is_reasoning or part.get("thought") is True or "reasoningContent" in part


def _reasoning(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("reasoningContent", value)
        value = [value[name] for name in REASONING_FIELDS if name in value]
    if isinstance(value, list):
        return "\n".join(filter(None, map(_reasoning, value)))
    return value if isinstance(value, str) else ""
