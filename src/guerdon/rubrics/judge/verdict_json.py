"""JSON objects in an answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

__all__ = ["FoundObject", "JsonObject", "found_objects"]


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A JSON object in an answer."""

    value: JsonObject
    text: str
    is_all: bool
    is_alone: bool  # on lines of its own


class JsonObject(dict[str, Any]):
    """A JSON object that remembers keys that it holds twice."""

    twice: list[str]

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key.lower() for key, _ in pairs)
        self.twice = [key for key, count in counts.items() if count > 1]


def found_objects(text: str) -> Iterator[FoundObject]:
    """The outermost JSON objects in a text; braces that begin none count as empty ones."""
    decoder = json.JSONDecoder(object_pairs_hook=JsonObject, parse_constant=_no_constant)
    place = 0
    while (start := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            place = start + 1
            yield FoundObject(JsonObject([]), "{", False, False)
            continue
        before = text[:start].rpartition("\n")[2].strip()
        after = text[place:].partition("\n")[0].strip()
        alone = before in ("", "```json", "```") and after in ("", "```", ".")
        said = text[start:place]
        yield FoundObject(value, said, said == text, alone)


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no JSON number")
