"""RewardLogger: what it accepts and rejects, how it is created and closed."""

import copy
import itertools
import json
import logging
import os
import pickle
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import RubricComposer
from guerdon.config import RewardRuntime
from guerdon.errors import InvalidArgumentError, TrackerError
from guerdon.tracking import RewardLogger


def rows(folder):
    return [json.loads(line) for line in (folder / "rewards.jsonl").read_text().splitlines()]


# Arguments


def test_log_step_writes_all_fields(tmp_path):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(7, 2, 0.5, {"tests": 1.0, "style": 0.0}, "env-0")
    [row] = rows(tmp_path / "run")
    assert row.pop("id")
    assert abs(row.pop("time") - time.time()) < 60
    assert row == {
        "kind": "step", "step": 7, "episode": 2, "env_id": "env-0", "reward": 0.5,
        "components": {"tests": 1.0, "style": 0.0},
        "metrics": {"reward/total": 0.5, "reward/tests": 1.0, "reward/style": 0.0},
    }  # fmt: skip


def test_log_step_logs_the_weights_of_the_reward(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, 0.5, {"tests": 1.0}, weights={"tests": np.float32(0.5)})
        logger.log_step(2, 0, 0.5, {"tests": 1.0}, weights={})
        with pytest.raises(InvalidArgumentError, match=r"`weights\['tests'\]` must be a finite"):
            logger.log_step(3, 0, 0.5, {"tests": 1.0}, weights={"tests": None})
    first, second = tracker.records
    assert first.metrics() == {
        "reward/total": 0.5, "reward/tests": 1.0, "reward/weights/tests": 0.5,
    }  # fmt: skip
    assert second.metrics() == {"reward/total": 0.5, "reward/tests": 1.0}


def test_log_step_copies_components(tmp_path, kept):
    tracker, components = kept(), {"a": 1.0}
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, components)
        components["a"] = 2.0
    assert tracker.records[0].components == {"a": 1.0}


@pytest.mark.parametrize(
    ("reward", "reason"),
    [(None, "failed"), (float("nan"), "nan"), (float("inf"), "inf"), (-np.inf, "-inf")],
    ids=str,
)
def test_log_step_logs_an_invalid_reward_without_a_number(tmp_path, kept, reward, reason):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, reward, {"tests": 1.0})
    [record] = tracker.records
    assert (record.reward, record.reward_error) == (None, reason)
    assert record.metrics() == {"reward/invalid/total": 1.0, "reward/tests": 1.0}


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), np.float32("nan")], ids=str)
def test_log_step_logs_an_invalid_component_without_a_number(tmp_path, kept, value):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, None, {"tests": 1.0, "style": value}, reward_error="style failed")
    [record] = tracker.records
    assert record.reward_error == "style failed"
    assert record.components == {"tests": 1.0}
    assert list(record.invalid) == ["style"]
    assert record.metrics()["reward/invalid/style"] == 1.0
    assert "reward/style" not in record.metrics()


def test_log_step_logs_why_components_failed(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, None, {"a": 1.0}, invalid={"style": "judge down", "a": "stale"})
    [record] = tracker.records
    assert record.invalid == {"style": "judge down", "a": "stale"}
    assert record.components == {}


@pytest.mark.parametrize(
    ("step", "reward", "component", "env_id"),
    [
        (np.int64(3), np.float64(0.5), np.float32(0.5), np.int64(4)),
        (3, 1, 0, 4),
        (np.uint8(3), np.float32(1), 2**60, 4),
    ],
    ids=["numpy", "ints", "mixed"],
)
def test_log_step_accepts_other_number_types(tmp_path, step, reward, component, env_id):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(step, None, reward, {"a": component}, env_id)
    [row] = rows(tmp_path / "run")
    assert (row["step"], row["reward"], row["components"]) == (3, reward, {"a": component})
    assert row["env_id"] == 4


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"step": -1}, r"`step` must be an integer in \[0, 2\*\*63\), got -1"),
        ({"step": 2**63}, "got 9223372036854775808"),
        ({"step": True}, "got True"),
        ({"step": 1.5}, "got 1.5"),
        (
            {"reward": "0.5"},
            "`reward` must be a number, or None if it failed, got '0.5' of type str",
        ),
        ({"reward": True}, "got True of type bool"),
        (
            {"components": {"a": "b"}},
            r"`components\['a'\]` must be a number, or None if it failed, got 'b'",
        ),
        ({"components": {"a": False}}, r"`components\['a'\]` must be .* got False"),
        ({"components": {1: 1.0}}, "names in `components` must be strings, got 1"),
        ({"components": [1.0]}, r"`components` must be a mapping, got \[1.0\]"),
        ({"components": None}, "`components` must be a mapping, got None"),
        ({"invalid": ["a"]}, r"`invalid` must be a mapping, got \['a'\]"),
        ({"env_id": 1.5}, "`env_id` must be a string, an integer or None, got 1.5"),
        ({"episode": True}, "`episode` must be .* got True"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_log_step_rejects_invalid_arguments_as_a_whole(tmp_path, kept, changed, expected):
    tracker = kept()
    given = {"step": 1, "episode": 0, "reward": 0.5, "components": {"a": 1.0}, "env_id": "e"}
    with RewardLogger(tracker, path=tmp_path) as logger:
        with pytest.raises(InvalidArgumentError, match=expected):
            logger.log_step(**(given | changed))
        logger.log_step(**given)
    assert len(tracker.records) == 1


def test_log_step_rejects_a_step_of_thousands_of_digits(tmp_path):
    with (
        RewardLogger("jsonl", path=tmp_path) as logger,
        pytest.raises(InvalidArgumentError, match="got <int>"),
    ):
        logger.log_step(10**5000, 0, 0.5, {})


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.fractions(),
    st.just(np.float32(0.5)), st.just(np.int64(3)), st.just(np.ones(2)), st.just(b""),
)  # fmt: skip


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    step=ANYTHING,
    episode=ANYTHING,
    reward=ANYTHING,
    components=ANYTHING
    | st.dictionaries(st.text(max_size=3) | st.integers(), ANYTHING, max_size=3),
    env_id=ANYTHING,
    invalid=ANYTHING | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
def test_log_step_rejects_or_logs_whatever_it_is_given(one_logger, **given):
    logger, tracker = one_logger
    before = len(tracker.records)
    try:
        logger.log_step(**given)
    except InvalidArgumentError:
        assert logger.flush() is True
        assert len(tracker.records) == before
        return
    assert logger.flush() is True
    [record] = tracker.records[before:]
    assert all(np.isfinite(value) for value in record.metrics().values())
    assert {*record.components, *record.invalid} >= set(given["components"])
    assert (record.reward is None) == (record.reward_error is not None)


@pytest.fixture
def one_logger(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        yield logger, tracker


def test_close_ends_threads_that_log_and_counts_what_is_lost(tmp_path, kept):
    tracker, logged, refused = kept(), [], []
    logger = RewardLogger(tracker, path=tmp_path, queue_size=3)

    def work():
        try:
            for step in itertools.count():
                logger.log_step(step, 0, 1.0, {})
                logged.append(step)
        except TrackerError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    while len(logged) < 100:
        logger.flush()
    logger.close()
    for each in threads:
        each.join(10)
    assert refused == ["this logger is closed"] * 3
    lost = logger.status()["kept"].lost
    assert len(tracker.records) + lost == len(logged)


def test_log_step_during_close_counts_its_record_as_lost(tmp_path, kept, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow_time():  # it is called once the logger was found open
        begun.set()
        assert go_on.wait(10)
        return 0.0

    tracker = kept()
    logger = RewardLogger(tracker, path=tmp_path)
    clock = SimpleNamespace(time=slow_time, monotonic=time.monotonic)
    monkeypatch.setattr("guerdon.tracking.logger.time", clock)
    thread = threading.Thread(target=logger.log_step, args=(1, 0, 1.0, {}))
    thread.start()
    assert begun.wait(10)
    logger.close()
    assert logger.status()["kept"].lost == 0
    go_on.set()
    thread.join(10)
    assert logger.status()["kept"].lost == 1
    assert tracker.records == []


def test_log_weights_logs_each_by_name(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_weights(5, {"tests": 1, "style": -0.3})
    assert tracker.records[0].metrics() == {
        "reward/weights/tests": 1.0,
        "reward/weights/style": -0.3,
    }


@pytest.mark.parametrize("weight", [None, float("nan"), "1", True], ids=str)
def test_log_weights_rejects_a_weight_that_is_not_a_number(tmp_path, kept, weight):
    with (
        RewardLogger(kept(), path=tmp_path) as logger,
        pytest.raises(InvalidArgumentError, match=r"`weights\['style'\]` must be"),
    ):
        logger.log_weights(5, {"style": weight})


def test_log_config_update_logs_and_counts_the_change_of_a_weight(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(41, 0, 1.0, {})
        logger.log_config_update(
            "per_turn.style.weight",
            before=0.3, after=0.1, who="ann", when="2026-01-02", fingerprint="f1",
        )  # fmt: skip
        logger.log_config_update("style.threshold", before=None, after=float("nan"), step=50)
    first, second = tracker.records[1:]
    assert first.step == 41
    assert first.metrics() == {"reward/weights/style": 0.1, "config/updates": 1.0}
    assert first.change == {
        "what": "per_turn.style.weight", "from": 0.3, "to": 0.1, "who": "ann",
        "when": "2026-01-02", "fingerprint": "f1", "number": 1,
    }  # fmt: skip
    assert (second.step, second.metrics()) == (50, {"config/updates": 2.0})
    assert second.change["to"] == "nan"


def test_log_config_update_accepts_the_change_of_a_live_reward(tmp_path, kept):
    rubrics = {"brief": lambda action, observation: 1.0, "style": lambda action, observation: 0.5}
    live = RewardRuntime(RubricComposer(rubrics, {"brief": 1.0, "style": 1.0}))
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        for weights in ({"brief": 0.5, "style": 2.0}, {"brief": 0.5}, {"style": 3.0}):
            answer = live.update({"weights": weights}, by="ann")
            logger.log_config_update(answer["change"], step=7, fingerprint="f")
    assert [record.metrics() for record in tracker.records] == [
        {"reward/weights/brief": 0.5, "config/updates": 1.0},
        {"reward/weights/style": 2.0, "config/updates": 1.0},
        {"reward/weights/style": 3.0, "config/updates": 2.0},
    ]
    last = live.audit[-1]
    assert tracker.records[-1].change == {
        "what": "per_turn.style.weight", "from": 2.0, "to": 3.0, "who": "ann",
        "when": last["when"], "version": last["version"], "fingerprint": "f", "number": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("what", "more", "expected"),
    [
        ("a.weight", {}, "`before` and `after` of 'a.weight' are required"),
        ("a.weight", {"before": 1}, "are required"),
        ({}, {}, "`what` must be a string, or what an update returns .* changes: is required"),
        (5, {}, "must be a mapping, got 5"),
        ({"changes": [{"what": "a"}]}, {}, "`what` must be"),
        ({"changes": [{"what": 1, "from": 1, "to": 2}]}, {}, "`what` must be"),
        ({"changes": []}, {"after": 1, "who": "ann"}, "require `what` to be a string"),
        ("a.weight", {"before": 1, "after": 2, "step": -1}, "got -1"),
    ],
    ids=str,
)
def test_log_config_update_rejects_invalid_arguments(tmp_path, kept, what, more, expected):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        with pytest.raises(InvalidArgumentError, match=expected):
            logger.log_config_update(what, **more)
        logger.log_config_update("a.weight", before=1, after=2)
    assert [record.change["number"] for record in tracker.records] == [1]


class Silent:
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), 10**5000, b"x", Silent()],
    ids=lambda value: type(value).__name__,
)
def test_log_config_update_writes_any_value_as_json(tmp_path, kept, value):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_config_update(
            "a.weight", before=value, after=value, who=value, when=value, fingerprint=value
        )
        logger.log_step(1, 0, 0.5, {})
        assert logger.flush() is True
    change, _ = tracker.records
    assert change.metrics() == {"config/updates": 1.0}
    assert {type(change.change[key]) for key in ("from", "to", "who", "when")} == {str}


def test_log_weights_accepts_effective_weights(tmp_path, kept):
    composer = RubricComposer({"brief": lambda action, observation: 1.0}, {"brief": 2.0})
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_weights(1, composer.effective_weights)
    assert tracker.records[0].metrics() == {"reward/weights/brief": 2.0}


def test_log_step_loses_only_the_record_that_cannot_be_encoded(tmp_path, kept, caplog):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, queue_size=2) as logger:
        for episode in (0, 10**5000, 2, 3, 4):
            logger.log_step(1, episode, 0.5, {})
        assert logger.flush() is True
        assert logger.status()["kept"].lost == 1
    assert [record.episode for record in tracker.records] == [0, 2, 3, 4]
    assert "a record can't be written, and is lost" in caplog.text


@pytest.mark.parametrize("kind", ["components", "environments"])
def test_log_step_warns_once_about_a_growing_number_of_names(tmp_path, kept, caplog, kind):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        for number in range(2_500):
            name = f"question-{number}"
            components, env_id = ({name: 1.0}, "e") if kind == "components" else ({}, name)
            logger.log_step(number, 0, 1.0, components, env_id)
    assert tracker.steps == list(range(2_500))
    [expected] = [record.message for record in caplog.records]
    assert (
        f"more than 1,000 {kind} with different names were logged, such as 'question-1000'"
        in expected
    )


# Creating and closing


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"backend": "wandbb"}, "there is no tracker 'wandbb'; did you mean 'wandb'?"),
        ({"backend": []}, "at least one tracker"),
        ({"backend": ["console", "console"]}, "with different names"),
        ({"backend": 5}, "`backend` must be a name, or an object .* got 5"),
        ({"every": 0, "backend": "console"}, "`every` must be an integer >= 1, got 0"),
        ({"backend": "console", "color": 1}, "tracker 'console': .*'color'"),
        ({"backend": ["mlflow", "console"], "every": 5}, "exactly one named tracker, got 2"),
        ({"every": 5}, "exactly one named tracker, got 0"),
        ({"queue_size": 0}, "`queue_size` must be an integer >= 1, got 0"),
        ({"queue_size": 1.5}, "`queue_size` must be an integer"),
        ({"max_log_bytes": True}, "`max_log_bytes` must be an integer"),
        ({"retry_s": float("nan")}, "`retry_s` must be a number of seconds above 0, got nan"),
        ({"on_full": "wait"}, "`on_full` must be 'drop' or 'raise', got 'wait'"),
        ({"run_name": "../x"}, "`run_name` must be .* got '../x'"),
        ({"run_name": ""}, "`run_name` must be"),
        ({"project": ""}, "`project` must be"),
    ],
    ids=str,
)
def test_reward_logger_rejects_invalid_arguments(tmp_path, arguments, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        RewardLogger(**({"backend": "jsonl", "path": tmp_path} | arguments))


def test_reward_logger_rejects_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match=r"can't use the folder .*file/run"):
        RewardLogger("jsonl", path=tmp_path / "file", run_name="run")


def test_reward_logger_keeps_the_id_and_project_of_a_run(tmp_path):
    with RewardLogger("jsonl", path=tmp_path, run_name="run", project="p") as first:
        pass
    with RewardLogger("jsonl", path=tmp_path, run_name="run", project="q") as second:
        assert second.run == first.run
    with RewardLogger("jsonl", path=tmp_path) as third:
        assert third.run.id != first.run.id


def test_reward_logger_works_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for number in range(2):
        with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
            logger.log_step(number, 0, 1.0, {})
    assert [row["step"] for row in rows(tmp_path / "run")] == [0, 1]
    assert sorted(each.name for each in (tmp_path / "run").glob("*.json*")) == [
        "rewards.jsonl",
        "run.json",
    ]


def test_close_can_be_called_twice_and_ends_logging(tmp_path, kept):
    tracker = kept()
    logger = RewardLogger(tracker, path=tmp_path)
    logger.close()
    logger.close()
    assert tracker.closed == 1
    with pytest.raises(TrackerError, match="this logger is closed"):
        logger.log_step(1, 0, 1.0, {})
    assert logger.flush() is True


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_reward_logger_cannot_be_pickled_or_copied(tmp_path, copied):
    with (
        RewardLogger("jsonl", path=tmp_path, run_name="run") as logger,
        pytest.raises(TrackerError, match=r"can't be pickled or copied.*run_name='run'"),
    ):
        copied(logger)


def test_log_step_from_many_threads_loses_nothing(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, queue_size=50) as logger:

        def work(number):
            for step in range(200):
                logger.log_step(step, 0, 1.0, {"a": 1.0}, number)

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    for number in range(4):
        steps = [record.step for record in tracker.records if record.env_id == number]
        assert steps == list(range(200))
    assert len({record.id for record in tracker.records}) == 800


# Logging


def test_reward_logger_warns_under_its_own_logger_name(tmp_path, kept, caplog):
    down = kept()
    down.fails = OSError("down")
    with caplog.at_level(logging.WARNING), RewardLogger(down, path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert {record.name.rpartition(".")[0] for record in caplog.records} == {"guerdon.tracking"}
