"""bubblewrap around a worker, where it is installed and works: nothing else is seen then at all.

Landlock leaves the names and sizes of files, and the numbers of processes, to be asked for.
bubblewrap's namespaces don't. It is never run by root itself, for whom it is no sandbox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["bubblewrap_here", "wrapped"]

# That of the system: what comes with packages of Python lags behind its security fixes.
_WHERE = "/usr/local/bin:/usr/bin:/bin"

# What people and programs keep their own things in.
_PRIVATE = ("/home", "/root", "/run", "/var", "/tmp", "/mnt", "/media", "/srv")

# Seconds that it has for starting a program that does nothing.
_PATIENCE = 5.0


def bubblewrap_here(read: Sequence[str], uid: int | None) -> str | None:
    """Where bubblewrap is, if it works here.

    Args:
        read: What must be readable inside.
        uid: Who it is run as; None is oneself.
    """
    if sys.platform != "linux":
        return None
    found = shutil.which("bwrap", path=_WHERE)
    nothing = shutil.which("true", path=_WHERE)
    if found is None or nothing is None:
        return None
    command = [*wrapped(found, read, None), nothing]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found if done.returncode == 0 else None


def wrapped(program: str, read: Sequence[str], folder: str | None) -> list[str]:
    """What comes before a command that is to run inside.

    Args:
        program: Where bubblewrap is.
        read: What must be readable inside, though it stands among private things.
        folder: What is writable there.
    """
    # Not --die-with-parent: that means the thread that has started it. When the host has gone, the
    # keeper ends by itself, and with it all that is inside.
    command = [program, "--unshare-all", "--ro-bind", "/", "/"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    private = [path for path in _PRIVATE if os.path.isdir(path) and not os.path.islink(path)]
    for path in private:
        command += ["--tmpfs", path]
    for path in read:
        if any(path.startswith(f"{each}/") for each in private) and os.path.exists(path):
            command += ["--ro-bind", path, path]
    if folder is not None:
        command += ["--bind", folder, folder]
    return [*command, "--chdir", "/", "--"]
