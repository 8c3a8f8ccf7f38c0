"""What counts as a number in a model: finite, and no bool."""

from __future__ import annotations

import math
from numbers import Real
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator

__all__ = ["FiniteFloat"]


def _finite(value: Any) -> Any:
    kind = type(value)
    if kind is float and math.isfinite(value):
        return value
    if kind is not bool and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise ValueError(f"a score is a finite float, not {value!r:.60}")


# An int or one of numpy's numbers becomes the float that it is.
FiniteFloat: TypeAlias = Annotated[float, BeforeValidator(_finite)]
