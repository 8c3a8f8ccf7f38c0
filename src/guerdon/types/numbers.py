"""Types of numbers in models: finite floats, integers and metrics."""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, StrictInt

from guerdon._validation import as_score


def _finite(value: Any) -> Any:
    number = as_score(value)
    if number is None:
        raise ValueError(f"a score is a finite float, not {value!r:.60}")
    return number


# Integers, booleans and those of numpy are converted to float.
FiniteFloat: TypeAlias = Annotated[float, BeforeValidator(_finite)]


def _plain(metrics: Any) -> Any:
    """Convert numbers and arrays of numpy to JSON types."""
    if not isinstance(metrics, dict) or not metrics:
        return metrics
    return {
        name: value.tolist() if callable(getattr(value, "tolist", None)) else value
        for name, value in metrics.items()
    }


Metrics: TypeAlias = Annotated[dict[str, Any], BeforeValidator(_plain)]


def _index(value: Any) -> Any:
    """Convert an integer of numpy, such as the result of argmax, to int."""
    if isinstance(value, Integral) and not isinstance(value, bool | int):
        return int(value)
    return value


Index: TypeAlias = Annotated[StrictInt, BeforeValidator(_index)]
