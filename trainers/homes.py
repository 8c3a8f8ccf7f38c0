"""Virtual environments of trainers in ``.trainers``, which uv makes and later runs use again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOMES = ROOT / ".trainers"

# Lines of the table "one reward, every trainer", which the tests of the trainers write.
AGREEMENTS = HOMES / "agreements.md"

# PyTorch for the CPU: PyPI has none for x86-64, but pip's configured links may.
TORCH = "torch==2.13.0"

# What the tests themselves import.
TESTS = ("pytest>=8.2", "markdown-it-py>=3.0", "trio>=0.27", "hypothesis>=6.100")

INSTALL_S = 1_800.0  # timeout of a command in seconds


class NotInstalledError(Exception):
    """A command failed; the message has its last line."""


def make(name: str, packages: tuple[str, ...], version: str = "") -> tuple[Path, str]:
    """Create the virtual environment of a trainer, unless it has these packages.

    Args:
        name: The name of the trainer.
        packages: Its requirements.
        version: The version of Python that it needs; by default that of this interpreter.

    Returns:
        Its interpreter, and the reason if it is missing, otherwise ``""``.
    """
    home = HOMES / name
    python, stamp = home / "bin" / "python", home / "installed.txt"
    wanted = "\n".join(
        (version or sys.version, *packages, *TESTS, (ROOT / "pyproject.toml").read_text())
    )
    if stamp.exists() and stamp.read_text() == wanted:
        return python, ""
    try:
        uv = _uv()
        # On a machine with pyenv, uv finds the version that this variable names.
        _call(uv, "venv", "--quiet", "--clear", "--seed", "--python", version or sys.executable,
              str(home), PYENV_VERSION=version)  # fmt: skip
        wheels = [_torch(python) if each == TORCH else each for each in packages]
        _call(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python),
              *wheels, *TESTS, "--editable", str(ROOT))  # fmt: skip
    except NotInstalledError as error:
        return python, str(error)
    stamp.write_text(wanted)
    return python, ""


def _torch(python: Path) -> str:
    """The file of a wheel for the CPU; the requirement where pip finds none."""
    folder = HOMES / "wheels"
    try:
        _call(str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
              f"{TORCH}+cpu")  # fmt: skip
    except NotInstalledError:
        return TORCH
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return str(next(folder.glob(f"torch-*+cpu-{tag}-*.whl")))


def _uv() -> str:
    own = ROOT / ".tools" / "bin" / "uv"
    found = os.environ.get("UV") or shutil.which("uv") or (str(own) if own.exists() else "")
    if not found:
        raise NotInstalledError("uv is required to install it, but missing")
    return found


def _call(*command: str, **variables: str) -> None:
    title = " ".join(command[1:3])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, env=os.environ | variables
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"{title}: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no error message"]
        raise NotInstalledError(f"{title} failed: {lines[-1]:.200}")
