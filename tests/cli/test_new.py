"""guerdon new: what it writes works, and what it refuses it leaves untouched."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, SLOW
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real processes


@pytest.fixture
def inside(tmp_path):
    return lambda *args: run_inside(tmp_path, *args)


FILES = {"__init__.py", "environment.py", "test_environment.py", "README.md", "Dockerfile"}


def its_tests_pass(where, folder, environ):
    """Runs the tests of a folder like its README."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", folder],
        cwd=where, env=environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, timeout=SLOW,
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_new_environment_passes_its_tests_and_check(guerdon, environ, tmp_path):
    done = guerdon("new", "my_env")
    assert (done.returncode, done.stderr) == (0, "")
    assert {file.name for file in (tmp_path / "my_env").iterdir()} == FILES
    assert "next: guerdon check my_env" in done.stdout
    checked = guerdon("check", "my_env")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "problem" not in checked.stdout
    assert "note" not in checked.stdout
    its_tests_pass(tmp_path, "my_env", environ)


def test_new_environment_is_clean_code(inside, tmp_path):
    inside("new", "my_env")
    ruff = str(Path(sys.executable).parent / "ruff")
    for how in (["check", "--select=E,F,W,B,UP"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *how, "--line-length=100", "--isolated", "--no-cache", "my_env"],
            cwd=tmp_path, timeout=SLOW, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def test_new_fills_in_every_placeholder(inside, tmp_path):
    inside("new", "my_env")
    for file in (tmp_path / "my_env").iterdir():
        assert not re.search(r"\{[Nn]ame\}|\{\{|\}\}", file.read_text())


def test_new_readme_has_working_commands(guerdon, started, environ, tmp_path):
    guerdon("new", "my_env")
    text = (tmp_path / "my_env" / "README.md").read_text()
    commands = [line.partition("#")[0] for line in text.splitlines() if line.startswith("    ")]
    check, pytest_, serve = (shlex.split(command) for command in commands)
    assert (check[0], pytest_[0], serve[0]) == ("guerdon", "pytest", "guerdon")
    assert guerdon(*check[1:]).returncode == 0
    assert pytest_[1:] == ["my_env"]
    process = started(*serve[1:], "--port", "0")
    assert process.stdout.readline().startswith(b"serving my_env at http://127.0.0.1:")
    assert "http://127.0.0.1:8000" in text


def test_new_creates_parent_folders(inside, environ, tmp_path):
    done = inside("new", "envs/deep/my_env")
    assert done.returncode == 0
    assert inside("check", "envs/deep/my_env").returncode == 0
    its_tests_pass(tmp_path, "envs/deep/my_env", environ)


def test_new_inside_a_package_is_part_of_it(inside, environ, tmp_path):
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "__init__.py").touch()
    done = inside("new", "games/my_env")
    if done.returncode == 2:  # to refuse it would be right too
        assert not (tmp_path / "games" / "my_env").exists()
        return
    assert inside("check", "games/my_env").returncode == 0
    its_tests_pass(tmp_path, "games/my_env", environ)


@pytest.mark.parametrize(
    "name", ["found", "state", "weighted_sum", "none", "_", "_1", "guerdon", "episode_error"]
)
def test_new_accepts_or_rejects_names_used_in_the_template(inside, tmp_path, name):
    done = inside("new", name)
    if done.returncode == 2:
        assert list(tmp_path.iterdir()) == []
        return
    checked = inside("check", name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "note" not in checked.stdout


@pytest.mark.parametrize("name", ["größe", "a", "env_2", "my__env", "my_env/"])
def test_new_accepts_package_names(inside, name):
    assert inside("new", name).returncode == 0
    assert inside("check", name).returncode == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-env", "is not a valid package name: use lower-case letters, digits and _"),
        ("MyEnv", "is not a valid package name"),
        ("my env", "is not a valid package name"),
        ("2envs", "is not a valid package name"),
        ("my.env", "is not a valid package name"),
        ("sub/my-env", "is not a valid package name"),
        (".", "is not a valid package name"),
        ("..", "is not a valid package name"),
        ("", "is not a valid package name"),
        ("class", "is not a valid package name"),
        ("async", "is not a valid package name"),
        ("random", "is a module of Python itself; choose another"),
        ("sub/json", "is a module of Python itself"),
        ("{name}", "is not a valid package name"),
    ],
)
def test_new_rejects_invalid_names_and_writes_nothing(inside, tmp_path, name, message):
    done = inside("new", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link"])
def test_new_keeps_an_existing_folder(inside, tmp_path, kind):
    there = tmp_path / "my_env"
    if kind == "file":
        there.write_text("mine")
    elif kind == "link":
        there.symlink_to(tmp_path / "nowhere")
    else:
        there.mkdir()
    if kind == "folder":
        (there / "environment.py").write_text("mine")
    done = inside("new", "my_env")
    assert (done.returncode, done.stdout) == (2, "")
    assert "my_env" in done.stderr
    assert "Traceback" not in done.stderr
    if kind == "file":
        assert there.read_text() == "mine"
    if kind == "folder":
        assert {file.name: file.read_text() for file in there.iterdir()} == {
            "environment.py": "mine"
        }
    assert not (tmp_path / "nowhere").exists()


def test_new_reports_a_folder_that_can_not_be_created_in_one_line(inside, tmp_path):
    (tmp_path / "file").touch()
    done = inside("new", "file/my_env")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: can't write file")
    assert done.stderr.count("\n") == 1


def test_new_on_a_full_disk_leaves_nothing(tmp_path, environ):
    """No file may grow over 512 bytes (1024, of some shells): too few for environment.py."""
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 1; exec {shlex.quote(COMMAND)} new my_env"],
        cwd=tmp_path, env=environ | {"PYTHONDONTWRITEBYTECODE": "1"}, timeout=SLOW, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "can't write" in done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
