"""The environment of its own in which ``openenv`` lives, made with uv under ``.bench/openenv``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench" / "openenv"
VERSION = "0.10.0"

_ASK = "import importlib.metadata as m, sys; print(m.version('openenv'), *sys.version_info[:3])"


def make() -> tuple[str, str]:
    """Make the environment, unless it is there.

    Returns:
        Its interpreter, and why there is none; one of the two is ``""``.
    """
    python = HOME / "bin" / "python"
    if _is_there(python):
        return str(python), ""
    uv = _uv()
    if not uv:
        return "", "there is no uv to install it with"
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
            said = (done.stderr.strip().splitlines() or ["no word why"])[0]
            return "", f"uv {command[1]} failed: {said:.80}"
    return (str(python), "") if _is_there(python) else ("", "it was installed, but doesn't run")


def _uv() -> str:
    own = ROOT / ".tools" / "bin" / "uv"
    return os.environ.get("UV") or shutil.which("uv") or (str(own) if own.exists() else "")


def _is_there(python: Path) -> bool:
    """Whether the environment has that version, on the Python that runs now."""
    if not python.exists():
        return False
    done = subprocess.run([str(python), "-c", _ASK], capture_output=True, text=True)
    return done.stdout.split() == [VERSION, *map(str, sys.version_info[:3])]
