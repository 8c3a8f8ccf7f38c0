"""Importing the installed packages that programs may use, without the rest of their folder."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any

from guerdon.errors import SandboxError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from guerdon.sandbox.packages import Packages


class AllowedPackages:
    """Finds the top-level modules of packages, and their metadata, for `sys.meta_path`.

    Python lists a folder on `sys.path`, and the sandbox refuses that for the folder of packages.

    Args:
        packages: The packages.
    """

    def __init__(self, packages: Packages) -> None:
        self._modules, self._metadata = packages["modules"], packages["metadata"]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module; None if it belongs to no package."""
        file, folders = self._modules.get(name, (None, []))
        if file is not None:
            return spec_from_file_location(name, file, submodule_search_locations=folders or None)
        if not folders:
            return None
        spec = ModuleSpec(name, None, is_package=True)  # a namespace package
        spec.submodule_search_locations = folders
        return spec

    def find_distributions(self, context: Any) -> Iterable[Distribution]:
        """Return the metadata of the package that `importlib.metadata` asks for, or of all."""
        from importlib.metadata import Distribution

        wanted = context.name and re.sub(r"[-_.]+", "-", context.name).lower()
        for name, path in self._metadata.items():
            if wanted in (None, name):
                yield Distribution.at(path)


def import_packages(packages: Packages) -> None:
    """Make packages importable in this process and its forks, and import those that were named.

    Raises:
        SandboxError: An import left a thread running, which no fork of this process would have.
    """
    sys.meta_path.append(AllowedPackages(packages))
    for name in packages["preload"]:
        with contextlib.suppress(Exception):  # a program that imports it gets the same exception
            importlib.import_module(name)
        if sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1:
            raise SandboxError(
                f"importing {name} starts a thread that doesn't end, so programs can't use it"
            )
    random = sys.modules.get("numpy.random")
    if random is not None:  # as the module `random` does
        os.register_at_fork(after_in_child=random.seed)
