"""A user's regular expressions: as `re`, within a time limit, without the interpreter lock."""

import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import _patterns
from guerdon._patterns import Pattern
from guerdon.errors import InvalidArgumentError, PatternTimeoutError

# Letters with several cases, digits of other scripts, white space, and what patterns consist of.
SIGNS = "aAbkKsSßéÉÿΣσς中1٣_ \n\t-.{}ei,<>=:"
ITEMS = st.one_of(
    st.sampled_from(SIGNS).map(re.escape),
    st.sampled_from([r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", ".", r"\b", "^", "$", r"\A", r"\Z"]),
    st.sampled_from(["[a-z]", "[^a-zé]", r"[\w.]", r"[^\W\d_]", r"[\d,]", r"[^\s:]", "[{e}]"]),
    st.sampled_from(["{", "{}", "{e}", "{i<=1}", "{1<e<=2}", "{,", "}"]),
)
PATTERNS = st.recursive(
    ITEMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(
            st.sampled_from(["(%s)", "(?:%s)", "(?=%s)", "(?!%s)", "(?>%s)", "(?i:%s)", r"(%s)\1"]),
            inner,
        ).map(lambda pair: pair[0] % pair[1]),
        st.tuples(
            inner,
            st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,2}"]),
            st.sampled_from(["", "?", "+"]),
        ).map(lambda parts: f"(?:{parts[0]}){parts[1]}{parts[2]}"),
    ),
    max_leaves=8,
)
FLAGS = st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.DOTALL])


@given(PATTERNS, FLAGS, st.text(SIGNS, max_size=12), st.booleans())
def test_pattern_finds_what_re_finds(source, flags, text, full):
    try:
        expected = re.compile(source, flags)
    except re.error:
        with pytest.raises(InvalidArgumentError, match="`stop` must be a regular expression"):
            Pattern("stop", source)
        return
    match = expected.fullmatch if full else expected.search
    assert Pattern("stop", expected).found_in(text, full=full) == (match(text) is not None)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"^(a+)+$", "a" * 40 + "!"),
        (r"\d+\s*$", "1" * 100_000 + "!"),
        (r"(?s)<a>.*</a>.*<b>", "<a></a>" * 14_000),
        (r"(?:a.*){6}b", "aé " * 33_000),
        (r"(\w*)*\1!", "aé " * 33_000),
    ],
)
def test_pattern_ends_in_time_while_other_threads_run(source, text, monkeypatch):
    monkeypatch.setattr(_patterns, "MATCH_SECONDS", 0.3)
    pattern, ended, failed = Pattern("stop", source), threading.Event(), []

    def match():
        try:
            assert not pattern.found_in(text)
        except PatternTimeoutError as error:
            failed.append(error)
        ended.set()

    thread = threading.Thread(target=match, daemon=True)
    thread.start()
    longest, last = 0.0, time.monotonic()
    while not ended.wait(0.01):
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 10
    thread.join()
    for error in failed:
        assert str(error).startswith(f"`stop` {source!r} took more than 0.3 s on a text of ")


def test_pattern_names_the_limit_of_a_match(monkeypatch):
    monkeypatch.setattr(_patterns, "MATCH_SECONDS", 0.05)
    with pytest.raises(PatternTimeoutError, match="a text of 2000 characters") as caught:
        Pattern("stop", "(?:a.*){6}b").found_in("a" * 2000)
    assert caught.value.seconds == 0.05


def test_pattern_keeps_the_flags_of_a_compiled_one():
    assert Pattern("stop", re.compile("FINAL .", re.I | re.S)).found_in("final \n")
    assert not Pattern("stop", re.compile(r"\w", re.ASCII)).found_in("é")
    assert Pattern("stop", re.compile("(?x) a b  # both", 0)).found_in("ab")


@pytest.mark.parametrize(
    "source",
    [
        "(",
        "*a",
        r"\p{L}",
        "(?<=a*)b",
        "a{100000000}",
        "a{1,100001}",
        "((a{99999}){999}){999}",
        7,
        None,
        b"x",
    ],
)
def test_pattern_rejects_what_re_rejects_and_large_repetitions(source):
    with pytest.raises(InvalidArgumentError, match="`stop` must be a regular expression, got"):
        Pattern("stop", source)
