"""The lines of a JSONL file, in bounded memory: their places, and decoding them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any, TypeAlias

from pydantic_core import from_json

from guerdon.rollouts.scoring.reading import BOM

# Bytes of a row that is read; of a longer one only its place and id are known.
MAX_ROW = 8 * 2**20
# Bytes that are read at once of a longer row.
PIECE = 2**20

_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*("[^"\\]{0,500}"|-?\d{1,30})')


# The number of a line, its offset and its length, whether it ends with a line break, its row, and
# what is wrong with that: an empty text if it is valid.
Line: TypeAlias = "tuple[int, int, int, bool, dict[str, Any], str]"


def read_rows(file: IO[bytes], offset: int, number: int) -> Iterator[Line]:
    """Yield the lines of a file that aren't blank.

    Args:
        file: The file.
        offset: Where to begin.
        number: The number of the line before that.
    """
    file.seek(offset)
    while data := file.readline(MAX_ROW + 1):
        number += 1
        length = len(data)
        is_whole = data.endswith(b"\n")
        while length > MAX_ROW and not is_whole and (more := file.readline(PIECE)):
            length += len(more)
            is_whole = more.endswith(b"\n")
        if offset == 0:
            data = data.removeprefix(BOM)
        if not data.isspace():
            yield number, offset, length, is_whole, *decode_row(data, length)
        offset += length


def decode_row(data: bytes, length: int) -> tuple[dict[str, Any], str]:
    """The row of a line, and what is wrong with it: an empty text if it is valid.

    Args:
        data: The line; at least its first `MAX_ROW` bytes.
        length: Its length. Of a row that is too long, only the id is known, if it is its first key.
    """
    if length > MAX_ROW:
        found = _ID.match(data)
        row = {} if found is None else {"id": json.loads(found[1])}
        return row, f"the row has {length:,} bytes, more than {MAX_ROW:,}"
    try:
        row = _decode(data)
    except (ValueError, RecursionError) as error:
        return {}, f"the line is not valid JSON: {error}"
    return (row, "") if type(row) is dict else ({}, "the line is not an object")


def _decode(data: bytes) -> Any:
    try:
        return from_json(data, cache_strings="keys")  # takes half the time of json
    except ValueError:  # perhaps a lone surrogate, which only json accepts
        return json.loads(data)
