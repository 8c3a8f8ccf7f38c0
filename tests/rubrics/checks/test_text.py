"""Checks of what a text says."""

import copy
import pickle
from types import SimpleNamespace

import pytest

from guerdon.errors import InvalidArgumentError, MissingInputError, StateError
from guerdon.rubrics.checks import ExactMatch, RegexMatch


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
    with pytest.raises(InvalidArgumentError, match="`pattern` must be a"):
        RegexMatch(pattern)


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
