"""Finding the environment that a person named: a folder, a spec, or a registered name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from guerdon._loading import (
    load_module,
    load_object,
)
from guerdon.envs.environment import Environment
from guerdon.envs.registry import environments
from guerdon.errors import LoadError

__all__ = ["find_environment"]

FILE = "environment.py"


def find_environment(target: str) -> Callable[[], Any]:
    """What makes the environment that a person named.

    Example:
        >>> find_environment("guerdon:Environment").__name__
        'Environment'

    Args:
        target: A folder whose ``environment.py`` holds one environment class; ``module:name`` or
            ``file.py:name`` of an environment class or of a function that makes one; or a name
            under which an environment is registered.

    Raises:
        LoadError: No environment has that name.
        LoadError: There is no such thing, it can't be imported, or it makes no environment.
    """
    if target and Path(target).is_dir():
        return _in_folder(Path(target))
    if ":" in target:
        found = load_object(target)
        if not callable(found) or (isinstance(found, type) and not issubclass(found, Environment)):
            raise LoadError(
                f"{target} is {found!r:.60}; name an Environment class or what makes one",
                spec=target,
            )
        return found  # type: ignore[no-any-return]
    try:
        return environments.factory(target)
    except LoadError as error:
        said = f"{target!r} is no folder, no module:name, and {error}"
        raise LoadError(said) from error


def _in_folder(folder: Path) -> Callable[[], Any]:
    path = folder / FILE
    if not path.is_file():
        raise LoadError(
            f"{folder} has no {FILE}; put the environment class there, or name it as file.py:name",
            spec=str(folder),
        )
    module = load_module(str(path))
    classes = _environments(module)
    if len(classes) != 1:
        names = [each.__name__ for each in classes] or "none"
        raise LoadError(
            f"{path} holds not one environment class but {names}; name it, as in {path}:Name",
            spec=str(folder),
        )
    return classes[0]


def _environments(module: ModuleType) -> list[type[Environment[Any, Any, Any]]]:
    """The public environment classes that a module itself defines."""
    found = [
        each
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, Environment)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    ]
    return list(dict.fromkeys(found))  # one that has two names is one
