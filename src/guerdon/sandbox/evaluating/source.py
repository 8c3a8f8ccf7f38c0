"""Where a reward's code is found, without running any of it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guerdon._loading import (
    file_digest,
    split_spec,
)
from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rubrics.functions.function import Mode
from guerdon.sandbox.evaluating.handover import Handover, Place
from guerdon.sandbox.evaluating.wire import VERSION

__all__ = ["RewardSource"]

# What the file of a source text is called in tracebacks.
TEXT_FILE = "<reward>"

_GUERDON = Path(__file__).resolve().parents[2]
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True)
class RewardSource:
    """A reward function as text, as it comes with a data set or over the network.

    Example:
        >>> from guerdon import EvalSandbox
        >>> from guerdon.sandbox import RewardSource
        >>> source = RewardSource("def brief(messages): return float(len(messages) < 5)", "brief")
        >>> with EvalSandbox(source, level="none") as sandbox:
        ...     sandbox.evaluate([{"role": "assistant", "content": "42"}]).score
        1.0

    Args:
        text: Python.
        name: What the reward is called in it.
        requirements: What it imports, as PEP 508 has it, such as ``numpy>=1.26``. It is checked
            against what is installed; nothing is ever installed.
    """

    text: str
    name: str
    requirements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.requirements, str):
            raise InvalidArgumentError(
                f"requirements is {self.requirements!r:.60}; it takes a list of lines"
            )
        object.__setattr__(self, "requirements", tuple(self.requirements))


@dataclass(frozen=True, slots=True)
class Found:
    """What a sandbox is handed of a reward, and what it may read.

    Example:
        >>> from guerdon.sandbox.evaluating.source import find_source
        >>> find_source("guerdon:NumericAnswer").folder is None
        True

    Attributes:
        handover: What is loaded in it.
        read: Files and folders that it may read, beside Python itself.
        path: Where it finds modules, beside Python's own.
        folder: Where the reward's own file lies; None of a text.
    """

    handover: Handover
    read: tuple[str, ...]
    path: tuple[str, ...]
    folder: Path | None

    def hint(self, missing: str | None) -> str | None:
        """What lets a module be imported that wasn't found; None where it isn't here either.

        Args:
            missing: The module's name; None where a relative import failed.
        """
        folder, handed = self.folder, self.handover
        if folder is None or (handed.text is None and handed.place is None):
            return None
        if missing is not None and not missing.partition(".")[0].isidentifier():
            return None  # the function's side may say anything
        if missing is not None:
            top = folder / missing.partition(".")[0]
            if not (top.with_name(f"{top.name}.py").is_file() or top.is_dir()):
                return None
        return (
            f"it lies in {folder}, which the sandbox may not read: "
            f"add --allow-read {folder} (allow_read=[{str(folder)!r}])"
        )


def find_source(
    spec: str | RewardSource,
    mode: Mode | None = None,
    *,
    allow_read: Sequence[str | Path] = (),
    keep_loop: bool = False,
) -> Found:
    """Find a reward's code, and what has to be readable for it to run.

    Example:
        >>> find_source("guerdon:NumericAnswer").handover.spec
        'guerdon:NumericAnswer'

    Args:
        spec: ``file.py:name``, ``module:name`` or a text.
        mode: What its mode is said to be.
        allow_read: What else may be read.
        keep_loop: Whether an async function has one event loop for all calls.

    Raises:
        LoadError: There is no such file or module.
        InvalidArgumentError: Something of `allow_read` isn't there.
    """
    allowed = [_there(each) for each in allow_read]
    if isinstance(spec, RewardSource):
        handover = Handover(
            version=VERSION,
            spec=f"{TEXT_FILE}:{spec.name}",
            text=_sendable(spec.text, f"{TEXT_FILE}:{spec.name}"),
            file=TEXT_FILE,
            mode=mode,
            keep_loop=keep_loop,
        )
        return _found(handover, allowed, read=[], folder=None)
    source, _ = split_spec(spec)
    find = _file if source.endswith(".py") else _module
    fields, read, folder = find(spec, source, allowed)
    handover = Handover(version=VERSION, spec=spec, mode=mode, keep_loop=keep_loop, **fields)
    return _found(handover, allowed, read=read, folder=folder)


def _found(
    handover: Handover, allowed: list[Path], *, read: list[Path], folder: Path | None
) -> Found:
    path = []
    for entry in dict.fromkeys(map(Path, filter(None, sys.path))):
        if _INSTALLED & set(entry.parts) or entry == _GUERDON.parent or _within(entry, allowed):
            path.append(entry)
    if _GUERDON.parent not in path:
        path.append(_GUERDON.parent)
    installed = [each for each in path if _INSTALLED & set(each.parts)]
    everything = dict.fromkeys([*installed, _GUERDON, *read, *allowed])
    there = (str(each) for each in everything if each.exists())
    return Found(handover, tuple(there), tuple(map(str, path)), folder)


def _there(given: str | Path) -> Path:
    path = Path(given).expanduser()
    if not path.exists():
        raise InvalidArgumentError(f"allow_read names {str(given)!r}, which isn't there")
    return path.resolve()


def _within(path: Path, folders: Sequence[Path]) -> bool:
    path = path.resolve()
    return any(path == folder or folder in path.parents for folder in folders)


def _sendable(text: str, spec: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LoadError(f"{spec}: importing it raised SyntaxError: {error}", spec=spec) from None
    return text


def _read(path: Path, spec: str) -> tuple[str, str]:
    """A file's text, and the digest of its bytes."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"{spec}: {path} can't be read: {error.strerror}", spec=spec) from None
    try:
        return importlib.util.decode_source(data), file_digest(data)
    except (SyntaxError, UnicodeDecodeError) as error:
        said = f"SyntaxError: {error}"
        raise LoadError(f"{spec}: importing it raised {said}", spec=spec) from error


def _file(spec: str, source: str, allowed: list[Path]) -> tuple[dict[str, Any], list[Path], Path]:
    path = Path(source).resolve()
    if not path.is_file():
        raise LoadError(f"{spec}: there is no file {path}", spec=spec)
    readable = _INSTALLED & set(path.parts) or path.is_relative_to(_GUERDON)
    if readable or _within(path.parent, allowed):  # with what lies beside it, as without a sandbox
        return {"file": str(path)}, [path], path.parent
    text, digest = _read(path, spec)
    return {"text": text, "file": str(path), "digest": digest}, [path], path.parent


def _module(
    spec: str, source: str, allowed: list[Path]
) -> tuple[dict[str, Any], list[Path], Path | None]:
    top = source.partition(".")[0]
    found = _spec_of(top, spec)
    file = Path(found.origin) if found.has_location and found.origin else None
    folders = [Path(each) for each in found.submodule_search_locations or ()]
    if file is None and not folders:  # built in
        return {}, [], None
    home = (file.parent if file is not None else folders[0]).resolve()
    if home == _GUERDON or home.is_relative_to(sysconfig.get_path("stdlib")):
        return {}, [], None
    if _INSTALLED & set(home.parts):
        return {}, [], None
    around = home.parent if folders else home
    if _within(around, allowed):
        return {"folder": str(around)}, [], around
    place: dict[str, Any] = {
        "name": top,
        "file": None if file is None else str(file),
        "folders": tuple(map(str, folders)),
    }
    if file is not None and not folders:
        place["text"], place["digest"] = _read(file, spec)
    read = folders or [file] if file is not None else folders
    return {"place": Place.model_validate(place)}, [each for each in read if each], around


def _spec_of(top: str, spec: str) -> importlib.machinery.ModuleSpec:
    """Where a top-level module lies; importing it would be running it."""
    here = importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd())])
    try:
        found = here or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise LoadError(
            f"{spec}: there is no module {top!r} here or installed; for a file, write its path "
            "with .py",
            spec=spec,
        )
    return found
