"""Whether an answer is the right number."""

import copy
import json
import os
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
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


@pytest.mark.parametrize(
    ("text", "score"),
    [("The total cost is $42.", 1.0), ("There are 42 ways.", 1.0), ("It will take 42 days.", 1.0),
     ("Tom has 42 marbles left.", 1.0), ("It is not 42", 0.0), ("at least 42", 0.0),
     ("There are 42 or 43 ways", 0.0), ("the sum of 42 and 1", 0.0), ("We get 42x", 0.0)],
)  # fmt: skip
def test_numeric_answer_reads_the_only_number_of_a_sentence_behind_a_label(text, score):
    assert NumericAnswer(42)(f"**Final Answer:** {text}", None) == score
    assert NumericAnswer(42)(f"**Final Answer:**\n{text}", None) == score


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


@pytest.mark.parametrize("expected", ["five", "", True, float("nan"), [1]])
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


@pytest.mark.parametrize(
    ("text", "truth", "score"),
    [
        ("\\boxed{12}\n\nThe answer is correct.", "12", 1.0),
        ("#### 12\n\nThe answer is correct.", "12", 1.0),
        ("<answer>12</answer>\nThe answer is final.", "12", 1.0),
        ("\\boxed{12}\n\nSo the answer is reasonable.", "12", 1.0),
        ("\\boxed{12}\n\nThe answer is 100% correct.", "12", 1.0),
        ("\\boxed{12}\n\nThe answer is 100% correct.", "100", 0.0),
        ("\\boxed{12}\n\nThe answer is 2 digits long.", "2", 0.0),
        ("<think>It may be \\boxed{7}, let me check", "7", 0.0),
        ("<think>\nA: 7\n</think>\nI could not solve it.", "7", 0.0),
        ("<think>\nA: 7\n</think>\n\n9", "9", 1.0),
        ("<think>\\boxed{4}?</think> The answer is 5", "5", 1.0),
        ("Answer:\n- 5", "5", 1.0), ("Answer:\n- 5", "-5", 0.0), ("**Answer**\n- 5", "5", 1.0),
        ("Final answer:\n\n- $5", "5", 1.0), ("Answer:\n- **5**", "5", 1.0),
        ("The answer is 42!", "42", 1.0), ("The answer is 42?", "42", 1.0),
        ("The answer is 42:", "42", 1.0), ("The answer is (42).", "42", 1.0),
        ("The answer is [42]", "42", 1.0), ("The answer is 42;", "42", 1.0),
        ("**Final Answer:**\n\n$$\n\\text{ANSWER: } \\$460\n$$", "460", 1.0),
        ("**Final Answer:**\n\n$$\n460\n$$", "460", 1.0),
        ("Thus the answer is\n\\[\n460\n\\]", "460", 1.0),
        ("The answer is 41. Wait, the answer is 42.", "42", 1.0),
        ("The answer is 41. Wait, the answer is 42.", "41", 0.0),
        ("The answer is 41.\nWait, no: the answer is 42.", "42", 1.0),
        ("The answer is not 41. The answer is 42.", "42", 1.0),
        ("The answer is 41. Actually, let me check. The answer is 42.", "42", 1.0),
        ("\\boxed{12:00}", "12", 0.0), ("\\boxed{\\pm 2021}", "2021", 0.0),
        ("\\boxed{19, 46}", "19", 0.0), ("A: -0", "0", 1.0), ("A: 18...", "18", 0.0),
        ("\\boxed{41} Wait, I made an error. \\boxed{42}", "42", 1.0),
        ("\\boxed{41} Wait, I made an error. \\boxed{42}", "41", 0.0),
        ("A: 41\nWait, A: 42", "42", 1.0),
        ("A: 41. Wait, A: 42", "42", 1.0),
        ("A: 41. Wait, A: 42", "41", 0.0),
        ("A: 41. Wait, the answer is 42.", "42", 1.0),
        ("#### 41\nCorrection:\n#### 42", "42", 1.0),
        ("\\boxed{41}\nLet me correct this.\n**Answer:** 42", "42", 1.0),
        ("Answer: 41\nHmm, actually\n\\boxed{42}", "42", 1.0),
        ("The answer is 42. The answer is not 41.", "42", 1.0),
        ("The answer is 41. No, the answer is not 41.", "41", 0.0),
        ("The answer is not 41 but 42.", "42", 1.0),
        ("I think the answer is 42.", "42", 1.0),
        ("I don't think the answer is 41. The answer is 42.", "42", 1.0),
        ("The answer is 42. I don't think the answer is 41.", "42", 1.0),
        ("If the answer is 41, then we'd have a problem. The answer is 42.", "42", 1.0),
        ("The answer is 42. If the answer were 41, it would fail.", "42", 1.0),
        ("The answer is 42. Let me check whether the answer is 41: no.", "42", 1.0),
        ("So is the answer 41? No. The answer is 42.", "42", 1.0),
        ("The answer is probably 42.", "42", 1.0),
        ("The answer is most likely 42.", "42", 1.0),
        ("The answer would be 42.", "42", 1.0),
        ("The answer should be 42.", "42", 1.0),
        ("A: 5 apples\nB: 6 apples", "5", 0.0),
        ("Options:\nA: 5\nB: 6\nC: 7\nAnswer: 6", "6", 1.0),
        ("A: 5\nB: 6\nC: 7\n\nThe answer is 7.", "7", 1.0),
        ("#### Step 3\n5+6=11\n#### Step 4\n#### 12", "12", 1.0),
        ("Answer: 12\n\n#### Step 3", "12", 1.0),
        ("```python\nprint(\"Answer: 5\")\n```\nAnswer: 6", "6", 1.0),
        ("Answer: 6\n```python\n# Answer: 5\nprint(\"Answer: 5\")\n```", "6", 1.0),
        ("Answer: 6\n```\nAnswer: 5\nmore\n```", "6", 1.0),
        ("```python\nanswer = 5\n```", "5", 0.0),
        ("Final answer:\n```\n460\n```", "460", 1.0),
        ("**Final Answer**\n```text\n460\n```", "460", 1.0),
        ("```\nAnswer: 460\n```", "460", 1.0),
        ("```\n460\n```", "460", 1.0),
        ("✅ Final Answer: **73**", "73", 1.0),
        ("✅ **Final Answer:** 73 🎉", "73", 1.0),
        ("🎯 Answer: 42", "42", 1.0),
        ("1. Answer: 42", "42", 1.0),
        ("3) **Answer:** 42", "42", 1.0),
        ("- Answer: 42", "42", 1.0),
        ("* **Final answer:** -5", "-5", 1.0),
        ("Answer: -5", "-5", 1.0),
        ("Answer: - 5", "-5", 1.0),
        ("Answer:\n-5", "-5", 1.0),
        ("Answer:\n• 5", "5", 1.0),
        ("Answer:\n1. 42", "42", 1.0),
        ("Answer:\n- 5\n- 6", "5", 0.0),
        ("Answer:\n- 5\n- 6", "6", 0.0),
        ("| Answer | 42 |", "42", 1.0),
        ("| Quantity | Value |\n|---|---|\n| Answer | 42 |", "42", 1.0),
        ("| **Answer** | **42** |", "42", 1.0),
        ("| Answer |\n|---|\n| 42 |", "42", 1.0),
        ("[Answer]: 42", "42", 1.0),
        ("[ANSWER] 42 [/ANSWER]", "42", 1.0),
        ("<b>Answer:</b> 42", "42", 1.0),
        ("<p>Answer: 42</p>", "42", 1.0),
        ("<strong>Final Answer</strong>: 42<br>", "42", 1.0),
        ("Answer： 42", "42", 1.0),
        ("**答案** Answer：42", "42", 1.0),
        ("$\\text{ANSWER: } 42$", "42", 1.0),
        ("\\textbf{Answer: } 42", "42", 1.0),
        ("\\textbf{Answer:} $42$", "42", 1.0),
        ("**Final Answer**: $42$", "42", 1.0),
        ("**Final Answer** — 42", "42", 1.0),
        ("Answer → 42", "42", 1.0),
        ("Answer => 42", "42", 1.0),
        ("The final answer is: $\\boxed{42}$.", "42", 1.0),
        ("**Final Answer:**\n\n\\[\n\\boxed{42}\n\\]", "42", 1.0),
        ("**Final Answer:**\n\n\\[ 42 \\]", "42", 1.0),
        ("**Final Answer:**\n\n\\( 42 \\)", "42", 1.0),
        ("Final answer:\n$$42$$", "42", 1.0),
        ("So the answer is $$42$$", "42", 1.0),
        ("The answer is **42**.", "42", 1.0),
        ("The answer is: **42**", "42", 1.0),
        ("The answer is *42*!", "42", 1.0),
        ("The answer is `42`.", "42", 1.0),
        ("The answer is \"42\".", "42", 1.0),
        ("The answer is «42»", "42", 1.0),
        ("The answer is (42)", "42", 1.0),
        ("Answer: [42]", "42", 1.0),
        ("Answer: <42>", "42", 1.0),
        ("Answer: (42)!", "42", 1.0),
        ("The answer is 42, which is correct.", "42", 1.0),
        ("Answer: 42. I hope this helps!", "42", 1.0),
        ("Answer: 42 because she sells eggs", "42", 1.0),
        ("Answer: 42 or 43", "42", 0.0),
        ("Answer: 42, or maybe forty-three", "42", 0.0),
        ("<answer>42</answer> I am 95% sure the answer is right.", "42", 1.0),
        ("\\boxed{12}\nThis answer is 2 digits long.", "12", 1.0),
        ("The answer is 12. The answer is 2 digits long.", "12", 1.0),
        ("The answer is 12. The answer is 100% correct.", "12", 1.0),
        ("The answer is 12. The answer is 100% correct.", "100", 0.0),
        ("The answer is 12. I am sure the answer is correct.", "12", 1.0),
        ("Put it in \\boxed{}: \\boxed{42}. I used \\boxed{}.", "42", 1.0),
        ("The format is <answer>...</answer>. <answer>42</answer>", "42", 1.0),
        ("<answer>42</answer>\nI put it in `<answer>` tags.", "42", 1.0),
        ("<answer>\nThe answer is 42\n</answer>", "42", 1.0),
        ("<answer>\n3*14 = 42\nFinal answer: 42\n</answer>", "42", 1.0),
        ("<ANSWER>42</ANSWER>", "42", 1.0),
        ("<final_answer>42</final_answer>", "42", 1.0),
        ("Q: 2+3?\nA: 5\n\nQ: 40+2?\nA: 42", "42", 1.0),
        ("Question: what? Answer: 42", "42", 1.0),
        ("40 + 2 = 42. Answer: 42", "42", 1.0),
        ("40 + 2 = 42 #### 42", "42", 1.0),
        ("Answer (in dollars): 42", "42", 1.0),
        ("Answer in dollars: $42", "42", 1.0),
        ("The answer to the question is 42.", "42", 1.0),
        ("The final answer to this problem is therefore 42.", "42", 1.0),
        ("Here is my final answer: 42", "42", 1.0),
        ("Thus, our final answer is 42.", "42", 1.0),
        ("Hence the correct answer is 42", "42", 1.0),
        ("ANSWER: 42", "42", 1.0),
        ("Ans: 42", "42", 1.0),
        ("Ans. 42", "42", 1.0),
        ("<think>A: 7</think>A: 9\n<think>hm, A: 7", "9", 1.0),
        ("A: 7</think>\nNo idea", "7", 0.0),
        ("<think>I'd say 7</think>7", "7", 1.0),
        ("<reasoning>\\boxed{7}</reasoning><answer>9</answer>", "9", 1.0),
        ("> A: 5", "5", 1.0),
        ("Total: 5\nAnswer: see above", "5", 0.0),
        ("the answer's 42", "42", 1.0),
        ("The answer is\n\n42", "42", 1.0),
        ("Answer:\n\n**42**\n\nExplanation: 40+2", "42", 1.0),
        ("**Answer: 42**\n\nLet me know if you need anything else!", "42", 1.0),
        ("Step 1: compute\nStep 2: Answer: 42", "42", 1.0),
        ("The answer is: \n- 42", "42", 1.0),
        ("The answer is 3.5.", "3.5", 1.0),
        ("The answer is approx. 18", "18", 1.0),
        ("The answer is Rs. 18", "18", 1.0),
        ("Wait — the answer is 42, not 41.", "42", 1.0),
        ("The answer isn't 41, it's 42.", "41", 0.0),
        ("Answer: {42}", "42", 1.0), ("Answer: \\{42\\}", "42", 1.0), ("(Answer: 42)", "42", 1.0),
        ("Answer: {42, 43}", "42", 0.0), ("[Answer: 42]", "42", 1.0), ("(A: 42)", "42", 1.0),
        ("(The answer is 42)", "42", 1.0), ("(Final answer: $42.00).", "42", 1.0),
        ('"Answer: 42"', "42", 1.0), ("“Answer: 42”", "42", 1.0), ("(Answer: 4) 2", "42", 0.0),
        ('{"answer": 42}', "42", 1.0), ('{"why": "6*7", "answer": "42"}', "42", 1.0),
        ('```json\n{"answer": 42}\n```', "42", 1.0), ("Answers: 42", "42", 1.0),
        ("Answer: 10<|eot_id|>", "10", 1.0), ("The answer is 10.<|im_end|>", "10", 1.0),
        ("10<｜end▁of▁sentence｜>", "10", 1.0), ("#### 10</s>", "10", 1.0),
        ("<|begin_of_thought|>\\boxed{7}<|end_of_thought|> no idea", "7", 0.0),
        ("\\boxed{41}\n\nWait, I erred: the answer is 42.", "41", 0.0),
        ("\\boxed{41}\n\nWait, I erred: the answer is 42.", "42", 1.0),
        ("Answer: 41, which is wrong", "41", 0.0), ("Answer: 41 (incorrect)", "41", 0.0),
        ("Answer: 41. That is wrong.", "41", 0.0), ("Answer: 41 ❌", "41", 0.0),
        ("The answer is 41. No, wait.", "41", 0.0), ("The answer is 41? No.", "41", 0.0),
        ("The answer is 42. No further steps are needed.", "42", 1.0),
        ("You may think the answer is 41. That's wrong.", "41", 0.0),
        ("I doubt the answer is 41.", "41", 0.0), ("I thought the answer was 41.", "41", 0.0),
        ("It is false that the answer is 41.", "41", 0.0),
        ("The answer is 42.\n\nNote: if it cost $5, the answer would be 50.", "50", 0.0),
        ("The answer is 42.\n\nNote: if it cost $5, the answer would be 50.", "42", 1.0),
        ("Answer: (C) 42", "42", 1.0), ("The answer is (C) 42.", "42", 1.0),
        ("\\boxed{|-5|}", "-5", 0.0), ("（Answer: 42）", "42", 1.0),
    ],
)  # fmt: skip
def test_numeric_answer_compares_the_answer_and_no_other_part_of_the_text(text, truth, score):
    assert NumericAnswer(truth)(text, None) == score


@pytest.mark.parametrize(
    ("answer", "truth", "score"),
    [
        ('5 km', '5 kilometers', 1.0), ('5 km', '5 kilometres', 1.0), ('5km', '5 km', 1.0),
        ('5 km', '5 m', 0.0), ('100 cm', '1 m', 1.0), ('50 cents', '$0.50', 1.0),
        ('90 minutes', '1.5 hours', 1.0), ('$5', '5 dollars', 1.0), ('$5', '5 USD', 1.0),
        ('USD 5', '$5', 1.0), ('US$5', '5 dollars', 1.0), ('5 CAD', '5 USD', 0.0),
        ('€5', '5 euros', 1.0), ('€5', '£5', 0.0), ('¥5', '$5', 0.0), ('₹500', 'Rs. 500', 1.0),
        ('Rs 500', '500 rupees', 1.0), ('5 pounds', '£5', 1.0), ('5 pounds', '5 kg', 0.0),
        ('5 pounds', '5 ounces', 0.0), ('5 lbs', '5 pounds', 1.0), ('18 eggs', '18 ducks', 1.0),
        ('18 eggs', '18', 1.0), ('18', '18 eggs', 1.0), ('18 dollars per day', '$18', 1.0),
        ('18 eggs per day', '18 eggs', 1.0), ('18 in total', '$18', 1.0),
        ('60 mph', '60 miles per hour', 1.0), ('60 km/h', '60 mph', 0.0),
        ('60 miles/hour', '60 mph', 1.0), ('60 mph', '60 miles', 1.0),
        ('5 hours', '5 minutes', 0.0), ('300 minutes', '5 hours', 1.0), ('5 hrs', '5 hours', 1.0),
        ('5 h', '5 hours', 1.0), ('5 min', '5 minutes', 1.0), ('3 days', '72 hours', 1.0),
        ('2 weeks', '14 days', 1.0), ('1 year', '12 months', 1.0), ('5 ft', '5 feet', 1.0),
        ('1 foot', '12 inches', 1.0), ('5 in', '5 inches', 1.0), ('5 inches', '5 feet', 0.0),
        ('20 m²', '20 m', 0.0), ('20 square meters', '20 m²', 1.0),
        ('20 sq ft', '20 square feet', 1.0), ('20 cm^3', '20 cubic centimeters', 1.0),
        ('20 m^2', '20 m^3', 0.0), ('20\\text{ cm}^2', '20 cm²', 1.0),
        ('30°C', '30 degrees Celsius', 1.0), ('30°C', '30°F', 0.0), ('30°', '30 degrees', 1.0),
        ('90^\\circ', '90 degrees', 1.0), ('90°', '90', 1.0), ('2 L', '2000 ml', 1.0),
        ('2 liters', '2 gallons', 0.0), ('5 GB', '5 MB', 0.0), ('5 kg', '5000 g', 1.0),
        ('5kg', '5 g', 0.0), ('5 g', '5 grams', 1.0), ('50%', '0.5', 1.0), ('50%', '50', 1.0),
        ('50 percent', '50%', 1.0), ('50 per cent', '50%', 1.0), ('50 pct', '50%', 1.0),
        ('50 percentage points', '50%', 1.0), ('5%', '5 km', 0.0), ('24.3B', '24.3 billion', 1.0),
        ('24.3B', '24300000000', 1.0), ('$1.2M', '1200000', 1.0), ('$1.2M', '$1,200,000', 1.0),
        ('2 million', '2000000', 1.0), ('5k', '5000', 1.0), ('5K', '5', 0.0),
        ('3 bn', '3000000000', 1.0), ('3bn', '3 billion', 1.0), ('€3bn', '3 bn euros', 1.0),
        ('4 mn', '4000000', 1.0), ('$5m', '5 million dollars', 1.0), ('5 m', '5000000', 0.0),
        ('5m', '5 meters', 1.0), ('2 lakh', '200000', 1.0), ('2 lakhs', '200000', 1.0),
        ('1.5 crore', '15000000', 1.0), ('₹2 cr', '20000000', 1.0), ('1.2 trillion', '1.2T', 1.0),
        ('24.3 B', '24.3 billion', 1.0), ('2.5 M', '2500000', 1.0), ('10 hundred', '1000', 1.0),
        ('2 dozen', '24', 1.0), ('5 billion', '5 million', 0.0), ('24.3B', '24.3', 0.0),
        ('3 thousand', '3k', 1.0), ('\\frac12', '0.5', 1.0), ('\\frac{1}{2}', '1/2', 1.0),
        ('\\dfrac 3 4', '0.75', 1.0), ('\\tfrac{3}{4}', '3/4', 1.0), ('\\frac1{2}', '0.5', 1.0),
        ('\\frac{1}2', '0.5', 1.0), ('-\\frac{1}{2}', '-0.5', 1.0), ('3\\frac{1}{2}', '3.5', 1.0),
        ('3 \\frac12', '3.5', 1.0), ('1 1/2', '1.5', 1.0), ('2½', '2.5', 1.0),
        ('\\frac{1,000}{3}', '1000/3', 1.0), ('\\frac{5}{6}\\text{ hours}', '50 minutes', 1.0),
        ('\\cfrac{1}{4}', '0.25', 1.0), ('$\\frac{1}{2}$', '0.5', 1.0),
        ('\\boxed{\\frac{1}{2}}', '0.5', 1.0), ('\\frac{2}{4}', '0.5', 1.0),
        ('10⁶', '1000000', 1.0), ('3×10⁵', '300000', 1.0), ('10^6', '1000000', 1.0),
        ('2^{10}', '1024', 1.0), ('2^10', '1024', 1.0), ('10**6', '1e6', 1.0),
        ('3 \\times 10^{5}', '300000', 1.0), ('10^{-3}', '0.001', 1.0), ('10⁻³', '0.001', 1.0),
        ('2¹⁰', '1024', 1.0), ('5²', '25', 1.0), ('3*10^5', '300000', 1.0),
        ('3 \\cdot 10^5', '300000', 1.0), ('1e6', '1000000', 1.0), ('1.5E3', '1500', 1.0),
        ('10^3 km', '1000 km', 1.0), ('-10^2', '-100', 1.0), ('2^3^2', '64', 0.0),
        ('1,23,456', '123456', 1.0), ('12,34,567', '1234567', 1.0), ('₹1,23,456', '123456', 1.0),
        ('1,00,000', '100000', 1.0), ('1.234,56', '1234.56', 0.0), ('1,234.56', '1234.56', 1.0),
        ("1'234", '1234', 0.0), ('x = 3*6 = 18', '18', 1.0), ('3*6 = 18', '18', 1.0),
        ('x = 18', '18', 1.0), ('Total = $18', '18', 1.0), ('x = 18 eggs', '18', 1.0),
        ('16 - 3 - 4 = 9', '9', 1.0), ('16 - 3 - 4 = 9', '16', 0.0), ('x = 5, y = 6', '6', 0.0),
        ('x = 5 or x = 6', '6', 0.0), ('x = 5 and y = 6', '6', 0.0), ('x ≠ 5', '5', 0.0),
        ('x >= 5', '5', 0.0), ('x > 5', '5', 0.0), ('x \\geq 5', '5', 0.0),
        ('x = \\frac{1}{2}', '0.5', 1.0), ('x == 5', '5', 1.0), ('f(2) = 5', '5', 1.0),
        ('1/3 ≈ 0.33', '0.33', 1.0), ('\\pi \\approx 3.14', '3.14', 1.0),
        ('9 * 2 = $18 per day', '18', 1.0), ('\\text{Total} = 18', '18', 1.0),
        ('≈ 18', '18', 1.0), ('~18', '18', 1.0), ('about 18', '18', 1.0),
        ('a total of 18 eggs', '18', 1.0), ('only 18', '18', 1.0), ('(42)', '42', 1.0),
        ('[42]', '42', 1.0), ('{42}', '42', 1.0), ('(3, 4)', '3', 0.0), ('[1, 2]', '1', 0.0),
        ('(1)(2)', '12', 0.0), ('\u202f1\u202f234', '1234', 1.0), ('４２', '42', 1.0),
        ('＄５', '5', 1.0), ('−5', '-5', 1.0), ('– 5', '-5', 1.0), ('\u200b42', '42', 1.0),
        ('42\ufeff', '42', 1.0), ('5!', '5', 1.0), ('3 hours 20 minutes', '3', 0.0),
        ('5\'10"', '5', 0.0), ('10:30', '10', 0.0), ('3-4', '3', 0.0),
        ('between 3 and 4', '3', 0.0), ('3 to 4', '3', 0.0), ('+18', '18', 1.0),
        ('18+', '18', 0.0), ('18.0', '18', 1.0), ('018', '18', 1.0), ('18.', '18', 1.0),
        ('18...', '18', 0.0), ('18?', '18', 1.0), ('18;', '18', 1.0), ('18,', '18', 1.0),
        ('$18.00', '18', 1.0), ('18 dollars', '$18', 1.0), ('18 USD', '$18', 1.0),
        ('$18 USD', '$18', 1.0), ('18¢', '$18', 0.0), ('1800¢', '$18', 1.0), ('$-5', '-5', 1.0),
        ('-$5', '-5', 1.0), ('(18 eggs)', '18', 1.0), ('18 (eighteen) eggs', '18', 0.0),
        ('18 (eggs)', '18', 1.0), ('18\\%', '18%', 1.0), ('\\$18', '18', 1.0),
        ('1{,}234', '1234', 1.0), ('1\\,234', '1234', 1.0), ('18 \\text{ eggs}', '18', 1.0),
        ('18~\\text{km}', '18 km', 1.0), ('18\\ \\mathrm{km}', '18 m', 0.0),
        ('\\left(42\\right)', '42', 1.0), ('\\mathbf{42}', '42', 1.0),
        ('\\underline{42}', '42', 1.0), ('\\text{42}', '42', 1.0),
        ('\\text{about } 42', '42', 1.0),
        ('٤٢', '42', 1.0), ('१२', '12', 1.0), ('１，２３４', '1234', 1.0), ('١٢٫٥', '12.5', 1.0),
        ('𝟒𝟐', '42', 1.0), ('42。', '42', 1.0), ('（42）', '42', 1.0), ('④②', '42', 0.0),
        ('42元', '42', 1.0), ('42 円', '42 yen', 1.0), ('￥42', '¥42', 1.0), ('42万', '42', 0.0),
        ('20 ℃', '20 °C', 1.0), ('20 ℃', '20 °F', 0.0), ('25 bps', '25%', 0.0),
        ('120 bps', '1.2%', 1.0), ('HK$5', 'US$5', 0.0), ('R$5', '5', 1.0), ('$42/day', '42', 1.0),
        ('5 Ω', '5 ohms', 1.0), ('5 \\, \\Omega', '5 Ω', 1.0), ('300 K', '300', 1.0),
        ('5 mA', '0.005 A', 1.0), ('5 kWh', '5 kW', 0.0), ('5 MeV', '5 eV', 0.0),
        ('2 atm', '2 Pa', 0.0), ('5 t', '5000 kg', 1.0), ('5 MB', '5 Mb', 0.0),
        ('5 GiB', '5 GB', 0.0), ('5 F', '5 μF', 0.0), ('5 pF', '5 nF', 0.0), ('5 um', '5 mm', 0.0),
        ('9.8 m s^{-2}', '9.8', 1.0), ('9.8 m·s⁻²', '9.8', 1.0), ('5 N·m', '5', 1.0),
        ('5! = 120', '120', 1.0),
    ],
)  # fmt: skip
def test_numeric_answer_reads_numbers_with_their_units_and_scales(answer, truth, score):
    assert NumericAnswer(truth)(f"Answer: {answer}", None) == score
    if "!" not in answer:  # in a box, 5! is a factorial
        assert NumericAnswer(truth)(f"<answer>{answer}</answer>", None) == score


@pytest.mark.parametrize(
    "value",
    [np.float16(0.1), np.float32(0.1), np.float64(0.1), np.array(0.1), np.array(0.1, dtype="f4"),
     np.str_("0.1"), np.array("0.1"), Decimal("0.10"), Decimal("1E-1"), Fraction(1, 10)],
)  # fmt: skip
def test_numeric_answer_takes_numbers_of_numpy_and_decimal(value):
    assert NumericAnswer()("A: 0.1", truth(value)) == 1.0
    rubric, other = NumericAnswer(value), NumericAnswer()
    other.load_state_dict(json.loads(json.dumps(rubric.state_dict())))
    assert rubric("A: 0.1", None) == other("A: 0.1", None) == 1.0
    assert other("A: 0.2", None) == 0.0


@pytest.mark.parametrize(
    "value",
    [np.bool_(True), np.float64("nan"), np.array([0.1]), Decimal("NaN"), Decimal("Infinity"),
     Decimal("1E+999999999"), np.datetime64("2026-01-01"), b"0.1", 1j],
)  # fmt: skip
def test_numeric_answer_rejects_what_is_no_number(value):
    with pytest.raises(MissingInputError, match="states no number"):
        NumericAnswer()("A: 0.1", truth(value))
    with pytest.raises(InvalidArgumentError, match="`expected` must be a number"):
        NumericAnswer(value)


@pytest.mark.parametrize("number", ["1/3", "0.33"])
@pytest.mark.parametrize("answer", ["1/3 ≈ 0.33", r"x = \frac13 \approx 0.33"])
def test_numeric_answer_takes_the_exact_and_the_rounded_number(answer, number):
    assert NumericAnswer(number)(f"Answer: {answer}", None) == 1.0
    assert NumericAnswer("0.3")(f"Answer: {answer}", None) == 0.0


def test_numeric_answer_explains_a_difference_with_the_units():
    score = NumericAnswer("5 km").score("A: 5 m", None)
    assert (score.value, score.reason) == (0.0, "found 5 m, wanted 5 km")


def test_numeric_answer_takes_other_reasoning_tags():
    text = "<plan>\nA: 7\n</plan>\nI don't know"
    assert NumericAnswer(7)(text, None) == 1.0
    assert NumericAnswer(7, reasoning_tags=["plan"])(text, None) == 0.0
    assert NumericAnswer(7, reasoning_tags=[])("<think>A: 7", None) == 1.0
    with pytest.raises(InvalidArgumentError, match="`reasoning_tags` must be a list"):
        NumericAnswer(7, reasoning_tags="think")
    with pytest.raises(InvalidArgumentError, match="`reasoning_tags` must have names of tags"):
        NumericAnswer(7, reasoning_tags=["<a>…"])
