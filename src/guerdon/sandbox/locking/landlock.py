"""Landlock: which files a process may read and write."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from guerdon.errors import InvalidArgumentError, SandboxError

if TYPE_CHECKING:
    from landlockpy import AccessFS, Ruleset

# Devices that may be written to as well as read: nothing is kept in them.
BOTTOMLESS = ("/dev/null",)
# The version of the interface whose rights are known here; those of a newer one are not used.
KNOWN_ABI = 11


def abi_version() -> int:
    """The version of Landlock's interface in this kernel; 0 if it has none."""
    from landlockpy import abi_version

    return min(abi_version(), KNOWN_ABI)


class FileRules:
    """The files that a process may read, and the folder that it may write in.

    Everything else that Landlock guards is refused: starting programs, binding and connecting,
    signals and abstract sockets that lead out. It doesn't guard stat, chmod, chown, times and
    extended attributes, which the filter of system calls answers.

    They are applied before the process gives up its user, which may be needed to reach the paths.

    Example:
        >>> from guerdon.sandbox.locking.landlock import FileRules
        >>> FileRules(read=["relative"])
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: read: 'relative' is not an absolute path

    Args:
        read: Files and folders with all that is under them.
        optional_read: The same, left out where they don't exist.

    Raises:
        InvalidArgumentError: A path isn't absolute, or one of ``read`` doesn't exist.
    """

    def __init__(self, read: Sequence[str], optional_read: Sequence[str] = ()) -> None:
        found = {path: _is_folder(path, needed=True) for path in read}
        found |= {
            path: _is_folder(path, needed=False) for path in optional_read if path not in found
        }
        self._folders = {path: folder for path, folder in found.items() if folder is not None}

    @property
    def paths(self) -> tuple[str, ...]:
        """What may be read."""
        return tuple(self._folders)

    def build(self, write: str | None = None) -> Ruleset:
        """The rules as the kernel has them, for `restrict`; the caller closes them.

        Building them takes most of the time, and more so in a process that was just forked, where
        each page that is touched is copied first.

        Args:
            write: A folder to make, change and remove files and folders in; None for none.

        Raises:
            SandboxError: The kernel refused, or has no Landlock.
        """
        import landlockpy
        from landlockpy import AccessFS as Right

        abi = abi_version()
        if not abi:
            raise SandboxError("this kernel has no Landlock")
        handled = landlockpy.fs_for_abi(abi)
        file = Right.READ_FILE
        folder = Right.READ_FILE | Right.READ_DIR
        with contextlib.ExitStack() as stack:
            try:
                rules = landlockpy.Ruleset(
                    handled_fs=handled,
                    handled_net=landlockpy.net_for_abi(abi),
                    scoped=landlockpy.scope_for_abi(abi),
                    best_effort=False,
                )
                stack.enter_context(rules)
                for path, is_folder in self._folders.items():
                    right = folder if is_folder else file
                    if path in BOTTOMLESS:
                        right |= Right.WRITE_FILE
                    rules.allow_path(path, right)
                if write is not None:
                    rules.allow_path(write, folder | _writing() & handled)
            except OSError as error:
                raise SandboxError(f"Landlock refused: {error}") from error
            stack.pop_all()
        return rules


def restrict(rules: Ruleset) -> None:
    """Apply rules to this thread and all that it starts, for good.

    Raises:
        SandboxError: The kernel refused.
    """
    try:
        rules.restrict()
    except OSError as error:
        raise SandboxError(f"Landlock refused: {error}") from error


def _is_folder(path: str, *, needed: bool) -> bool | None:
    """Whether a path is a folder; None if it doesn't exist and isn't needed."""
    if not os.path.isabs(path):
        raise InvalidArgumentError(f"read: {path!r} is not an absolute path")
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        if needed or not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise InvalidArgumentError(f"read: {path!r}: {error.strerror}") from error
        return None


def _writing() -> AccessFS:
    """The rights in a folder that may be written in: no devices, sockets, pipes or symbolic links.

    A symbolic link would do no harm by itself, but the cleaning up after the call would meet it.
    REFER moves files between folders under it; from outside none can be moved or linked in, since
    it would have to be granted there too.
    """
    from landlockpy import AccessFS as Right

    return (
        Right.WRITE_FILE
        | Right.TRUNCATE
        | Right.MAKE_REG
        | Right.MAKE_DIR
        | Right.REMOVE_FILE
        | Right.REMOVE_DIR
        | Right.REFER
    )
