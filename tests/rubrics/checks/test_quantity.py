"""Reading one number from a short text."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rubrics.checks.quantity import parse_number, read_quantity
from tests.hostile import linear_time

NUMBERS = [
    ("72", 72), ("007", 7), ("+7", 7), ("-7", -7), ("\u22127", -7), ("- 7", -7), (".5", "1/2"),
    ("5.", 5), ("-3e4", -30000), ("1.5E-3", "3/2000"), ("1e308", 10**308),
    ("1,234", 1234), ("1,000,000.5", "2000001/2"), ("1\u202f234", 1234), ("1 234", 1234),
    ("12 000 km", 12000), ("1\u00a0234\u00a0567", 1234567),
    ("18 because 2 * 9 is 18", 18), ("18 [since 9*2]", 18), ("18. Explanation: 2*9=18.", 18),
    ("18 and we are done", 18),
    ("42 (rounded to 2 digits)", 42), ("42 (6 × 7)", 42), ("42. (Confidence: 90%)", 42),
    ("809 (mod 1000)", 809), ("17, i.e., seventeen", 17), ("negative 12", -12),
    ("18 = 2 * 9", 18), ("-3.5×10^(-2)", "-7/200"),
    (r"\textcolor{red}{18}", 18), (r"\color{red}18", 18),
    ("$1,234.50", "2469/2"), ("€3", 3), ("3€", 3), ("-$5", -5), ("$-5", -5), ("US$5", 5),
    ("50¢", 50),
    ("1/2", "1/2"), ("-1/2", "-1/2"), ("10 / 4", "5/2"), ("1 1/2", "3/2"), ("-1 1/2", "-3/2"),
    ("½", "1/2"), ("1½", "3/2"), ("1,000/3", "1000/3"),
    ("50%", "1/2"), ("12.5 %", "1/8"), ("50 percent", "1/2"), (r"50\%", "1/2"),
    ("18 eggs", 18), ("18 miles per hour", 18), ("18 miles/hour", 18), ("18 dollars a day.", 18),
    ("5kg", 5), ("5 kg", 5), ("100 m²", 100), ("30°C", 30), ("20 cm^3", 20), ("20 m^{2}", 20),
    (r"20\text{ cm}^2", 20), ("20cm^3", 20), ("3 times", 3),
    ("5 million", 5_000_000), ("2.5 thousand dollars", 2500),
    ("= 18", 18), ("x = 18", 18), ("**72**", 72), ("**72.**", 72), ("**72**.", 72), ("`72`", 72),
    (r"\boxed{72}", 72), (r"\boxed{\frac{1}{2}}", "1/2"), (r"\boxed{\text{18}}", 18),
    (r"\frac{1}{2}", "1/2"), (r"-\dfrac{1}{2}", "-1/2"), (r"\frac{-1}{2}", "-1/2"),
    (r"1\frac{1}{2}", "3/2"), (r"\frac12", "1/2"), (r"\$1{,}234", 1234), (r"1\,234", 1234),
    (r"18\text{ eggs}", 18), (r"18\text{eggs}", 18), (r"18\ \text{cm}", 18), (r"90^\circ", 90),
    ("$18$", 18), ("$$18$$", 18), (r"\(18\)", 18), ("5~kg", 5), ("$<<20+72=92>>92", 92),
    ("5k", 5000), ("$5K", 5000), ("$2.5k.", 2500), ("USD 18", 18), ("Rs. 18", 18),
    ("EUR 1,000", 1000),
    ("about $18", 18), ("Approximately 18 eggs", 18), ("approx. 18", 18), ("around 18", 18),
    ('"18"', 18), ("“18.”", 18), ("'18'.", 18), ("<b>18</b>", 18),
    ("<strong>$18</strong> eggs", 18),
    ("18 (eighteen)", 18), ("21 (twenty-one).", 21), ("5000 (five thousand)", 5000),
    ("18 (eggs per day)", 18), (r"3\times10^4", 30000), (r"3 \times 10^{-1}", "3/10"),
    ("3 × 10^4", 30000), ("1.5 x 10^3 m", 1500),
    ("5 dozen", 60), ("5 dozens of eggs", 60), ("4 lakh", 400_000), ("2 crore", 2 * 10**7),
    ("3 thousands", 3000), ("5 hundred thousand dollars", 500_000),
    ("12,34,567", 1234567), ("10^3", 1000), ("10⁶", 10**6), ("2^{10}", 1024), ("16 - 3 = 13", 13),
    ("(3)", 3), ("≈5", 5), ("~5", 5), ("24.3B", 24_300_000_000), ("5 mn", 5_000_000), ("４２", 42),
    ("$3 a dozen", 3), ("$3 per quarter", 3), ("18 third graders", 18), ("18 seconds", 18),
]  # fmt: skip

NOT_NUMBERS = [
    "", " ", ".", "-", "$", "%", "10:30", "3 or 4", "3 and 4", "about ten", "five", "5 or six",
    "1e999", "1e-999", "1e999999999", "nan", "inf", "-inf", "Infinity", "NaN", "1e", "e5",
    "5 hours 30 minutes", "2024-01-05", "1/2/2024", "5 May", "5 am", "3rd", "18 or more",
    "1,23", "1,2345", "1,234,5", "0,500", "1.234,56", "12 34", "1 2345", "1.2.3", "1_000",
    "0x10", "1/0", "1 1/0", "1.5/2", "--5", "-$-5", "5 x", "5x", "5k-6k", "5k x", "2 and a half",
    "3-4", "3–4", "x = 3, y = 13", "2*9", "2(3)", "<5",
    "(1,234)", "[1,234]", "1/3 ≈ 0.33", "18...", "18%%",
    "{5, 6}", r"2\sqrt{3}", r"3\pi", "A: 5", "5, 6", "5 five", "18 is right", "9" * 401,
    "5 a b c d e f g",
    "3 quarters", "1 quarter", "2 thirds", "1 third", "1 third of a mile", "3 half", "3 halves",
    "5 half-dozen", "4 score", "3 scores", "7 tenths", "5 full dozen", "5 dozen and a half",
    "about 3-4", "about five", "18 (or 19)", "5 (thousand)", "5 (in millions)", "5 (x)",
    "50 (percent)",
    "18 (not twenty)", "5!", "5!!", "5 x^2", "5 m^4", "3 <sup>2</sup>", "18<br>19", "3 × 10^999",
    "3 × 10^4 × 10^4", "x >= 5", "5'10\"",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_parse_number_reads_numbers_as_people_write_them(text, value):
    assert parse_number(text) == Fraction(value)


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_parse_number_reads_nothing_that_is_not_one_number(text):
    assert parse_number(text) is None


def test_read_quantity_keeps_the_percent_sign_separate():
    assert read_quantity("50%") == (50, True, "%")
    assert read_quantity("50") == (50, False, "")
    assert read_quantity("$50 per day") == (50, False, "$ per day")


@given(st.integers(-(10**290), 10**290))
def test_parse_number_round_trips_integers(number):
    assert parse_number(str(number)) == number
    assert parse_number(f"{number:,}") == number
    assert parse_number(f"  ${number} \n") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_parse_number_round_trips_floats_exactly_as_written(number):
    assert parse_number(repr(number)) == Fraction(repr(number))


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_parse_number_round_trips_fractions(numerator, denominator):
    value = Fraction(numerator, denominator)
    assert parse_number(f"{numerator}/{denominator}") == value
    assert parse_number(rf"\frac{{{numerator}}}{{{denominator}}}") == value
    assert parse_number(f"{numerator}/{denominator}%") == value / 100


@given(st.text())
def test_parse_number_never_raises_on_any_text(text):
    parse_number(text)


@given(st.text(alphabet="0123456789.,/-+eE%$ \\{}frac½−\u202f~*<>=x", max_size=60))
def test_parse_number_never_raises_on_what_looks_like_numbers(text):
    parse_number(text)


@pytest.mark.parametrize(
    "text",
    ["9" * 10**6, "1e999999999", "1e" + "9" * 300, "1" * 399 + " ", "1," * 199, "1 " * 199,
     r"\frac" * 80, "<" * 399, "{" * 399, " " * 10**6, "*" * 10**6, "\\boxed{" * 50,
     "1" + " " * 397 + "x", "18" + "(" * 397, "18" + "()" * 198, "1 m" + "^" * 396,
     "1×10^" * 79, "<b" * 199, "about " * 66, '"' * 399, "1" + " dozen" * 66,
     "1 a" + " " * 390 + "z"],
)  # fmt: skip
def test_parse_number_takes_linear_time_on_hostile_text(text):
    with linear_time():
        parse_number(text)
