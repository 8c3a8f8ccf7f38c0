"""`ResultRow`: the result of one rollout, and reading and writing files of them."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypedDict, cast

from guerdon.errors import RolloutError, ScoringError
from guerdon.rollouts.json_forms import as_text
from guerdon.tracking.log import lock_output

__all__ = ["ResultRow"]

# How each line of a result file begins.
BEGINNING = b'{"id": '


class _RequiredKeys(TypedDict):
    id: Any
    group: Any
    score: float | None
    is_score_valid: bool
    components: dict[str, float]
    step_rewards: list[float] | list[float | None] | None
    error: str | None
    fingerprint: str


class ResultRow(_RequiredKeys, total=False):
    """The result of one rollout, and a line of the result file.

    Example:
        >>> from guerdon import NumericAnswer, Rollout, score_rollouts
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]})
        >>> [row] = score_rollouts(NumericAnswer(), [rollout])
        >>> row["id"], row["score"], row["is_score_valid"], row["step_rewards"], row["error"]
        ('q7', 1.0, True, [1.0], None)

    Attributes:
        id: The rollout's id.
        group: The rollout's group.
        score: The score; for a rubric the sum of the step scores. None if the row is invalid.
        is_score_valid: Whether the score counts.
        components: For a rubric, its components over the episode by dotted name: the sum of each
            over the steps that have it, as the score is the sum of the step scores. Those of a
            weighted sum, times their weights, add up to the score. Those of an invalid row are
            added up until it failed. For a reward function, its metrics that are numbers.
        step_rewards: One entry per assistant turn: for a rubric a finite float, for a function a
            float or None for a turn without one. None if there are no step rewards at all.
        error: What failed. Beside a valid score it reports failures that the reward handled, such
            as those of a `Guarded` with ``on_error="zero"``.
        fingerprint: The fingerprint of the reward, its parameters and the credit settings.
        reason: The reason that a reward function returned.
        notes: Remarks about the score: irregularities of the conversation, outputs for steps that
            don't exist, remarks about credit.
        metrics: The metrics of a reward function that aren't finite numbers.
        steps: Data of single steps, each with ``step_index``, the number of the assistant turn
            from 0: ``base_reward``, ``reason``, ``advantage``, ``return_to_go``.
        step_components: For a rubric with components: those of each step, if there are several.
        stopped_by: For a rubric, the paths of the gates that scored 0, by which the last step was
            stopped; ``""`` is the root, if the score is 0. Absent if there are no such gates.
        trees: For a rubric scored with trees, the score of every rubric at each step, as
            `Score.to_dict` returns it. Those of an invalid row end with the step that failed.
        log: What a reward in a sandbox printed; for a batch, in its first row.
        sandbox: The level of the sandbox that the reward ran in; absent without a sandbox.
    """

    reason: str | None
    notes: list[str]
    metrics: dict[str, Any]
    steps: list[dict[str, Any]]
    step_components: list[dict[str, float]]
    stopped_by: list[str]
    trees: list[dict[str, Any]]
    log: str
    sandbox: str


_REQUIRED = ResultRow.__required_keys__
_ALL = _REQUIRED | ResultRow.__optional_keys__


def invalid_row(
    id: Any,
    group: Any,
    *,
    fingerprint: str,
    error: str,
    components: dict[str, float] | None = None,
) -> ResultRow:
    """The row of a rollout without a valid score."""
    return {
        "id": id,
        "group": group,
        "score": None,
        "is_score_valid": False,
        "components": components or {},
        "step_rewards": None,
        "error": error,
        "fingerprint": fingerprint,
    }


def failed_row(error: RolloutError, fingerprint: str) -> ResultRow:
    """The row of a rollout that can't be read, or whose episode failed."""
    where = f"line {error.line}: " if error.line is not None else ""
    row = error.row if isinstance(error.row, dict) else None
    return invalid_row(
        None if row is None else row.get("id", error.line),
        None if row is None else row.get("group"),
        fingerprint=fingerprint,
        error=f"{where}{type(error).__name__}: {error}",
    )


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encode_row(row: Mapping[str, Any]) -> bytes:
    """A row as a line of strict JSON; values that JSON doesn't have become text."""
    try:
        text = _encode(row)
    except Exception:  # a user's class may raise anything
        text = _encode({name: as_text(value) for name, value in row.items()})
    # A lone surrogate is written as the escape that it was read as.
    return text.encode("utf-8", "backslashreplace") + b"\n"


class RowWriter:
    """Writes whole lines to a file; ``-`` is standard output.

    If the disk is full, the lines written before are kept.

    Args:
        path: The file; None writes nothing.
        keep: How many bytes of an existing file are kept. It is truncated with the first line.

    Attributes:
        keep: The same until then; None afterwards, or if it isn't a regular file.

    Raises:
        ScoringError: The file can't be written, or another process is writing to it.
    """

    def __init__(self, path: str | None, *, keep: int = 0) -> None:
        self.path = path
        self.keep: int | None = None
        self._descriptor: int | None = None
        if path == "-":
            sys.stdout.flush()
            self._descriptor = os.dup(sys.stdout.fileno())
        elif path is not None:
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            except OSError as error:
                raise ScoringError(f"can't write {path}: {error.strerror}") from error
            if os.path.isfile(path):
                self.keep = keep
                try:
                    lock_output(self._descriptor, path)
                except BaseException:
                    self.__exit__()
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def write(self, lines: bytes) -> None:
        """Write whole lines.

        Raises:
            ScoringError: They can't be written.
        """
        if self._descriptor is None or not lines:
            return
        left = memoryview(lines)
        try:
            if self.keep is not None:
                os.ftruncate(self._descriptor, self.keep)
                os.lseek(self._descriptor, 0, os.SEEK_END)
                self.keep = None
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            hint = "; free some space and continue with --resume"
            raise ScoringError(
                f"can't write {self.path}: {error.strerror}; the rows written before are kept"
                + (hint if error.errno == errno.ENOSPC else "")
            ) from error


def read_finished(path: str, fingerprint: str) -> Iterator[tuple[ResultRow, int]]:
    """Read the rows that an earlier run finished.

    Args:
        path: The result file; a missing file has no rows.
        fingerprint: The fingerprint of the reward.

    Yields:
        Each row with the size of the file up to its end, in bytes. An incomplete last line isn't
        included.

    Raises:
        RolloutError: A line isn't a result row, or another reward scored it.
    """
    if not Path(path).exists():
        return
    if not Path(path).is_file():
        raise RolloutError(f"{path} is not a regular file, so it can't be resumed")
    size = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and BEGINNING.startswith(line[: len(BEGINNING)]):
                return
            row = _parse_row(line)
            if row is None:
                raise RolloutError(
                    f"{path} has lines that are not result rows; choose another file, or leave "
                    "out --resume to overwrite it",
                    line=number,
                )
            if row["fingerprint"] != fingerprint:
                raise RolloutError(
                    f"{path} was scored by reward {row['fingerprint']}, but this reward is "
                    f"{fingerprint}; leave out --resume to score all rollouts again",
                    line=number,
                )
            size += len(line)
            yield row, size


def _parse_row(line: bytes) -> ResultRow | None:
    """The row of a complete line; None if it isn't one."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    if not isinstance(row, dict) or not _REQUIRED <= row.keys() <= _ALL:
        return None
    return cast("ResultRow", row)
