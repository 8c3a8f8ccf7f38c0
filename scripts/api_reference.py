"""Writes docs/api.md from the docstrings of the public names, or checks that it is up to date.

The page is also the snapshot of the public API: a change of a public name or signature changes
the page, so that it is deliberate.

Usage::

    python scripts/api_reference.py          # write docs/api.md
    python scripts/api_reference.py --check  # exit with 1 if it is out of date
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
PACKAGES = (
    "guerdon.rubrics",
    "guerdon.types",
    "guerdon.envs",
    "guerdon.rollouts",
    "guerdon.credit",
    "guerdon.sandbox",
    "guerdon.config",
    "guerdon.tracking",
    "guerdon.services",
    "guerdon.arena",
    "guerdon.viewer",
    "guerdon.integrations.gymnasium",
    "guerdon.integrations.nemo_gym",
    "guerdon.integrations.openrlhf",
    "guerdon.integrations.pettingzoo",
    "guerdon.integrations.skyrl",
    "guerdon.integrations.trl",
    "guerdon.integrations.verifiers",
    "guerdon.integrations.verl",
    "guerdon.errors",
)
INTRODUCTION = """# API reference

The public names by package, generated from their docstrings with `make api`. Names marked † can \
also be imported from `guerdon` itself. `help(name)` shows the arguments with their units and \
ranges, the errors, and an example.
"""


def first_line(thing: object) -> str:
    """Return the first line of a docstring."""
    text = inspect.getdoc(thing) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


def signature_of(thing: object) -> str:
    """Return the parameters with their defaults, without annotations."""
    try:
        signature = inspect.signature(typing.cast(typing.Callable[..., object], thing))
    except (TypeError, ValueError):
        return "(…)"
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if not each.name.startswith("_")
    ]
    bare = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    # Addresses of default objects differ from run to run.
    return re.sub(r"<([\w.]+)[^<>]* at 0x[0-9a-f]+>", r"<\1>", str(bare))


def public_classes() -> set[type]:
    """Return every class that a package exports."""
    modules = [importlib.import_module(package) for package in PACKAGES]
    things = [getattr(module, name) for module in modules for name in module.__all__]
    return {thing for thing in things if inspect.isclass(thing)}


def own_members(cls: type) -> list[tuple[str, object]]:
    """Return the public methods and properties of a class that no public base class documents."""
    elsewhere = {
        kind for base in cls.__mro__[1:] if base in public_classes() for kind in base.__mro__
    }
    found: dict[str, object] = {}
    for kind in reversed(cls.__mro__):
        if kind.__module__.partition(".")[0] == "guerdon" and kind not in elsewhere:
            for name, value in vars(kind).items():
                if name.startswith("_") or (name == "forward" and elsewhere):
                    continue
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if inspect.isfunction(function):
                    found[name] = value
    return sorted(found.items())


def class_entry(name: str, cls: type, mark: str) -> list[str]:
    """Return the lines for a class: its signature, its first line, its methods."""
    is_error = issubclass(cls, BaseException)
    shown = "" if is_error else signature_of(cls)
    lines = [f"### `{name}{shown}`{mark}", "", first_line(cls), ""]
    rows = []
    for member, value in [] if is_error else own_members(cls):
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if line := first_line(function):
            call = "" if isinstance(value, property) else _method_signature(function)
            rows.append(f"- `{member}{call}`: {line}")
    return [*lines, *rows, ""] if rows else lines


def _method_signature(function: object) -> str:
    text = signature_of(function)
    return re.sub(r"^\((self|cls)(, )?", "(", text)


def page() -> str:
    """Return the whole page."""
    guerdon = importlib.import_module("guerdon")
    top = set(guerdon.__all__)
    lines = [INTRODUCTION]
    for package in PACKAGES:
        module = importlib.import_module(package)
        lines += [f"## `{package}`", "", first_line(module), ""]
        for name in module.__all__:
            thing = getattr(module, name)
            mark = " †" if name in top else ""
            if inspect.isclass(thing):
                lines += class_entry(name, thing, mark)
            elif callable(thing):
                lines += [f"### `{name}{signature_of(thing)}`{mark}", "", first_line(thing), ""]
            else:
                lines += [f"### `{name}`{mark}", "", f"A `{type(thing).__name__}`.", ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write or check the page."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/api.md is out of date; run `make api` and review the change", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.name}: {text.count(chr(10) + '### ')} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
