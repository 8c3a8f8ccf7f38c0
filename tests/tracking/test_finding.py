"""Trackers of other packages, by their names."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from guerdon.errors import InvalidArgumentError, TrackerError
from guerdon.tracking import RewardLogger, finding, protocol


class Offered:
    name = "offered"
    made = ()

    def __init__(self, colour="red"):
        type(self).made = (colour,)

    def open(self, run): ...
    def write(self, records): ...
    def close(self): ...


@pytest.fixture(autouse=True)
def offers(monkeypatch):
    entries = EntryPoints(
        [
            EntryPoint("offered", f"{__name__}:Offered", finding.ENTRY_POINTS),
            EntryPoint("broken", "no_such_module_at_all:Thing", finding.ENTRY_POINTS),
        ]
    )
    monkeypatch.setattr(finding, "entry_points", lambda group: entries.select(group=group))
    monkeypatch.setattr(EntryPoint, "load", _load, raising=True)


def _load(entry):
    if entry.value.startswith("no_such"):
        raise ModuleNotFoundError("No module named 'no_such_module_at_all'")
    return Offered


def test_one_that_another_package_offers_is_found_and_gets_its_options(tmp_path):
    with RewardLogger("offered", path=tmp_path, colour="blue"):
        pass
    assert Offered.made == ("blue",)


def test_one_that_cannot_be_imported_is_an_error_that_says_why(tmp_path):
    with pytest.raises(TrackerError, match=r"'broken' .*can't be imported.*no_such_mod"):
        RewardLogger("broken", path=tmp_path)


def test_an_unknown_name_tells_all_that_there_are(tmp_path):
    with pytest.raises(InvalidArgumentError, match="'jsonl', 'mlflow', 'offered', 'tensorboard'"):
        RewardLogger("zzz", path=tmp_path)


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow"])
def test_a_package_that_is_not_there_is_named_with_its_extra(tmp_path, monkeypatch, name):
    monkeypatch.setattr(protocol, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=rf"package {name}: pip install 'guerdon\[{name}\]'"):
        RewardLogger(name, path=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [Offered, object(), type("T", (Offered,), {"name": "a/b"})()])
def test_what_is_no_tracker_is_refused(tmp_path, wrong):
    with pytest.raises(InvalidArgumentError, match="is no backend; it takes a name, or an object"):
        RewardLogger(wrong, path=tmp_path)
