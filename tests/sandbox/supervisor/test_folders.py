"""Folders of calls: measured, and removed even if they are unreadable or deep."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.sandbox.supervisor.folders import empty, empty_folder, remove_tree, written

# A file has whole blocks on the disk.
BLOCK = 4096

names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))
trees = st.recursive(
    st.binary(max_size=50), lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


def lay_out(tree, folder):
    """Make the tree, and count it: entries and bytes."""
    count = size = 0
    for name, content in tree.items():
        count += 1
        path = os.path.join(folder, name)
        if isinstance(content, dict):
            os.mkdir(path)
            below = lay_out(content, path)
            count, size = count + below[0], size + below[1]
        else:
            with open(path, "wb") as file:
                file.write(content)
            size += len(content)
    return count, size


@given(tree=trees)
@settings(max_examples=40)
def test_written_counts_and_remove_tree_removes_a_tree(tree):
    base = tempfile.mkdtemp()
    try:
        path = empty_folder(base, None)
        assert written(path, 1000) == (0, 0)
        count, size = lay_out(tree, path)
        counted = written(path, 1000)
        assert counted[0] == count
        assert size <= counted[1] <= size + count * BLOCK
        if count:
            assert written(path, count - 1)[0] == count  # one more than it may
        remove_tree(base, path)
        assert os.listdir(base) == []
    finally:
        shutil.rmtree(base)


def test_empty_folder_makes_separate_folders(tmp_path):
    first, second = (empty_folder(str(tmp_path), None) for _ in range(2))
    assert first != second
    assert os.stat(first).st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root changes owners")
def test_empty_folder_sets_the_owner(tmp_path):
    assert os.stat(empty_folder(str(tmp_path), 54_321)).st_uid == 54_321


def test_written_stops_at_the_maximum(tmp_path):
    for number in range(50):
        (tmp_path / str(number)).write_text("x")
    assert written(str(tmp_path), 10)[0] == 11


def test_written_does_not_follow_links(tmp_path):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("x" * 100)
    (folder / "link").symlink_to(outside)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to(".")
    count, size = written(str(folder), 100)
    assert count == 3
    assert size <= 2 * BLOCK
    remove_tree(str(tmp_path), str(folder))
    assert (outside / "kept").exists()
    assert not folder.exists()


def test_written_counts_nothing_in_a_missing_folder(tmp_path):
    assert written(str(tmp_path / "nothing"), 5) == (0, 0)


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o300, 0o444, 0o500])
def test_remove_tree_removes_unreadable_folders(tmp_path, mode):
    folder = tmp_path / "folder"
    (folder / "shut" / "deeper").mkdir(parents=True)
    (folder / "shut" / "file").write_text("x")
    (folder / "shut" / "deeper").chmod(mode)
    (folder / "shut").chmod(mode)
    folder.chmod(mode)
    remove_tree(str(tmp_path), str(folder))
    assert list(tmp_path.iterdir()) == []


def test_remove_tree_removes_deep_folders(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(60):
            os.mkdir("x" * 200)
            os.chdir("x" * 200)
        Path("file").write_text("x")
    finally:
        os.fchdir(here)
        os.close(here)
    remove_tree(str(tmp_path), str(folder))
    assert list(tmp_path.iterdir()) == []


def test_remove_tree_removes_pipes_and_sockets(tmp_path):
    import socket

    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(folder)  # such a name may only be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
    for number in range(500):
        (folder / str(number)).touch()
    remove_tree(str(tmp_path), str(folder))
    assert list(tmp_path.iterdir()) == []


def test_empty_removes_the_content(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to("folder")
    empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
