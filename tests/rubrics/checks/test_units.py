"""Units of measure and currencies."""

from fractions import Fraction

import pytest

from guerdon.rubrics.checks.units import conversion, sizes_of


@pytest.mark.parametrize(
    ("unit", "wanted", "factor"),
    [
        ("km", "m", 1000), ("kilometers", "km", 1), ("KM", "km", 1), ("cents", "$", "1/100"),
        ("¢", "€", None), ("€", "$", None), ("US$", "dollars", 1), ("CAD", "USD", None),
        ("$", "CAD", 1), ("Rs.", "₹", 1), ("pounds", "£", 1), ("lbs", "oz", 16),
        ("pounds", "$", None), ("minutes", "hours", "1/60"), ("days", "years", None),
        ("mph", "miles per hour", 1), ("km/h", "hours", None), ("m", "m²", None),
        ("square meters", "m²", 1), ("cm²", "m²", "1/10000"), ("cubic centimeters", "ml", 1),
        ("degrees Celsius", "°C", 1), ("°F", "°C", None), ("degrees", "°C", 1),
        ("mL", "L", "1/1000"),
        ("eggs", "ducks", 1), ("eggs", "$", 1), ("in total", "$", 1), ("$ per day", "$", 1),
        ("", "km", 1),
        ("%", "km", None), ("μm", "mm", "1/1000"), ("kcal", "kJ", "4.184"), ("", "", 1),
    ],
)  # fmt: skip
def test_conversion_of_units_is_exact_or_refused(unit, wanted, factor):
    assert conversion(unit, wanted) == (None if factor is None else Fraction(factor))


def test_sizes_of_a_word_that_is_no_unit_are_none():
    assert sizes_of("eggs") == sizes_of("") == {}
