"""Rewards in MLflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from guerdon._http import shown_url
from guerdon.errors import TrackerError
from guerdon.tracking.log import TrackedRun
from guerdon.tracking.records import TrackedRecord, after, metric_name
from guerdon.tracking.trackers import require

__all__ = ["MlflowTracker"]

MOST_AT_ONCE, MOST_TAGS_AT_ONCE = 1000, 100  # what MLflow's servers accept in one request
LONGEST_TAG = 5000  # characters that every store accepts
RUN_TAG = "guerdon.run"


class MlflowTracker:
    """Logs to a run of an MLflow server or store, through its client.

    Requires the extra ``mlflow``: ``pip install 'guerdon[mlflow]'`` installs mlflow-skinny, which
    supports servers (``http://…``, ``databricks``). Of local stores, a database
    (``sqlite:///mlflow.db``) requires the full package ``mlflow``; a folder (``file:///…``) works
    with either, since MLflow 3.7 only with ``MLFLOW_ALLOW_FILE_STORE=true``.

    A metric's step is the training step, its time that of the record. The metrics are ``reward/…``
    for every record and, with an environment, also ``env/{env_id}/reward/…``. MLflow keeps every
    value of a step, but a database may merge equal values of one name, step and millisecond.
    Changes of the configuration are also tags, ``config.change.{record's id}``, as JSON. The run is
    found again by its tag ``guerdon.run``. Metrics that are sent twice, after a process was killed,
    are one value in a database, and two equal lines in a folder.

    Example:
        >>> from guerdon.tracking import MlflowTracker, RewardLogger
        >>> def main():
        ...     with RewardLogger(MlflowTracker("http://localhost:5000")) as logger:
        ...         logger.log_step(1, 0, 0.7, {"tests": 1.0}, "env-0")

    Args:
        tracking_uri: The server or store; by default MLflow's own (``MLFLOW_TRACKING_URI``).
        tags: Tags of the run.

    Raises:
        MissingExtraError: Neither package is installed.
    """

    name = "mlflow"

    def __init__(
        self, tracking_uri: str | None = None, *, tags: dict[str, str] | None = None
    ) -> None:
        require("mlflow", extra="mlflow", user="MlflowTracker")
        self._uri, self._tags = tracking_uri, dict(tags or {})
        self._client: Any = None
        self._run_id = ""
        self._written: str | None = None

    def open(self, run: TrackedRun) -> None:
        """Find the run by its tag, or create it in the experiment named like the project."""
        client = _client(self._uri)
        experiment = client.get_experiment_by_name(run.project)
        place = experiment.experiment_id if experiment else client.create_experiment(run.project)
        found = client.search_runs([place], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
        if found:
            self._run_id = found[0].info.run_id
            client.update_run(self._run_id, status="RUNNING")
        else:
            tags = self._tags | {RUN_TAG: run.id}
            self._run_id = client.create_run(place, tags=tags, run_name=run.name).info.run_id
        self._client = client

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Log records in requests as large as servers accept, without those already logged."""
        for group in _groups(after(records, self._written)):
            metrics = [metric for _, numbers in group for metric in numbers]
            tags = [tag for record, _ in group for tag in _tags(record)]
            for start in range(0, max(1, len(metrics)), MOST_AT_ONCE):
                part = metrics[start : start + MOST_AT_ONCE]
                self._client.log_batch(self._run_id, part, tags=() if start else tags)
            self._written = group[-1][0].id

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run_id)


def _client(uri: str | None) -> Any:
    mlflow = import_module("mlflow")
    try:
        return mlflow.MlflowClient(tracking_uri=uri)
    except mlflow.exceptions.MlflowException as error:
        where = shown_url(uri or mlflow.get_tracking_uri())
        raise TrackerError(
            f"MLflow can't use {where!r}: a database requires the full package (pip install "
            "mlflow), a folder MLFLOW_ALLOW_FILE_STORE=true, and a server (http://…) neither: "
            f"{error}"
        ) from error


def _groups(
    records: Sequence[TrackedRecord],
) -> Iterator[list[tuple[TrackedRecord, list[Any]]]]:
    """Return records with their metrics, in groups that a server accepts in one request."""
    group: list[tuple[TrackedRecord, list[Any]]] = []
    size = 0
    for record in records:
        metrics = list(_metrics(record))
        weight = len(metrics) + (MOST_AT_ONCE // MOST_TAGS_AT_ONCE if record.change else 0)
        if group and size + weight > MOST_AT_ONCE:
            yield group
            group, size = [], 0
        group.append((record, metrics))
        size += weight
    if group:
        yield group


def _metrics(record: TrackedRecord) -> Iterator[Any]:
    make, at = import_module("mlflow.entities").Metric, int(record.time * 1000)
    for name, value in record.metrics().items():
        yield make(name, value, at, record.step)
        if record.env_id is not None:
            yield make(f"env/{metric_name(str(record.env_id))}/{name}", value, at, record.step)


def _tags(record: TrackedRecord) -> Iterator[Any]:
    if record.change:
        text = json.dumps(record.change)
        if len(text) > LONGEST_TAG:
            text = text[: LONGEST_TAG - 1] + "…"
        name = f"config.change.{record.id}"
        yield import_module("mlflow.entities").RunTag(name, text)
