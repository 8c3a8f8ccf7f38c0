"""The adapter for TensorBoard."""

from __future__ import annotations

import io
import json
import os
import socket
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from guerdon._validation import check_integer
from guerdon.tracking.log import TrackedRun, write_all
from guerdon.tracking.records import TrackedRecord, metric_name
from guerdon.tracking.trackers import require

__all__ = ["TensorBoardTracker"]


class TensorBoardTracker:
    """Writes event files for TensorBoard, without torch or tensorflow.

    Requires the extra ``tensorboard``: ``pip install 'guerdon[tensorboard]'``.

    Each metric is a tag; its step is the training step and its values are 32-bit floats. The folder
    itself shows every record; each environment is also a run with the same tags in the sub-folder
    ``env/{env_id}``, so that TensorBoard draws their curves in one chart. Two records of one step
    are two points. A change of the configuration is a text under ``config/change``. Records that
    are sent twice, after a process was killed, are two equal points.

    Example:
        >>> from guerdon.tracking import RewardLogger, TensorBoardTracker
        >>> with RewardLogger(TensorBoardTracker("runs/first"), path="logs") as logger:
        ...     logger.log_step(1, 0, 0.7, {"tests": 1.0}, "env-0")

    Args:
        path: The log folder; by default ``tensorboard`` in the run's folder.
        max_environments: How many environments get a run of their own, in the order of their
            first record; each needs an open file.

    Raises:
        MissingExtraError: The package ``tensorboard`` isn't installed.
        InvalidArgumentError: `max_environments` is negative or not an integer.
    """

    name = "tensorboard"

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, max_environments: int = 256
    ) -> None:
        require("tensorboard", extra="tensorboard", user="TensorBoardTracker")
        self.path = None if path is None else Path(path).absolute()
        self._max_environments = check_integer("max_environments", max_environments, low=0)
        self._folder = Path()
        self._files: dict[str, _EventFile] = {}

    def open(self, run: TrackedRun) -> None:
        """Choose the folder; an event file is created with its first record."""
        self._folder = self.path or run.folder / "tensorboard"

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Write one event per record to the files."""
        try:
            for record in records:
                self._file("").add(record)
                if record.env_id is not None:
                    place = f"env/{metric_name(str(record.env_id))}"
                    if place in self._files or len(self._files) <= self._max_environments:
                        self._file(place).add(record)
            for file in self._files.values():
                file.flush()
        except BaseException:
            for file in self._files.values():
                file.undo()
            self.close()  # all records are passed again, and go to new files
            raise
        for file in self._files.values():
            file.settle()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, place: str) -> _EventFile:
        found = self._files.get(place)
        if found is not None and found.is_removed():
            found.close()
            found = None
        if found is None:
            found = self._files[place] = _EventFile(self._folder / place)
        return found


class _EventFile:
    """One event file, written by the calling thread: TensorBoard's writer starts a thread each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._protos = import_module("tensorboard.compat.proto.event_pb2")
        self._summaries = import_module("tensorboard.compat.proto.summary_pb2")
        self._tensors = import_module("tensorboard.compat.proto.tensor_pb2")
        self._types = import_module("tensorboard.compat.proto.types_pb2")
        # Unbuffered: a forked process would write a buffer again at its end.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._path = _new_file(folder)
        self._file = os.open(self._path, flags, 0o644)
        self._settled = 0
        self._added = io.BytesIO()
        writers = import_module("tensorboard.summary.writer.record_writer")
        self._writer = writers.RecordWriter(self._added)
        self._add(self._protos.Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, record: TrackedRecord) -> None:
        """Add an event with the metrics of a record, and its change as text."""
        values = [
            self._summaries.Summary.Value(tag=tag, simple_value=value)
            for tag, value in record.metrics().items()
        ]
        if record.change:
            values.append(self._text("config/change", json.dumps(record.change)))
        summary = self._summaries.Summary(value=values)
        self._add(self._protos.Event(wall_time=record.time, step=record.step, summary=summary))

    def flush(self) -> None:
        """Write what was added."""
        write_all(self._file, self._added.getvalue())
        self._added.seek(0)
        self._added.truncate()

    def settle(self) -> None:
        """Keep what is written, also if a later record fails."""
        self._settled = os.lseek(self._file, 0, os.SEEK_END)

    def undo(self) -> None:
        """Remove what was written since `settle`, and the file if that was never called."""
        os.ftruncate(self._file, self._settled)
        if not self._settled:
            self._path.unlink(missing_ok=True)

    def is_removed(self) -> bool:
        """Whether the file was removed."""
        return not os.fstat(self._file).st_nlink

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _add(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())

    def _text(self, tag: str, text: str) -> Any:
        plugin = self._summaries.SummaryMetadata.PluginData(plugin_name="text")
        return self._summaries.Summary.Value(
            tag=tag,
            metadata=self._summaries.SummaryMetadata(plugin_data=plugin),
            tensor=self._tensors.TensorProto(
                dtype=self._types.DT_STRING, string_val=[text.encode()]
            ),
        )


def _new_file(folder: Path) -> Path:
    """Return a unique file name in TensorBoard's format, which sorts by time."""
    host = "".join(each if each.isalnum() or each in ".-" else "_" for each in socket.gethostname())
    unique = f"{os.getpid()}.{time.time_ns() % 10**9:09}"
    return folder / f"events.out.tfevents.{int(time.time()):010}.{host}.{unique}"
