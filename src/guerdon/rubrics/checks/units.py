"""Units of measure and currencies: whether two are the same, or how one converts to the other."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

# For each dimension, its units: their size, symbols and names.
_UNITS = {
    "length": "0.3048 ft foot feet|0.0254 in inch|0.9144 yd yard|1609.344 mi mile",
    "mass": "453.59237 lb pound|28.349523125 oz ounce|1000000 tonne ton",
    "length^2": "4046.8564224 acre|10000 ha hectare",
    "length^3": "0.003785411784 gal gallon|0.000946352946 qt quart|0.000473176473 pt pint",
    "time": "60 min minute|3600 h hr hour|86400 day|604800 week",
    "months": "1 month|12 yr year|120 decade|1200 century centurie",
    "byte": "1 byte|1000 kb kilobyte|1000000 mb megabyte|1000000000 gb gigabyte|1/8 bit",
    "USD": "1 $ us$ us usd dollar buck|1/100 ¢ cent penny pennie",
    "CAD": "1 $ c$ ca$ cad dollar|1/100 ¢ cent",
    "AUD": "1 $ a$ au$ aud dollar|1/100 ¢ cent",
    "EUR": "1 € eur euro|1/100 cent",
    "GBP": "1 £ gbp pound quid|1/100 penny pennie pence",
    "INR": "1 ₹ inr rs rupee|1/100 paise paisa",
    "JPY": "1 ¥ jpy yen",
    "CNY": "1 ¥ cny rmb yuan",
    "KRW": "1 ₩ krw",
    "CHF": "1 chf franc",
    "%": "1 %",
    "angle": "1 ° degree|57.29577951308232 rad radian",
    "°C": "1 °C C ° degree celsius",
    "°F": "1 °F F ° degree fahrenheit",
}
_METRIC = {
    "length": "1 m meter metre", "mass": "1 g gram gramme", "length^3": "1/1000 L l liter litre",
    "time": "1 s sec second", "power": "1 W watt", "energy": "1 J joule|4.184 cal calorie",
    "force": "1 N newton", "voltage": "1 V volt", "frequency": "1 Hz hertz",
    "pressure": "1 Pa pascal",
}  # fmt: skip
_PREFIXES = {
    " ": "1", "k kilo": "1e3", "c centi": "1e-2", "d deci": "1e-1", "m milli": "1e-3",
    "μ micro": "1e-6", "n nano": "1e-9", "M mega": "1e6", "G giga": "1e9",
}  # fmt: skip
_SPEEDS = {"mph": "mile/hour", "kph": "km/h", "kmh": "km/h", "kmph": "km/h", "mps": "m/s"}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_PER = re.compile(r"\s*/\s*|\s+(?:per|an?|each|every)\s+")

Sizes = dict[str, Fraction]
"""The sizes that a unit can have, by dimension: a pound is a mass or a currency."""


@lru_cache(maxsize=1)
def _all_sizes() -> dict[str, Sizes]:
    sizes: dict[str, Sizes] = {}
    tables = [(_UNITS, "", "", Fraction(1))]
    tables += [(_METRIC, *prefix.split(" "), Fraction(size)) for prefix, size in _PREFIXES.items()]
    for table, symbol, spoken, factor in tables:
        for dimension, units in table.items():
            for size, *names in map(str.split, units.split("|")):
                for name in names:
                    prefix = symbol if len(name) < 3 or name == "cal" else spoken
                    sizes.setdefault(prefix + name, {})[dimension] = Fraction(size) * factor
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
    for sign, (one, other) in zip((1, -1), zip(_parts(unit), _parts(wanted)), strict=True):
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
