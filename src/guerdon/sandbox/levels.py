"""The levels of this machine: what `process` and `strict` consist of, and where Python's files are.

Landlock doesn't hide the names and sizes of files, nor process ids. The namespaces of bubblewrap
do, so `strict` wraps it around a worker if it is installed and works. It is never run as root, for
whom it is no sandbox.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from guerdon._validation import check_choice
from guerdon.errors import InvalidArgumentError, SandboxUnavailableError
from guerdon.sandbox.locking.canaries import Finding
from guerdon.sandbox.locking.lock import requirements
from guerdon.sandbox.locking.privileges import ReservedUser, unreachable

# Only the system's bubblewrap is used: versions in Python packages lack recent security fixes.
BUBBLEWRAP_PATH = "/usr/local/bin:/usr/bin:/bin"

# Folders of private files.
PRIVATE = ("/home", "/root", "/run", "/var", "/tmp", "/mnt", "/media", "/srv")

# Seconds that bubblewrap has for starting a program that does nothing.
PATIENCE = 5.0

# Files of the system that Python programs read implicitly.
SYSTEM = """
/lib /lib64 /usr/lib /usr/lib64 /usr/local/lib /usr/share/zoneinfo /etc/ld.so.cache /etc/localtime
/etc/mime.types /dev/null /dev/random /dev/urandom
"""


@dataclass(frozen=True, slots=True)
class LocalLevel:
    """A level of isolation that guerdon itself implements.

    Attributes:
        name: ``process`` or ``strict``.
        promise: What it isolates, in a line.
    """

    name: Literal["process", "strict"]
    promise: str

    def config(self, *, read: Sequence[str]) -> dict[str, Any]:
        """Return the configuration of a worker.

        Args:
            read: What may be read beside Python's own.

        Raises:
            InvalidArgumentError: One of these doesn't exist.
        """
        given = [str(Path(each).resolve()) for each in read]
        for path in given:
            if not Path(path).exists():
                raise InvalidArgumentError(f"allow_read: there is no {path}")
        system = SYSTEM.split() if sys.platform == "linux" else []
        needed = [*interpreter_paths(), *given, *filter(os.path.exists, system)]
        return {
            "level": self.name,
            "read": list(dict.fromkeys(needed)),
            "bubblewrap": _bubblewrap(needed) if self.name == "strict" else None,
        }


PROCESS = LocalLevel(
    "process",
    "accidents: loops, leaks, crashes and floods are ended; files and the network are open, "
    "malice is not stopped",
)
STRICT = LocalLevel(
    "strict",
    "no network, no files beyond those that are listed, no other process seen or signalled, no "
    "new privileges, nothing outlives a call; the kernel is shared",
)
LEVELS = {"auto": STRICT, "strict": STRICT, "process": PROCESS}


def local_level(name: str) -> LocalLevel:
    """Return a level of this machine.

    Args:
        name: ``process``, ``strict``, or ``auto``, which is ``strict`` or an error.

    Raises:
        InvalidArgumentError: There is no such level.
        SandboxUnavailableError: It doesn't work; the error lists the reasons.
    """
    level = LEVELS[check_choice("level", name, LEVELS)]
    missing: list[str] = []
    if sys.platform == "win32":
        missing.append(f"{level.name} needs fork, which Windows doesn't have")
    elif level is STRICT:
        missing = requirements()
    if missing:
        raise unavailable(level.name, missing)
    return level


def unavailable(
    name: str, missing: Sequence[str], findings: Sequence[Finding] = ()
) -> SandboxUnavailableError:
    """Return the error of a level that doesn't work."""
    why = "; ".join(missing)
    return SandboxUnavailableError(
        f"the sandbox level {name!r} doesn't work here: {why}. No weaker level is used instead; "
        "choose `process` for a sandbox against accidents alone (--sandbox process)",
        level=name,
        missing=missing,
        findings=findings,
    )


def own_paths() -> list[str]:
    """Return the folders of this package, and of those that its processes import."""
    spec = importlib.util.find_spec("landlockpy")
    needed = [] if spec is None or spec.origin is None else [str(Path(spec.origin).parents[1])]
    return list(dict.fromkeys([str(Path(__file__).parents[2]), *needed]))


def executable_paths() -> list[str]:
    """Return the paths of the interpreter's executable, and of its shared library."""
    programs = [sys.executable, os.path.realpath(sys.executable)]
    # Beside it, as well as where it was built for: it may have been moved.
    beside = Path(programs[1]).parents[1]
    shared = [
        str(path)
        for home in (Path(sys.base_prefix), beside)
        for path in home.glob("lib/libpython*")
    ]
    return list(dict.fromkeys([*programs, *shared]))


def interpreter_paths() -> list[str]:
    """Return the folders of the standard library, and of what it is linked with."""
    # Of a virtual environment, those of the interpreter that it was made of: its own folder has the
    # installed packages alone.
    base = {"platbase": sys.base_exec_prefix}
    found = {sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")}
    shared = sysconfig.get_config_var("LIBDIR")
    if shared and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        found.add(shared)
    return sorted(os.path.realpath(path) for path in found if os.path.exists(path))


def _bubblewrap(read: Sequence[str]) -> str | None:
    """Return the path of bubblewrap, if it works here with what must be readable."""
    paths = [*read, *own_paths(), *executable_paths()]
    found = shutil.which("bwrap", path=BUBBLEWRAP_PATH)
    nothing = shutil.which("true", path=BUBBLEWRAP_PATH)
    root = os.geteuid() == 0
    # As root it is run by another user, who may be unable to read them.
    if found is None or nothing is None or (root and unreachable(paths)):
        return None
    with contextlib.ExitStack() as stack:
        uid = stack.enter_context(contextlib.closing(ReservedUser())).uid if root else None
        try:
            done = subprocess.run(
                [*wrapped(found, paths, None), nothing],
                capture_output=True,
                timeout=PATIENCE,
                check=False,
                user=uid,
                group=uid,
                extra_groups=None if uid is None else [],
            )
        except (OSError, subprocess.SubprocessError):
            return None
    return found if done.returncode == 0 else None


def wrapped(program: str, read: Sequence[str], folder: str | None) -> list[str]:
    """Return the arguments before a command that is to run in bubblewrap.

    Args:
        program: Where bubblewrap is.
        read: What must be readable inside, even in a private folder.
        folder: What is writable inside.
    """
    # Not --die-with-parent: that means the thread that has started it. When the host has gone, the
    # supervisor ends by itself, and with it all that is inside.
    command = [program, "--unshare-all", "--ro-bind", "/", "/"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    private = [path for path in PRIVATE if os.path.isdir(path) and not os.path.islink(path)]
    for path in private:
        command += ["--tmpfs", path]
    for path in read:
        if any(path.startswith(f"{each}/") for each in private) and os.path.exists(path):
            command += ["--ro-bind", path, path]
    if folder is not None:
        command += ["--bind", folder, folder]
    return [*command, "--chdir", "/", "--"]
