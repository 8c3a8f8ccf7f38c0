"""The console as a tracker."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from guerdon._logging import plain
from guerdon._validation import check_integer
from guerdon.tracking.log import TrackedRun
from guerdon.tracking.records import TrackedRecord

__all__ = ["ConsoleTracker"]


class ConsoleTracker:
    """Prints one line per record, with the environment as a column and the reason of a failure.

    Example:
        >>> import sys
        >>> from guerdon.tracking import ConsoleTracker, RewardLogger
        >>> with RewardLogger(ConsoleTracker(sys.stdout), path="logs") as logger:
        ...     logger.log_step(7, 2, None, {"tests": 1.0}, "env-0", invalid={"style": "timed out"})
        step 7  episode 2  env-0  reward invalid (failed)  tests=1  style=invalid (timed out)

    Args:
        stream: The stream; by default ``sys.stderr`` at the time of printing.
        every: Print every n-th step, at least 1. Failures, weights and changes of the
            configuration are always printed.

    Raises:
        InvalidArgumentError: `every` is not an integer of at least 1.
    """

    name = "console"

    def __init__(self, stream: TextIO | None = None, *, every: int = 1) -> None:
        self._stream, self._every = stream, check_integer("every", every, low=1)
        self._seen = 0

    def open(self, run: TrackedRun) -> None:
        """Do nothing."""

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Print records."""
        stream = self._stream or sys.stderr
        lines = [_line(record) for record in records if self._is_due(record)]
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write("".join(lines).encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()

    def close(self) -> None:
        """Do nothing: the stream belongs to the caller."""

    def _is_due(self, record: TrackedRecord) -> bool:
        if record.kind != "step" or record.reward is None or record.invalid:
            return True
        self._seen += 1
        return self._seen % self._every == 0


def _line(record: TrackedRecord) -> str:
    parts = [f"step {record.step}"]
    if record.episode is not None:
        parts.append(f"episode {record.episode}")
    if record.env_id is not None:
        parts.append(str(record.env_id))
    if record.kind == "step":
        why = f" ({record.reward_error})" if record.reward_error else ""
        total = f"invalid{why}" if record.reward is None else f"{record.reward:.6g}"
        parts.append(f"reward {total}")
    parts += [f"{name}={value:.6g}" for name, value in record.components.items()]
    parts += [f"{name}=invalid ({why})" for name, why in record.invalid.items()]
    parts += [f"weight of {name}={value:.6g}" for name, value in record.weights.items()]
    if record.change and record.kind == "config":
        by = f" by {record.change['who']}" if record.change.get("who") else ""
        parts.append("{what}: {from} -> {to}".format(**record.change) + by)
    return plain("  ".join(parts)) + "\n"
