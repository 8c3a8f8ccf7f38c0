"""Trackers by name, those of other packages included."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from guerdon import _registry
from guerdon.errors import InvalidArgumentError
from guerdon.tracking import RewardLogger, trackers


class Offered:
    name = "offered"
    made = ()

    def __init__(self, color="red"):
        type(self).made = (color,)

    def open(self, run): ...
    def write(self, records): ...
    def close(self): ...


@pytest.fixture(autouse=True)
def offers(monkeypatch):
    group = "guerdon.trackers"
    entries = EntryPoints(
        [
            EntryPoint("offered", f"{__name__}:Offered", group),
            EntryPoint("broken", "no_such_module_at_all:Thing", group),
        ]
    )
    monkeypatch.setattr(_registry, "entry_points", lambda group: entries.select(group=group))
    monkeypatch.setattr(EntryPoint, "load", _load, raising=True)


def _load(entry):
    if entry.value.startswith("no_such"):
        raise ModuleNotFoundError("No module named 'no_such_module_at_all'")
    return Offered


def test_reward_logger_creates_a_tracker_of_another_package_with_its_options(tmp_path):
    with RewardLogger("offered", path=tmp_path, color="blue"):
        pass
    assert Offered.made == ("blue",)


def test_reward_logger_reports_a_tracker_that_cannot_be_imported(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"can't import tracker 'broken'.*no_such_mod"):
        RewardLogger("broken", path=tmp_path)


def test_reward_logger_lists_the_trackers_for_an_unknown_name(tmp_path):
    with pytest.raises(InvalidArgumentError, match="'mlflow', 'offered', 'tensorboard'"):
        RewardLogger("zzz", path=tmp_path)


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow"])
def test_reward_logger_names_the_extra_of_a_missing_package(tmp_path, monkeypatch, name):
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=rf"package {name}: pip install 'guerdon\[{name}\]'"):
        RewardLogger(name, path=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [Offered, object(), type("T", (Offered,), {"name": "a/b"})()])
def test_reward_logger_rejects_an_object_that_is_not_a_tracker(tmp_path, wrong):
    with pytest.raises(InvalidArgumentError, match="`backend` must be a name, or an object"):
        RewardLogger(wrong, path=tmp_path)
