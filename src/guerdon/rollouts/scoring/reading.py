"""Reading recorded rollouts from a file: line by line, or group by group."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import IO, Any, TypeAlias, TypeVar

from guerdon._validation import check_choice, shown
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.formats.atif import atif_rows
from guerdon.rollouts.formats.openenv_trace import trace_rows
from guerdon.rollouts.json_forms import group_key, parse_json
from guerdon.rollouts.scoring.parquet import SUFFIX, read_parquet
from guerdon.types.rollout import Rollout

__all__ = ["read_rollouts"]

T = TypeVar("T")

# A line of JSONL with its number, from 1.
Line: TypeAlias = "tuple[int, bytes]"

# Bytes of a line; of a file that is read as a whole; rollouts of a group, which share memory.
MAX_LINE = 64 * 1024 * 1024
MAX_FILE = 1024 * 1024 * 1024
MAX_GROUP = 10_000

# Some editors write it at the beginning of a file.
BOM = "\ufeff".encode()

# The group key of a line that can't be read.
UNREADABLE = object()


# Files -------------------------------------------------------------------------------------------


def name_of_file(path: str) -> str:
    """The name of a file of rollouts in messages; ``-`` is standard input."""
    return "standard input" if path == "-" else path


def open_file(path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    """Open a file of rollouts; ``-`` is standard input, which stays open.

    Raises:
        RolloutError: The file can't be read.
    """
    if path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise RolloutError(f"can't read {path}: {error.strerror}") from error


def read_lines(file: IO[bytes], *, splits_array: bool = True) -> Iterator[Line]:
    """Yield the lines of a file that aren't blank, with their numbers, in bounded memory.

    A line longer than `MAX_LINE` is cut off after one byte more than that. Of a JSON array, which
    is read as a whole, the entries are the lines, unless an array may be one document.
    """
    number, is_empty = 0, True
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if splits_array and is_empty and _begins_array(line):
            records = _read_whole(file, line, "a JSON array")
            yield from ((place, json.dumps(each).encode()) for place, each in enumerate(records, 1))
            return
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE)
        elif line.isspace() or (number == 1 and not line.removeprefix(BOM).strip()):
            continue
        is_empty = False
        yield number, line


def _begins_array(line: bytes) -> bool:
    return line.removeprefix(BOM).lstrip().startswith(b"[")


def read_tau_bench(file: IO[bytes]) -> Iterator[Line]:
    """Yield the conversations of a τ-bench file as lines of rollouts, grouped by task.

    Such a file is a JSON array of ``{task_id, trial, reward, info, traj}``. ``traj`` becomes the
    messages, the task in ``info`` the ground truth, and the task's number the group; the other
    columns are kept. The file is read as a whole.

    Example:
        >>> import io
        >>> file = io.BytesIO(b'[{"task_id": 3, "trial": 1, "reward": 0.0, "traj": [],'
        ...                   b' "info": {"task": {"actions": [], "outputs": []}}}]')
        >>> [(number, line)] = read_tau_bench(file)
        >>> json.loads(line)["id"], json.loads(line)["group"]
        ('3-1', 3)

    Args:
        file: The open file.

    Yields:
        Lines, numbered by the position of the record in the array, from 1.

    Raises:
        RolloutError: The file isn't an array of records, or is too large.
    """
    records = _read_whole(file, b"", "a tau-bench file")
    if not isinstance(records, list):
        raise RolloutError(
            f"a tau-bench file must be an array of records, got {type(records).__name__}"
        )
    tasks: dict[str, list[Line]] = {}
    for number, record in enumerate(records, start=1):
        row = _tau_bench_row(record)
        task = json.dumps(row.get("group")) if isinstance(row, dict) else ""
        tasks.setdefault(task, []).append((number, json.dumps(row).encode()))
    for lines in tasks.values():
        yield from lines


def _read_whole(file: IO[bytes], begun: bytes, name: str) -> Any:
    """The JSON document of a file, of which the beginning may have been read."""
    data = begun + file.read(MAX_FILE + 1 - len(begun))
    if len(data) > MAX_FILE:
        raise RolloutError(f"{name} must have at most {MAX_FILE:,} bytes")
    try:
        return json.loads(data.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise RolloutError(f"the file is not valid JSON: {error}") from None


def _tau_bench_row(record: Any) -> Any:
    """The row of a record; anything but an object is returned unchanged and fails when scored."""
    if not isinstance(record, dict):
        return record
    columns = {name: value for name, value in record.items() if name != "traj"}
    info = record.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    names = [str(record[name]) for name in ("task_id", "trial") if name in record]
    own = {"group": record.get("task_id"), "messages": record.get("traj"), "ground_truth": task}
    return ({"id": "-".join(names)} if names else {}) | own | columns


def read_documents(
    file: IO[bytes], rows_of: Callable[[Any], Iterable[dict[str, Any]]]
) -> Iterator[Line]:
    r"""Yield the rollouts of a file of JSON documents as lines of rollouts.

    The file is JSONL, with a document on each line, if its first line is valid JSON; otherwise it
    is read as a whole, as one document.

    Example:
        >>> import io
        >>> rows = lambda document: [{"id": each, "messages": []} for each in document["ids"]]
        >>> list(read_documents(io.BytesIO(b'{"ids":\n ["a", "b"]}'), rows))
        [(1, b'{"id": "a", "messages": []}'), (2, b'{"id": "b", "messages": []}')]

    Args:
        file: The open file.
        rows_of: Returns the rows of a document.

    Yields:
        Lines, numbered by the position of the rollout in the file, from 1. A line that isn't valid
        JSON is unchanged, and fails when it is scored.

    Raises:
        RolloutError: The file as a whole isn't valid JSON, or is too large.
    """
    numbers = itertools.count(1)
    lines = read_lines(file, splits_array=False)
    for line in lines:
        number = next(numbers)
        try:
            document = decode_line(*line)
        except RolloutError:
            if number > 1 or len(line[1]) > MAX_LINE:
                yield number, line[1]
                continue
            document = _read_whole(file, line[1], "a document")
        for place, row in enumerate(rows_of(document)):
            yield next(numbers) if place else number, json.dumps(row).encode()


FORMATS: dict[str, Callable[[IO[bytes]], Iterator[Line]]] = {
    "jsonl": read_lines,
    "tau-bench": read_tau_bench,
    "parquet": read_parquet,
    "openenv-trace": partial(read_documents, rows_of=trace_rows),
    "atif": partial(read_documents, rows_of=atif_rows),
}


# Rollouts ----------------------------------------------------------------------------------------


def decode_line(number: int, line: bytes) -> Any:
    """Decode a line of JSON.

    Raises:
        RolloutError: The line isn't valid JSON, or is too long.
    """
    if len(line) > MAX_LINE:
        raise RolloutError(f"the line has more than {MAX_LINE:,} bytes", line=number)
    try:
        return parse_json((line.removeprefix(BOM) if number == 1 else line).decode().strip())
    except (ValueError, RecursionError) as error:
        is_whole = line.endswith(b"\n")
        hint = "" if is_whole else "; without a line break at its end, it may be incomplete"
        raise RolloutError(f"the line is not valid JSON: {error}{hint}", line=number) from None


def parse_line(number: int, line: bytes, *, ground_truth: str | None = None) -> Rollout:
    """Parse a line of JSONL as a rollout.

    Args:
        number: The line's number, from 1.
        line: The line.
        ground_truth: See `Rollout.from_row`.

    Raises:
        RolloutError: The line isn't valid JSON, or isn't a rollout.
    """
    row = decode_line(number, line)
    return Rollout.from_row(row, line=number, ground_truth=ground_truth)


def read_rollouts(rows: Iterable[Any], *, ground_truth: str | None = None) -> Iterator[Rollout]:
    """Read rollouts from lines of JSONL, such as those of an open file, or from rows in memory.

    Example:
        >>> line = '{"messages": [{"role": "assistant", "content": "42"}]}'
        >>> [rollout.id for rollout in read_rollouts([line, line])]
        [1, 2]
        >>> rows = [{"prompt": "6 × 7?", "completion": "42", "answer": "42"}]
        >>> [rollout] = read_rollouts(rows, ground_truth="answer")
        >>> rollout.columns["ground_truth"], [message.role for message in rollout.messages]
        ('42', ['user', 'assistant'])

    Args:
        rows: Lines with one rollout each, of which blank ones are skipped; those of a JSON array;
            or rows: dicts, a `datasets.Dataset`, a pandas data frame. See `Rollout.from_row`.
        ground_truth: The column that has the ground truth; None is ``ground_truth``.

    Yields:
        One rollout per line or row.

    Raises:
        RolloutError: A line isn't a rollout; the error has the line's number.
        InvalidArgumentError: They aren't rows.
    """
    for rollout in rollouts_in(rows, ground_truth=ground_truth):
        if isinstance(rollout, RolloutError):
            raise rollout
        yield rollout


def rollouts_in(
    rows: Iterable[Any], *, ground_truth: str | None = None
) -> Iterator[Rollout | RolloutError]:
    """Yield rollouts as `read_rollouts` does, and the errors of those that can't be read.

    Raises:
        InvalidArgumentError: They aren't rows.
    """
    if hasattr(rows, "iterrows"):  # a data frame of pandas
        rows = rows.to_dict("records")  # type: ignore[attr-defined]
    if isinstance(rows, Mapping | str | bytes):
        raise InvalidArgumentError(
            f"expected rows or lines, got {shown(rows)}; of a file pass the open file, of a dict "
            "of splits one of them"
        )
    remaining = iter(rows)
    for number, row in enumerate(remaining, start=1):
        if type(row) is Rollout and ground_truth is None:
            yield row
        elif number == 1 and isinstance(row, str | bytes) and _begins_array(_encoded(row)):
            rest = io.BytesIO(b"".join(map(_encoded, remaining)))
            array = _read_whole(rest, _encoded(row), "a JSON array")
            yield from rollouts_in(array, ground_truth=ground_truth)
        elif not isinstance(row, str | bytes) or not row.isspace():
            yield _rollout_of(row, number, ground_truth)


def _encoded(line: bytes | str) -> bytes:
    return line.encode() if isinstance(line, str) else line


def _rollout_of(row: Any, number: int, ground_truth: str | None) -> Rollout | RolloutError:
    if isinstance(row, Rollout):
        row = {"id": row.id, **row.columns}
    if not isinstance(row, Mapping | str | bytes):
        raise InvalidArgumentError(
            f"expected a Rollout, a dict or a line, got {row!r:.60}; convert a RolloutRecord with "
            "record.to_rollout()"
        )
    try:
        if isinstance(row, str | bytes):
            return parse_line(number, _encoded(row), ground_truth=ground_truth)
        return Rollout.from_row(dict(row), line=number, ground_truth=ground_truth)
    except RolloutError as error:
        return error


# Groups ------------------------------------------------------------------------------------------


def read_batches(
    file: IO[bytes], path: str, *, format: str | None, together: bool
) -> Iterator[list[Line]]:
    """Read the lines that are scored together: one at a time, or those of a group.

    Args:
        file: The open file.
        path: Its path. A regular file is checked for split groups before anything is scored; a
            stream can't be.
        format: The file's format, a key of `FORMATS`; None for that of its suffix: Parquet, or
            JSONL.
        together: Whether the rollouts of a group are scored together.

    Raises:
        InvalidArgumentError: There is no such format.
        RolloutError: A group is split, or has too many rollouts.
    """
    if format is None:
        format = "parquet" if path.endswith(SUFFIX) else "jsonl"
    read = FORMATS[check_choice("format", format, FORMATS)]
    if not together:
        return ([line] for line in read(file))
    if os.path.isfile(path):
        deque(lines_by_group(read(file)), maxlen=0)
        file.seek(0)
    return lines_by_group(read(file))


def groups_of(
    rollouts: Iterable[Rollout | RolloutError],
) -> Iterator[list[Rollout | RolloutError]]:
    """Yield the rollouts of each group, which must be consecutive, and errors with those before.

    Raises:
        RolloutError: A group is split, or has too many rollouts.
    """
    numbered = enumerate(rollouts, start=1)
    for group in _runs(numbered, _key_of_rollout):
        yield [rollout for _, rollout in group]


def _key_of_rollout(numbered: tuple[int, Rollout | RolloutError]) -> Hashable:
    rollout = numbered[1]
    return UNREADABLE if isinstance(rollout, RolloutError) else group_key(rollout.group)


def lines_by_group(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each group; a line that can't be read joins the group before it.

    Raises:
        RolloutError: A group is split, or has too many rollouts.
    """
    return _runs(lines, _key_of_line)


def _key_of_line(line: Line) -> Hashable:
    try:
        row = decode_line(*line)
    except RolloutError:
        return UNREADABLE
    return group_key(row.get("group")) if isinstance(row, dict) else None


def _runs(
    numbered: Iterable[tuple[int, T]], key_of: Callable[[tuple[int, T]], Hashable]
) -> Iterator[list[tuple[int, T]]]:
    """Yield runs of items with the same key; an item whose key is None is a run of its own."""
    last_line: dict[int, int] = {}  # by digest of the key: a file may have many groups
    run: list[tuple[int, T]] = []
    current: Hashable = None
    for item in numbered:
        key = key_of(item)
        if key is UNREADABLE and 0 < len(run) < MAX_GROUP:
            run.append(item)
            continue
        if run and (key is None or key != current):
            yield run
            run = []
        if not run and type(key) is str and hash(key) in last_line:
            raise RolloutError(
                f"group {key} is split: it ends at line {last_line[hash(key)]} and continues here. "
                "Its rollouts are scored together, so sort the file by group",
                line=item[0],
            )
        run.append(item)
        current = key
        if type(key) is str:
            last_line[hash(key)] = item[0]
        if len(run) > MAX_GROUP:
            raise RolloutError(f"group {key} has more than {MAX_GROUP:,} rollouts", line=item[0])
    if run:
        yield run
