"""MLflow's local store, read back through its client.

mlflow-skinny has no database: its store is the folder, which has to be allowed.
"""

import json
from importlib.util import find_spec

import pytest

from guerdon.tracking import MlflowTracker, RewardLogger, TrackedRecord, TrackedRun
from guerdon.tracking import mlflow as module

pytestmark = pytest.mark.edge


@pytest.fixture
def uri(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return (tmp_path / "mlruns").as_uri()


class Store:
    """The content of one run, read with MLflow's client."""

    def __init__(self, uri, project="guerdon"):
        from mlflow import MlflowClient

        self.client = MlflowClient(uri)
        experiment = self.client.get_experiment_by_name(project)
        self.runs = self.client.search_runs([experiment.experiment_id])
        self.run = self.runs[0]

    def history(self, name):
        found = self.client.get_metric_history(self.run.info.run_id, name)
        return [(metric.step, metric.value) for metric in found]


def step(number, **more):
    return TrackedRecord(str(number), "step", 10.0 + number, number, **({"reward": 0.5} | more))


def test_mlflow_tracker_logs_what_the_client_reads(tmp_path, uri):
    options = {"project": "chess", "tracking_uri": uri, "tags": {"team": "a"}}
    with RewardLogger("mlflow", path=tmp_path, run_name="first", **options) as logger:
        logger.log_step(1, 0, 0.5, {"tests": 1.0}, "env-0")
        logger.log_step(1, 0, 0.25, {"tests": 0.0}, "env/1")
        logger.log_step(2, 0, None, {"tests": None})
        logger.log_weights(2, {"tests": 2.0})
        logger.log_config_update("tests.weight", before=2.0, after=3.0, who="ann")
        assert logger.flush() is True
    store = Store(uri, "chess")
    assert store.run.info.run_name == "first"
    assert store.run.info.status == "FINISHED"
    assert store.history("reward/total") == [(1, 0.5), (1, 0.25)]
    assert store.history("reward/tests") == [(1, 1.0), (1, 0.0)]
    assert store.history("env/env-0/reward/total") == [(1, 0.5)]
    assert store.history("env/env-0/reward/tests") == [(1, 1.0)]
    assert [name for name in store.run.data.metrics if name.startswith("env/env_1-")]
    assert store.history("reward/invalid/total") == [(2, 1.0)]
    assert store.history("reward/invalid/tests") == [(2, 1.0)]
    assert store.history("reward/weights/tests") == [(2, 2.0), (2, 3.0)]
    assert store.history("config/updates") == [(2, 1.0)]
    [change] = [text for name, text in store.run.data.tags.items() if "config.change" in name]
    assert json.loads(change)["who"] == "ann"
    assert store.run.data.tags["team"] == "a"


def test_mlflow_tracker_continues_the_same_run(tmp_path, uri):
    for number in range(2):
        with RewardLogger(MlflowTracker(uri), path=tmp_path, run_name="first") as logger:
            logger.log_step(number, 0, 0.5, {})
    store = Store(uri)
    assert len(store.runs) == 1
    assert store.history("reward/total") == [(0, 0.5), (1, 0.5)]


def test_mlflow_tracker_reports_a_store_that_is_not_allowed_and_sends_later(
    tmp_path, uri, monkeypatch
):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with RewardLogger(MlflowTracker(uri), path=tmp_path, retry_s=60) as logger:
        logger.log_step(1, 0, 0.5, {})
        assert logger.flush() is False
        assert "MLFLOW_ALLOW_FILE_STORE" in logger.status()["mlflow"].error
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        assert logger.flush() is True
    assert Store(uri).history("reward/total") == [(1, 0.5)]


@pytest.mark.skipif(find_spec("sqlalchemy") is not None, reason="the whole mlflow is here")
def test_mlflow_tracker_reports_a_database_without_the_full_package(tmp_path, uri):
    database = f"sqlite:///{tmp_path}/mlflow.db"
    with RewardLogger(MlflowTracker(database), path=tmp_path, retry_s=60) as logger:
        logger.log_step(1, 0, 0.5, {})
        assert logger.flush() is False
        assert "a database requires the full package (pip install mlflow)" in (
            logger.status()["mlflow"].error
        )


def test_mlflow_tracker_accepts_any_name(tmp_path, uri):
    names = ["a", "A b", "a/b", "..", "é", "x" * 300, "total", "\ud800", "a:b", "weights"]
    with RewardLogger(MlflowTracker(uri), path=tmp_path) as logger:
        logger.log_step(1, 0, 0.5, dict.fromkeys(names, 1.0), "e" * 300)
        assert logger.flush() is True
        assert logger.status()["mlflow"].refused == 0
    assert len(Store(uri).run.data.metrics) == 2 * (1 + len(names))


def test_mlflow_tracker_repeats_only_the_request_that_failed(tmp_path, uri, monkeypatch):
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)
    tracker = MlflowTracker(uri)
    tracker.open(TrackedRun("id", "run", "project", tmp_path))
    whole, calls = tracker._client.log_batch, []

    def once(*given, **more):
        calls.append(given)
        if len(calls) == 2:
            raise ConnectionError("gone")
        whole(*given, **more)

    monkeypatch.setattr(tracker._client, "log_batch", once)
    records = [step(number, components={"a": 1.0}) for number in range(4)]
    with pytest.raises(ConnectionError):
        tracker.write(records)
    tracker.write(records)
    tracker.close()
    assert Store(uri, "project").history("reward/total") == [(n, 0.5) for n in range(4)]
