"""Where a reward's code is found, without running any of it, and whether it can be run."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import shlex
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon._loading import file_digest, split_spec
from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rubrics.functions.function import Mode
from guerdon.rubrics.sandboxed.messages import VERSION, Place, RewardSpec

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["RewardSource"]

# The file name of a source text in tracebacks.
TEXT_FILE = "<reward>"

_GUERDON = Path(__file__).resolve().parents[2]
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True)
class RewardSource:
    """A reward as text, as it comes with a data set or over the network.

    Example:
        >>> from guerdon.rubrics import EvalSandbox, RewardSource
        >>> source = RewardSource("def brief(messages): return float(len(messages) < 5)", "brief")
        >>> with EvalSandbox(source, level="none") as sandbox:
        ...     sandbox.evaluate([{"role": "assistant", "content": "42"}]).score
        1.0

    Args:
        text: Python.
        name: The name of the reward in it.
        requirements: What it imports, as in PEP 508, such as ``numpy>=1.26``. It is checked
            against what is installed; nothing is ever installed.

    Raises:
        InvalidArgumentError: The requirements are a string.
    """

    text: str
    name: str
    requirements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.requirements, str):
            raise InvalidArgumentError(
                f"`requirements` must be a list of lines, got {shown(self.requirements)}"
            )
        object.__setattr__(self, "requirements", tuple(self.requirements))

    @property
    def spec(self) -> str:
        """Its name in errors, as of a file."""
        return f"{TEXT_FILE}:{self.name}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a sandbox receives of a reward, and what it may read.

    Example:
        >>> from guerdon.rubrics.sandboxed.source import find_source
        >>> find_source("guerdon:NumericAnswer").folder is None
        True

    Attributes:
        reward: What is loaded in it.
        read: Files and folders that it may read, beside Python itself.
        path: Where it finds modules, beside Python's own.
        folder: The folder of the reward's own file; None of a text.
    """

    reward: RewardSpec
    read: tuple[str, ...]
    path: tuple[str, ...]
    folder: Path | None

    def hint(self, missing: str | None) -> str | None:
        """How to make a module importable that wasn't found; None if it doesn't exist here either.

        Args:
            missing: The module's name; None if a relative import failed.
        """
        folder = self.folder
        if folder is None or (self.reward.text is None and self.reward.place is None):
            return None
        if missing is not None and not missing.partition(".")[0].isidentifier():
            return None  # the sandbox may report anything
        if missing is not None:
            top = folder / missing.partition(".")[0]
            if not (top.with_name(f"{top.name}.py").is_file() or top.is_dir()):
                return None
        return (
            f"it is in {folder}, which the sandbox may not read: "
            f"add --allow-read {folder} (allow_read=[{str(folder)!r}])"
        )


def wanted_of(spec: str | RewardSource, mode: Mode | None, **more: Any) -> RewardSpec:
    """The specification of a reward, as the user gave it.

    Args:
        spec: ``file.py:name``, ``module:name`` or a text.
        mode: The requested mode.
        **more: Other fields.

    Raises:
        LoadError: The text can't be encoded.
    """
    if isinstance(spec, RewardSource):
        more |= {"text": _checked_text(spec.text, spec.spec), "file": TEXT_FILE}
        spec = spec.spec
    return RewardSpec(version=VERSION, spec=spec, mode=mode, **more)


def find_source(
    spec: str | RewardSource,
    mode: Mode | None = None,
    *,
    allow_read: Sequence[str | Path] = (),
    keep_loop: bool = False,
    requirements_inside: bool = False,
) -> Found:
    """Find a reward's code, and what has to be readable for it to run.

    Example:
        >>> find_source("guerdon:NumericAnswer").reward.spec
        'guerdon:NumericAnswer'

    Args:
        spec: ``file.py:name``, ``module:name`` or a text.
        mode: The requested mode.
        allow_read: What else may be read.
        keep_loop: Whether an async function has one event loop for all calls.
        requirements_inside: Whether the sandbox checks the requirements of a text.

    Raises:
        LoadError: There is no such file or module.
        InvalidArgumentError: A path of `allow_read` doesn't exist.
    """
    allowed = [_existing(each) for each in allow_read]
    fields: dict[str, Any] = {"keep_loop": keep_loop}
    code: list[Path] = []
    folder = None
    if isinstance(spec, RewardSource):
        fields |= {"requirements": spec.requirements if requirements_inside else ()}
    else:
        source, _ = split_spec(spec)
        find = _find_file if source.endswith(".py") else _find_module
        found, code, folder = find(spec, source, allowed)
        fields |= found
    path = []
    for entry in dict.fromkeys(map(Path, filter(None, sys.path))):
        if _INSTALLED & set(entry.parts) or entry == _GUERDON.parent or _within(entry, allowed):
            path.append(entry)
    if _GUERDON.parent not in path:
        path.append(_GUERDON.parent)
    installed = [each for each in path if _INSTALLED & set(each.parts)]
    everything = dict.fromkeys([*installed, _GUERDON, *code, *allowed])
    read = tuple(str(each) for each in everything if each.exists())
    return Found(wanted_of(spec, mode, **fields), read, tuple(map(str, path)), folder)


def _existing(given: str | Path) -> Path:
    path = Path(given).expanduser()
    if not path.exists():
        raise InvalidArgumentError(f"`allow_read` contains {str(given)!r}, which doesn't exist")
    return path.resolve()


def _within(path: Path, folders: Sequence[Path]) -> bool:
    path = path.resolve()
    return any(path == folder or folder in path.parents for folder in folders)


def _checked_text(text: str, spec: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LoadError(f"{spec}: importing it raised SyntaxError: {error}", spec=spec) from None
    return text


def _read(path: Path, spec: str) -> dict[str, str]:
    """A file's text, and the digest of its bytes."""
    try:
        data = path.read_bytes()
        return {"text": importlib.util.decode_source(data), "digest": file_digest(data)}
    except OSError as error:
        raise LoadError(f"{spec}: {path} can't be read: {error.strerror}", spec=spec) from None
    except (SyntaxError, UnicodeDecodeError) as error:
        why = f"SyntaxError: {error}"
        raise LoadError(f"{spec}: importing it raised {why}", spec=spec) from error


def _find_file(
    spec: str, source: str, allowed: list[Path]
) -> tuple[dict[str, Any], list[Path], Path]:
    path = Path(source).resolve()
    if not path.is_file():
        raise LoadError(f"{spec}: there is no file {path}", spec=spec)
    readable = _INSTALLED & set(path.parts) or path.is_relative_to(_GUERDON)
    if readable or _within(path.parent, allowed):  # with what is beside it, as without a sandbox
        return {"file": str(path)}, [path], path.parent
    return {"file": str(path), **_read(path, spec)}, [path], path.parent


def _find_module(
    spec: str, source: str, allowed: list[Path]
) -> tuple[dict[str, Any], list[Path], Path | None]:
    top = source.partition(".")[0]
    found = _module_spec(top, spec)
    file = Path(found.origin) if found.has_location and found.origin else None
    folders = [Path(each) for each in found.submodule_search_locations or ()]
    if file is None and not folders:  # built in
        return {}, [], None
    home = (file.parent if file is not None else folders[0]).resolve()
    ours = home == _GUERDON or home.is_relative_to(sysconfig.get_path("stdlib"))
    if ours or _INSTALLED & set(home.parts):
        return {}, [], None
    around = home.parent if folders else home
    if _within(around, allowed):
        return {"folder": str(around)}, [], around
    single = _read(file, spec) if file is not None and not folders else {}
    place = Place(
        name=top,
        file=None if file is None else str(file),
        folders=tuple(map(str, folders)),
        **single,
    )
    return {"place": place}, folders or ([file] if file is not None else []), around


def _module_spec(top: str, spec: str) -> importlib.machinery.ModuleSpec:
    """Where a top-level module is; importing it would be running it."""
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


def check_requirements(lines: Iterable[str], spec: str) -> None:
    """Check requirements against what is installed; nothing is ever installed.

    Example:
        >>> check_requirements(["pydantic>=2"], "reward.py:score")
        >>> check_requirements(["no-such-thing>=1"], "reward.py:score")
        Traceback (most recent call last):
        guerdon.errors.LoadError: reward.py:score has requirements that are not met:
          no-such-thing>=1: it isn't installed
        pip install 'no-such-thing>=1'

    Args:
        lines: As in PEP 508, such as ``numpy>=1.26``; empty ones, and those whose marker doesn't
            apply here, are skipped.
        spec: What requires them, for the error.

    Raises:
        LoadError: One isn't met, or is invalid; all are named.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    problems: list[str] = []
    install: dict[str, None] = {}
    for text in filter(None, map(str.strip, lines)):
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            why = str(error).splitlines()[0]
            raise LoadError(
                f"{spec} has the invalid requirement {text!r:.80}: {why}", spec=spec
            ) from None
        for problem in _problems(requirement, "", set()):
            problems.append(f"  {problem}")
            install[text] = None
    if problems:
        command = " ".join(map(shlex.quote, install))
        heading = f"{spec} has requirements that are not met:"
        raise LoadError("\n".join([heading, *problems, f"pip install {command}"]), spec=spec)


def _problems(requirement: Requirement, extra: str, seen: set[str]) -> list[str]:
    """Why a requirement isn't met, and those of its extras."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
        return []
    if requirement.url is not None:
        return [f"{requirement}: it names an address; name a version, as in {requirement.name}>=1"]
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return [f"{requirement}: it isn't installed"]
    if not requirement.specifier.contains(found.version, prereleases=True):
        return [f"{requirement}: version {found.version} is installed"]
    problems = []
    offered = {each.lower() for each in found.metadata.get_all("Provides-Extra") or ()}
    for name in sorted(requirement.extras):
        key = f"{requirement.name}[{name}]".lower()
        if key in seen:
            continue
        if name.lower() not in offered:
            problems.append(f"{requirement}: version {found.version} has no extra {name!r}")
        for line in found.requires or ():
            inner = type(requirement)(line)
            if inner.marker is not None and "extra" in str(inner.marker):
                problems += _problems(inner, name, seen | {key})
    return problems
