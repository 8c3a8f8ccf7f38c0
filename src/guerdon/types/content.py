"""The content of a message: a text, or a list of parts of several types, in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_or_parts(content: Any) -> Any:
    """Return the text of a list of text parts; any other content unchanged.

    Example:
        >>> from guerdon.types.content import text_or_parts
        >>> text_or_parts([{"type": "text", "text": "6 × "}, {"type": "text", "text": "7?"}])
        '6 × 7?'
        >>> text_or_parts([{"type": "refusal", "refusal": "I can't."}])
        [{'type': 'refusal', 'refusal': "I can't."}]
    """
    if not isinstance(content, list) or not content or not all(map(is_text_part, content)):
        return content
    return "".join(part["text"] for part in content)


def is_text_part(part: Any) -> bool:
    """Whether a part of a message's content is ``{"type": "text", "text": …}``."""
    is_text = isinstance(part, Mapping) and part.get("type") == "text"
    return is_text and isinstance(part.get("text"), str)
