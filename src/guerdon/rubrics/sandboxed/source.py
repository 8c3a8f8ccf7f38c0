"""Finding the code of a reward without running it, and checking its requirements."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.metadata
import importlib.util
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon._loading import file_digest, is_installed, split_spec
from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, LoadError
from guerdon.rubrics.functions.function import Mode
from guerdon.rubrics.sandboxed.messages import VERSION, RewardSpec

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["RewardSource"]

# The file name of a source text in tracebacks.
TEXT_FILE = "<reward>"

_GUERDON = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class RewardSource:
    """A reward as text, such as from a data set or the network.

    Example:
        >>> from guerdon.rubrics import EvalSandbox, RewardSource
        >>> source = RewardSource("def brief(messages): return float(len(messages) < 5)", "brief")
        >>> with EvalSandbox(source, level="none") as sandbox:
        ...     sandbox.evaluate([{"role": "assistant", "content": "42"}]).score
        1.0

    Args:
        text: Python.
        name: The name of the reward in it.
        requirements: The packages that it needs, as in PEP 508, such as ``numpy>=1.26``. They must
            be installed; guerdon installs nothing.

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
        """Its name in errors."""
        return f"{TEXT_FILE}:{self.name}"


@dataclass(frozen=True, slots=True)
class Found:
    """A reward that was found, and what its sandbox may read.

    Example:
        >>> from guerdon.rubrics.sandboxed.source import find_source
        >>> find_source("guerdon:NumericAnswer").folder is None
        True

    Attributes:
        reward: What the sandbox loads.
        read: Files and folders that it may read, in addition to Python itself.
        path: Where it finds modules, in addition to the standard library.
        folder: The folder of the reward's file; None for a text.
    """

    reward: RewardSpec
    read: tuple[str, ...]
    path: tuple[str, ...]
    folder: Path | None

    def hint(self, missing: str | None) -> str | None:
        """Return how to make a missing module importable; None if it doesn't exist here either.

        Args:
            missing: The module's name; None if a relative import failed.
        """
        folder = self.folder
        if folder is None or (self.reward.text is None and self.reward.module is None):
            return None
        if missing is not None and not missing.partition(".")[0].isidentifier():
            return None  # what the sandbox reports isn't trusted
        if missing is not None:
            top = folder / missing.partition(".")[0]
            if not (top.with_name(f"{top.name}.py").is_file() or top.is_dir()):
                return None
        return (
            f"it is in {folder}, which the sandbox may not read: "
            f"add --allow-read {folder} (allow_read=[{str(folder)!r}])"
        )


def wanted_of(spec: str | RewardSource, mode: Mode | None, **more: Any) -> RewardSpec:
    """Return the specification of a reward.

    Args:
        spec: ``file.py:name``, ``module:name`` or a text.
        mode: The requested mode.
        **more: Other fields.

    Raises:
        LoadError: The text can't be encoded.
    """
    if isinstance(spec, RewardSource):
        try:
            spec.text.encode()
        except UnicodeEncodeError as error:
            raise _syntax_error(spec.spec, error) from None
        more |= {"text": spec.text, "file": TEXT_FILE}
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
    """Find the code of a reward, and what it must be able to read.

    Example:
        >>> find_source("guerdon:NumericAnswer").reward.spec
        'guerdon:NumericAnswer'

    Args:
        spec: ``file.py:name``, ``module:name`` or a text.
        mode: The requested mode.
        allow_read: Files and folders that may be read in addition.
        keep_loop: Whether an async function has one event loop for all calls.
        requirements_inside: Whether the sandbox checks the requirements of a text.

    Raises:
        LoadError: There is no such file or module.
        InvalidArgumentError: A path of `allow_read` doesn't exist.
    """
    allowed = []
    for given in allow_read:
        path = Path(given).expanduser()
        if not path.exists():
            raise InvalidArgumentError(f"`allow_read` contains {str(given)!r}, which doesn't exist")
        allowed.append(path.resolve())
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
    entries = [Path(entry) for entry in sys.path if entry]
    installed = [entry for entry in entries if is_installed(entry)]
    readable = [entry for entry in entries if is_installed(entry) or _within(entry, allowed)]
    read = [path for path in (*installed, _GUERDON, *code, *allowed) if path.exists()]
    return Found(
        wanted_of(spec, mode, **fields),
        tuple(dict.fromkeys(map(str, read))),
        tuple(dict.fromkeys(map(str, (*readable, _GUERDON.parent)))),
        folder,
    )


def _within(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.resolve().is_relative_to(folder) for folder in folders)


def _syntax_error(spec: str, error: Exception) -> LoadError:
    return LoadError(f"{spec}: importing it raised SyntaxError: {error}", spec=spec)


def _read(path: Path, spec: str) -> dict[str, str]:
    """Return a file's text, and the digest of its bytes."""
    try:
        data = path.read_bytes()
        return {"text": importlib.util.decode_source(data), "digest": file_digest(data)}
    except OSError as error:
        raise LoadError(f"{spec}: {path} can't be read: {error.strerror}", spec=spec) from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise _syntax_error(spec, error) from error


def _find_file(
    spec: str, source: str, allowed: list[Path]
) -> tuple[dict[str, Any], list[Path], Path]:
    path = Path(source).resolve()
    if not path.is_file():
        raise LoadError(f"{spec}: there is no file {path}", spec=spec)
    readable = is_installed(path) or path.is_relative_to(_GUERDON)
    if readable or _within(
        path.parent, allowed
    ):  # so are the modules beside it, as without a sandbox
        return {"file": str(path)}, [path], path.parent
    return {"file": str(path), **_read(path, spec)}, [path], path.parent


def _find_module(
    spec: str, source: str, allowed: list[Path]
) -> tuple[dict[str, Any], list[Path], Path | None]:
    """Find a module by its top-level package, without importing it."""
    top = source.partition(".")[0]
    found = importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd())])
    with contextlib.suppress(ImportError, ValueError):
        found = found or importlib.util.find_spec(top)
    if found is None:
        raise LoadError(
            f"{spec}: there is no module {top!r} here or installed; for a file, write its path "
            "with .py",
            spec=spec,
        )
    file = found.origin if found.has_location else None
    folders = tuple(found.submodule_search_locations or ())
    code = [Path(each) for each in folders or filter(None, [file])]
    home = code[0].resolve() if code else _GUERDON  # built in
    if home.is_relative_to(_GUERDON) or is_installed(home):
        return {}, [], None
    if _within(home.parent, allowed):
        return {"folder": str(home.parent)}, [], home.parent
    text = {} if folders else _read(code[0], spec)
    return {"module": top, "file": file, "folders": folders, **text}, code, home.parent


def check_requirements(lines: Iterable[str], spec: str) -> None:
    """Check that requirements are installed; guerdon installs nothing.

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
        LoadError: Requirements are unmet, all of which are named, or one is invalid.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    unmet: dict[str, list[str]] = {}
    for text in filter(None, map(str.strip, lines)):
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            why = str(error).splitlines()[0]
            raise LoadError(
                f"{spec} has the invalid requirement {text!r:.80}: {why}", spec=spec
            ) from None
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            unmet[text] = list(_problems(requirement))
    problems = [f"  {problem}" for each in unmet.values() for problem in each]
    if problems:
        command = " ".join(shlex.quote(text) for text, each in unmet.items() if each)
        heading = f"{spec} has requirements that are not met:"
        raise LoadError("\n".join([heading, *problems, f"pip install {command}"]), spec=spec)


def _problems(requirement: Requirement, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield why a requirement isn't met, or those that its extras add."""
    if why := _problem(requirement):
        yield f"{requirement}: {why}"
        return
    for line in importlib.metadata.distribution(requirement.name).requires or ():
        inner = type(requirement)(line)
        if line not in seen and any(_is_added(inner, extra) for extra in requirement.extras):
            yield from _problems(inner, seen | {line})


def _problem(requirement: Requirement) -> str | None:
    if requirement.url is not None:
        return f"it names an address; name a version, as in {requirement.name}>=1"
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return "it isn't installed"
    if not requirement.specifier.contains(found.version, prereleases=True):
        return f"version {found.version} is installed"
    offered = {each.lower() for each in found.metadata.get_all("Provides-Extra") or ()}
    missing = sorted(name for name in requirement.extras if name.lower() not in offered)
    return f"version {found.version} has no extra {missing[0]!r}" if missing else None


def _is_added(requirement: Requirement, extra: str) -> bool:
    """Return whether a requirement applies with an extra, and not without it."""
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return False
    return marker.evaluate({"extra": extra})
