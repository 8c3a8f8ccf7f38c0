"""Reading YAML and JSON strictly: what is text, what is a number, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.config.documents import Problem, near, place_text
from guerdon.config.reading import MAX_BYTES, parse_document, read_document
from guerdon.config.writing import to_yaml
from guerdon.errors import RewardConfigError

# Words without quotes, and what they are.
PLAIN = {
    "1e-3": 0.001,
    "1E+3": 1000.0,
    "-1.5e2": -150.0,
    ".5": 0.5,
    "5.": 5.0,
    "1.10": 1.1,
    "-10": -10,
    "+3": 3,
    "0": 0,
    "-0": 0,
    "0x1F": 31,
    "0o17": 15,
    "00.5": 0.5,
    "no": "no",
    "No": "No",
    "yes": "yes",
    "on": "on",
    "off": "off",
    "y": "y",
    "n": "n",
    "true": True,
    "False": False,
    "TRUE": True,
    "tRUE": "tRUE",
    "null": None,
    "~": None,
    "": None,
    "nil": "nil",
    "1:30": "1:30",
    "190:20:30": "190:20:30",
    "1_000": "1_000",
    "0b101": "0b101",
    "2026-11-22": "2026-11-22",
    "2026-11-22T10:00:00Z": "2026-11-22T10:00:00Z",
    "1e": "1e",
    "1.2.3": "1.2.3",
    "=": "=",
    "nan": "nan",
    "Infinity": "Infinity",
    "1,000": "1,000",
    "5%": "5%",
    "C:\\temp": "C:\\temp",
    "a#b": "a#b",
}


@pytest.mark.parametrize("word", PLAIN)
def test_a_word_without_quotes_is_what_yaml_1_2_takes_it_for(word):
    found = parse_document(f"word: {word}\n").data["word"]
    assert (found, type(found)) == (PLAIN[word], type(PLAIN[word]))


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("word", ["012", "no", "1e-3", ".nan", "null", "~", "<<", "true"])
def test_a_word_in_quotes_is_text(word, quote):
    assert parse_document(f"word: {quote}{word}{quote}").data == {"word": word}


# What is refused, where, and in which words.
REFUSED = {
    "leading zero": ("a: 1\nb: 012", 2, "b: '012' is octal to some readers; write 12"),
    "signed leading zero": ("b: -007", 1, "write -7"),
    "nan": ("a: 1\nweight: .nan", 2, "weight: .nan is no finite number"),
    "infinity": ("w: -.inf", 1, "w: -.inf is no finite number"),
    "overflow": ("w: 1e999", 1, "too large"),
    "many digits": ("w: " + "9" * 5000, 1, "at most 1000 digits"),
    "duplicate key": ("a: 1\nb: 2\na: 3", 3, "a: it comes twice, first on line 1"),
    "duplicate key within": ("x:\n  - {a: 1, b: 2,\n     a: 3}", 3, "x[0].a: it comes twice"),
    "same key, other quotes": ("a: 1\n'a': 3", 2, "it comes twice"),
    "number as a key": ("1: a", 1, "the key 1 is no text; write it in quotes"),
    "null as a key": ("null: a", 1, "the key null is no text"),
    "bool as a key": ("true: a", 1, "the key true is no text"),
    "list as a key": ("? [a]\n: 1", 1, "a key is text; here a mapping or list begins"),
    "anchor": ("a: &one 1", 1, "anchors (&one) aren't read"),
    "alias": ("a: &one 1\nb: *one", 2, "aliases (*one) aren't read"),
    "merge key": ("a:\n  <<: {b: 1}", 2, "merge keys (<<) aren't read"),
    "python tag": ("a: !!python/object/apply:os.system ['true']", 1, "tags ("),
    "own tag": ("a: !secret x", 1, "tags (!secret) aren't read"),
    "standard tag": ("a: !!str 1", 1, "tags (tag:yaml.org,2002:str) aren't read"),
    "tagged mapping": ("a: 1\nb: !!map {a: 1}", 2, "tags ("),
    "tab": ("a:\n\tb: 1", 2, "a tab stands where YAML takes spaces"),
    "two documents": ("a: 1\n---\nb: 2", 2, "a second document begins here"),
    "colon in text": ("a: 1\nb: x: y", 2, "put text that holds one in quotes"),
    "open list": ("a: [1, 2\nb: 3", 2, "it is no YAML"),
    "open quote": ("a: 'x\nb: 3", 2, "it is no YAML"),
    "bad indent": ("a:\n    b: 1\n  c: 2", 3, "it is no YAML"),
    "control character": ("a: 1\nb: \x07", 2, "YAML takes no character U+0007 as it is"),
    "wrong escape": ('a: "\\d"', 1, "a backslash is doubled in double quotes, and itself in"),
    "at": ("a: 1\nb: @x", 2, "'@' that cannot start any token"),
    "per cent": ("a: 1\nb: %x", 2, "text that begins with it goes in quotes"),
    "colon in a flow": ("{a: b: c}", 1, "text that holds one of , : [ ] { } goes in quotes"),
    "no such character": ('a: "\\UFFFFFFFF"', None, "it is no YAML"),
    "empty": ("", None, "it is empty"),
    "only a comment": ("# nothing\n", None, "it is empty"),
    "only a mark": ("---\n", None, "it is empty"),
    "too deep": ("[" * 60 + "]" * 60, 1, "nested more than 50 deep"),
    "much too deep": ("[" * 100_000, 1, "nested more than 50 deep"),
    "too long": ("#" * (MAX_BYTES + 1), None, "longer than 1,048,576 bytes"),
    "surrogate": ('a: "\\ud800"', 1, "half a character"),
}


def mistakes(text, **options):
    """What is said of a text, whether it could be read or not."""
    try:
        document = parse_document(text, **options)
    except RewardConfigError as error:
        return list(error.problems)
    return [document.told(each) for each in document.problems]


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_read_in_two_ways_is_refused_with_its_line(name):
    text, line, said = REFUSED[name]
    found = mistakes(text)
    assert any(said in each for each in found), found
    assert line is None or any(each.startswith(f"line {line}: ") for each in found), found


def test_an_alias_bomb_is_refused_at_once():
    text = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    assert any("aliases" in each for each in mistakes(text))


def test_all_mistakes_of_a_document_are_told():
    found = mistakes("a: 012\nb: .nan\na: 2\nc: !x 1\n")
    assert [each.split(":")[0] for each in found] == ["line 1", "line 2", "line 3", "line 4"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_any_line_ends_and_a_byte_order_mark_are_fine(mark, end):
    document = parse_document(f"{mark}a: 1{end}b:{end}  - x{end}  - y{end}")
    assert document.data == {"a": 1, "b": ["x", "y"]}
    assert document.line_of(("b", 1)) == 4


def test_numbers_keep_what_was_written():
    document = parse_document("schema_version: 1.10\nx: [1e3]\n")
    assert document.texts[("schema_version",)] == "1.10"
    assert document.texts[("x", 0)] == "1e3"


def test_the_line_of_what_is_not_there_is_that_of_what_would_hold_it():
    document = parse_document("a: 1\nb:\n  - c: 1\n  - d: 2\n")
    assert document.line_of(("b", 1, "name")) == 4
    assert document.line_of(("x",)) == 1


def test_a_problem_is_told_with_its_file():
    document = parse_document("a: 1\nb: [x]\n", file="reward.yaml")
    assert document.told(Problem(("b", 0), "no")) == "reward.yaml:2: b[0]: no"
    assert document.told(Problem((), "no")) == "reward.yaml:1: no"


def test_odd_keys_are_told_in_quotes():
    assert place_text(("a b", 0, "c.d")) == "['a b'][0]['c.d']"


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("wieght", ["name", "weight"], "did you mean 'weight'?"),
        ("WEIGHT", ["name", "weight"], "did you mean 'weight'?"),
        ("prompt", ["model", "prompt_template"], "did you mean 'prompt_template'?"),
        ("zzz", ["name", "weight"], "there are 'name', 'weight'"),
        ("zzz", [], "there are none"),
    ],
)
def test_near_names_are_suggested(name, known, said):
    assert near(name, known) == said


# JSON ----------------------------------------------------------------------------------------


def test_json_is_read_with_its_lines():
    document = parse_document('{\n\t"a": [1,\n 2.50],\n "b": {"c": "x:y"}}', is_json=True)
    assert document.data == {"a": [1, 2.5], "b": {"c": "x:y"}}
    assert [document.line_of(place) for place in (("a", 1), ("b", "c"))] == [3, 4]
    assert document.texts[("a", 1)] == "2.50"


JSON_REFUSED = {
    "duplicate": ('{"a": 1,\n"a": 2}', 2, "a: it comes twice, first on line 1"),
    "nan": ('{"a": "NaN",\n "b": NaN}', 2, "NaN is no finite number"),
    "infinity": ('{"b": -Infinity}', 1, "-Infinity is no finite number"),
    "overflow": ('{"b":\n 1e999}', 2, "b: 1e999 is too large"),
    "many digits": ('{"b": ' + "1" * 5000 + "}", 1, "at most 1000 digits"),
    "comma": ('{\n"a": 1,}', 2, "it is no JSON"),
    "comment": ('{"a": 1 // x\n}', 1, "it is no JSON"),
    "two": ('{"a": 1}\n{}', 2, "it is no JSON"),
    "empty": (" \n", None, "it is empty"),
    "null": ("null", None, "it is empty"),
    "deep": ("[" * 60 + "]" * 60, 1, "nested more than 50 deep"),
    "much too deep": ("[" * 100_000 + "]" * 100_000, None, "nested more than 50 deep"),
    "surrogate": ('{"a": "\\ud800"}', 1, "half a character"),
}


@pytest.mark.parametrize("name", JSON_REFUSED)
def test_what_is_no_json_is_refused_with_its_line(name):
    text, line, said = JSON_REFUSED[name]
    found = mistakes(text, is_json=True)
    assert any(said in each for each in found), found
    assert line is None or any(each.startswith(f"line {line}: ") for each in found), found


def test_numbers_that_are_none_do_not_hide_other_mistakes():
    found = mistakes('{"a": NaN,\n "b": [-Infinity],\n "a": Infinity}', is_json=True)
    assert found == [
        "line 1: a: NaN is no finite number, and no JSON",
        "line 2: b[0]: -Infinity is no finite number, and no JSON",
        "line 3: a: it comes twice, first on line 1; leave one out",
        "line 3: a: Infinity is no finite number, and no JSON",
    ]


def test_pairs_of_surrogates_are_one_character():
    assert parse_document('{"a": "\\ud83d\\ude00"}', is_json=True).data == {"a": "😀"}


# Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), [("r.yaml", "a: 1"), ("r.JSON", '{"a":\t1}')])
def test_a_file_is_read_by_what_its_name_ends_in(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_document(tmp_path / name).data == {"a": 1}


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RewardConfigError, match=r"no\.yaml: No such file") as caught:
        read_document(tmp_path / "no.yaml")
    assert isinstance(caught.value.__cause__, OSError)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(RewardConfigError, match="Is a directory"):
        read_document(tmp_path)


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path):
    (tmp_path / "r.yaml").write_bytes("a: 1\nb: ä".encode("latin-1"))
    with pytest.raises(RewardConfigError, match=r"r\.yaml:2: it isn't UTF-8"):
        read_document(tmp_path / "r.yaml")
    (tmp_path / "r.yaml").write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(RewardConfigError, match="it isn't UTF-8"):
        read_document(tmp_path / "r.yaml")


def test_a_file_that_is_too_long_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_bytes(b"a: 1\n" + b"# " * MAX_BYTES)
    with pytest.raises(RewardConfigError, match="longer than"):
        read_document(tmp_path / "r.yaml")


# Properties ----------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
SCALARS |= st.floats(allow_nan=False, allow_infinity=False)
SCALARS |= st.sampled_from([*PLAIN, "012", ".nan", "<<", "&a", "*a", "!x", "- a", "a: b", "#"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(data):
    for document in (
        parse_document(to_yaml(data)),
        parse_document(json.dumps(data, indent=1), is_json=True),
        parse_document(json.dumps(data, ensure_ascii=False), is_json=True),
    ):
        assert (document.data, document.problems) == (data, ())


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`\t\n ,?01.~<\\\ufeff", max_size=40), st.booleans())
def test_whatever_text_is_read_or_refused_in_words(text, is_json):
    found = mistakes(text, is_json=is_json)
    assert all(found)
    if not found:
        assert parse_document(text, is_json=is_json).data is not None
