"""The modules that run inside of a sandbox, and the programs that are made of them."""

from __future__ import annotations

import functools
from pathlib import Path

__all__ = ["INSIDE", "source"]

#: By the names that they have there, each after those that it needs. A sandbox that has them loaded
#: says so by its attribute ``preloaded``, a set of such names.
INSIDE = {
    f"guerdon_{name}": Path(__file__).with_name(f"{name}.py")
    for name in ("plain", "codec", "remote", "raised", "link", "candidate", "checker")
}


@functools.cache
def source(name: str) -> bytes:
    """The text of one of them."""
    return INSIDE[name].read_bytes()
