"""The modules that run inside a sandbox, and the programs that consist of them."""

from __future__ import annotations

import functools
from pathlib import Path

_PACKAGE = "guerdon_testing"
_NAMES = (
    *("plain", "containers", "remote", "shared", "codec", "raised", "link", "surroundings"),
    *("candidate", "reach", "keeping", "running", "checker"),
)
#: The files of the package there, each after those that it imports. Its modules import each other
#: relatively, so that they work in `guerdon` as well. A sandbox that has them loaded lists their
#: names in its attribute ``preloaded``.
INSIDE = {_PACKAGE: Path(__file__).with_name("__init__.py")} | {
    f"{_PACKAGE}.{name}": Path(__file__).with_name(f"{name}.py") for name in _NAMES
}

_LOAD = """\
import sys
from types import ModuleType
for name, text in {texts!r}.items():
    module = sys.modules[name] = ModuleType(name)
    module.__package__, module.__path__ = {package!r}, []
    exec(compile(text, name, "exec"), module.__dict__)
"""
_CALL = "from {package} import {name}\n{name}.main()\n"
#: The checker imports nothing from the folder, where the program writes as well, even if a test
#: adds it to `sys.path`. The folder is new, so that no importer of it is cached.
_APART = """\
import os, sys
from types import SimpleNamespace
def apart(path, folder=os.path.join(os.getcwd(), "")):
    if not os.path.join(os.path.realpath(path), "").startswith(folder):
        raise ImportError
    return SimpleNamespace(find_spec=lambda name, target=None: None)
sys.path_hooks.insert(0, apart)
"""


@functools.lru_cache(maxsize=8)
def program_of(side: str, preloaded: frozenset[str]) -> str:
    """Return the program of a side, with the modules that the sandbox hasn't loaded already.

    They are in its text and not in files, so that the folder of the program that is tested stays
    empty.

    Args:
        side: ``candidate`` or ``checker``.
        preloaded: Names of modules.
    """
    needed = {name: path for name, path in INSIDE.items() if name not in preloaded}
    texts = {name: path.read_text(encoding="utf-8") for name, path in needed.items()}
    loading = _LOAD.format(texts=texts, package=_PACKAGE) if texts else ""
    apart = _APART if side == "checker" else ""
    return apart + loading + _CALL.format(package=_PACKAGE, name=side)
