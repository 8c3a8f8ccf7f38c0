"""Finding where a worked solution states its answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rubrics.checks import extract_answer
from tests.hostile import linear_time

STATED = [
    ("9 * 2 = 18\nA: 18", "18"), ("A: 1\r\nA: 2\r\n", "2"), ("A: five", "five"), ("> A: 3", "3"),
    ("Answer: 18", "18"), ("answer: 18", "18"), ("Ans: 18", "18"), ("FINAL ANSWER: 18", "18"),
    ("## Final Answer: 7", "7"), ("- **Answer**: 7", "7"), ("A：18", "18"),
    ("The answer is 18.", "18"), ("The final answer is: $18. Done.", "$18"),
    ("5 + 6 = 11. The answer is 11.", "11"), ("it is 5, so the answer is 5", "5"),
    ("Therefore, the answer is 3.5.", "3.5"),
    ("#### 18", "18"), ("##### 18", "18"), ("#### 18\n#### Check\nfine", "18"),
    ("Answer:\n\n18\n", "18"), ("**Answer**:\n**18**", "18"),
    ("Final Answer: The final answer is $18$. I hope it is correct.", "$18$"),
    ("A: 9 * 2 = 18. So the answer is 18.", "18"), ("\\boxed{Answer: 18}", "18"),
    ("### Answer\n18", "18"), ("#### Answer\n18", "18"), ("**Final Answer**\n\n18 eggs", "18 eggs"),
    ("Answer = 18", "18"), ("A: 18\nanswer = eggs * 2", "18"), ("A: 18\n## Answer\nis above", "18"),
    ("The answer is therefore 18.", "18"), ("The answer is, thus, 18.", "18"),
    ("A: 18!!", "18"), ("A: **18!**", "18"), ("The answer is: 18!", "18"),
    ("<answer>18</answer>", "18"), ("so <Answer>\n18\n</Answer>.", "18"),
    ("<answer>The answer is 18.</answer>", "18"), ("<answer>\n$18\n", None),
    ("A: 5\n<answer>1", None),
    ("\\boxed 18", "18"), ("so $\\boxed 18$, done", "18"), ("\\boxed18. Done.", "18"),
    ("\\boxed{5!}", "5!"), ("72", "72"), (" $1,234.50 ", "$1,234.50"),
    ("Hence the required answer is 18.", "18"), ("The most likely answer is 18", "18"),
    ("The answer, therefore, is 18.", "18"), ("The answer we get is 18.", "18"),
    ("The answer has to be 18.", "18"), ("The answer is found to be 18.", "18"),
    ("Final Numeric Answer: 18", "18"), ("Final result: 18", "18"), ("Result: 7\nA: 18", "18"),
    ("Answer: 41\nCorrection: 42", "42"), ("A: 41\nCorrection: I misread the text.", "41"),
    ("\\boxed{41}\nWait, I made an error. The answer is 42.", "42"),
    ("\\boxed{41}\nI made no error. The answer is 2 digits long.", "41"),
    ("Wait, the answer is 18.\nChecking.\nThe answer is 19.", "19"),
    ("\\boxed{17}\nWait, the answer is 18.\nThe answer is 19.", "19"),
    ("If you make the mistake of ignoring tax, the answer is 17.\nThe answer is 18.", "18"),
    ("\\boxed{18}\nA common mistake is to think that the answer is 17.", "18"),
    ("The answer is 15.\nA common mistake is to say the answer is 12.", "15"),
    ("\\boxed{17}\nActually, the answer is 18.", "18"), ("**Result:** 17", "17"),
    ("Correction: the answer is 17.\nThe answer is 18.", "18"),
    ("Step 4: Final Answer\n18", "18"), ("So 17 is the answer.", "17"),
    ("I tried all. C is correct.", "C"), ("Therefore, **C** is the best choice.", "C"),
    ("答案：72", "72"), ("所以正确答案是 72。", "72。"), ("答案选B", "B"),
    ("Respuesta final: 72", "72"), ("Die Antwort: 72", "72"),
    ("<SOLUTION>18</SOLUTION>", "18"), ("<|begin_of_box|>18<|end_of_box|>", "18"),
    ("They are $\\boxed{3}$ and $\\boxed{-1}$.", "3, -1"), ("\\boxed{3}, \\boxed{3}", "3"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), STATED)
def test_extract_answer_reads_the_last_answer_line(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    ["", "so it is 18", "16 - 3 = 13\n9 * 2 = 18", "QA: 5", "Data: 5", "Job A: 300",
     "### Answer\nShe has 18 eggs.", "Answer = 9 + 9", "Answers\n18", "an answer\n18",
     "\\boxed x 18",
     "#### Step 3: add\n5 + 6 = 11", "The answers differ: 5", "A is 5", "the answer isn't 5",
     "the answer is not 5", "If the answer is 5, it fails", "check whether the answer is 5",
     "The answer is 41. No, the answer is not 41.", "She makes 9 * 2 = 18"],
)  # fmt: skip
def test_extract_answer_never_takes_merely_the_last_number(text):
    assert extract_answer(text) is None


@pytest.mark.parametrize(
    "text", ["A: 5\nA:", "A: 5\n\\boxed{1", "\\boxed{5} and \\boxed{\\frac{1}{2}"]
)
def test_extract_answer_returns_none_for_a_truncated_answer(text):
    assert extract_answer(text) is None


def test_extract_answer_the_last_box_counts_with_all_its_braces():
    assert extract_answer(r"\boxed{5} then $\boxed{\frac{1}{2}}$.") == r"\frac{1}{2}"
    assert extract_answer(r"\fbox {\{1\}}") == r"\{1\}"


def test_extract_answer_of_box_and_answer_line_the_later_counts():
    assert extract_answer("\\boxed{5}\nA: 6") == "6"
    assert extract_answer("A: 6\nor \\boxed{5}") == "5"
    assert extract_answer("A: $\\boxed{18}$ eggs") == "18"


@given(st.text())
def test_extract_answer_never_raises(text):
    extract_answer(text)


@given(st.text(alphabet="A:#\nThe answer is so.18\\boxed{}*", max_size=80))
def test_extract_answer_gives_a_part_of_the_text(text):
    answer = extract_answer(text)
    assert answer is None or (answer in text and answer == answer.strip())


@pytest.mark.parametrize(
    "text",
    ["#" * 10**6, "\n" * 10**6, "A:" * 10**5, "A:\n" * 10**5, "\\boxed{" * 10**5, "so the " * 10**5,
     "! " * 10**5, "answer is " * 10**5, "> " * 10**5 + "A", "answer" + ". so " * 10**5 + "answer",
     "the answer is " + ".*" * 10**5, "<answer>" * 10**5, "\\boxed 1" * 10**5, "answer\n" * 10**5,
     "answer = " * 10**5, "A: " + "!" * 10**6 + "x", "answer" + "*" * 10**6,
     "answer is thus " * 10**5,
     "A: " + "! " * 10**5 + "x", "answer =\n" * 10**5, "`<answer>" * 10**5, "\\boxed{}" * 10**5,
     "\\boxed{" + "." * 10**6 + "x}", "```\nx\n```\n" * 10**5,
     "answer:\n```\n5\n```\n" * 10**5,
     "- answer\n" * 10**5, "answer:" + " " * 10**6, "(" * 10**6 + "A: 5",
     "<a>" * 10**5 + "answer: 5",
     "$$\n" * 10**5, "answer:\n" + "$$\n" * 10**5, "the answer to " * 10**5,
     "|" * 10**6 + "answer|5",
     "the answer is not 5. " * 10**5, "the answer is " + ",.%" * 10**5,
     "the answer is " + "-" * 10**6,
     "#### " * 10**5, "the " * 10**5 + "answer is 5", "[answer]" * 10**5, "</think>" * 10**5,
     "\\text{" * 10**5 + "answer: 5", "A: 5 B: 6 " * 10**5, "answer:" + "\n" * 10**6 + "5"],
)  # fmt: skip
def test_extract_answer_takes_linear_time_on_hostile_text(text):
    with linear_time():
        extract_answer(text)
