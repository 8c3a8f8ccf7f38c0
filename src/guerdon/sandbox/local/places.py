"""Where things lie on this machine that code in a sandbox may read."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

__all__ = ["executable_places", "interpreter_places", "own_places", "places_of", "system_places"]


def places_of(package: str) -> list[str]:
    """The folder in which a package is found; nothing where it isn't installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    return [str(Path(spec.origin).parents[1])]


def own_places() -> list[str]:
    """The folders in which this package is found, and what its processes need beside it."""
    return list(dict.fromkeys([str(Path(__file__).parents[3]), *places_of("landlockpy")]))


def executable_places() -> list[str]:
    """The interpreter's program, by each of its names, and the library that it may start with."""
    programs = [sys.executable, os.path.realpath(sys.executable)]
    # Beside it, as well as where it was built for: it may have been moved.
    beside = Path(programs[1]).parents[1]
    shared = [
        str(path)
        for home in (Path(sys.base_prefix), beside)
        for path in home.glob("lib/libpython*")
    ]
    return list(dict.fromkeys([*programs, *shared]))


def interpreter_places() -> list[str]:
    """What the interpreter itself consists of: its library, and what that is linked with."""
    paths = sysconfig.get_paths()
    found = {paths["stdlib"], paths["platstdlib"]}
    # Of a virtual environment, these are those of the interpreter that it was made of.
    shared = sysconfig.get_config_var("LIBDIR")
    if shared and sysconfig.get_config_var("Py_ENABLE_SHARED"):
        found.add(shared)
    return sorted(os.path.realpath(path) for path in found if os.path.exists(path))


def system_places() -> list[str]:
    """What of the system a Python program reads without knowing it, as far as it is there."""
    if sys.platform != "linux":
        return []
    return [
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/share/zoneinfo",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/mime.types",
        "/dev/null",
        "/dev/random",
        "/dev/urandom",
    ]
