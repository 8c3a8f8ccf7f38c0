"""Landlock: which files a process may read and write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from guerdon.errors import SandboxError

if TYPE_CHECKING:
    from landlockpy import Ruleset

# Devices that may be written to as well as read: they store nothing.
BOTTOMLESS = ("/dev/null",)
# The version of the interface whose rights are known here; those of a newer one are not used.
KNOWN_ABI = 11


def abi_version() -> int:
    """Return the version of Landlock's interface in this kernel; 0 if it has none."""
    from landlockpy import abi_version

    return min(abi_version(), KNOWN_ABI)


class FileRules:
    """The files that a process may read, and the folder that it may write in.

    Landlock refuses everything else that it controls: starting programs, binding, connecting,
    signals and abstract sockets to other processes. It doesn't control stat, chmod, chown, times
    and extended attributes, which the filter of system calls does.

    They apply before the process gives up its user, who may be needed to reach the paths.

    Args:
        read: Absolute paths of files and of folders with all that is under them. One that doesn't
            exist is left out.

    Attributes:
        paths: What may be read, with whether it is a folder.
    """

    def __init__(self, read: Sequence[str]) -> None:
        self.paths = {path: os.path.isdir(path) for path in read if os.path.exists(path)}

    def build(self, write: str | None = None) -> Ruleset:
        """Return the rules in the kernel's form; the caller closes them.

        This is the slowest step of locking, and slower after a fork, where memory is copied on
        write.

        Args:
            write: A folder in which files and folders may be created, changed and removed.

        Raises:
            SandboxError: The kernel refused, or has no Landlock.
        """
        import landlockpy
        from landlockpy import AccessFS as Right

        abi = abi_version()
        folder = Right.READ_FILE | Right.READ_DIR
        # No devices, sockets, pipes or symbolic links. A symbolic link would do no harm by itself,
        # but the cleaning up after the call would meet it. REFER moves files between folders under
        # it; from outside none can be moved or linked in, since it would have to be granted there.
        writing = Right.WRITE_FILE | Right.TRUNCATE | Right.MAKE_REG | Right.MAKE_DIR
        writing |= Right.REMOVE_FILE | Right.REMOVE_DIR | Right.REFER
        try:
            rules = landlockpy.Ruleset(
                handled_fs=landlockpy.fs_for_abi(abi),
                handled_net=landlockpy.net_for_abi(abi),
                scoped=landlockpy.scope_for_abi(abi),
                best_effort=False,
            )
            for path, is_folder in self.paths.items():
                right = folder if is_folder else Right.READ_FILE
                rules.allow_path(path, right | Right.WRITE_FILE if path in BOTTOMLESS else right)
            if write is not None:
                rules.allow_path(write, folder | writing)  # those that this kernel handles
        except OSError as error:
            raise SandboxError(f"Landlock refused: {error}") from error
        return rules
