"""Whether an answer is the right option."""

import copy
import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks import ChoiceAnswer
from tests.hostile import linear_time

CITIES = ["Rome", "Paris", "London", "Berlin"]


def truth(value, **metadata):
    return SimpleNamespace(metadata={"ground_truth": value, **metadata})


@pytest.mark.parametrize("choices", [CITIES, None])
@pytest.mark.parametrize(
    "text",
    ["(B)", "B", "B.", "B) Paris", "**B**", "The answer is B", "The answer is B.", "\\boxed{B}",
     "\\boxed{\\text{(B)}}", "\\boxed{\\textbf{B}}", "Answer: option b", "B: Paris", "b", "(b)",
     "Answer: B", "Answer: (B) Paris", "ANSWER: **B**", "ANSWER: $B$", "**Answer:** B. Paris",
     "The correct answer is (B) Paris.", "The correct option is B",
     "Therefore, the correct answer is **B**.", "So the answer is B because a car moves.",
     "Answer: B - Paris", "Answer: B, because it is the capital", "<answer>B</answer>", "#### B",
     "**Final Answer**\n\nB", "Final answer:\n\n**(B)**",
     "A) Rome\nB) Paris\nC) London\nD) Berlin\n\nAnswer: B", "I rule out A and C.\n\n**B**",
     "Answer: D. Wait, the answer is B.", "<think>Answer: A</think>B",
     "The answer is B. Note that A is a common distractor.",
     "Answer: B. Note that A is a common distractor", "\\boxed{B: Paris}", "[B]", "$B$",
     "The answer is option (B).", "The answer is: B", "Answer: B!", "✅ B", "B is correct.",
     "Option B is correct", "Let me think.\nThe best choice is B", "Answer: B, not A", "`B`",
     '"B"', "Answer： B", "The answer is $\\textbf{(B)}$.", "A: B", "Answer: B / Paris",
     "Correct answer: B", "Option B", "choice B", "The answer is\n\nB", "Answer:\n- B",
     "B\n\nExplanation: it is the capital.", "Answer: Ｂ", '{"answer": "B"}', "Answer: {B}",
     "(Answer: B)", "\\boxed{(\\text{B})}", "B<|eot_id|>", "Correct option is (B) Paris",
     "The answer is B, because A is wrong.", "The answer is B; A is wrong.",
     "Answer: B, since all other options are incorrect.", "Answer: B (because A is wrong)",
     "Answer: **B** (Paris)", "**Answer: B** – Paris", "**B**: Paris",
     "The most appropriate answer is B",
     "A: Let's think. Mitochondria make ATP. So the answer is (B).",
     "A) is too small. The answer is B.", "A, C and D are wrong. So the answer is B.",
     "A) 3, B) 4, C) 5. The answer is B.", "Option A is wrong; the answer is B.",
     "Answer: (B) I and II only", "B. I and II only", "Answer: B. A and C are both wrong",
     "Answer: B, i.e. Paris", "So B is the correct answer.", "Therefore, option B is correct.",
     "The right choice is B.", "The most appropriate option is B.", "The answer is 18 (B).",
     "Answer: a capital (B)", "**B. Paris**\n\nA and C aren't in France.",
     "Wait, the answer is A.\nChecking again.\nThe answer is B."],
)  # fmt: skip
def test_choice_answer_reads_a_letter_as_models_write_it(text, choices):
    assert ChoiceAnswer("B", choices=choices)(text, None) == 1.0
    assert ChoiceAnswer("C", choices=choices)(text, None) == 0.0


@pytest.mark.parametrize("choices", [CITIES, None])
@pytest.mark.parametrize(
    "text",
    ["A careful look says it is in France.", "Answer: A and B", "Answer: A or B", "Answer: A, B",
     "The answer is A/B", "AB", "Answer: A", "", "no idea", "Answer: I don't know",
     "Answer: Don't know", "Answer: None of the above", "It is a bad question",
     "A) Rome\nB) Paris\nC) London\nD) Berlin", "Answer: C", "(A) and (B)", "B or C",
     "Answer: both A and B", "B, C", "<think>B</think>", "<think>\\boxed{B}", "Answer: Bern",
     "Answer: Because it is", "Answer: (A), (B)", "Answer: A & B", "B, or maybe C",
     "Answer: B (wrong)", "B: incorrect", "B. This is incorrect.", "Answer: B, which is wrong",
     "B, no wait, A.",
     "B. Actually, A.", "Answer: B (A)", "B) is too small. The answer is C.",
     "B. Rome is in Italy. The answer is C."],
)  # fmt: skip
def test_choice_answer_takes_no_other_text_for_a_letter(text, choices):
    assert ChoiceAnswer("B", choices=choices)(text, None) == 0.0


@pytest.mark.parametrize(
    ("text", "score"),
    [("A careful look says it is in Italy", 0.0), ("I think a lot", 0.0), ("Answer: a", 1.0),
     ("A: Rome", 1.0), ("A", 1.0), ("A.", 1.0), ("Answer: A", 1.0), ("A: B", 0.0)],
)  # fmt: skip
def test_choice_answer_an_article_is_no_letter(text, score):
    assert ChoiceAnswer("A", choices=CITIES)(text, None) == score


@pytest.mark.parametrize(
    "text",
    ["Paris", "paris.", "**Paris**", "Answer: Paris", "The answer is Paris.",
     "\\boxed{\\text{Paris}}", "Paris (B)", "<answer>Paris</answer>", "B Paris",
     "I considered Rome.\n\nParis", "The answer is **Paris**, because it is the capital of France.",
     "Answer: Paris (the capital of France)", "Answer: Paris (B)"],
)  # fmt: skip
def test_choice_answer_reads_the_text_of_an_option(text):
    assert ChoiceAnswer("B", choices=CITIES)(text, None) == 1.0


@pytest.mark.parametrize(
    "text",
    ["B) Rome", "Rome", "Answer: Rome (B)", "A: Paris", "Answer: A) Paris", "B: London",
     "Parisian", "Paris and Rome", "Answer: Paris, Rome", "Answer: Paris (A)"],
)  # fmt: skip
def test_choice_answer_a_letter_with_the_text_of_another_option_is_no_answer(text):
    assert ChoiceAnswer("B", choices=CITIES)(text, None) == 0.0


@pytest.mark.parametrize(
    "value", ["B", "b", "(B)", "Paris", "paris", 1, np.int64(1), "B) Paris", "B."]
)
def test_choice_answer_the_truth_is_a_letter_a_text_or_an_index(value):
    observation = truth(value, choices=CITIES)
    assert ChoiceAnswer()("B", observation) == ChoiceAnswer()("Paris", observation) == 1.0
    assert ChoiceAnswer()("A", observation) == 0.0
    assert ChoiceAnswer(value, choices=CITIES)("B", None) == 1.0


@pytest.mark.parametrize("value", ["E", "Madrid", 4, -1, True, 1.5, "", "A and B"])
def test_choice_answer_rejects_a_truth_that_is_no_option(value):
    with pytest.raises(MissingInputError, match="the right option must be one of A, B, C, D"):
        ChoiceAnswer()("B", truth(value, choices=CITIES))
    with pytest.raises(InvalidArgumentError, match="`expected` must be an option"):
        ChoiceAnswer(value, choices=CITIES)


@pytest.mark.parametrize(
    "choices",
    [["Rome", "Paris"], {"A": "Rome", "B": "Paris"}, {"a": "Rome", "b": "Paris"},
     {"label": ["A", "B"], "text": ["Rome", "Paris"]}, np.array(["Rome", "Paris"]),
     ["A. Rome", "B. Paris"], ["A)Rome", "B)Paris"], ("(A) Rome", "(B) Paris")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["choices", "options"])
def test_choice_answer_reads_options_in_the_shapes_of_data_sets(choices, name):
    for observation in (truth("B", **{name: choices}), {"ground_truth": "B", name: choices}):
        assert ChoiceAnswer()("The answer is Paris.", observation) == 1.0
        assert ChoiceAnswer()("The answer is Rome.", observation) == 0.0
    assert ChoiceAnswer("B", choices=choices).choices == {"A": "Rome", "B": "Paris"}


def test_choice_answer_labels_may_be_numbers():
    choices = {"label": ["1", "2"], "text": ["Rome", "Paris"]}
    assert ChoiceAnswer("2", choices=choices)("Answer: 2", None) == 1.0
    assert ChoiceAnswer("2", choices=choices)("Answer: Paris", None) == 1.0


@pytest.mark.parametrize(
    "choices",
    ["A. Rome B. Paris", ["only"], 5, [], ["A", "C", "B"], ["x", ""], {"one": "x", "two": "y"}],
)
def test_choice_answer_rejects_options_that_it_cannot_read(choices):
    with pytest.raises(InvalidArgumentError, match="`choices` must be 2 to 26 options"):
        ChoiceAnswer("A", choices=choices)
    with pytest.raises(MissingInputError, match=r"`observation\.choices` must be 2 to 26 options"):
        ChoiceAnswer()("A", truth("A", choices=choices))


@pytest.mark.parametrize(
    ("text", "right", "choices", "score"),
    [
        ("The answer is 15.", "B", ["12", "15", "18"], 1.0), ("15", "A", ["12", "15", "18"], 0.0),
        ("$\\frac{1}{2}$", "A", ["\\frac{1}{2}", "\\frac{1}{3}"], 1.0),
        ("The answer is (J).", "J", [f"text {number}" for number in range(10)], 1.0),
        ("The answer is I", "I", [f"text {number}" for number in range(10)], 1.0),
        ("I think so", "I", [f"text {number}" for number in range(10)], 0.0),
        ("None of the above", "C", ["x", "y", "None of the above"], 1.0),
        ("Both A and B", "C", ["x", "y", "Both A and B"], 1.0),
        ("ANSWER: None of the above", "A", ["x", "y", "z"], 0.0),
        ("The answer is False.", "B", ["True", "False"], 1.0),
    ],
)  # fmt: skip
def test_choice_answer_reads_other_options(text, right, choices, score):
    assert ChoiceAnswer(right, choices=choices)(text, None) == score


def test_choice_answer_explains_another_option():
    rubric = ChoiceAnswer("B", choices=CITIES)
    assert rubric.score("Answer: A", None).reason == "found A, wanted B"
    assert rubric.score("no idea", None).reason == "found no single option, wanted B"


def test_choice_answer_survives_copying_and_keeps_its_state():
    rubric, other = ChoiceAnswer("B", choices=CITIES), ChoiceAnswer()
    other.load_state_dict(json.loads(json.dumps(rubric.state_dict())))
    for again in (other, copy.deepcopy(rubric), pickle.loads(pickle.dumps(rubric))):
        assert again("Paris", None) == 1.0


@pytest.mark.parametrize(
    "text", ["A:" * 10**5, "(" * 10**6, "B " * 10**5, "B and " * 10**5, "B\n" * 10**5, "$" * 10**6]
)
def test_choice_answer_takes_linear_time_on_hostile_text(text):
    with linear_time():
        ChoiceAnswer("B", choices=CITIES)(text, None)
