"""Environments by name: registered in code, or by another package's entry points."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from guerdon.errors import InvalidArgumentError, LoadError

__all__ = ["EnvironmentRegistry", "environments"]

ENTRY_POINTS = "guerdon.environments"


class EnvironmentRegistry:
    """Factories of environments by name.

    What a package offers under the entry points ``guerdon.environments`` is there without being
    registered; a name that was registered in code comes first.

    Example:
        >>> from guerdon.envs import EnvironmentRegistry
        >>> registry = EnvironmentRegistry()
        >>> registry.register("nothing", lambda: None)
        >>> "nothing" in registry.names()
        True
        >>> registry.factory("nothin")
        Traceback (most recent call last):
        guerdon.errors.LoadError: there is no environment 'nothin'; did you mean 'nothing'?
    """

    def __init__(self) -> None:
        self._factories: dict[str, Callable[[], Any]] = {}
        self._lock = threading.Lock()

    def register(self, name: str, factory: Callable[[], Any], *, replace: bool = False) -> None:
        """Register a factory.

        Args:
            name: Letters, digits, ``-``, ``_`` and ``.``.
            factory: An environment class, or a function without arguments that makes one.
            replace: Whether it may take the place of another.

        Raises:
            InvalidArgumentError: The name can't be one or is taken, or the factory is none.
        """
        if not isinstance(name, str) or re.fullmatch(r"[\w.-]+", name) is None:
            raise InvalidArgumentError(
                f"{name!r} can't be a name; it takes letters, digits, '-', '_' and '.'"
            )
        if not callable(factory):
            raise InvalidArgumentError(f"{factory!r:.60} makes no environment")
        with self._lock:
            if name in self._factories and not replace:
                raise InvalidArgumentError(
                    f"there is an environment {name!r} already; replace=True replaces it"
                )
            self._factories[name] = factory

    def factory(self, name: str) -> Callable[[], Any]:
        """What makes the environment of that name.

        Raises:
            LoadError: There is none, or what offers it can't be imported.
        """
        if name in self._factories:
            return self._factories[name]
        for entry in entry_points(group=ENTRY_POINTS, name=name):
            try:
                found: Callable[[], Any] = entry.load()
            except Exception as error:
                raise LoadError(
                    f"the environment {name!r} ({entry.value}) can't be imported: {error!r}"
                ) from error
            return found
        known = self.names()
        near = difflib.get_close_matches(name, known, n=1)
        said = f"did you mean {near[0]!r}?" if near else f"there are {known or 'none'}"
        raise LoadError(f"there is no environment {name!r}; {said}")

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted({*self._factories, *(each.name for each in entry_points(group=ENTRY_POINTS))})


#: Where the library itself looks names up.
environments = EnvironmentRegistry()
