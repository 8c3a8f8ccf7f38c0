"""Advantages for every step of a batch: GiGPO and its relatives, in numpy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.credit.credit import *
    from guerdon.credit.group_in_group import *
    from guerdon.credit.methods import *
    from guerdon.credit.outcome import *
    from guerdon.credit.process import *
    from guerdon.credit.returns import *
    from guerdon.credit.tokens import *

__getattr__, __dir__ = lazy_names(
    __name__, "credit", "group_in_group", "outcome", "process", "returns", "tokens", "methods"
)
