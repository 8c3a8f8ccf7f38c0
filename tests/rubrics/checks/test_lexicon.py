"""Lists of words and patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.checks.toxicity import Lexicon, LexiconEntry, parse_lexicon, read_lexicon
from tests.hostile import linear_time


def found(text, *words):
    return [entry.text for entry in Lexicon([LexiconEntry(0.5, w) for w in words]).found_in(text)]


@pytest.mark.parametrize(
    "text",
    ["idiot", "You IDIOT!", "1d10t", "idioooot", "!d!ot", "_idiot_", "(idiot)", "IDIOT123"[:5]],
)
def test_lexicon_words_match_in_any_case_with_look_alikes_and_elongated(text):
    assert found(text, "idiot") == ["idiot"]


@pytest.mark.parametrize("text", ["idiotic", "anidiot", "idiot2", "idiöt", "iidiot", "i diot"])
def test_lexicon_words_match_whole_words_only(text):
    assert found(text, "idiot") == []


def test_lexicon_double_letters_stay_double():
    assert found("but a butt", "butt") == ["butt"]
    assert found("but", "butt") == []
    assert found("buttttt", "butt") == ["butt"]


def test_lexicon_digits_alone_are_a_number():
    assert found("455 and 1337", "ass", "leet") == []


@pytest.mark.parametrize(
    "text", ["shut up", "Shut  UP", "shut-up", "shut... up", "shut\nup", "$hut   up", "$hut !!up"]
)
def test_lexicon_phrases_match_across_white_space_and_punctuation(text):
    assert found(text, "shut up") == ["shut up"]


@pytest.mark.parametrize("text", ["you're out", "you’re out", "youre out"])
def test_lexicon_apostrophes_may_be_curly_or_left_out(text):
    assert found(text, "you're out") == ["you're out"]


def test_lexicon_overlapping_entries_count_the_longest_and_each_once():
    assert found("you fool, fool", "you", "you fool", "fool") == ["you fool", "fool"]
    assert found("fools fool fools", "fool", "fools") == ["fools", "fool"]


def test_lexicon_patterns_match_as_written_in_any_case():
    lexicon = parse_lexicon("0.5\t/b+ad{2}/\n0.2\tbad\n", "mine")
    assert [entry.text for entry in lexicon.found_in("very BBADD")] == ["b+ad{2}"]


def test_lexicon_comments_empty_lines_and_windows_line_ends_are_accepted(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbf# mine\r\n\r\n1\tso  bad\r\n0.5\t/x/\r\n")
    assert read_lexicon(path).entries == (
        LexiconEntry(1.0, "so bad"), LexiconEntry(0.5, "x", True),
    )  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["idiot", "0.5 idiot", "0\tidiot", "1.1\tidiot", "nan\tidiot", "-0.5\tidiot", "x\tidiot",
     "0.5\t", "0.5\t/(/", "0.5\t!!"],
)  # fmt: skip
def test_lexicon_a_broken_line_is_rejected_by_its_number(line, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(f"# mine\n0.5\tfine\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=re.escape(str(path)) + ", line 3: "):
        read_lexicon(path)


def test_lexicon_a_list_that_cannot_be_read_is_rejected(tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"0.5\t\xff\xfe")
    (tmp_path / "empty.txt").write_text("# nothing\n", encoding="utf-8")
    for name, expected in (("none.txt", "can't read"), ("bytes.txt", "can't read"),
                       ("empty.txt", "no entry"), (".", "can't read")):  # fmt: skip
        with pytest.raises(InvalidArgumentError, match=expected):
            read_lexicon(tmp_path / name)


@given(
    st.lists(st.text(alphabet="ailsy' -ö", min_size=1).filter(lambda w: any(map(str.isalpha, w))))
)
def test_lexicon_any_list_compiles_and_finds_its_own_words(words):
    words = [" ".join(word.split()).strip("'- ") for word in words]
    words = [word for word in words if word]
    lexicon = Lexicon([LexiconEntry(0.5, word) for word in words])
    for word in words:
        assert lexicon.found_in(word)


@pytest.mark.parametrize("unit", ["!", "1", "i", "1!|", "il ", "you ", "!i"])
def test_lexicon_found_in_takes_linear_time_on_hostile_text(unit):
    lexicon = Lexicon(
        [LexiconEntry(0.5, word) for word in ("illiil", "ill", "you you you", "iiiii!l")]
    )
    with linear_time():
        lexicon.found_in(unit * 20000)
