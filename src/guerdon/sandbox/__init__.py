"""Running untrusted code: programs that a model wrote, and functions of other authors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.sandbox.locking.canaries import *
    from guerdon.sandbox.opening import *
    from guerdon.sandbox.output import *
    from guerdon.sandbox.protocol import *
    from guerdon.sandbox.testing.checking import *

# Imported when they are first used: a worker's processes load as little as they can.
__getattr__, __dir__ = lazy_names(
    __name__, "protocol", "opening", "locking.canaries", "testing.checking", "output"
)
