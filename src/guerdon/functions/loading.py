"""Loading a reward from ``module:name`` or ``file.py:name``."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from guerdon.errors import GuerdonError, SpecError
from guerdon.functions.decorator import RewardFunction, takes_messages
from guerdon.rubrics.fingerprint import DIGEST, file_digest
from guerdon.rubrics.function import as_rubric
from guerdon.rubrics.rubric import Rubric

__all__ = [
    "is_factory",
    "load_module",
    "load_object",
    "load_reward",
    "module_of_text",
    "name_of",
    "object_in",
    "reward_of",
    "split_spec",
]

# What modules begin with that are imported from a person's file.
PREFIX = "guerdon_reward_"


def load_reward(spec: str) -> Rubric | RewardFunction:
    """Load the reward that a person named.

    Example:
        >>> load_reward("guerdon.rubrics:NumericAnswer")
        NumericAnswer(field='content', expected=None, tolerance=0.0)

    Args:
        spec: ``module:name`` or ``file.py:name``, where the name is that of a rubric, of a rubric
            class or a factory that needs no arguments, of a function
            ``f(action, observation) -> float``, or of a reward function on ``messages``.

    Returns:
        A rubric; or a `RewardFunction`, which `as_rubric` turns into one.

    Raises:
        SpecError: It can't be found or imported, or is none of these. Where the person's own
            code raised, the error carries the traceback of that code alone.
    """
    return reward_of(load_object(spec), spec)


def reward_of(found: Any, spec: str) -> Rubric | RewardFunction:
    """The reward that a loaded object stands for; see `load_reward`.

    Args:
        found: What a spec named.
        spec: The spec, for the error.

    Raises:
        SpecError: It is no reward and makes none.
    """
    if isinstance(found, type):
        if not issubclass(found, Rubric):
            raise SpecError(f"{spec}: {found.__name__} is a class, but no Rubric", spec=spec)
        found = _made(spec, found)
    elif not _is_reward(found) and is_factory(found):
        made = _made(spec, found)
        if not isinstance(made, Rubric | RewardFunction) and not callable(made):
            raise SpecError(
                f"{spec} takes no arguments, so that it should make a rubric, but it gave "
                f"{made!r:.60}",
                spec=spec,
            )
        found = made
    try:
        if isinstance(found, RewardFunction):
            return found
        return RewardFunction(found) if takes_messages(found) else as_rubric(found)
    except GuerdonError as error:
        raise SpecError(f"{spec}: {error}", spec=spec) from error


def load_object(spec: str) -> Any:
    """Import what a spec names.

    Args:
        spec: ``module:name`` or ``file.py:name``; the name may have dots.

    Raises:
        SpecError: The spec has no colon, or nothing is there.
    """
    source, _ = split_spec(spec)
    module = _from_file(spec, Path(source)) if source.endswith(".py") else _module(spec, source)
    return object_in(module, spec)


def split_spec(spec: str) -> tuple[str, str]:
    """What stands before the colon, and the name behind it.

    Example:
        >>> split_spec("rewards/brief.py:brief")
        ('rewards/brief.py', 'brief')

    Raises:
        SpecError: The spec has no colon.
    """
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise SpecError(
            f"{spec!r} names nothing; write module:name or file.py:name, such as reward.py:reward",
            spec=spec,
        )
    return source, name


def object_in(module: ModuleType, spec: str) -> Any:
    """What a spec names in its module.

    Raises:
        SpecError: The module has no such name.
    """
    source, name = split_spec(spec)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise SpecError(f"{source} has no {name!r}; {_offer(module, name)}", spec=spec)
        found = getattr(found, part)
    return found


def module_of_text(text: str, file: str, spec: str, *, digest: str | None = None) -> ModuleType:
    """A module made of text, whose lines are told in tracebacks.

    Example:
        >>> module_of_text("limit = 6 * 7", "<reward>", "<reward>:limit").limit
        42

    Args:
        text: Python.
        file: What its file is called; there need not be one.
        spec: What named it, for the error.
        digest: That of the file's bytes; None is that of the text.

    Raises:
        SpecError: It isn't Python, or raised.
    """
    digest = digest or file_digest(text.encode("utf-8", "surrogatepass"))
    module = ModuleType(f"{PREFIX}{Path(file).stem}_{digest}")
    module.__file__ = file
    setattr(module, DIGEST, digest)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with _registered(spec, module):
        exec(compile(text, file, "exec", dont_inherit=True), vars(module))
    return module


def load_module(path: str) -> ModuleType:
    """Import a person's file.

    Args:
        path: That of a ``.py`` file; one that belongs to a package is imported as part of it.

    Raises:
        SpecError: There is no such file, or importing it raised.
    """
    return _from_file(path, Path(path))


def name_of(kind: Any) -> str:
    """What a class or function is called: ``module.name``, or ``file.py:name`` of a person's file.

    Example:
        >>> from guerdon import NumericAnswer
        >>> name_of(NumericAnswer)
        'guerdon.rubrics.checks.numeric.NumericAnswer'
    """
    module = kind.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if module.startswith(PREFIX) and file is not None:
        return f"{Path(file).name}:{kind.__qualname__}"
    return f"{module}.{kind.__qualname__}"


def _is_reward(found: Any) -> bool:
    return isinstance(found, Rubric | RewardFunction) or takes_messages(found)


def _offer(module: ModuleType, name: str) -> str:
    """What a module has that could have been meant: its own, not what it imports."""
    own = sorted(
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (
            isinstance(value, Rubric | RewardFunction)
            or getattr(value, "__module__", None) == module.__name__
        )
    )
    near = difflib.get_close_matches(name, own, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it has {own}"


def _from_file(spec: str, path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise SpecError(f"{spec}: there is no file {path}", spec=spec)
    if (path.parent / "__init__.py").is_file():
        module = _from_package(spec, path)
        if module is not None:
            return module
    # One module a file, by a name that can't be another's; pickles of its classes find it again.
    name = f"{PREFIX}{path.stem}_{hashlib.blake2b(bytes(path), digest_size=4).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    _importable(str(path.parent))
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    with _registered(spec, module):
        found.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _registered(spec: str, module: ModuleType) -> Iterator[None]:
    """Let a module be found while it is executed, and for good where that succeeds."""
    sys.modules[module.__name__] = module
    try:
        yield
    except BaseException as error:
        del sys.modules[module.__name__]
        if not isinstance(error, (Exception, SystemExit)):
            raise
        raise _import_failed(spec, error) from error


def _from_package(spec: str, path: Path) -> ModuleType | None:
    """The module of a file that belongs to a package, whose other files it may import.

    None where another package has that name here: then the file stands for itself.
    """
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if not all(part.isidentifier() for part in parts):
        return None
    top = sys.modules.get(parts[0])
    if top is None:
        _importable(str(folder))
        found = importlib.util.find_spec(parts[0])
        home = found.origin if found is not None else None
    else:
        home = getattr(top, "__file__", None)
    if home is None or Path(home).resolve() != folder / parts[0] / "__init__.py":
        return None
    return _module(spec, ".".join(parts), folder)


def _module(spec: str, name: str, folder: Path | None = None) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise SpecError(
            f"{spec}: {name!r} is no module's name; for a file, write its path with .py", spec=spec
        )
    _importable(str(folder or Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise SpecError(
                f"{spec}: there is no module {error.name!r} here or installed; "
                "for a file, write its path with .py",
                spec=spec,
            ) from None
        raise _import_failed(spec, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(spec, error) from error


def _importable(folder: str) -> None:
    """Let a person's file import what lies beside it."""
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _made(spec: str, make: Callable[[], Any]) -> Any:
    name = getattr(make, "__name__", spec)
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise SpecError(
            f"{spec}: {name} can't be made without arguments ({error}); write a function in your "
            f"file that makes it, and name that",
            spec=spec,
        ) from None
    try:
        made = make()
    except (Exception, SystemExit) as error:
        raise _failed(spec, f"{name}() raised", error) from error
    if inspect.iscoroutine(made):
        made.close()
        raise SpecError(f"{spec}: {name} is async; a factory is a plain function", spec=spec)
    return made


def is_factory(found: Any) -> bool:
    """Whether something can be called with nothing, but not with an action and an observation."""
    if not callable(found):
        return False
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return False
    return _binds(signature, 0) and not _binds(signature, 2)


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _import_failed(spec: str, error: BaseException) -> SpecError:
    return _failed(spec, "importing it raised", error)


def _failed(spec: str, what: str, error: BaseException) -> SpecError:
    """The error of a person's own code, with the traceback of that code alone."""
    ours = Path(__file__).parents[1]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
        and not {ours, Path(importlib.__file__ or "").parent} & set(Path(frame.filename).parents)
    ]
    lines = traceback.format_exception_only(type(error), error)
    text = "".join(
        (["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else [])
        + lines
    )
    return SpecError(f"{spec}: {what} {lines[-1].strip()}", spec=spec, traceback=text)
