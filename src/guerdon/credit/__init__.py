"""Advantages for every step of a batch: GiGPO and its relatives, in numpy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.credit.batch import *
    from guerdon.credit.credit import *
    from guerdon.credit.estimators import *
    from guerdon.credit.statistics import *
    from guerdon.credit.tokens import *

__getattr__, __dir__ = lazy_names(__name__, "statistics", "batch", "credit", "tokens", "estimators")
