"""The adapter for Weights & Biases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from guerdon._validation import check_seconds
from guerdon.errors import TrackerError
from guerdon.tracking.log import TrackedRun
from guerdon.tracking.records import TrackedRecord, after, metric_name
from guerdon.tracking.trackers import require

__all__ = ["WandbTracker"]


class WandbTracker:
    """Logs to a separate run in Weights & Biases, beside other runs of the process.

    Requires the extra ``wandb``: ``pip install 'guerdon[wandb]'``. Offline (``mode="offline"``, or
    the variable ``WANDB_MODE``) the run is written to ``wandb/`` in the run's folder;
    ``wandb sync`` uploads it.

    Each record is a row with the columns ``step`` (the x axis of charts), ``episode``, ``env_id``
    and ``time``, so records of one step never overwrite each other. The metrics are ``reward/…``
    for every record and, with an environment, also ``env/{env_id}/reward/…``. Changes of the
    configuration are in the column ``config/change``, as JSON. The run has the id of the folder's
    ``run.json``, so that a later process continues it; rows that were being sent when a process was
    killed may be there twice, with the same ``record`` column.

    Example:
        >>> from guerdon.tracking import RewardLogger, WandbTracker
        >>> def main():
        ...     with RewardLogger(WandbTracker(mode="offline", tags=["chess"])) as logger:
        ...         logger.log_step(1, 0, 0.7, {"tests": 1.0}, "env-0")

    Args:
        mode: ``"online"``, ``"offline"`` or ``"disabled"``; by default wandb's own setting.
        timeout_s: Seconds for starting the run, and for uploading what is left at its end, each
            above 0. Without them wandb delays the end of a process for minutes if its server can't
            be reached. A version of wandb without the setting ``finish_timeout`` waits at the
            end regardless.
        **init: Further arguments of ``wandb.init``, such as ``entity``, ``group``, ``tags`` or
            ``config``.

    Raises:
        MissingExtraError: The package ``wandb`` isn't installed.
    """

    name = "wandb"

    def __init__(
        self,
        mode: str | None = None,
        *,
        timeout_s: float = 8.0,
        **init: Any,
    ) -> None:
        require("wandb", extra="wandb", user="WandbTracker")
        self._timeout_s = check_seconds("timeout_s", timeout_s)
        self._init = {"mode": mode, **init}
        self._run: Any = None
        self._written: str | None = None

    def open(self, run: TrackedRun) -> None:
        """Start the run, or continue it."""
        wandb = import_module("wandb")
        wanted = {
            "console": "off",
            "silent": True,
            "init_timeout": self._timeout_s,
            "finish_timeout": self._timeout_s,
            "finish_timeout_raises": True,
        }
        known = wandb.Settings.model_fields  # older versions don't have all of them
        settings = {name: value for name, value in wanted.items() if name in known}
        ours = {
            "id": run.id,
            "name": run.name,
            "project": run.project,
            "dir": str(run.folder),
            "resume": "allow",
            "reinit": "create_new",
            "settings": wandb.Settings(**settings),
        }
        self._run = wandb.init(**(ours | self._init))
        self._run.define_metric("step", hidden=True)
        for pattern in ("reward/*", "config/*", "env/*"):
            self._run.define_metric(pattern, step_metric="step")

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Log one row per record."""
        for record in after(records, self._written):
            self._run.log(_row(record))
            self._written = record.id

    def close(self) -> None:
        """Finish the run.

        Raises:
            TrackerError: It isn't uploaded in time; the message names the folder to upload.
        """
        try:
            self._run.finish()
        except TimeoutError as error:
            raise TrackerError(
                f"the run wasn't uploaded within {self._timeout_s:g} s; `wandb sync "
                f"{Path(self._run.dir).parent}` uploads it"
            ) from error


def _row(record: TrackedRecord) -> dict[str, Any]:
    row: dict[str, Any] = {"step": record.step, "time": record.time, "record": record.id}
    metrics = record.metrics()
    if record.episode is not None:
        row["episode"] = record.episode
    if record.env_id is not None:
        row["env_id"] = str(record.env_id)
        place = f"env/{metric_name(str(record.env_id))}"
        row |= {f"{place}/{name}": value for name, value in metrics.items()}
    if record.change:
        row["config/change"] = json.dumps(record.change)
    return row | metrics
