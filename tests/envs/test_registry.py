"""The registry of environments."""

import subprocess
import sys

import pytest

from guerdon import EnvPool
from guerdon.envs.registry import environments
from guerdon.errors import InvalidArgumentError, LoadError
from tests.envs.worlds import World


@pytest.mark.parametrize("factory", [None, "maze", 3])
def test_environments_refuse_what_is_not_a_factory(factory):
    with pytest.raises(InvalidArgumentError, match="`factory` must be an environment class"):
        environments.register("maze", factory)


@pytest.mark.edge
def test_environments_include_the_entry_points_of_installed_packages(tmp_path):
    package = tmp_path / "mazes-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mazes\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[guerdon.environments]\nmaze = mazes:Maze\n")
    (tmp_path / "mazes.py").write_text("class Maze: pass\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from guerdon.envs.registry import environments\n"
        "print(environments.names(), environments['maze'].__name__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert (ended.stdout, ended.stderr) == ("['maze'] Maze\n", "")


def test_env_pool_looks_up_registered_names():
    environments.register("tests-world", World, replace=True)
    assert len(EnvPool("tests-world", n=3)) == 3
    with pytest.raises(LoadError, match="did you mean 'tests-world'"):
        EnvPool("tests-word", n=3)
