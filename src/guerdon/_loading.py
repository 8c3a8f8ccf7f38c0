"""Loading objects from ``module:name`` or ``file.py:name``."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from guerdon._validation import did_you_mean
from guerdon.errors import LoadError, MissingExtraError

# The prefix of the names of modules that are imported from a user's file.
PREFIX = "guerdon_reward_"


# The libraries whose reward functions a spec may name, as in ``trl:rewards.py:correct``.
LIBRARIES = {"trl": "TRL", "verl": "verl", "verifiers": "verifiers", "openrlhf": "OpenRLHF"}


def load_object(spec: str) -> Any:
    """Import what a spec names.

    Args:
        spec: ``module:name`` or ``file.py:name``; the name may have dots.

    Raises:
        LoadError: The spec has no colon, or nothing is there.
    """
    return object_in(module_in(spec), spec)


def module_in(spec: str) -> ModuleType:
    """Import the module or the file of a spec.

    Raises:
        LoadError: The spec has no colon, or its module can't be imported.
    """
    source, _ = split_spec(spec)
    return _from_file(spec, Path(source)) if source.endswith(".py") else _module(spec, source)


def import_extra(module: str, extra: str, user: str) -> Any:
    """Import a module of an optional package.

    Example:
        >>> import_extra("pydantic.fields", "judge", "ChatModel").BaseModel
        <class 'pydantic.main.BaseModel'>

    Args:
        module: Its name.
        extra: The extra that installs it.
        user: What requires it, for the error.

    Returns:
        The package.

    Raises:
        MissingExtraError: It can't be imported.
    """
    package = module.partition(".")[0]
    try:
        importlib.import_module(module)
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(
            f"{user} requires the package {package}: pip install 'guerdon[{extra}]'", extra=extra
        ) from error


def is_installed(path: Path) -> bool:
    """Whether a path is in Python's library, or in the folder of installed packages.

    Example:
        >>> import numpy
        >>> is_installed(Path(numpy.__file__)), is_installed(Path("reward.py"))
        (True, False)
    """
    is_package = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return is_package or path.is_relative_to(sysconfig.get_path("stdlib"))


def library_of(spec: str) -> tuple[str | None, str]:
    """Split a spec into the library that it begins with, if any, and the rest.

    Example:
        >>> library_of("trl:rewards.py:correct"), library_of("trl:GRPOTrainer")
        (('trl', 'rewards.py:correct'), (None, 'trl:GRPOTrainer'))
    """
    library, _, rest = spec.partition(":")
    return (library, rest) if library in LIBRARIES and ":" in rest else (None, spec)


def split_spec(spec: str) -> tuple[str, str]:
    """Split a spec into its source and the name after the last colon, without a library.

    Example:
        >>> split_spec("rewards/brief.py:brief")
        ('rewards/brief.py', 'brief')

    Raises:
        LoadError: The spec has no colon.
    """
    source, colon, name = library_of(spec)[1].rpartition(":")
    if not colon or not source or not name:
        raise LoadError(
            f"{spec!r} names nothing; write module:name or file.py:name, such as reward.py:reward",
            spec=spec,
        )
    return source, name


def object_in(module: ModuleType, spec: str) -> Any:
    """Return the object that a spec names in its module.

    Raises:
        LoadError: The module has no such name.
    """
    source, name = split_spec(spec)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise LoadError(f"{source} has no {part!r}; {_names_hint(found, part)}", spec=spec)
        found, source = getattr(found, part), f"{source}.{part}"
    return found


def module_of_text(text: str, file: str, spec: str, *, digest: str | None = None) -> ModuleType:
    """Execute text as a new module, whose lines appear in tracebacks.

    Example:
        >>> module_of_text("limit = 6 * 7", "<reward>", "<reward>:limit").limit
        42

    Args:
        text: Python.
        file: The module's `__file__`; it need not exist.
        spec: The spec that named it, for errors.
        digest: The digest of the file's bytes; None computes it from the text.

    Raises:
        LoadError: The text isn't Python, or raised.
    """
    digest = digest or file_digest(text.encode("utf-8", "surrogatepass"))
    module = ModuleType(f"{PREFIX}{Path(file).stem}_{digest}")
    module.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with _registered(spec, module):
        exec(compile(text, file, "exec", dont_inherit=True), vars(module))
    return module


def load_module(path: str) -> ModuleType:
    """Import a user's file.

    Args:
        path: A ``.py`` file; a file in a package is imported as part of the package.

    Raises:
        LoadError: The file doesn't exist, or importing it raised.
    """
    return _from_file(path, Path(path))


def name_of(kind: Any) -> str:
    """Return the name of a class or function: ``module.name``, or ``file.py:name`` of a file.

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


def file_digest(data: bytes) -> str:
    """Return the digest of a module's file from its bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _names_hint(module: Any, name: str) -> str:
    """Suggest names that a module or a class defines itself, not those that it imports."""
    if not isinstance(module, ModuleType):
        return did_you_mean(name, (each for each in dir(module) if not each.startswith("_")))
    own = (
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and not isinstance(value, ModuleType)
        and (
            getattr(value, "__module__", None) == module.__name__
            or not isinstance(value, type | FunctionType)
        )
    )
    return did_you_mean(name, {*own, *getattr(module, "__all__", ())})


def _from_file(spec: str, path: Path) -> ModuleType:
    try:
        path = path.resolve()
        exists = path.is_file()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise LoadError(f"{spec!r:.200} can't be a file: {error}", spec=spec) from None
    if not exists:
        raise LoadError(f"{spec}: there is no file {path}", spec=spec)
    if (path.parent / "__init__.py").is_file():
        module = _from_package(spec, path)
        if module is not None:
            return module
    # One module for each file, with a name that no other has; pickles of its classes find it again.
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
    """Register a module while it is executed, and keep it registered if that succeeds."""
    sys.modules[module.__name__] = module
    try:
        yield
    except BaseException as error:
        del sys.modules[module.__name__]
        if not isinstance(error, (Exception, SystemExit)):
            raise
        raise _import_failed(spec, error) from error


def _from_package(spec: str, path: Path) -> ModuleType | None:
    """Import a file of a package as part of it, so that it can import the package's other files.

    Returns None if another package with that name is imported: the file is then imported alone.
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
        raise LoadError(
            f"{spec}: {name!r} is not the name of a module; for a file, write its path with .py",
            spec=spec,
        )
    _importable(str(folder or Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise LoadError(
                f"{spec}: there is no module {error.name!r} here or installed; "
                "for a file, write its path with .py",
                spec=spec,
            ) from None
        raise _import_failed(spec, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(spec, error) from error


def _importable(folder: str) -> None:
    """Let a user's file import the modules in its folder."""
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _import_failed(spec: str, error: BaseException) -> LoadError:
    return code_failed(spec, "importing it raised", error)


def code_failed(spec: str, what: str, error: BaseException) -> LoadError:
    """Return the error of a user's code, with the traceback of that code alone."""
    ours = Path(__file__).parent
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
    return LoadError(f"{spec}: {what} {lines[-1].strip()}", spec=spec, traceback=text)
