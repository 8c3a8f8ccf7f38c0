"""Rewards in Weights & Biases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from guerdon.tracking.metric_names import metric_name
from guerdon.tracking.protocol import TrackedRun, installed, module
from guerdon.tracking.records import TrackedRecord, after

__all__ = ["WandbTracker"]


class WandbTracker:
    """Logs to a run of its own in Weights & Biases, beside whatever other runs there are.

    It needs the extra ``wandb``: ``pip install 'guerdon[wandb]'``. Offline (``mode="offline"``, or
    the variable ``WANDB_MODE``) the run is written to ``wandb/`` in the run's folder, and
    ``wandb sync`` sends it.

    Each record is a row with the columns ``step`` (what the charts are drawn over), ``episode``,
    ``env_id`` and ``time``, so records of one step never overwrite each other. The metrics are
    ``reward/…`` for every record and, where there is an environment, ``env/{env_id}/reward/…`` too.
    Changes of the configuration are the column ``config/change``, as JSON. What was spooled by a
    process that ended goes to the same run, which has the id of the run's ``run.json``; rows that
    were under way when a process was killed may be there twice, with the same ``record`` column.
    Processes that log at the same time each need a `run_name` of their own: wandb counts the rows
    of a run in one process.

    Example:
        >>> from guerdon.tracking import RewardLogger, WandbTracker
        >>> def main():
        ...     with RewardLogger(WandbTracker(mode="offline", tags=["chess"])) as logger:
        ...         logger.log_step(1, 0, 0.7, {"tests": 1.0}, "env-0")

    Args:
        mode: ``"online"``, ``"offline"`` or ``"disabled"``; by default as wandb is set.
        entity: The team or user.
        group: The group of the run.
        **init: Further arguments of ``wandb.init``, such as ``tags`` or ``config``.

    Raises:
        MissingExtraError: The package ``wandb`` isn't there.
    """

    name = "wandb"

    def __init__(
        self,
        mode: str | None = None,
        *,
        entity: str | None = None,
        group: str | None = None,
        **init: Any,
    ) -> None:
        installed("wandb", extra="wandb", user="WandbTracker")
        self._init = {"mode": mode, "entity": entity, "group": group, **init}
        self._run: Any = None
        self._written: str | None = None

    def open(self, run: TrackedRun) -> None:
        """Begin the run, or go on with it."""
        wandb = module("wandb")
        quiet = wandb.Settings(console="off", silent=True)
        ours = {
            "id": run.id,
            "name": run.name,
            "project": run.project,
            "dir": str(run.folder),
            "resume": "allow",
            "reinit": "create_new",
            "settings": quiet,
        }
        self._run = wandb.init(**(ours | self._init))
        self._run.define_metric("step", hidden=True)
        for pattern in ("reward/*", "config/*", "env/*"):
            self._run.define_metric(pattern, step_metric="step")

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Log a row for each."""
        for record in after(records, self._written):
            self._run.log(_row(record))
            self._written = record.id

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


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
