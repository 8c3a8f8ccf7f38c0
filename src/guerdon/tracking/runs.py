"""The run that is logged, as its folder knows it."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from guerdon.errors import InvalidArgumentError, TrackerError
from guerdon.tracking.protocol import TrackedRun

__all__ = ["open_run"]

FILE = "run.json"


def open_run(path: str | os.PathLike[str], *, name: str | None, project: str) -> TrackedRun:
    """Open a run's folder, or begin one.

    Args:
        path: Where the runs are kept.
        name: The run; by default a new one, called after the time.
        project: What a new one belongs to; one that is there keeps its own.

    Raises:
        InvalidArgumentError: The name can't be a folder's.
        TrackerError: The folder can't be used.
    """
    if name is None:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    if not isinstance(name, str) or re.fullmatch(r"\w[\w .+=-]{0,127}", name) is None:
        raise InvalidArgumentError(
            f"run_name is {name!r}; it takes up to 128 letters, digits, spaces and any of "
            "._-+=, beginning with a letter or digit"
        )
    if not isinstance(project, str) or not project:
        raise InvalidArgumentError(f"project is {project!r}; it takes a name")
    folder = Path(path).absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        said = _begun(folder, {"id": os.urandom(6).hex(), "name": name, "project": project})
        return TrackedRun(said["id"], said["name"], said["project"], folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrackerError(f"the run's folder {folder} can't be used: {error!r}") from error


def _begun(folder: Path, said: dict[str, str]) -> dict[str, str]:
    """What the folder's file says, which the first of several processes writes."""
    file = folder / FILE
    if not file.exists():
        draft = folder / f".{said['id']}.json"
        draft.write_text(json.dumps(said) + "\n", encoding="utf-8")
        try:
            os.link(draft, file)
        except FileExistsError:
            pass  # another process was first: what it says counts
        except OSError:  # no hard links here, as on some mounted disks
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found
