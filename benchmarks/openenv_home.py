"""A virtual environment with ``openenv`` in ``.bench/openenv``, created with uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench" / "openenv"
VERSION = "0.10.0"

_PRINT_VERSIONS = (
    "import importlib.metadata as m, sys; print(m.version('openenv'), *sys.version_info[:3])"
)


def make() -> tuple[str, str]:
    """Create the virtual environment unless it exists.

    Returns:
        Its interpreter, and the reason if it is missing; one of the two is ``""``.
    """
    python = HOME / "bin" / "python"
    if _is_installed(python):
        return str(python), ""
    uv = _uv()
    if not uv:
        return "", "uv is required to install it, but missing"
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(HOME)],
        [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python),
         f"openenv=={VERSION}"],
    ):  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", f"uv {command[1]}: {error}"
        if done.returncode:
            message = (done.stderr.strip().splitlines() or ["no error message"])[0]
            return "", f"uv {command[1]} failed: {message:.80}"
    return (str(python), "") if _is_installed(python) else ("", "it was installed but doesn't run")


def _uv() -> str:
    own = ROOT / ".tools" / "bin" / "uv"
    return os.environ.get("UV") or shutil.which("uv") or (str(own) if own.exists() else "")


def _is_installed(python: Path) -> bool:
    """Return whether the environment has this version of openenv and of Python."""
    if not python.exists():
        return False
    done = subprocess.run([str(python), "-c", _PRINT_VERSIONS], capture_output=True, text=True)
    return done.stdout.split() == [VERSION, *map(str, sys.version_info[:3])]
