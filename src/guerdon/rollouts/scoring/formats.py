"""How files of rollouts are written: a rollout a line, or as a benchmark publishes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import IO, Any

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.files import Line, read_lines

__all__ = ["FORMATS", "read_tau_bench", "reader_of"]

# Bytes of a file that is read as a whole.
MAX_FILE = 1024 * 1024 * 1024


def read_tau_bench(file: IO[bytes]) -> Iterator[Line]:
    """The conversations that τ-bench records, as lines of rollouts, those of a task together.

    A file of them is a JSON array of ``{task_id, trial, reward, info, traj}``. Of each, ``traj``
    becomes the messages, the task in ``info`` the ground truth, and the task's number the group;
    the other columns stay. The file is read as a whole.

    Example:
        >>> import io
        >>> file = io.BytesIO(b'[{"task_id": 3, "trial": 1, "reward": 0.0, "traj": [],'
        ...                   b' "info": {"task": {"actions": [], "outputs": []}}}]')
        >>> [(number, line)] = read_tau_bench(file)
        >>> json.loads(line)["id"], json.loads(line)["group"]
        ('3-1', 3)

    Args:
        file: The file.

    Yields:
        Lines, numbered by the place of the record in the array, from 1.

    Raises:
        RolloutError: It is no array of records, or too large.
    """
    data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise RolloutError(f"a file of tau-bench may have {MAX_FILE:,} bytes at most")
    try:
        records = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RolloutError(f"the file is no JSON: {error}") from None
    if not isinstance(records, list):
        raise RolloutError(
            f"a file of tau-bench is an array of records, not {type(records).__name__}"
        )
    tasks: dict[str, list[Line]] = {}
    for number, record in enumerate(records, start=1):
        row = _row(record)
        task = json.dumps(row.get("group")) if isinstance(row, dict) else ""
        line = json.dumps(row).encode()
        tasks.setdefault(task, []).append((number, line))
    for lines in tasks.values():
        yield from lines


def _row(record: Any) -> Any:
    """A record as a row; what is no record stays what it is, and fails where it is scored."""
    if not isinstance(record, dict):
        return record
    columns = {name: value for name, value in record.items() if name != "traj"}
    info = record.get("info")
    task = info.get("task") if isinstance(info, dict) else None
    names = [str(record[name]) for name in ("task_id", "trial") if name in record]
    own = {"group": record.get("task_id"), "messages": record.get("traj"), "ground_truth": task}
    return ({"id": "-".join(names)} if names else {}) | own | columns


FORMATS: dict[str, Callable[[IO[bytes]], Iterator[Line]]] = {
    "jsonl": read_lines,
    "tau-bench": read_tau_bench,
}


def reader_of(name: str) -> Callable[[IO[bytes]], Iterator[Line]]:
    """What reads files of that format.

    Raises:
        InvalidArgumentError: There is no such format.
    """
    if name not in FORMATS:
        raise InvalidArgumentError(f"there is no format {name!r}; there are {list(FORMATS)}")
    return FORMATS[name]
