"""The modules that run inside of a sandbox, and the programs that are made of them."""

from __future__ import annotations

import functools
from collections.abc import Set as AbstractSet
from pathlib import Path

__all__ = ["INSIDE", "program_of"]

#: By the names that they have there, each after those that it needs. A sandbox that has them loaded
#: says so by its attribute ``preloaded``, a set of such names.
INSIDE = {
    f"guerdon_{name}": Path(__file__).with_name(f"{name}.py")
    for name in (
        *("plain", "shared", "codec", "remote", "raised", "stream", "link", "candidate"),
        *("reach", "keeping", "checker"),
    )
}

LOADED = """\
import sys
from types import ModuleType
for name, text in {texts!r}.items():
    module = sys.modules[name] = ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
"""
CALLED = "import {name}\n{name}.main()\n"


def program_of(side: str, preloaded: AbstractSet[str]) -> str:
    """The program of a side, which brings along what the sandbox hasn't loaded already.

    It brings them in its own text and not in files, so that the program that is tested has its
    folder for itself.

    Args:
        side: ``candidate`` or ``checker``.
        preloaded: Names of modules.
    """
    needed = tuple(name for name in INSIDE if name not in preloaded)
    return (_loaded(needed) if needed else "") + CALLED.format(name=f"guerdon_{side}")


@functools.lru_cache(maxsize=8)
def _loaded(names: tuple[str, ...]) -> str:
    return LOADED.format(texts={name: INSIDE[name].read_text(encoding="utf-8") for name in names})
