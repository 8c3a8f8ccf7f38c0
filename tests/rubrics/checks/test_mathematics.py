"""Whether an answer is the right mathematics."""

import copy
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import anyio
import numpy
import pytest

from guerdon.errors import (
    InvalidArgumentError,
    MissingExtraError,
    MissingInputError,
    SandboxError,
    StateError,
)
from guerdon.rubrics.checks import MathAnswer, mathematics

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("GUERDON_DATA") or REPOSITORY.parent / "shared" / "data")

pytestmark = pytest.mark.edge

RIGHT = [
    ("B", r"\textbf{(B)}\ \frac{1}{2}"), (r"\frac{7}{12}", r"\frac{m}{n} = \frac{7}{12}"),
    (r"\frac{\sqrt2}{2}", r"\frac{\sqrt{2}}{2} \text{ (approximately } 0.707)"),
    ("2x^2", "2*x**2"), ("2,3", "x₁ = 2, x₂ = 3"),
    ("3:4:5", "3 : 4 : 5"), (r"(-\infty,\infty)", r"\text{all real numbers}"),
    (r"2\text{ and }3", "3, 2"), ("2,3", r"\frac42\text{ and }3"),
    (r"\frac{-1\pm\sqrt{5}}{2}", r"\frac{-1+\sqrt5}{2}, \frac{-1-\sqrt5}{2}"),
    (r"\frac{1\pm\sqrt2}{3}", r"x=\frac{1\pm\sqrt2}{3}"), (r"\frac12", r"\cos 60^\circ"),
    ("1", r"\tan(45^{\circ})"), ("x+1", r"\textcolor{red}{x+1}"),
    ("xy", "yx"), ("xy", r"x \cdot y"), ("AB", "BA"), (r"(2x)^\circ", r"(2x)^{\circ}"),
    (r"(2x)^\circ", r"2x \text{ degrees}"), (r"\text{No}", "no"), (r"\text{YES}", "Yes"),
    ("x^2+2x+1", "(x+1)^2"), ("2x+3", "3 + 2x"), ("4a-2", "2(2a-1)"), (r"\frac{x}{2}", "x/2"),
    (r"\frac{x}{2}", r"\frac{1}{2}x"), ("x^2-y^2", "(x-y)(x+y)"), (r"\sin^2 x+\cos^2 x", "1"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"), (r"\sqrt{8}", r"2\sqrt2"),
    (r"\frac{1}{2}", r"\frac12"), (r"\frac12", "0.5"), (r"1\frac{1}{2}", r"\frac{3}{2}"),
    (r"1\frac{1}{2}", "1 1/2"), (r"-1\frac12", "-1.5"), ("6", "(2)(3)"), ("(1,2)", "(1, 2)"),
    (r"\{1,2\}", r"\{2,1\}"), (r"\{1,2\}", "1, 2"), (r"\{1,2\}", "2, 1"), ("(1,2)", "1, 2"),
    (r"\{1,2\}", r"\{1,1,2\}"), ("2,2,3", "3,2,2"), ("[1,2)", "[1,2)"),
    (r"(-\infty,3)", r"(-\infty, 3)"),
    (r"(-\infty, 1)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,1)"),
    (r"(-\infty, 1)\cup(3,\infty)", r"x<1 \text{ or } x>3"),
    (r"(-\infty, 1)\cup(3,\infty)", "x<1 or x>3"), ("[1,3]", r"x\in[1,3]"),
    ("[1,3]", r"1\le x\le 3"), ("x>3", r"(3,\infty)"), ("x>3", "3<x"),
    (r"x \geq -2", r"[-2,\infty)"), (r"-3 \le x < 5", "[-3, 5)"), ("1,234", "1234"),
    ("1234", "1{,}234"), ("3,250", r"3,\!250"), ("1,000", r"1\,000"), ("5", "x=5"),
    ("5", "x = 5"), ("x=5", "5"), ("x=5", "5=x"), ("7", "3+4=7"), ("y=2x+3", "2x-y+3=0"),
    ("y=2x+3", "y = 3+2x"), ("y=2x+3", "2x+3"), ("x^2+y^2=25", "y^2+x^2=25"),
    ("x=1, x=2", "1, 2"), ("1,2", r"x=1 \text{ or } x=2"), ("1,2", "x=1 or x=2"),
    ("1, 2", "x = 2, x = 1"), ("x=1, y=2", "x=1,y=2"), ("x=1, y=2", "y=2, x=1"),
    ("D=(0,1)", "D=(0,1)"), (r"\pm 2", "2, -2"), (r"\pm 2", r"x=\pm 2"),
    (r"3\pm\sqrt2", r"3+\sqrt{2}, 3-\sqrt{2}"), (r"\text{Tuesday}", "Tuesday"),
    ("Tuesday", r"\text{tuesday}"), (r"\text{even}", r"\textbf{even}"), (r"\text{13}", "13"),
    (r"\text{Yes}", "yes"), ("B", "(B)"), ("B", r"\text{(B)}"), ("B", r"\textbf{(B)}"),
    ("(B)", "B."), ("B", "b"), ("B", "(B) 12"), (r"\text{(B)}", "B"), ("B", r"\mathrm{B}"),
    ("B", "Option B"), (r"90^\circ", "90"), (r"90^\circ", r"90^{\circ}"), (r"90^\circ", "90°"),
    (r"90^\circ", "90 degrees"), (r"90^\circ", r"90\text{ degrees}"),
    (r"\frac{\pi}{2}", r"\frac{\pi}{2} \text{ radians}"), (r"12\pi\text{ cm}^2", r"12\pi"),
    (r"12\pi", r"12\pi \text{ square units}"), ("12", r"12 \text{ square units}"),
    (r"2\sqrt{3}", r"2\sqrt{3} \text{ meters}"), (r"2\sqrt3", r"2\sqrt{3} units"),
    (r"\emptyset", r"\varnothing"), (r"\emptyset", r"\{\}"),
    (r"\text{no solution}", r"\emptyset"), (r"\text{no solution}", "no solutions"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1 & 2 \\ 3 & 4\end{bmatrix}"),
    (r"\begin{pmatrix}1/2\\2\end{pmatrix}", r"\begin{pmatrix}0.5\\2\end{pmatrix}"),
    (r"\begin{pmatrix}x+x\\2\end{pmatrix}", r"\left(\begin{array}{c}2x\\2\end{array}\right)"),
    ("2516_8", "2516_{8}"), ("2516_8", "1358"), ("2516_8", "(2516)_8"), ("1A_{16}", "26"),
    (r"\infty", "∞"), ("2+3i", "3i+2"), ("-1", "i^2"), (r"e^{i\pi}", "-1"), ("5!", "120"),
    (r"\binom{5}{2}", "10"), (r"\log_2 8", "3"), ("2^{10}", "1024"), ("10^{-3}", "0.001"),
    (r"3\times10^8", "300000000"), (r"0.\overline{3}", r"\frac13"),
    (r"0.1\overline{6}", r"\frac16"), ("3:2", "3:2"), ("1:2:3", "1:2:3"), ("3:2", r"\frac{3}{2}"),
    ("f'(x)=2x", "2x"), ("a_n=2n+1", "2n+1"),
    (r"(3,\frac{\pi}{2})", r"\left(3, \frac{\pi}{2}\right)"), ("(1,2),(3,4)", "(3,4),(1,2)"),
    ("(1,1)", "(1,1)"), ("(x,y)=(1,2)", "(1,2)"), ("(1,2)", "(x,y)=(1,2)"),
    (r"\langle 1,2\rangle", "(1,2)"), (r"\mathbb{R}", r"(-\infty,\infty)"),
    (r"\mathbb{R}\setminus\{0\}", r"\mathbb{R}\setminus\{0\}"), (r"x\ne 3", r"x\neq3"),
    (r"\{x \mid x>3\}", r"(3,\infty)"), (r"\$18.90", "18.9"), (r"\$6", "6"), (r"5\%", "5"),
    (r"5\%", "0.05"), (r"\frac{1}{3}\%", r"\frac13"), (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n} k"),
    (r"\frac12", r"\int_0^1 x dx"), ("|x|", r"\sqrt{x^2}"),
    (r"\frac13", r"\frac13 \approx 0.333"), ("10", "10.0"), ("1e5", "100000"),
    (r"\tan x", r"\frac{\sin x}{\cos x}"), ("a^{2}b", "ba^2"),
    (r"2<x<3 \text{ or } x>5", r"(2,3)\cup(5,\infty)"), ("x=2y", "y=x/2"),
    (r"12\pi cm", r"12\pi"), ("45", "45 degrees"), ("30", r"30 ^\circ C"), (r"\$32,348", "32348"),
    (r"\text{Evelyn}", "Evelyn"), (r"\text{Evelyn}", r"\text{Evelyn}."),
    (r"x \in [-2,7]", "[-2,7]"), ("[-2,7]", r"x \in [-2, 7]"), ("(-2,1)", r"\left(-2, 1\right)"),
    (r"\frac{3\sqrt3}{4}", r"\frac{3}{4}\sqrt{3}"), (r"\frac{1}{2}\%", r"0.5\%"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"), (r"-\frac{1}{2}", r"\frac{1}{-2}"),
    (r"\left(\frac{1}{2}, 3\right)", "(0.5, 3)"), ("2,3,5", "2, 3, and 5"),
    ("2,3,5", r"2, 3 \text{ and } 5"), (r"y = -\frac{1}{2}x + 3", "x + 2y = 6"),
    (r"11,\! 111,\! 111,\! 100", "11111111100"), (r"\frac{243}{625}", r"\dfrac{243}{625}"),
    ("3x^2-24x+45", "3(x-3)(x-5)"), ("p - q", "-q+p"), ("e^{2x}", "(e^x)^2"), ("-2 + 7i", "7i-2"),
    (r"\sqrt{51}", r"\sqrt{51}"), (r"(3, \frac{\pi}{2})", r"(3, \pi/2)"),
    (r"\text{June 20}", "June 20"), (r"5.4 \text{ cents}", "5.4"), ("$x=3$", "3"),
    (
        r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}",
        r"\begin{pmatrix} -\frac13 \\ \frac23 \\ \frac53 \end{pmatrix}",
    ),
    ("(6,31,-1)", "(6, 31, -1)"), ("(6,31,-1)", "6, 31, -1"),
    (r"\left\{ \frac{1}{2}, 1\right\}", r"\left\{1, 0.5\right\}"),
    (r"(-\infty, -2] \cup [0, 3)", r"(-\infty,-2]\cup[0,3)"),
    (r"(-\infty, -2] \cup [0, 3)", r"x \le -2 \text{ or } 0 \le x < 3"), (r"10\%", "10 percent"),
    ("2^{2009}", r"2 \cdot 2^{2008}"), (r"n \cdot 2^{n-1}", "2^{n-1} n"), (r"\log_3 9", "2"),
    (r"\tan^{-1}(1)", r"\frac{\pi}{4}"), ("a^2+2ab+b^2", "(a+b)^2"), ("|x-1|", "|1-x|"),
    (r"\lfloor 3.7 \rfloor", "3"), ("f(x) = x^2 + 1", "x^2+1"), ("f(x)=x^2+1", "f(x)=1+x^2"),
    ("x^2+1", "f(x)=x^2+1"), ("C", "C."), ("C", r"\text{C}"), ("C", "c"), ("120", r"120^\circ"),
    ("-3, 1", "1, -3"), ("x^4 - 2x^2 + 1", "(x^2-1)^2"), (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"5 \text{ units}", "5"), ("1{,}000{,}000", "1000000"), ("(1, 2)", "x = 1, y = 2"),
    ("x=1,y=2", "(1,2)"), (r"\infty", r"\text{infinity}"), (r"\sqrt{x}", "x^{1/2}"),
    (r"\sqrt{x}", r"x^{\frac{1}{2}}"), (r"2 \sin x \cos x", r"\sin 2x"),
    (r"\cos(2x)", r"1-2\sin^2 x"), ("4!", "24"), ("0", "-0"), (r"\frac{0}{5}", "0"),
    (r"\text{undefined}", "undefined"), (r"x\geq 2", r"2 \leq x"), ("1<x<5 ", r"x\in(1,5)"),
    ("(1,5)", "1<x<5"), (r"3 < x \le 4", "(3,4]"), (r"\{-1,0,1\}", r"\{-1, 0, 1\}"),
    (r"\{-1,0,1\}", "-1,0,1"), (r"k \in \{1, 2\}", "1, 2"), ("2x+5y=10", "4x+10y=20"),
    ("2x+5y<10", "5y+2x<10"), ("y>2x", "2x<y"), (r"13\frac{1}{2}", "13.5"), ("0.25", r"25\%"),
    (r"\frac14", r"25\%"), ("7.0", "7"),
]  # fmt: skip
WRONG = [
    ("AB", "ab"), ("y", "y'"), ("A", "A. or B."), (r"2\pi \text{ m}", r"2\pi^\circ"),
    (r"\{1,234\}", "1234"), ("xyz", "xy"), ("5", "{2}{3}"), ("5", r"2\{3\}"), ("5", r"3\max(1,2)"),
    ("9", r"3\binom{4}{2}"), ("0", "x - X"), ("1", "X/x"), ("i", "-i"), ("2", r"\sqrt{-4}"),
    ("x^2+2x+1", "(x+1)^2+1"), (r"\sqrt{8}", r"2\sqrt3"), ("4", r"4\sqrt(2)"),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"), (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    (r"1-\frac1e", r"1+\frac1e"), (r"\frac13", "0.333333"), (r"\frac13", "0.33"),
    (r"1\frac{1}{2}", r"\frac{1}{2}"), ("5", "(2)(3)"), ("7", "3 4"), ("12", "3 4"),
    ("(1,2)", "(2,1)"), ("(1,2)", "[1,2]"), ("(1,2)", r"\{1,2\}"), ("(1,2)", "2, 1"),
    (r"\{1,2\}", r"\{1,2,3\}"), ("2, 2, 3", "2, 3"), ("2,2,3", "2,3,3"), ("[1,2]", "[1,2)"),
    (r"(-\infty,3)", r"(-\infty, 3]"),
    (r"(-\infty, 1)\cup(3,\infty)", r"(-\infty,1]\cup(3,\infty)"), ("[1,3]", r"1< x\le 3"),
    ("x>3", "x<3"), ("x>3", r"x\ge3"), ("x>3", "y>3"), ("x>3", "2x>6"),
    (r"-3 \le x < 5", "-3 < x < 5"), ("1,234", "(1,234)"), ("(1,234)", "1,234"),
    ("1234", "1, 234"), ("1,2", "12"), ("x=5", "y=5"), ("x=5", "x=6"), ("x=5", "2x=10"),
    ("5", "x+1=5"), ("5", "2x+3=5"), ("4", "x^2=4"), ("y=2x+3", "2x-y-3=0"), ("x^2+y^2=25", "25"),
    ("3x-y+13=0", "3x+4y+14=0"), ("x=1, y=2", "x=2, y=1"), ("n=2,3,4", "n=1,2,3"),
    ("D=(0,1)", "D=(0,1.5)"), (r"\pm 2", "2"), (r"3\pm\sqrt2", r"3+\sqrt{2}"),
    (r"\text{Tuesday}", r"\text{Monday}"), (r"\text{even}", r"\text{odd}"), (r"\text{No}", "yes"),
    ("B", "C"), ("B", "(C) 12"), ("A", "(A) and (B)"), ("A", "A, B"), ("B", "AB"),
    (r"90^\circ", r"\frac{\pi}{2}"), (r"90^\circ", r"60^\circ"),
    (r"12\pi\text{ cm}^2", r"12\pi\text{ cm}^3"), (r"12\pi\text{ cm}^2", r"12\pi\text{ m}^2"),
    ("3", "3 million"), ("3", r"3\text{ or less}"), (r"3\pi", r"3\pi \text{ or more}"),
    (r"2\pi", r"2\pi\text{ million}"), ("2", "2 xy"), ("2x", "2 x y"), (r"\emptyset", "0"),
    ("0", r"\emptyset"), (r"\emptyset", r"\{0\}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
    ("2516_8", "2516_9"), ("2516_8", "2517_8"), ("2516_8", "2516"), (r"\infty", r"-\infty"),
    (r"\infty", "5"), ("2+3i", "2-3i"), (r"0.\overline{3}", "0.3"), ("3:2", "2:3"),
    ("12:00", "1:00"), ("1:2:3", "1:6"), ("4:30", "2:15"), ("R-r", "0"), ("R+r", "2r"),
    ("f'(x)", "f(x)"), ("x+X", "2x"), ("a_1", "a_2"),
    (r"(3,\frac{\pi}{2})", r"(3,\frac{2\pi}{3})"), (r"\{(1,2),(3,4)\}", r"\{(2,1),(3,4)\}"),
    ("(1,1)", "(2,2)"), ("(a,b)", "(b,a)"), ("(1,2)", "(x,y)=(2,1)"),
    (r"\mathbb{R}\setminus\{0\}", r"\mathbb{R}\setminus\{1\}"), (r"x\ne 3", "x=3"),
    (r"5\%", r"50\%"), ("x", r"\sqrt{x^2}"), ("x^2+C", "x^2"), ("e^x", "x^e"),
    (r"\pi", "3.14159"), (r"\pi", "3.14"), (r"\sqrt2", "1.41421356"), (r"\frac{22}{7}", r"\pi"),
    ("1000001", "1000000"), ("5x", "5y"), ("-x", "x"), (r"y = -\frac{1}{2}x + 3", "x + 2y = 7"),
    ("-2+7i", "-2+7j"), ("June 20", r"\text{June 21}"),
    (
        r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}",
        r"\begin{pmatrix} 1/3 \\ 2/3 \\ 5/3 \end{pmatrix}",
    ),
    ("(6,31,-1)", r"\{6,31,-1\}"), (r"(-\infty, -2] \cup [0, 3)", r"(-\infty,-2)\cup[0,3)"),
    ("2^{2009}", "2^{2010}"), (r"\frac{\pi}{6}", r"30^\circ"), ("a^2+2ab+b^2", "(a-b)^2"),
    ("f(x)=x^2+1", "g(x)=x^2+1"), ("C", "D"), ("6 - 5i", "6+5i"), ("(5, -3)", "(-3, 5)"),
    (r"\frac{a}{b+c}", r"\frac{a}{b}+c"), (r"2 \sin x \cos x", r"\sin x"),
    (r"\text{undefined}", "0"), ("10^{100}", "10^{99}"), (r"x\ge2", "x > 2"),
    (r"\{-1,0,1\}", "-1,0"), ("a=3,b=4", "a=4,b=3"), ("2x+5y<10", "2x+5y>10"),
    (r"13\frac12", r"\frac{131}{2}"), ("7", "7.01"), (r"\cos 60", r"\cos 60^\circ"),
    (r"\frac{-1\pm\sqrt{5}}{2}", r"\frac{-1\pm\sqrt{3}}{2}"), ("3, -1", "3"),
]  # fmt: skip


def truth(value):
    return {"ground_truth": value}


def completions():
    path = DATA / "math" / "completions.jsonl"
    if not path.exists():
        pytest.skip(f"the completions for MATH are not in {DATA} (set GUERDON_DATA)")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("expected", "answer"), RIGHT)
def test_math_answer_accepts_the_same_mathematics(expected, answer):
    score = MathAnswer().score(rf"So it is \boxed{{{answer}}}.", truth(expected))
    assert (score.value, score.reason) == (1.0, None)


@pytest.mark.parametrize(("expected", "answer"), WRONG)
def test_math_answer_a_wrong_answer_scores_zero_with_a_reason(expected, answer):
    score = MathAnswer().score(rf"So it is \boxed{{{answer}}}.", truth(expected))
    assert score.value == 0.0
    assert score.reason


def test_math_answer_agrees_with_the_published_verdicts_from_many_threads():
    rubric, rows = MathAnswer(), completions()

    def differs(row):
        return rubric(row["completion"], truth(row["truth"])) != float(row["published_correct"])

    with ThreadPoolExecutor(32) as threads:
        differing = [
            row["id"] for row, wrong in zip(rows, threads.map(differs, rows), strict=True) if wrong
        ]
    assert (len(rows), differing) == (400, [])


@pytest.mark.anyio
async def test_math_answer_is_evaluated_beside_others_in_an_event_loop():
    rubric, values = MathAnswer(r"\{x^2, 1\}"), {}

    async def evaluate(number):
        values[number] = await rubric.evaluate(rf"\boxed{{1, x^2 + {number}x - {number}x}}", None)

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(evaluate, number)
    assert values == dict.fromkeys(range(40), 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        r"9^{9^{9^9}}",
        "1000000000!",
        r"10^{10^{10}}",
        r"\sum_{k=1}^{10^{12}} k^k",
        "(" * 900 + ")" * 900,
    ],
)
def test_math_answer_that_needs_too_much_is_wrong_and_the_next_is_compared(answer):
    rubric = MathAnswer("x^2", timeout_s=0.5)
    score = rubric.score(rf"\boxed{{{answer}}}", None)
    assert score.value == 0.0
    assert "can't be evaluated" in score.reason
    assert rubric(r"\boxed{x \cdot x}", None) == 1.0


def test_math_answer_a_ground_truth_that_needs_too_much_is_a_failure():
    score = MathAnswer(timeout_s=0.5).score("A: 3", truth("9^{9^{9^9}}"))
    assert (score.value, score.status) == (None, "failed")
    assert "it was not done within 0.5 s" in score.error
    with pytest.raises(SandboxError, match=r"within 0\.5 s"):
        MathAnswer("9^{9^{9^9}}", timeout_s=0.5)


@pytest.mark.parametrize("answer", ["A: 3", r"\boxed{\frac{}", "I don't know what it is."])
@pytest.mark.parametrize(
    "value",
    [r"\frac{1}{", "", "((", r"\foo", True, float("nan"), [1, 2], {}, "3 4", "x" * 3000, 1j,
     r"3\text{ or more}"],
)  # fmt: skip
def test_math_answer_a_ground_truth_that_is_not_understood_is_an_error(value, answer):
    with pytest.raises(MissingInputError, match="isn't understood as mathematics"):
        MathAnswer()(answer, truth(value))
    with pytest.raises(InvalidArgumentError, match="`expected` isn't understood as mathematics"):
        MathAnswer(value)


def test_math_answer_a_missing_ground_truth_or_text_raises():
    with pytest.raises(MissingInputError):
        MathAnswer()("A: 18", {})
    with pytest.raises(MissingInputError):
        MathAnswer(18)({"content": None}, None)


@pytest.mark.parametrize(
    "value",
    [18, 18.0, "18", Fraction(18), Decimal("18.0"), numpy.int64(18), numpy.float32(18), "$18$",
     "9 * 2 = 18\n#### 18", r"so it is \boxed{18}"],
)  # fmt: skip
def test_math_answer_reads_ground_truths_of_many_kinds(value):
    assert MathAnswer()(r"\boxed{2 \cdot 3^2}", truth(value)) == 1.0
    assert MathAnswer()(r"\boxed{2 \cdot 3^3}", truth(value)) == 0.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("x^2+1", 1.0), ("$1 + x^2$", 1.0), (r"\(x^2+1\)", 1.0), ("The answer is $x^2+1$.", 1.0),
        ("**Answer:** $x^2+1$", 1.0), ("<answer>x^2+1</answer>", 1.0), ("f(x) = x^2+1", 1.0),
        ("<think>maybe x^2+2</think>x^2+1", 1.0), (r"<think>\boxed{x^2+1}</think>It is x.", 0.0),
        (r"it could be \boxed{x^2+1} </think> x^2", 0.0), (r"<think>\boxed{x^2+1}", 0.0),
        ("I think that it is x^2+1, or so.", 0.0), (r"\boxed{x^2+1", 0.0), ("", 0.0),
        ("First, x^2\nx^2+1", 0.0),
    ],
)  # fmt: skip
def test_math_answer_reads_the_stated_answer_alone(text, score):
    assert MathAnswer("x^2+1")(text, None) == score


def test_math_answer_reasoning_tags_can_be_set():
    text = r"[plan] \boxed{x} [/plan] \boxed{y}"
    assert MathAnswer("y", reasoning_tags=["[plan]…[/plan]"])(text, None) == 1.0
    assert MathAnswer("x", reasoning_tags=["[plan]…[/plan]"])(text, None) == 0.0


@pytest.mark.parametrize(
    ("text", "truth", "score"),
    [
        (r"The answer is $\frac{3}{4}$, since $3 \cdot 1 = 3$.", r"\frac34", 1.0),
        (r"The answer is $x+1$ for all $x \neq 1$.", "x+1", 1.0),
        (r"The answer is the set $\{1,2\}$.", r"\{1,2\}", 1.0),
        ("**Final Answer:** The expression simplifies to $x+1$.", "x+1", 1.0),
        (r"Answer: $\frac{\sqrt{2}}{2}$ (about 0.707)", r"\frac{\sqrt2}{2}", 1.0),
        ("The answer is $x+1$ or $x+2$.", "x+1", 0.0), ("The answer is not $x+1$.", "x+1", 0.0),
        ("Wait, the answer is $x+1$.\nChecking.\nThe answer is $x-1$.", "x-1", 1.0),
    ],
)  # fmt: skip
def test_math_answer_reads_the_only_mathematics_in_words(text, truth, score):
    assert MathAnswer(truth)(text, None) == score


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("It must be that one there.", "no answer is stated: no box, answer line or line of"),
        (r"\boxed{x+2}", "found 'x+2', wanted 'x+1'"),
        (r"\boxed{\frac{1}}", r"'\\frac{1}' isn't understood"),
        (r"\boxed{" + "x+" * 1500 + "1}", "an answer may have 2000 characters, got 3001"),
    ],
)  # fmt: skip
def test_math_answer_states_why_an_answer_is_wrong(text, reason):
    score = MathAnswer("x+1").score(text, None)
    assert (score.value, score.reason[: len(reason)]) == (0.0, reason)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_math_answer_survives_copying(again):
    assert again(MathAnswer("x+1", timeout_s=3))("A: 1+x", None) == 1.0


def test_math_answer_state_goes_into_another_and_is_checked():
    one, other = MathAnswer("x+1"), MathAnswer()
    other.load_state_dict(one.state_dict())
    assert other(r"\boxed{1+x}", None) == 1.0
    with pytest.raises(StateError):
        other.load_state_dict({**one.state_dict(), "expected": "(("})
    assert other(r"\boxed{1+x}", None) == 1.0


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), "5", None])
def test_math_answer_rejects_an_invalid_timeout(timeout_s):
    with pytest.raises(InvalidArgumentError, match="`timeout_s` must be"):
        MathAnswer("x", timeout_s=timeout_s)


def test_math_answer_without_the_extra_names_what_to_install(monkeypatch):
    monkeypatch.setattr(mathematics, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'guerdon\[math\]'"):
        MathAnswer()


def test_math_answer_a_fork_has_its_own_workers():
    program = """
import os, sys
from guerdon import MathAnswer
rubric = MathAnswer("x+1")
assert rubric(r"\\boxed{1+x}", None) == 1.0
child = os.fork()
assert rubric(r"\\boxed{x+1+0}", None) == 1.0
assert "sympy" not in sys.modules
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
