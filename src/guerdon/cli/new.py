"""``guerdon new``: create an environment."""

from __future__ import annotations

import importlib.util
import keyword
import sys
import tempfile
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from guerdon import __version__
from guerdon.errors import InvalidArgumentError, ScoringError

TEMPLATES = ("environment.py", "test_environment.py", "README.md", "Dockerfile")


def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The folder to create; its last part is the package's name, such as my_env.",
        ),
    ],
) -> None:
    """Create a small environment with its test, which passes `guerdon check`.

    It is a package of its own: environment.py, test_environment.py, README.md, Dockerfile.
    """  # fmt: skip
    folder = Path(name)
    _check(folder)
    texts = {"__init__.py": f'"""The environment {folder.name}."""\n'}
    texts |= {file: _filled(file, folder) for file in TEMPLATES}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".guerdon-") as beside:
            made = Path(beside, folder.name)  # all of it, or nothing
            made.mkdir()
            for file, text in texts.items():
                (made / file).write_text(text, encoding="utf-8")
            made.rename(folder)
    except OSError as error:
        raise ScoringError(f"can't write {folder}: {error.strerror}") from error
    print(f"wrote {folder}: {', '.join(TEMPLATES)}\nnext: guerdon check {folder}")


def _check(folder: Path) -> None:
    package = folder.name
    plain = unicodedata.normalize("NFKC", package)  # as Python normalizes names
    is_name = package.isidentifier() and package == plain.lower() and package[0].isalpha()
    if not is_name or keyword.iskeyword(package):
        raise InvalidArgumentError(
            f"{package!r} is not a valid package name: use lower-case letters, digits and _, such "
            "as my_env"
        )
    if folder.exists():
        raise InvalidArgumentError(f"{folder} exists already; nothing was written")
    if package in sys.stdlib_module_names:
        raise InvalidArgumentError(f"{package!r} is a module of Python itself; choose another name")
    if importlib.util.find_spec(package) is not None:
        raise InvalidArgumentError(
            f"a package {package!r} exists already, and Python would import that one; choose "
            "another name"
        )


def _module_of(folder: Path) -> str:
    """The name by which the new package is imported; it may be inside of another."""
    parts, above = [folder.name], folder.resolve().parent
    while (above / "__init__.py").is_file():
        parts.insert(0, above.name)
        above = above.parent
    return ".".join(parts)


def _filled(file: str, folder: Path) -> str:
    """A template with the names filled in."""
    text = (files("guerdon.cli") / "template" / f"{file}.txt").read_text(encoding="utf-8")
    stem = folder.name.removesuffix("_env") or folder.name
    class_name = "".join(part.capitalize() for part in stem.split("_"))
    return text.format(
        name=folder.name, module=_module_of(folder), Name=class_name, version=__version__
    )
