"""Rewards in MLflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from guerdon.errors import TrackerError
from guerdon.tracking.metric_names import metric_name
from guerdon.tracking.protocol import TrackedRun, installed, module
from guerdon.tracking.records import TrackedRecord, after

__all__ = ["MlflowTracker"]

MOST_AT_ONCE, MOST_TAGS_AT_ONCE = 1000, 100  # what MLflow's servers take in one request
LONGEST_TAG = 5000  # characters that every store takes
RUN_TAG = "guerdon.run"


class MlflowTracker:
    """Logs to a run of an MLflow server or store, through its client.

    It needs the extra ``mlflow``: ``pip install 'guerdon[mlflow]'``, which is mlflow-skinny. That
    speaks to servers (``http://…``, ``databricks``). Local stores: a database
    (``sqlite:///mlflow.db``) needs the whole package ``mlflow``; a folder (``file:///…``) works
    with either, and since MLflow 3.7 only where ``MLFLOW_ALLOW_FILE_STORE=true`` is set.

    A metric's step is the training step, its time that of the record. The metrics are ``reward/…``
    for every record and, where there is an environment, ``env/{env_id}/reward/…`` too; MLflow keeps
    every value of a step, but equal values of one name, step and millisecond may become one in a
    database. Changes of the configuration are also tags, ``config.change.{record's id}``, as JSON.
    What was spooled by a process that ended goes to the same run, found by its tag ``guerdon.run``.
    Metrics that are sent twice, after a process was killed, are one in a database, and two equal
    lines in a folder.

    Example:
        >>> from guerdon.tracking import MlflowTracker, RewardLogger
        >>> def main():
        ...     with RewardLogger(MlflowTracker("http://localhost:5000")) as logger:
        ...         logger.log_step(1, 0, 0.7, {"tests": 1.0}, "env-0")

    Args:
        tracking_uri: The server or store; by default as MLflow is set (``MLFLOW_TRACKING_URI``).
        tags: Tags of the run.

    Raises:
        MissingExtraError: Neither package is there.
    """

    name = "mlflow"

    def __init__(
        self, tracking_uri: str | None = None, *, tags: dict[str, str] | None = None
    ) -> None:
        installed("mlflow", extra="mlflow", user="MlflowTracker")
        self._uri, self._tags = tracking_uri, dict(tags or {})
        self._client: Any = None
        self._run_id = ""
        self._written: str | None = None

    def open(self, run: TrackedRun) -> None:
        """Find the run by its tag, or begin it in the experiment named as the project."""
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
        """Log them, as many at once as a server takes, and those only that aren't there."""
        for group in _groups(after(records, self._written)):
            metrics = [metric for _, numbers in group for metric in numbers]
            tags = [tag for record, _ in group for tag in _tags(record)]
            for start in range(0, max(1, len(metrics)), MOST_AT_ONCE):
                part = metrics[start : start + MOST_AT_ONCE]
                self._client.log_batch(self._run_id, part, tags=() if start else tags)
            self._written = group[-1][0].id

    def close(self) -> None:
        """Say that the run has ended."""
        self._client.set_terminated(self._run_id)


def _client(uri: str | None) -> Any:
    mlflow = module("mlflow")
    try:
        return mlflow.MlflowClient(tracking_uri=uri)
    except mlflow.exceptions.MlflowException as error:
        raise TrackerError(
            f"MLflow can't use {uri or mlflow.get_tracking_uri()!r}: a database needs the whole "
            "package (pip install mlflow), a folder needs MLFLOW_ALLOW_FILE_STORE=true, and a "
            f"server (http://…) works as it is: {error}"
        ) from error


def _groups(
    records: Sequence[TrackedRecord],
) -> Iterator[list[tuple[TrackedRecord, list[Any]]]]:
    """Records with their metrics, in groups that a server takes in one request."""
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
    make, at = module("mlflow.entities").Metric, int(record.time * 1000)
    for name, value in record.metrics().items():
        yield make(name, value, at, record.step)
        if record.env_id is not None:
            yield make(f"env/{metric_name(str(record.env_id))}/{name}", value, at, record.step)


def _tags(record: TrackedRecord) -> Iterator[Any]:
    if record.change:
        said = json.dumps(record.change)
        if len(said) > LONGEST_TAG:
            said = said[: LONGEST_TAG - 1] + "…"
        name = f"config.change.{record.id}"
        yield module("mlflow.entities").RunTag(name, said)
