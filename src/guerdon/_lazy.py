"""Lazy package attributes (PEP 562), so that importing a package stays light."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str,
    *modules: str,
    names: Mapping[str, str] | None = None,
    packages: tuple[str, ...] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports its names on first use.

    Args:
        package: The package's ``__name__``.
        *modules: Modules whose whole ``__all__`` the package re-exports, the lightest first.
        names: Further modules with the names to re-export from each, separated by spaces.
        packages: Modules that are attributes of the package themselves.
    """
    homes = {name: module for module, row in (names or {}).items() for name in row.split()}

    def exported() -> list[str]:
        return sorted(
            {*homes, *packages}.union(
                *(importlib.import_module(f"{package}.{each}").__all__ for each in modules)
            )
        )

    def find(name: str) -> Any:
        if name == "__all__":
            return exported()
        if name in packages:
            return importlib.import_module(f"{package}.{name}")
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        if not name.startswith("__"):
            for module in modules:
                home = importlib.import_module(f"{package}.{module}")
                if name in home.__all__:
                    return getattr(home, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, exported
