"""Environments by name."""

import subprocess
import sys
import threading
from importlib.metadata import EntryPoint

import pytest

from guerdon import EnvPool
from guerdon.envs import EnvironmentRegistry
from guerdon.envs import registry as registry_module
from guerdon.envs.registry import ENTRY_POINTS, environments
from guerdon.errors import InvalidArgumentError, LoadError
from tests.envs.worlds import World


@pytest.fixture
def registry():
    return EnvironmentRegistry()


@pytest.fixture
def offered(monkeypatch):
    """Have another package offer environments."""

    def offer(**values):
        def found(*, group, name=None):
            assert group == ENTRY_POINTS == "guerdon.environments"
            return [
                EntryPoint(each, value, group)
                for each, value in values.items()
                if name in (None, each)
            ]

        monkeypatch.setattr(registry_module, "entry_points", found)

    offer()
    return offer


def test_what_is_registered_is_found(registry, offered):
    registry.register("maze", World)
    registry.register("a.b-c_2", lambda: None)
    assert registry.factory("maze") is World
    assert registry.names() == ["a.b-c_2", "maze"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "http://x", "a:b", "a\n", None, 3, b"maze"])
def test_what_cant_be_a_name_is_refused(registry, name):
    with pytest.raises(InvalidArgumentError, match="can't be a name; it takes letters"):
        registry.register(name, World)
    assert name not in registry.names()


@pytest.mark.parametrize("factory", [None, "maze", 3])
def test_what_makes_no_environment_is_refused(registry, factory):
    with pytest.raises(InvalidArgumentError, match="makes no environment"):
        registry.register("maze", factory)


def test_a_name_is_taken_once_unless_it_is_replaced(registry):
    registry.register("maze", World)
    with pytest.raises(InvalidArgumentError, match="'maze' already; replace=True"):
        registry.register("maze", lambda: None)
    assert registry.factory("maze") is World
    other = lambda: World()  # noqa: E731
    registry.register("maze", other, replace=True)
    assert registry.factory("maze") is other


def test_an_unknown_name_is_told_with_the_nearest_or_with_all(registry, offered):
    with pytest.raises(LoadError, match="no environment 'maze'; there are none"):
        registry.factory("maze")
    registry.register("maze", World)
    with pytest.raises(LoadError, match=r"no environment 'mase'; did you mean 'maze'?"):
        registry.factory("mase")
    with pytest.raises(LoadError, match=r"there are \['maze'\]"):
        registry.factory("chess")


def test_another_package_offers_environments(registry, offered):
    offered(world="tests.envs.worlds:World")
    assert registry.names() == ["world"]
    assert registry.factory("world") is World


def test_what_is_registered_in_code_comes_first(registry, offered):
    offered(world="nowhere:Nothing")
    other = lambda: World()  # noqa: E731
    registry.register("world", other)
    assert registry.factory("world") is other
    assert registry.names() == ["world"]


@pytest.mark.parametrize("value", ["nowhere:Nothing", "tests.envs.worlds:Nothing"])
def test_what_another_package_offers_and_cant_be_imported_is_told(registry, offered, value):
    offered(world=value, other="also.nowhere:Nothing")
    with pytest.raises(LoadError, match=f"'world' .{value}. can't be imported: "):
        registry.factory("world")


def test_an_installed_package_is_found_by_its_entry_point(tmp_path):
    package = tmp_path / "mazes-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mazes\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[guerdon.environments]\nmaze = mazes:Maze\n")
    (tmp_path / "mazes.py").write_text("class Maze: pass\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from guerdon.envs.registry import environments\n"
        "print(environments.names(), environments.factory('maze').__name__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert (ended.stdout, ended.stderr) == ("['maze'] Maze\n", "")


def test_a_pool_looks_names_up():
    environments.register("tests-world", World, replace=True)
    assert len(EnvPool("tests-world", n=3)) == 3
    with pytest.raises(LoadError, match="did you mean 'tests-world'"):
        EnvPool("tests-word", n=3)


def test_of_many_threads_that_register_one_name_one_does(registry):
    barrier = threading.Barrier(8, timeout=5)
    refused = []

    def register():
        barrier.wait()
        try:
            registry.register("maze", World)
        except InvalidArgumentError:
            refused.append(1)

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(refused) == 7
