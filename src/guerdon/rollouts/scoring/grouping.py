"""Rollouts of one group together: they stand one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import IO, TypeVar

from guerdon.errors import RolloutError
from guerdon.rollouts.keys import group_key
from guerdon.rollouts.scoring.files import Line, decode_line
from guerdon.types.rollout import Rollout

__all__ = ["MAX_GROUP", "batches_of", "check_lines", "groups_of", "lines_by_group"]

T = TypeVar("T")

# The key of a line that can't be read.
UNREADABLE = object()

# Rollouts that one group may have: they are held in memory together.
MAX_GROUP = 10_000


def groups_of(rollouts: Iterable[Rollout]) -> Iterator[list[Rollout]]:
    """Rollouts by group.

    Raises:
        RolloutError: A group is split, or has too many rollouts.
    """
    numbered = enumerate(rollouts, start=1)
    for together in _together(numbered, lambda each: group_key(each[1].group)):
        yield [rollout for _, rollout in together]


def batches_of(
    file: IO[bytes], path: str, read: Callable[[IO[bytes]], Iterator[Line]], *, together: bool
) -> Iterator[list[Line]]:
    """The lines of a file that are scored together: one at a time, or those of a group.

    Args:
        file: The file. One that can be read twice is looked through first, for groups that are
            split.
        path: Its path; ``-`` is a stream.
        read: Reads lines from it.
        together: Whether the rollouts of a group are scored together.

    Raises:
        RolloutError: A group is split, or has too many rollouts.
    """
    if not together:
        return ([line] for line in read(file))
    if os.path.isfile(path):
        check_lines(read(file))  # before anything is written
        file.seek(0)
    return lines_by_group(read(file))


def lines_by_group(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines of rollouts by group; a line that can't be read stays with those before it.

    Raises:
        RolloutError: A group is split, or has too many rollouts.
    """
    return _together(lines, _key_of_line)


def check_lines(lines: Iterable[Line]) -> None:
    """Refuse rollouts whose groups are split, before any of them is scored.

    Raises:
        RolloutError: A group is split, or has too many rollouts.
    """
    for _ in lines_by_group(lines):
        pass


def _key_of_line(line: Line) -> Hashable:
    try:
        row = decode_line(*line)
    except RolloutError:
        return UNREADABLE
    return group_key(row.get("group")) if isinstance(row, dict) else None


def _together(
    numbered: Iterable[tuple[int, T]], key_of: Callable[[tuple[int, T]], Hashable]
) -> Iterator[list[tuple[int, T]]]:
    """Runs of one key; what has none is a run of its own."""
    last_of: dict[int, int] = {}  # digests: a file may have many groups
    run: list[tuple[int, T]] = []
    current: Hashable = None
    for each in numbered:
        key = key_of(each)
        if (
            key is UNREADABLE and 0 < len(run) < MAX_GROUP
        ):  # whose group it is, nobody knows: it ends none
            run.append(each)
            continue
        if run and (key is None or key != current):
            yield run
            run = []
        if not run and type(key) is str and hash(key) in last_of:
            raise RolloutError(
                f"group {key} is split: it stands up to line {last_of[hash(key)]} and again here; "
                "its rollouts are scored together, so sort the file by group",
                line=each[0],
            )
        run.append(each)
        current = key
        if type(key) is str:
            last_of[hash(key)] = each[0]
        if len(run) > MAX_GROUP:
            raise RolloutError(
                f"group {key} has more than {MAX_GROUP:,} rollouts; they are held together in "
                "memory",
                line=each[0],
            )
    if run:
        yield run
