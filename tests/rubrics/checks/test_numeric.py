"""Whether an answer is the right number."""

import copy
import json
import os
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from guerdon.errors import InvalidArgumentError, MissingInputError, StateError
from guerdon.rubrics.checks import NumericAnswer

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("GUERDON_DATA") or REPOSITORY.parent / "shared" / "data")


def truth(value):
    return SimpleNamespace(metadata={"ground_truth": value})


@pytest.mark.parametrize(
    "value",
    [18, 18.0, "18", "$18.00", "9 * 2 = 18\nA: 18", "so\n#### 18", r"\boxed{18}", Fraction(18),
     Decimal("18.0")],
)  # fmt: skip
def test_numeric_answer_reads_the_ground_truth_by_the_same_rule(value):
    assert NumericAnswer()("She makes 9 * 2 = 18.\nA: 18", truth(value)) == 1.0
    assert NumericAnswer()("She makes 9 * 2 = 18.\nA: 19", truth(value)) == 0.0


@pytest.mark.parametrize(
    "value", ["five", "", "it is 18", True, float("nan"), float("inf"), [18], {}]
)
def test_numeric_answer_rejects_a_ground_truth_without_a_number(value):
    with pytest.raises(MissingInputError, match="states no number"):
        NumericAnswer()("A: 18", truth(value))


def test_numeric_answer_a_missing_ground_truth_or_text_raises():
    with pytest.raises(MissingInputError):
        NumericAnswer()("A: 18", SimpleNamespace(metadata={}))
    with pytest.raises(MissingInputError):
        NumericAnswer(18)(SimpleNamespace(content=None), None)


def test_numeric_answer_compares_exactly():
    assert NumericAnswer(0.1)("1/10", None) == 1.0
    assert NumericAnswer("1/3")("0.3333333333333333", None) == 0.0
    assert NumericAnswer(10**30)(str(10**30 + 1), None) == 0.0


@pytest.mark.parametrize(
    ("expected", "answer", "score"),
    [
        ("0.5", "50%", 1.0), ("50", "50%", 1.0), ("50%", "0.5", 1.0), ("50%", "50", 1.0),
        ("50%", "50%", 1.0), ("50%", "0.5%", 0.0), ("50%", "5000%", 0.0), ("0.5", "50", 0.0),
        ("5000", "50%", 0.0),
    ],
)  # fmt: skip
def test_numeric_answer_a_percent_sign_on_one_side_may_mean_either(expected, answer, score):
    assert NumericAnswer(expected)(answer, None) == score


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Final Answer: The final answer is 18. I hope it is correct.", 18),
        ("Final Answer: The final answer is $18$. I hope it is correct.", 18),
        ("### Answer\n18", 18),
        ("**Final Answer**\n\n18", 18), ("Answer = 18", 18), ("<answer>18</answer>", 18),
        (r"\boxed 18", 18), ("A: <b>18</b>", 18), ("The answer is therefore 18.", 18),
        ("Answer: approximately 18", 18), ("Answer: about $18", 18), ("Answer: 18 (eighteen)", 18),
        ("A: USD 18", 18), ("A: Rs. 18", 18), ('A: "18"', 18), ("A: 18!!", 18), ("A: **18!**", 18),
        ("A: 20 cm^3", 20), ("A: 20 m^2", 20), (r"\boxed{3\times10^4}", 30000),
        ("A: 3 × 10^4", 30000), ("A: 5k", 5000), ("A: $5K", 5000), ("A: 5 dozen", 60),
    ],
)  # fmt: skip
def test_numeric_answer_reads_what_models_write(text, number):
    assert NumericAnswer(number)(text, None) == 1.0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("A: 3 quarters", 3), ("A: 2 thirds", 2), ("A: 5 dozen", 5), ("A: 4 lakh", 4),
        ("A: 4 crore", 4), ("A: 3 half", 3), ("A: 4 score", 4), ("A: 4 scores", 4),
        ("A: 3 (or 4)", 3), ("A: 5 (thousand)", 5), ("A: 5 hundred thousand", 500),
    ],
)  # fmt: skip
def test_numeric_answer_a_unit_that_scales_its_number_is_not_left_out(text, number):
    assert NumericAnswer(number)(text, None) == 0.0


def test_numeric_answer_tolerance_is_a_share_of_the_right_number():
    assert NumericAnswer(200, tolerance=0.01)("198", None) == 1.0
    assert NumericAnswer(200, tolerance=0.01)("197.9", None) == 0.0
    assert NumericAnswer(-10, tolerance=0.3)("-7", None) == 1.0


def test_numeric_answer_tolerance_around_zero_is_the_difference_itself():
    assert NumericAnswer(0, tolerance=0.01)("0.01", None) == 1.0
    assert NumericAnswer(0, tolerance=0.01)("0.02", None) == 0.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("it is 18", "no answer is stated: no answer line, box or bare number"),
        ("A: five", "the answer 'five' is not one number"),
        ("A: 2.50", "found 2.5, wanted 18"),
        ("A: 19%", "found 19%, wanted 18"),
        ("9" * 400, "found a number of about 398 digits, wanted 18"),
    ],
)
def test_numeric_answer_a_wrong_answer_scores_zero_with_a_reason(text, reason):
    score = NumericAnswer(18).score(text, None)
    assert (score.value, score.reason) == (0.0, reason)


@pytest.mark.parametrize("expected", ["five", "", True, float("nan"), [1], Fraction(1, 2)])
def test_numeric_answer_rejects_an_expected_without_a_number(expected):
    with pytest.raises(InvalidArgumentError, match="`expected` must be a number"):
        NumericAnswer(expected)


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf"), True, "0.1", None])
def test_numeric_answer_rejects_an_invalid_tolerance(tolerance):
    with pytest.raises(InvalidArgumentError, match="`tolerance` must be a finite number >= 0"):
        NumericAnswer(1, tolerance=tolerance)


def test_numeric_answer_state_goes_into_another_and_is_checked():
    one, other = NumericAnswer("1/2", tolerance=0.1), NumericAnswer()
    other.load_state_dict(one.state_dict())
    assert other("0.46", None) == 1.0
    with pytest.raises(StateError):
        other.load_state_dict({**one.state_dict(), "expected": "five"})
    assert other("0.46", None) == 1.0


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda rubric: pickle.loads(pickle.dumps(rubric))]
)
def test_numeric_answer_survives_copying(again):
    assert again(NumericAnswer(18))("A: 18", None) == 1.0


def test_numeric_answer_agrees_with_the_published_verdicts():
    path = DATA / "gsm8k" / "model_solutions.jsonl"
    if not path.exists():
        pytest.skip(f"the GSM8K solutions are not in {DATA} (set GUERDON_DATA)")
    rubric, seen, differing = NumericAnswer(), 0, []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for model, solution in row.items():
            if isinstance(solution, dict):
                seen += 1
                score = rubric(solution["solution"], truth(row["ground_truth"]))
                if score != float(solution["is_correct"]):
                    differing.append((row["question"][:60], model))
    assert (seen, differing) == (1600, [])


def test_numeric_answer_compares_integers_that_no_float_can_represent():
    rubric = NumericAnswer()
    assert rubric("9" * 400, {"ground_truth": int("9" * 400)}) == 1.0
    assert rubric("9" * 399 + "8", {"ground_truth": int("9" * 400)}) == 0.0
    assert rubric("42", {"ground_truth": 10**400}) == 0.0
