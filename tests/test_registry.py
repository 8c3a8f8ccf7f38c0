"""Registry: objects by name, registered in code or by the entry points of other packages."""

import threading
from importlib.metadata import EntryPoint

import pytest

from guerdon import _registry
from guerdon._registry import Registry
from guerdon.errors import InvalidArgumentError, LoadError


class Thing:
    pass


@pytest.fixture
def registry():
    return Registry("environment", "guerdon.environments")


@pytest.fixture
def offered(monkeypatch):
    """Return a function that registers entry points of another package."""

    def offer(**values):
        def found(*, group):
            assert group == "guerdon.environments"
            return [EntryPoint(each, value, group) for each, value in values.items()]

        monkeypatch.setattr(_registry, "entry_points", found)

    offer()
    return offer


def test_registry_finds_registered_objects(registry, offered):
    registry.register("maze", Thing)
    registry.register("a.b-c_2", lambda: None)
    registry.register("2048", Thing)
    assert registry["maze"] is Thing
    assert registry.names() == ["2048", "a.b-c_2", "maze"]
    assert "maze" in registry
    assert "chess" not in registry


@pytest.mark.parametrize("name", ["", "a b", "a/b", "http://x", "a:b", "a\n", None, 3, b"maze"])
def test_registry_rejects_invalid_names(registry, name):
    with pytest.raises(InvalidArgumentError, match="`name` must consist of letters"):
        registry.register(name, Thing)
    assert name not in registry.names()


def test_registry_replaces_a_name_only_on_request(registry):
    registry.register("maze", Thing)
    with pytest.raises(InvalidArgumentError, match=r"'maze' is already .*replace=True"):
        registry.register("maze", lambda: None)
    assert registry["maze"] is Thing
    other = lambda: Thing()  # noqa: E731
    registry.register("maze", other, replace=True)
    assert registry["maze"] is other


def test_registry_suggests_the_closest_name_or_lists_all(registry, offered):
    with pytest.raises(LoadError, match="no environment 'maze'; none are known"):
        registry["maze"]
    registry.register("maze", Thing)
    with pytest.raises(LoadError, match=r"no environment 'mase'; did you mean 'maze'?"):
        registry["mase"]
    with pytest.raises(LoadError, match=r"known: 'maze'"):
        registry["chess"]


def test_registry_finds_entry_points(registry, offered):
    offered(world="tests.test_registry:Thing")
    assert registry.names() == ["world"]
    assert registry["world"] is Thing


def test_registry_prefers_objects_registered_in_code(registry, offered):
    offered(world="nowhere:Nothing")
    other = lambda: Thing()  # noqa: E731
    registry.register("world", other)
    assert registry["world"] is other
    assert registry.names() == ["world"]


@pytest.mark.parametrize("value", ["nowhere:Nothing", "tests.test_registry:Nothing"])
def test_registry_reports_entry_points_with_import_errors(registry, offered, value):
    offered(world=value, other="also.nowhere:Nothing")
    with pytest.raises(LoadError, match=f"can't import environment 'world' .{value}.: "):
        registry["world"]


def test_registry_registers_a_name_once_from_many_threads(registry):
    barrier = threading.Barrier(8, timeout=5)
    refused = []

    def register():
        barrier.wait()
        try:
            registry.register("maze", Thing)
        except InvalidArgumentError:
            refused.append(1)

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(refused) == 7


def test_registry_finds_a_package_that_is_installed_later(registry, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert "labyrinth" not in registry
    package = tmp_path / "mazes-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mazes\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[guerdon.environments]\nlabyrinth = mazes:Maze\n")
    assert "labyrinth" in registry
