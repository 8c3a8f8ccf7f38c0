"""The lines of a JSONL file, in bounded memory: their places, and decoding them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from guerdon.rollouts.scoring.reading import BOM

# Bytes of a row that is read; of a longer one only its place and id are known.
MAX_ROW = 8 * 2**20
# Bytes that are read at once of a longer row.
PIECE = 2**20

_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*("(?:[^"\\]|\\.){0,500}"|-?\d{1,30})')


class Line(NamedTuple):
    """A line of a file that isn't blank.

    Attributes:
        offset: Where it begins.
        length: Its bytes, the line break included.
        data: Its content; of a line longer than `MAX_ROW` the beginning.
        is_whole: Whether it ends with a line break.
    """

    offset: int
    length: int
    data: bytes
    is_whole: bool


def read_lines(file: IO[bytes], offset: int) -> Iterator[Line]:
    """Yield the lines of a file from an offset on."""
    file.seek(offset)
    while data := file.readline(MAX_ROW + 1):
        length, last = len(data), data
        while len(data) > MAX_ROW and last and not last.endswith(b"\n"):
            last = file.readline(PIECE)
            length += len(last)
        if offset == 0:
            data = data.removeprefix(BOM)
        if not data.isspace():
            yield Line(offset, length, data, (last or data).endswith(b"\n"))
        offset += length


def id_of(data: bytes) -> Any:
    """The id of a row that is too long to be read, if it is its first key; otherwise None."""
    found = _ID.match(data)
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:
        return None


def _make_decode() -> Callable[[bytes], Any]:
    try:
        import msgspec
    except ImportError:
        return json.loads
    decode = msgspec.json.Decoder().decode

    def decode_or_load(data: bytes) -> Any:
        try:
            return decode(data)
        except Exception:  # what only json accepts: NaN, a lone surrogate
            return json.loads(data)

    return decode_or_load


# Decodes a row; raises a ValueError or a RecursionError.
decode = _make_decode()
