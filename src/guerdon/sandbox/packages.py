"""Finding the files of installed packages that programs may import."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, packages_distributions
from typing import TypedDict

from guerdon._validation import check_list, check_type, did_you_mean
from guerdon.errors import InvalidArgumentError


class Packages(TypedDict):
    """Packages that programs may import, as a worker receives them.

    Attributes:
        modules: The file of each top-level module, and the folders of its submodules.
        metadata: The folder with the metadata of each package, by its normalized name.
        preload: The modules that are imported once, before the calls.
    """

    modules: dict[str, tuple[str | None, list[str]]]
    metadata: dict[str, str]
    preload: list[str]


def find_packages(names: Sequence[str]) -> tuple[Packages, list[str]]:
    """Find installed packages, and those that they require.

    Example:
        >>> packages, paths = find_packages(["numpy"])
        >>> packages["preload"], list(packages["metadata"])
        (['numpy'], ['numpy'])

    Args:
        names: Their names, as ``pip list`` shows them.

    Returns:
        The packages, and the files and folders that programs must be able to read.

    Raises:
        InvalidArgumentError: A package isn't installed, or is an editable installation.
    """
    for number, name in enumerate(check_list("packages", names)):
        check_type(f"packages[{number}]", name, str)
    found: Packages = {"modules": {}, "metadata": {}, "preload": []}
    paths: list[str] = []
    for name, package in _with_required(names).items():
        entries = _entries(package)
        modules = dict(_modules(entries))
        if name in names and not modules:
            raise InvalidArgumentError(
                f"`packages` has {name!r:.100}, whose installation lists no modules; an editable "
                "installation can't be used"
            )
        paths += entries
        found["modules"] |= modules
        info = [entry for entry in entries if entry.endswith((".dist-info", ".egg-info"))]
        found["metadata"] |= {re.sub(r"[-_.]+", "-", name).lower(): each for each in info}
        found["preload"] += [each for each in modules if name in names and each[0] != "_"]
    return found, paths


def _with_required(names: Sequence[str]) -> dict[str, Distribution]:
    """Return packages, and those that they require, by name."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    for name in waiting:  # the loop appends to it
        if name in found:
            continue
        try:
            found[name] = Distribution.from_name(name)
        except (PackageNotFoundError, ValueError):
            if name in names:
                raise _not_installed(name) from None
            continue  # an import of it fails, as it does without a sandbox
        waiting += _required(found[name])
    return found


def _not_installed(name: str) -> InvalidArgumentError:
    by_module = packages_distributions()
    known = {each for packages in by_module.values() for each in packages}
    hint = f"did you mean {by_module[name][0]!r}?" if name in by_module else ""
    return InvalidArgumentError(
        f"`packages` has {name!r:.100}, which isn't installed; {hint or did_you_mean(name, known)}"
    )


def _entries(package: Distribution) -> list[str]:
    """Return the files and folders of a package in the folder that it is installed in."""
    names = {file.parts[0] for file in package.files or ()} - {"..", "/", "__pycache__"}
    # Without files of an editable installation, and those that only the start of Python reads.
    own = sorted(name for name in names if not name.startswith("__") and name[-4:] != ".pth")
    return [os.path.realpath(str(package.locate_file(name))) for name in own]


def _modules(entries: Iterable[str]) -> Iterator[tuple[str, tuple[str | None, list[str]]]]:
    """Yield the top-level modules of a package, with their files and folders."""
    for entry in entries:
        folder, file = os.path.split(entry)
        name = file if os.path.isdir(entry) else inspect.getmodulename(file)
        spec = PathFinder.find_spec(name, [folder]) if name and name.isidentifier() else None
        if name and spec is not None:
            origin = spec.origin if spec.has_location else None
            yield name, (origin, list(spec.submodule_search_locations or ()))


def _required(package: Distribution) -> Iterator[str]:
    """Yield the names of the packages that a package requires here, without its extras."""
    from packaging.requirements import Requirement

    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name
