"""Reading rollouts from JSONL, a line at a time."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeAlias

from guerdon.errors import RolloutError
from guerdon.types.rollout import Rollout

__all__ = [
    "Line", "MAX_LINE", "decode_line", "name_of_file", "open_file", "parse_line", "read_lines",
    "read_rollouts",
]  # fmt: skip

# A line with its number, from 1.
Line: TypeAlias = "tuple[int, bytes]"

# Some editors put it at the beginning of a file.
BOM = "\ufeff".encode()

# Bytes that one line may have.
MAX_LINE = 64 * 1024 * 1024


def name_of_file(path: str) -> str:
    """What a file of rollouts is called; ``-`` is standard input."""
    return "standard input" if path == "-" else path


def open_file(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Open a file of rollouts; ``-`` is standard input, which stays open.

    Raises:
        RolloutError: It can't be read.
    """
    if path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise RolloutError(f"can't read {path}: {error.strerror}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_constant=_no_constant)


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """The lines of a file that aren't blank, with their numbers, in bounded memory.

    A line longer than `MAX_LINE` comes cut off, one byte longer than it may be.
    """
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE)
        elif line.isspace() or (number == 1 and not line.removeprefix(BOM).strip()):
            continue
        yield number, line


def parse_line(number: int, line: bytes) -> Rollout:
    """The rollout in a line of JSONL.

    Args:
        number: The line's number, from 1.
        line: The line.

    Raises:
        RolloutError: It is no JSON, or no rollout.
    """
    return Rollout.from_row(decode_line(number, line), line=number)


def decode_line(number: int, line: bytes) -> Any:
    """What stands in a line of JSON, whatever it is.

    Raises:
        RolloutError: It is no JSON.
    """
    if len(line) > MAX_LINE:
        raise RolloutError(f"the line has more than {MAX_LINE:,} bytes", line=number)
    try:
        return _decoder.decode((line.removeprefix(BOM) if number == 1 else line).decode().strip())
    except (ValueError, RecursionError) as error:
        raise RolloutError(f"the line is no JSON: {error}", line=number) from None


def read_rollouts(lines: Iterable[bytes | str]) -> Iterator[Rollout]:
    """Read rollouts from lines of JSONL, such as those of an open file.

    Example:
        >>> line = '{"messages": [{"role": "assistant", "content": "42"}]}'
        >>> [rollout.id for rollout in read_rollouts([line, line])]
        [1, 2]

    Args:
        lines: Lines, each with a rollout; blank ones are passed over.

    Yields:
        A rollout a line.

    Raises:
        RolloutError: A line holds none; it says which.
    """
    for number, line in enumerate(lines, start=1):
        if not line.isspace():
            yield parse_line(number, line.encode() if isinstance(line, str) else line)
