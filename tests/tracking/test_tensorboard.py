"""TensorBoard's event files, read back by TensorBoard."""

import json
import os
import shutil

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from guerdon.errors import InvalidArgumentError
from guerdon.tracking import (
    RewardLogger,
    TensorBoardTracker,
    TrackedRecord,
    TrackedRun,
    metric_name,
)
from guerdon.tracking import tensorboard as module


def scalars(folder):
    """Everything that TensorBoard finds in a folder: step and value by tag."""
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def step(number, **more):
    return TrackedRecord(str(number), "step", 10.0 + number, number, **({"reward": 0.5} | more))


@pytest.fixture
def tracker(tmp_path):
    tracker = TensorBoardTracker(max_environments=2)
    tracker.open(TrackedRun("id", "run", "project", tmp_path))
    yield tracker
    tracker.close()


def test_tensorboard_tracker_writes_what_tensorboard_reads(tmp_path):
    with RewardLogger("tensorboard", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, 0.5, {"tests": 1.0, "a b": 0.25})
        logger.log_step(2, 0, None, {"tests": 0.0, "a b": None})
        logger.log_weights(2, {"tests": 2.0})
        logger.log_config_update("tests.weight", before=2.0, after=3.0, who="ann")
    other = metric_name("a b")
    assert scalars(tmp_path / "run" / "tensorboard") == {
        "reward/total": [(1, 0.5)],
        "reward/tests": [(1, 1.0), (2, 0.0)],
        f"reward/{other}": [(1, 0.25)],
        f"reward/invalid/{other}": [(2, 1.0)],
        "reward/invalid/total": [(2, 1.0)],
        "reward/weights/tests": [(2, 2.0), (2, 3.0)],
        "config/updates": [(2, 1.0)],
    }


def test_tensorboard_tracker_writes_a_change_as_text(tmp_path):
    with RewardLogger(TensorBoardTracker(tmp_path / "tb"), path=tmp_path) as logger:
        logger.log_config_update("style.prompt", before="a", after="b", who="ann", step=3)
    found = EventAccumulator(str(tmp_path / "tb"))
    found.Reload()
    [event] = found.Tensors("config/change")
    assert event.step == 3
    assert json.loads(event.tensor_proto.string_val[0])["who"] == "ann"
    assert found.summary_metadata["config/change"].plugin_data.plugin_name == "text"


def test_tensorboard_tracker_writes_a_run_for_each_environment(tracker, tmp_path):
    tracker.write([step(1, reward=1.0, env_id="a"), step(1, reward=2.0, env_id="b/c")])
    tracker.write([step(2, reward=3.0, env_id="a"), step(2, reward=4.0, env_id=7)])
    folder = tmp_path / "tensorboard"
    assert scalars(folder) == {"reward/total": [(1, 1.0), (1, 2.0), (2, 3.0), (2, 4.0)]}
    assert scalars(folder / "env" / "a") == {"reward/total": [(1, 1.0), (2, 3.0)]}
    assert scalars(folder / "env" / metric_name("b/c")) == {"reward/total": [(1, 2.0)]}
    assert sorted(os.listdir(folder / "env")) == ["a", metric_name("b/c")]  # 7 is the third


def test_tensorboard_tracker_writes_events_with_the_time_of_the_record(tracker, tmp_path):
    tracker.write([step(1)])
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert found.Scalars("reward/total")[0].wall_time == 11.0


def test_tensorboard_tracker_keeps_earlier_files_of_a_run(tmp_path):
    for number in range(3):
        with RewardLogger("tensorboard", path=tmp_path, run_name="run") as logger:
            logger.log_step(number, 0, float(number), {})
    found = scalars(tmp_path / "run" / "tensorboard")
    assert found == {"reward/total": [(0, 0.0), (1, 1.0), (2, 2.0)]}


def test_tensorboard_tracker_leaves_a_readable_file_after_a_failed_write(
    tracker, tmp_path, monkeypatch
):
    whole = module.write_all
    tracker.write([step(1)])

    def half(file, data):
        whole(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_all", half)
        with pytest.raises(OSError, match="No space"):
            tracker.write([step(2)])
    tracker.write([step(2)])
    assert scalars(tmp_path / "tensorboard") == {"reward/total": [(1, 0.5), (2, 0.5)]}


def test_tensorboard_tracker_repeats_no_point_after_a_failed_write(tracker, tmp_path, monkeypatch):
    whole, calls = module.write_all, []

    def full(file, data):
        calls.append(file)
        if len(calls) % 2 == 0:  # the environment's, after the one of all
            raise OSError(28, "No space left on device")
        whole(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_all", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                tracker.write([step(1, env_id="a")])
    assert list((tmp_path / "tensorboard").rglob("events*")) == []
    tracker.write([step(1, env_id="a")])
    assert scalars(tmp_path / "tensorboard") == {"reward/total": [(1, 0.5)]}
    assert scalars(tmp_path / "tensorboard" / "env" / "a") == {"reward/total": [(1, 0.5)]}


def test_tensorboard_tracker_creates_a_removed_folder_again(tracker, tmp_path):
    tracker.write([step(1, env_id="a")])
    shutil.rmtree(tmp_path / "tensorboard")
    tracker.write([step(2, env_id="a")])
    assert scalars(tmp_path / "tensorboard") == {"reward/total": [(2, 0.5)]}


@pytest.mark.parametrize("number", [-1, 1.5, None], ids=str)
def test_tensorboard_tracker_rejects_invalid_max_environments(number):
    with pytest.raises(InvalidArgumentError, match="`max_environments` must be an integer >= 0"):
        TensorBoardTracker(max_environments=number)
