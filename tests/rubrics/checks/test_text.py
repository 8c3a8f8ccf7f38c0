"""Checks of a text: pattern, exact text, length, repetition."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import _patterns
from guerdon.errors import InvalidArgumentError, MissingInputError, StateError
from guerdon.rubrics.checks import ExactMatch, LengthBounds, RegexMatch, RepetitionBounds


def truth(value):
    return SimpleNamespace(metadata={"ground_truth": value})


def test_regex_match_searches_anywhere():
    assert RegexMatch(r"\d+")("page 12 of it", None) == 1.0
    assert RegexMatch(r"\d+")("no page", None) == 0.0


def test_regex_match_full_takes_the_whole_text():
    assert RegexMatch(r"\d+", full=True)("12", None) == 1.0
    assert RegexMatch(r"\d+", full=True)("12\n", None) == 0.0


def test_regex_match_ignores_case_when_asked():
    assert RegexMatch("yes")("YES", None) == 0.0
    assert RegexMatch("yes", ignore_case=True)("YES", None) == 1.0


def test_regex_match_reads_another_field():
    assert RegexMatch("def", field="code")(SimpleNamespace(code="def f()", content=""), None) == 1.0


def test_regex_match_explains_the_pattern():
    assert "no match for 'yes'" in RegexMatch("yes").score("no", None).reason


@pytest.mark.parametrize("pattern", ["(", "*", None, b"x", "(?P<1>x)"])
def test_regex_match_rejects_invalid_patterns(pattern):
    with pytest.raises(InvalidArgumentError, match="`pattern` must be"):
        RegexMatch(pattern)


def test_regex_match_that_takes_too_long_fails_without_a_score(monkeypatch):
    monkeypatch.setattr(_patterns, "MATCH_SECONDS", 0.05)
    score = RegexMatch("(?:a.*){6}b").score("a" * 2000, None)
    assert (score.value, score.status) == (None, "failed")
    assert "took more than 0.05 s on a text of 2000 characters" in score.error


def test_regex_match_recompiles_when_its_configuration_is_set():
    rubric = RegexMatch("yes")
    rubric.pattern = "no"
    rubric.ignore_case = True
    assert rubric("NO", None) == 1.0
    with pytest.raises(InvalidArgumentError):
        rubric.pattern = "("
    assert rubric("no", None) == 1.0


def test_regex_match_state_goes_into_another():
    one, other = RegexMatch("yes", ignore_case=True, full=True), RegexMatch("no")
    other.load_state_dict(one.state_dict())
    assert other.state_dict() == one.state_dict()
    assert other("YES", None) == 1.0


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda rubric: pickle.loads(pickle.dumps(rubric))]
)
def test_regex_match_survives_copying(again):
    assert again(RegexMatch("yes"))("yes", None) == 1.0


def test_exact_match_leaves_out_white_space_around():
    assert ExactMatch("Paris")("  Paris\n", None) == 1.0
    assert ExactMatch("Paris", strip=False)("Paris\n", None) == 0.0
    assert ExactMatch("Paris")("Par is", None) == 0.0


def test_exact_match_folds_case_when_asked():
    assert ExactMatch("STRASSE", ignore_case=True)("straße", None) == 1.0


def test_exact_match_takes_the_ground_truth():
    assert ExactMatch()("Paris", truth("Paris")) == 1.0
    assert ExactMatch()("72", truth(72)) == 1.0
    assert ExactMatch("")("", truth("something")) == 1.0


@pytest.mark.parametrize("value", [0.5, True, ["a"], {"a": 1}])
def test_exact_match_rejects_a_ground_truth_that_is_not_text(value):
    with pytest.raises(MissingInputError, match=type(value).__name__):
        ExactMatch()("x", truth(value))


def test_exact_match_without_ground_truth_raises():
    with pytest.raises(MissingInputError):
        ExactMatch()("x", None)


def test_exact_match_rejects_an_expected_number():
    with pytest.raises(
        InvalidArgumentError,
        match="`expected` must be a string, or None for the ground truth, got 3",
    ):
        ExactMatch(3)


def test_exact_match_state_is_checked_on_loading():
    rubric = ExactMatch("a")
    with pytest.raises(StateError):
        rubric.load_state_dict({**rubric.state_dict(), "expected": 3})
    assert rubric("a", None) == 1.0


def test_exact_match_explains_both_texts():
    assert ExactMatch("a").score("b", None).reason == "found 'b', wanted 'a'"


@pytest.mark.parametrize(
    ("unit", "text", "length"),
    [
        ("characters", "a b\nc", 5),
        ("characters", "", 0),
        ("words", " a  b\nc ", 3),
        ("lines", "a\nb\n", 2),
        ("lines", "a\n\nb", 3),
        ("lines", "", 0),
    ],
)
def test_length_bounds_count_their_unit_and_include_both_ends(unit, text, length):
    assert LengthBounds(length, length, unit=unit)(text, None) == 1.0
    assert LengthBounds(length + 1, unit=unit)(text, None) == 0.0
    if length:
        assert LengthBounds(0, length - 1, unit=unit)(text, None) == 0.0


def test_length_bounds_explain_the_length():
    reason = LengthBounds(2, 3, unit="words").score("one", None).reason
    assert reason == "1 words, wanted 2 to 3"


@pytest.mark.parametrize(
    "arguments",
    [
        {"minimum": -1}, {"minimum": 1.0}, {"minimum": True}, {"minimum": None},
        {"maximum": -1}, {"maximum": "9"}, {"minimum": 3, "maximum": 2}, {"unit": "tokens"},
    ],
)  # fmt: skip
def test_length_bounds_reject_invalid_arguments(arguments):
    with pytest.raises(InvalidArgumentError, match="must be"):
        LengthBounds(**arguments)


def test_length_bounds_that_nothing_meets_raise_instead_of_scoring_zero():
    rubric = LengthBounds(0, 5)
    rubric.minimum = 9
    with pytest.raises(InvalidArgumentError, match="`maximum` must be >= `minimum`"):
        rubric("seven77", None)


def test_length_bounds_state_goes_into_another_in_any_order():
    one, other = LengthBounds(50, 60, unit="words"), LengthBounds(1, 2)
    other.load_state_dict(dict(reversed(one.state_dict().items())))
    assert other.state_dict() == one.state_dict()
    assert pickle.loads(pickle.dumps(other))("word " * 55, None) == 1.0


def test_repetition_bounds_share_is_that_of_repeated_ngrams():
    # Bigrams: a-b, b-a, a-b, b-a: two of four are repeats.
    assert RepetitionBounds(0.5, ngram=2)("a b a b a", None) == 1.0
    assert RepetitionBounds(0.49, ngram=2)("a b a b a", None) == 0.0


def test_repetition_bounds_make_no_difference_of_case():
    assert RepetitionBounds(0.0, ngram=1)("Again again", None) == 0.0


@pytest.mark.parametrize("text", ["", "one", "one two three"])
def test_repetition_bounds_accept_texts_shorter_than_an_ngram(text):
    assert RepetitionBounds(0.0, ngram=4)(text, None) == 1.0


def test_repetition_bounds_reject_a_loop_and_explain_the_share():
    score = RepetitionBounds().score("so it goes on and " * 20, None)
    assert score.value == 0.0
    assert "of the 4-grams are repeats" in score.reason


@pytest.mark.parametrize(
    "arguments",
    [{"maximum": 1.1}, {"maximum": float("nan")}, {"maximum": True}, {"ngram": 0}, {"ngram": 2.0}],
)
def test_repetition_bounds_reject_invalid_arguments(arguments):
    with pytest.raises(InvalidArgumentError, match="must be"):
        RepetitionBounds(**arguments)


@given(st.text(alphabet="ab ", max_size=60), st.integers(1, 5))
def test_repetition_bounds_of_one_accept_everything(text, ngram):
    assert RepetitionBounds(1.0, ngram=ngram)(text, None) == 1.0


@pytest.mark.parametrize("rubric", [LengthBounds(), RepetitionBounds()])
def test_bounds_raise_where_there_is_no_text(rubric):
    with pytest.raises(MissingInputError):
        rubric(None, None)


@pytest.mark.parametrize(
    ("text", "score"),
    [("<think>Rome?</think>\nParis", 1.0), ("Rome?</think>Paris", 1.0), ("<think>Paris", 0.0),
     ("**Paris**", 0.0), ("Paris.", 0.0), ("The answer is Paris", 0.0)],
)  # fmt: skip
def test_exact_match_leaves_out_reasoning_and_nothing_else(text, score):
    assert ExactMatch("Paris")(text, None) == score


def test_exact_match_takes_integers_of_numpy_as_the_truth():
    for value in (np.int64(18), np.uint8(18), np.array(18), np.str_("18")):
        assert ExactMatch()("18", truth(value)) == 1.0
    for value in (np.float64(18.0), np.bool_(True), np.array([18])):
        with pytest.raises(MissingInputError, match="a string or an integer"):
            ExactMatch()("18", truth(value))


def test_checks_of_the_format_see_the_reasoning():
    text = "<think>a b c</think>d"
    assert RegexMatch("<think>.*</think>")(text, None) == 1.0
    assert LengthBounds(3, 3, unit="words")(text, None) == 1.0
