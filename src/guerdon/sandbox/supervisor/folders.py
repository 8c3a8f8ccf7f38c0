"""The folders of calls: creating, measuring and removing them."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import stat

_numbers = itertools.count()


def empty_folder(base: str, uid: int | None) -> str:
    """Create the folder of a call.

    Args:
        base: The folder to make it in.
        uid: Its owner; None is the present user.
    """
    # Another call can't guess its name.
    path = os.path.join(base, f"call-{secrets.token_hex(8)}")
    os.mkdir(path, 0o700)
    if uid is not None:
        os.chown(path, uid, uid)
    return path


def empty(base: str) -> None:
    """Remove the content of a folder."""
    for entry in _entries(base):
        if entry.is_dir(follow_symlinks=False):
            remove_tree(base, entry.path)
        else:
            os.unlink(entry.path)


def written(path: str, most: int) -> tuple[int, int]:
    """Return how many files and folders are in a folder, and how many bytes they have.

    Counting stops above `most`.
    """
    count = size = 0
    waiting = [path]
    while waiting and count <= most:
        for entry in _entries(waiting.pop()):
            count += 1
            if count > most:
                break
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_size
    return count, size


def remove_tree(base: str, path: str) -> None:
    """Remove a folder with its content, however deep it is; no process uses it any more.

    Args:
        base: A folder in the same file system that only this process writes into.
        path: The folder to remove.
    """
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                # Moved first: its path may be longer than the kernel accepts.
                moved = os.path.join(base, f"old-{next(_numbers)}")
                os.chmod(entry.path, 0o700)
                os.rename(entry.path, moved)
                waiting.append(moved)
            else:
                os.unlink(entry.path)
        with contextlib.suppress(FileNotFoundError):  # a call can remove its folder itself
            os.rmdir(folder)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise
        os.chmod(folder, 0o700)  # its owner had no permission to list it
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
