"""Searching the rows of a file for a text, without an index of words."""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from guerdon.viewer.columns import BLOCK, Array
from guerdon.viewer.index import FileIndex
from guerdon.viewer.lines import MAX_ROW, decode_row

# Bytes of a file that are searched at once.
PIECE = 4 * 2**20
# Keys whose values aren't text of a person or a model.
SKIPPED = frozenset(("role", "type", "fingerprint", "sandbox"))


def contains(value: Any, text: str) -> bool:
    """Whether a text in a value of JSON contains another, which is in lower case."""
    return any(text in each.lower() for each in _texts(value))


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]  # of any depth
    for value in waiting:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += [each for name, each in value.items() if name not in SKIPPED]
        elif isinstance(value, list):
            waiting += value
        elif type(value) is int:  # an id or a group
            yield str(value)


def rows_with(index: FileIndex, text: str, deadline: float) -> tuple[Array, bool]:
    """The rows of a file with a text, (n,), in ascending order.

    The bytes of the file are searched for the longest word of the text; only rows with that word
    are decoded.

    Args:
        index: The file.
        text: The text; upper and lower case are the same.
        deadline: When to stop, in the time of `time.monotonic`.

    Returns:
        The rows, and whether it was stopped.
    """
    text = text.lower()
    # What JSON never writes as an escape.
    word = max(re.findall("[a-z0-9]+", text), key=len, default="").encode()
    found = array("i")
    with index.opened() as file:
        for first, places in _pieces(index):
            if time.monotonic() > deadline:
                return np.array(found, np.int32), True
            start = int(places[0, 0])
            file.seek(start)
            data = file.read(int(places[-1].sum()) - start)
            offsets = places[:, 0] - start
            for row in _candidates(data, word, offsets):
                offset, length = int(offsets[row]), int(places[row, 1])
                decoded, _ = decode_row(data[offset : offset + length], length)
                if contains(decoded, text):
                    found.append(first + row)
    return np.array(found, np.int32), False


def _pieces(index: FileIndex) -> Iterator[tuple[int, Array]]:
    """The first row of each piece of the file, and the places of its rows.

    Rows that are too long are left out.
    """
    for start in range(0, index.rows, BLOCK):
        places = index.places(start, BLOCK)
        first = 0
        while first < len(places):
            ends = places[first:].sum(1) - places[first, 0]
            count = max(1, int(np.searchsorted(ends, PIECE)))
            if places[first, 1] <= MAX_ROW:
                yield start + first, places[first : first + count]
            first += count


def _candidates(data: bytes, word: bytes, offsets: Array) -> Iterator[int]:
    """The rows, counted from the first of the data, that have the word in their bytes."""
    if not word:
        yield from range(len(offsets))
        return
    data = data.lower()
    at = data.find(word)
    while at >= 0:
        row = int(np.searchsorted(offsets, at, "right")) - 1
        yield row
        if row + 1 == len(offsets):
            return
        at = data.find(word, int(offsets[row + 1]))
