"""Where a reward's code is found; none of it is run."""

import sys
from pathlib import Path

import pytest

import guerdon
from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rubrics.sandboxed.source import RewardSource, find_source

BOMB = "raise AssertionError('it was run')\ndef reward(messages): return 1.0\n"


def test_find_source_reads_a_file(write):
    path = write(BOMB)
    found = find_source(f"{path}:reward")
    assert (found.reward.text, found.reward.file) == (BOMB, path)
    assert path in found.read
    assert str(Path(path).parent) not in {*found.read, *found.path}


def test_find_source_names_a_file_in_an_allowed_folder(write, tmp_path):
    path = write(BOMB, "deep/reward.py")
    found = find_source(f"{path}:reward", allow_read=[tmp_path])
    assert (found.reward.text, found.reward.file) == (None, path)
    assert str(tmp_path) in found.read


def test_find_source_finds_a_module_without_running_it(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(BOMB, "mine_package/__init__.py")
    write(BOMB, "mine_package/inner.py")
    found = find_source("mine_package.inner:reward")
    assert found.reward.folders == (str(tmp_path / "mine_package"),)
    assert str(tmp_path / "mine_package") in found.read
    assert str(tmp_path) not in {*found.read, *found.path}
    assert "mine_package" not in sys.modules


def test_find_source_reads_a_module_of_one_file(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(BOMB, "mine_single.py")
    found = find_source("mine_single:reward")
    assert found.reward.text == BOMB
    assert "mine_single" not in sys.modules


def test_find_source_leaves_installed_modules_to_the_import():
    assert find_source("guerdon.rubrics:NumericAnswer").reward.module is None
    assert find_source("json:loads").reward.module is None
    assert find_source("pytest:main").reward.module is None
    assert find_source("sys:exit").reward.module is None


def test_find_source_allows_guerdon_and_installed_packages():
    found = find_source("guerdon:NumericAnswer")
    assert str(Path(guerdon.__file__).parent) in found.read
    assert any("site-packages" in each for each in found.read)
    assert all(Path(each).exists() for each in found.read)


def test_find_source_excludes_other_folders_of_the_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) not in find_source("guerdon:NumericAnswer").path
    assert str(tmp_path) in find_source("guerdon:NumericAnswer", allow_read=[tmp_path]).path


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("reward.py", "'reward.py' names nothing; write module:name or file.py:name"),
        ("nowhere.py:reward", r"there is no file .*nowhere\.py"),
        ("no_such_module.inner:reward", "there is no module 'no_such_module' here or installed"),
    ],
)
def test_find_source_raises_for_what_does_not_exist(spec, expected):
    with pytest.raises(LoadError, match=expected):
        find_source(spec)


def test_find_source_refuses_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "reward.py"
    path.write_bytes(b"x = '\xff'\n")
    with pytest.raises(LoadError, match="importing it raised SyntaxError"):
        find_source(f"{path}:reward")


def test_find_source_respects_a_declared_encoding(tmp_path):
    path = tmp_path / "reward.py"
    path.write_bytes(b"# coding: latin-1\nx = '\xe9'\r\n")
    assert find_source(f"{path}:reward").reward.text == "# coding: latin-1\nx = 'é'\n"


def test_find_source_refuses_a_lone_surrogate():
    with pytest.raises(LoadError, match="SyntaxError"):
        find_source(RewardSource("x = '\ud800'", "x"))


def test_find_source_refuses_allow_read_of_a_missing_path():
    with pytest.raises(
        InvalidArgumentError, match="`allow_read` contains '/no/such', which doesn't exist"
    ):
        find_source("guerdon:NumericAnswer", allow_read=["/no/such"])


def test_reward_source_refuses_requirements_of_one_string():
    with pytest.raises(
        InvalidArgumentError, match="`requirements` must be a list of lines, got 'numpy'"
    ):
        RewardSource("", "x", "numpy")
    assert RewardSource("", "x", ["numpy"]).requirements == ("numpy",)


def test_hint_names_the_folder_of_a_missing_module(write):
    path = write(BOMB)
    write("", "beside.py")
    found = find_source(f"{path}:reward")
    folder = Path(path).parent
    assert found.hint("beside.inner").endswith(
        f"add --allow-read {folder} (allow_read=['{folder}'])"
    )
    assert found.hint("elsewhere") is None
    assert find_source(f"{path}:reward", allow_read=[folder]).hint("beside") is None
    assert find_source(RewardSource("", "x")).hint("beside") is None
