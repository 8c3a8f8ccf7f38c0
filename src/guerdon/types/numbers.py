"""What counts as a number in a model: finite, and no bool."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, StrictInt

__all__ = ["FiniteFloat", "Index", "Metrics"]


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


def _plain(metrics: Any) -> Any:
    """Numbers and arrays of numpy as what JSON can hold."""
    if not isinstance(metrics, dict) or not metrics:
        return metrics
    return {
        name: value.tolist() if callable(getattr(value, "tolist", None)) else value
        for name, value in metrics.items()
    }


Metrics: TypeAlias = Annotated[dict[str, Any], BeforeValidator(_plain)]


def _index(value: Any) -> Any:
    """A whole number of numpy, such as argmax gives, as the int that it is."""
    if isinstance(value, Integral) and not isinstance(value, bool | int):
        return int(value)
    return value


Index: TypeAlias = Annotated[StrictInt, BeforeValidator(_index)]
