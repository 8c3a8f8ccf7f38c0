"""Names that are imported where they are first used, so that importing a package stays light."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, *modules: str, namespaces: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package that offers the names of its modules.

    Args:
        package: The package's ``__name__``.
        *modules: Its modules, the lightest first; each says in ``__all__`` what it offers.
        namespaces: Its modules that offer their names under their own, as ``package.module.name``.
    """

    def names() -> list[str]:
        return sorted(
            name
            for module in modules
            for name in importlib.import_module(f"{package}.{module}").__all__
        )

    def find(name: str) -> Any:
        if name == "__all__":
            return names()
        if name in namespaces:
            return importlib.import_module(f"{package}.{name}")
        if not name.startswith("__"):
            for module in modules:
                home = importlib.import_module(f"{package}.{module}")
                if name in home.__all__:
                    return getattr(home, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, names
