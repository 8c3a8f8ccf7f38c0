"""Units of measure and currencies: whether two are the same, or how one converts to the other."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

_PREFIXES = {
    "k": (3, "kilo"), "c": (-2, "centi"), "d": (-1, "deci"), "m": (-3, "milli"),
    "μ": (-6, "micro"), "n": (-9, "nano"), "p": (-12, "pico"), "M": (6, "mega"), "G": (9, "giga"),
}  # fmt: skip
_SPEEDS = {"mph": "mile/hour", "kph": "km/h", "kmh": "km/h", "kmph": "km/h", "mps": "m/s"}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_PER = re.compile(r"\s*/\s*|\s+(?:per|an?|each|every)\s+")

Sizes = dict[str, Fraction]
"""The sizes that a unit can have, by dimension: a pound is a mass or a currency."""


@lru_cache(maxsize=1)
def _all_sizes() -> dict[str, Sizes]:
    """The sizes by symbol and name, with those of prefixed units."""
    sizes: dict[str, Sizes] = {}
    text = Path(__file__).with_name("units.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            dimension, written, names = line.split("\t")
            size = Fraction(written.lstrip("x"))
            for name in names.split():
                sizes.setdefault(name, {})[dimension] = size
                is_symbol = len(name) < 3 or name == "cal"
                for symbol, (power, spoken) in _PREFIXES.items() if "x" in written else ():
                    prefixed = (symbol if is_symbol else spoken) + name
                    sizes.setdefault(prefixed, {})[dimension] = size * Fraction(10) ** power
    return sizes


def sizes_of(word: str) -> Sizes:
    """Return the sizes of a unit's symbol or name, singular or plural; none of another word.

    Example:
        >>> sizes_of("cents")["USD"], sizes_of("eggs")
        (Fraction(1, 100), {})
    """
    bare = word.rstrip(".")
    low = bare.lower()
    names = (bare, low, low.removesuffix("s"), low.removesuffix("es"))
    known = _all_sizes()
    return next((known[name] for name in names if name in known), {})


def conversion(unit: str, wanted: str) -> Fraction | None:
    """Return by what a number in a unit is multiplied to be in another one.

    Only what both say is compared: of `dollars per day` and `$` the dollars.

    Args:
        unit: A unit as it is written: `km/h`, `square meters`, `$ per day`, or any other words.
        wanted: Another one.

    Returns:
        The factor; 1 if one of them is no unit of measure; None if they are different.

    Example:
        >>> conversion("cents", "$"), conversion("eggs", "$"), conversion("km", "hours")
        (Fraction(1, 100), Fraction(1, 1), None)
    """
    factor = Fraction(1)
    if unit == wanted:
        return factor
    for sign, one, other in zip((1, -1), _parts(unit), _parts(wanted), strict=True):
        shared = [dimension for dimension in one if dimension in other]
        if shared:
            factor *= (one[shared[0]] / other[shared[0]]) ** sign
        elif one and other:
            return None
    return factor


@lru_cache(maxsize=512)
def _parts(unit: str) -> tuple[Sizes, Sizes]:
    """The sizes of what is counted and of what it is counted by: of dollars and of a day."""
    above, *below = _PER.split(_SPEEDS.get(unit.lower(), unit), maxsplit=1)
    return _sizes_in(above), _sizes_in(below[0]) if below else {}


def _sizes_in(words: str) -> Sizes:
    sizes: Sizes = {}
    power = 1
    listed = words.split()
    for index, word in enumerate(listed):
        if word.lower().rstrip(".") in _POWERS:
            power = _POWERS[word.lower().rstrip(".")]
        elif word != "in" or index == len(listed) - 1:  # "18 in total" are no inches
            exponent = {"²": 2, "³": 3}.get(word[-1], power)
            known = {
                f"{dimension}^{exponent}" if exponent > 1 else dimension: size**exponent
                for dimension, size in sizes_of(word.rstrip("²³")).items()
            }
            # Several words say it together: degrees Celsius.
            sizes = {name: sizes[name] for name in sizes if name in known} or sizes or known
    return sizes
