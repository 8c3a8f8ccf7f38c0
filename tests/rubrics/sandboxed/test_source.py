"""Where a reward's code is found; none of it is run."""

import sys
from pathlib import Path

import pytest

import guerdon
from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rubrics.sandboxed.source import RewardSource, find_source

BOMB = "raise AssertionError('it was run')\ndef reward(messages): return 1.0\n"


def test_a_file_is_handed_over_as_text(write):
    path = write(BOMB)
    found = find_source(f"{path}:reward")
    assert (found.reward.text, found.reward.file) == (BOMB, path)
    assert path in found.read
    assert str(Path(path).parent) not in {*found.read, *found.path}


def test_of_a_folder_that_may_be_read_a_file_is_imported(write, tmp_path):
    path = write(BOMB, "deep/reward.py")
    found = find_source(f"{path}:reward", allow_read=[tmp_path])
    assert (found.reward.text, found.reward.file) == (None, path)
    assert str(tmp_path) in found.read


def test_a_module_is_found_without_running_it(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(BOMB, "mine_package/__init__.py")
    write(BOMB, "mine_package/inner.py")
    found = find_source("mine_package.inner:reward")
    assert found.reward.folders == (str(tmp_path / "mine_package"),)
    assert str(tmp_path / "mine_package") in found.read
    assert str(tmp_path) not in {*found.read, *found.path}
    assert "mine_package" not in sys.modules


def test_a_single_file_that_is_a_module_is_handed_over_as_text(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(BOMB, "mine_single.py")
    found = find_source("mine_single:reward")
    assert found.reward.text == BOMB
    assert "mine_single" not in sys.modules


def test_what_is_installed_needs_no_place():
    assert find_source("guerdon.rubrics:NumericAnswer").reward.module is None
    assert find_source("json:loads").reward.module is None
    assert find_source("pytest:main").reward.module is None
    assert find_source("sys:exit").reward.module is None


def test_guerdon_and_what_is_installed_may_be_read():
    found = find_source("guerdon:NumericAnswer")
    assert str(Path(guerdon.__file__).parent) in found.read
    assert any("site-packages" in each for each in found.read)
    assert all(Path(each).exists() for each in found.read)


def test_the_current_folder_is_no_place_for_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) not in find_source("guerdon:NumericAnswer").path
    assert str(tmp_path) in find_source("guerdon:NumericAnswer", allow_read=[tmp_path]).path


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("reward.py", "'reward.py' names nothing; write module:name or file.py:name"),
        ("nowhere.py:reward", r"there is no file .*nowhere\.py"),
        ("no_such_module.inner:reward", "there is no module 'no_such_module' here or installed"),
    ],
)
def test_what_isnt_there_is_named(spec, said):
    with pytest.raises(LoadError, match=said):
        find_source(spec)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "reward.py"
    path.write_bytes(b"x = '\xff'\n")
    with pytest.raises(LoadError, match="importing it raised SyntaxError"):
        find_source(f"{path}:reward")


def test_the_encoding_that_a_file_declares_is_heeded(tmp_path):
    path = tmp_path / "reward.py"
    path.write_bytes(b"# coding: latin-1\nx = '\xe9'\r\n")
    assert find_source(f"{path}:reward").reward.text == "# coding: latin-1\nx = 'é'\n"


def test_a_text_with_a_lone_surrogate_is_no_python():
    with pytest.raises(LoadError, match="SyntaxError"):
        find_source(RewardSource("x = '\ud800'", "x"))


def test_what_may_be_read_has_to_be_there():
    with pytest.raises(
        InvalidArgumentError, match="`allow_read` contains '/no/such', which doesn't exist"
    ):
        find_source("guerdon:NumericAnswer", allow_read=["/no/such"])


def test_requirements_are_lines():
    with pytest.raises(
        InvalidArgumentError, match="`requirements` must be a list of lines, got 'numpy'"
    ):
        RewardSource("", "x", "numpy")
    assert RewardSource("", "x", ["numpy"]).requirements == ("numpy",)


def test_a_hint_names_the_folder_where_the_module_lies(write):
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
