"""The registry of environments, and finding the environment that a user names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from guerdon._loading import load_module, load_object
from guerdon._registry import Registry
from guerdon._validation import shown
from guerdon.envs.environment import Environment
from guerdon.errors import InvalidArgumentError, LoadError

__all__ = ["environments", "find_environment"]

# The file of a folder that contains its environment.
FILE = "environment.py"


def _check_factory(factory: Any) -> None:
    if not callable(factory):
        raise InvalidArgumentError(
            f"`factory` must be an environment class or a function that returns an environment, "
            f"got {shown(factory)}"
        )


#: Factories of environments by name; other packages add theirs by the entry points
#: ``guerdon.environments``.
environments: Registry[Callable[[], Any]] = Registry(
    "environment", "guerdon.environments", check=_check_factory
)


def find_environment(target: str) -> Callable[[], Any]:
    """Return the factory of the environment that a user names.

    Example:
        >>> find_environment("guerdon:Environment").__name__
        'Environment'

    Args:
        target: A folder whose ``environment.py`` contains one environment class; ``module:name``
            or ``file.py:name`` of an environment class or of a function that returns an
            environment; or a registered name.

    Raises:
        LoadError: There is no such environment, or it can't be imported.
    """
    if target and Path(target).is_dir():
        return _in_folder(Path(target))
    if ":" in target:
        found = load_object(target)
        if not callable(found) or (isinstance(found, type) and not issubclass(found, Environment)):
            raise LoadError(
                f"{target} must be an Environment class or a function that returns an environment, "
                f"got {shown(found)}",
                spec=target,
            )
        return found  # type: ignore[no-any-return]
    if target not in environments:
        raise LoadError(
            f"{shown(target)} is not a folder, not module:name and not a registered environment; "
            f"{environments.hint(target)}"
        )
    return environments[target]


def _in_folder(folder: Path) -> Callable[[], Any]:
    path = folder / FILE
    if not path.is_file():
        raise LoadError(
            f"{folder} has no {FILE}; put the environment class there, or name it as file.py:name",
            spec=str(folder),
        )
    module = load_module(str(path))
    found = [
        each
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, Environment)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    ]
    classes = list(dict.fromkeys(found))  # a class with two names counts once
    if len(classes) != 1:
        names = [each.__name__ for each in classes] or "none"
        raise LoadError(
            f"{path} must contain one environment class, found {names}; name it, as in {path}:Name",
            spec=str(folder),
        )
    return classes[0]
