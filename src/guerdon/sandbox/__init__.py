"""Running code that nobody trusts: a model's programs, and other people's rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.sandbox.evaluating import *
    from guerdon.sandbox.execution import *
    from guerdon.sandbox.finding import *
    from guerdon.sandbox.limits import *
    from guerdon.sandbox.opening import *
    from guerdon.sandbox.probing import *
    from guerdon.sandbox.protocol import *
    from guerdon.sandbox.testing.checking import *
    from guerdon.sandbox.testing.verdict import *

# Imported where they are first used: a worker's processes load as little as they can.
__getattr__, __dir__ = lazy_names(
    __name__,
    "limits",
    "execution",
    "protocol",
    "opening",
    "finding",
    "probing",
    "testing.verdict",
    "testing.checking",
    "evaluating",
)
