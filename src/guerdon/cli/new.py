"""``guerdon new``: begin an environment."""

from __future__ import annotations

import keyword
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from guerdon.errors import InvalidArgumentError, OutputError

__all__ = ["new"]

TEMPLATES = ("environment.py", "test_environment.py", "README.md")


def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="The folder to make; its last part is the package's name, such as my_env.",
        ),
    ],
) -> None:
    """Write a small environment, with its test, that passes `guerdon check`.

    It is a package of its own: environment.py, test_environment.py, README.md.
    """  # fmt: skip
    folder = Path(name)
    package = folder.name
    if not package.isidentifier() or keyword.iskeyword(package) or package != package.lower():
        raise InvalidArgumentError(
            f"{package!r} can't be a package's name; it takes small letters, digits and _, "
            "such as my_env"
        )
    if package in sys.stdlib_module_names:
        raise InvalidArgumentError(f"{package!r} is a module of Python itself; choose another name")
    if folder.exists():
        raise InvalidArgumentError(f"{folder} is there already; nothing was written")
    texts = {file: _filled(file, package) for file in TEMPLATES}
    try:
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'"""The environment {package}."""\n', encoding="utf-8")
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"can't write {error.filename}: {error.strerror}") from error
    print(f"wrote {folder}: {', '.join(texts)}\nnext: guerdon check {folder}")


def _filled(file: str, package: str) -> str:
    """A template, with the name in its two spellings."""
    text = (files("guerdon.cli") / "template" / f"{file}.txt").read_text(encoding="utf-8")
    class_name = "".join(part.capitalize() for part in package.split("_"))
    filled = text.replace("{name}", package).replace("{Name}", class_name)
    return filled.replace("{{", "{").replace("}}", "}")
