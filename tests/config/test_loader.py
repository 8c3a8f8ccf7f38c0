"""Strict YAML and JSON: what is text, what is a number, and what is rejected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon._problems import Problem, place_text
from guerdon.config.loader import MAX_BYTES, parse_document, read_document, to_yaml
from guerdon.errors import RewardConfigError

# Words without quotes, and their values.
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
def test_parse_document_reads_plain_words_by_yaml_1_2(word):
    found = parse_document(f"word: {word}\n").data["word"]
    assert (found, type(found)) == (PLAIN[word], type(PLAIN[word]))


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("word", ["012", "no", "1e-3", ".nan", "null", "~", "<<", "true"])
def test_parse_document_reads_quoted_words_as_text(word, quote):
    assert parse_document(f"word: {quote}{word}{quote}").data == {"word": word}


# The text, the line and the message.
REFUSED = {
    "leading zero": (
        "a: 1\nb: 012",
        2,
        "b: '012' is ambiguous",
    ),
    "signed leading zero": ("b: -007", 1, "write -7"),
    "nan": ("a: 1\nweight: .nan", 2, "weight: .nan is not a finite number"),
    "infinity": ("w: -.inf", 1, "w: -.inf is not a finite number"),
    "overflow": ("w: 1e999", 1, "too large"),
    "overflow of an integer": ("w: 1" + "0" * 400, 1, "too large"),
    "many digits": ("w: " + "9" * 5000, 1, "at most 1000 digits"),
    "duplicate key": ("a: 1\nb: 2\na: 3", 3, "a: duplicate key, first on line 1"),
    "duplicate key within": ("x:\n  - {a: 1, b: 2,\n     a: 3}", 3, "x[0].a: duplicate key"),
    "same key, other quotes": ("a: 1\n'a': 3", 2, "duplicate key"),
    "number as a key": ("1: a", 1, "the key 1 is not a string; write it in quotes"),
    "null as a key": ("null: a", 1, "the key null is not a string"),
    "bool as a key": ("true: a", 1, "the key true is not a string"),
    "list as a key": ("? [a]\n: 1", 1, "a key must be a string, got a mapping or a list"),
    "anchor": ("a: &one 1", 1, "anchors (&one) are not supported"),
    "alias": ("a: &one 1\nb: *one", 2, "aliases (*one) are not supported"),
    "merge key": ("a:\n  <<: {b: 1}", 2, "merge keys (<<) are not supported"),
    "python tag": ("a: !!python/object/apply:os.system ['true']", 1, "tags ("),
    "own tag": ("a: !secret x", 1, "tags (!secret) are not supported"),
    "standard tag": ("a: !!str 1", 1, "tags (tag:yaml.org,2002:str) are not supported"),
    "tagged mapping": ("a: 1\nb: !!map {a: 1}", 2, "tags ("),
    "tab": ("a:\n\tb: 1", 2, "indentation must consist of spaces, got a tab"),
    "two documents": ("a: 1\n---\nb: 2", 2, "a second document begins here"),
    "colon in text": ("a: 1\nb: x: y", 2, "text with special characters goes in quotes"),
    "open list": ("a: [1, 2\nb: 3", 2, "it is not YAML"),
    "open quote": ("a: 'x\nb: 3", 2, "it is not YAML"),
    "bad indent": ("a:\n    b: 1\n  c: 2", 3, "it is not YAML"),
    "control character": ("a: 1\nb: \x07", 2, "YAML can't contain U+0007"),
    "wrong escape": ('a: "\\d"', 1, "found unknown escape character 'd'"),
    "at": ("a: 1\nb: @x", 2, "'@' that cannot start any token"),
    "per cent": ("a: 1\nb: %x", 2, "text with special characters goes in quotes"),
    "colon in a flow": ("{a: b: c}", 1, "text with special characters goes in quotes"),
    "no such character": ('a: "\\UFFFFFFFF"', None, "it is not YAML"),
    "empty": ("", None, "it is empty"),
    "only a comment": ("# nothing\n", None, "it is empty"),
    "only a mark": ("---\n", None, "it is empty"),
    "too deep": ("[" * 60 + "]" * 60, 1, "nested more than 50 levels deep"),
    "much too deep": ("[" * 100_000, 1, "nested more than 50 levels deep"),
    "too long": ("#" * (MAX_BYTES + 1), None, "larger than 1,048,576 bytes"),
    "surrogate": ('a: "\\ud800"', 1, "half a character"),
}


def mistakes(text, **options):
    """Return the problems of a text, whether it could be read or not."""
    try:
        document = parse_document(text, **options)
    except RewardConfigError as error:
        return list(error.problems)
    return list(map(document.message, document.problems))


@pytest.mark.parametrize("name", REFUSED)
def test_parse_document_reports_what_is_ambiguous_with_its_line(name):
    text, line, message = REFUSED[name]
    found = mistakes(text)
    assert any(message in each for each in found), found
    assert line is None or any(each.startswith(f"line {line}: ") for each in found), found


def test_parse_document_refuses_an_alias_bomb():
    text = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    assert any("aliases" in each for each in mistakes(text))


def test_parse_document_reports_all_mistakes():
    found = mistakes("a: 012\nb: .nan\na: 2\nc: !x 1\n")
    assert [each.split(":")[0] for each in found] == ["line 1", "line 2", "line 3", "line 4"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_parse_document_accepts_any_line_ends_and_a_byte_order_mark(mark, end):
    document = parse_document(f"{mark}a: 1{end}b:{end}  - x{end}  - y{end}")
    assert document.data == {"a": 1, "b": ["x", "y"]}
    assert document.line_of(("b", 1)) == 4


def test_parse_document_keeps_the_version_as_it_is_written():
    data = {"schema_version": "1.10", "x": [1000.0]}
    assert parse_document("schema_version: 1.10\nx: [1e3]\n").data == data
    assert parse_document('{"schema_version": 1.10, "x": [1e3]}', is_json=True).data == data


def test_document_line_of_a_missing_value_is_that_of_its_container():
    document = parse_document("a: 1\nb:\n  - c: 1\n  - d: 2\n")
    assert document.line_of(("b", 1, "name")) == 4
    assert document.line_of(("x",)) == 1


def test_document_message_includes_file_and_line():
    document = parse_document("a: 1\nb: [x]\n", file="reward.yaml")
    assert document.message(Problem(("b", 0), "no")) == "reward.yaml:2: b[0]: no"
    assert document.message(Problem((), "no")) == "reward.yaml:1: no"


def test_place_text_quotes_keys_that_are_not_words():
    assert place_text(("a b", 0, "c.d")) == "['a b'][0]['c.d']"


# JSON ----------------------------------------------------------------------------------------


def test_parse_document_reads_json_with_lines():
    document = parse_document('{\n\t"a": [1,\n 2.50],\n "b": {"c": "x:y"}}', is_json=True)
    assert document.data == {"a": [1, 2.5], "b": {"c": "x:y"}}
    assert [document.line_of(place) for place in (("a", 1), ("b", "c"))] == [3, 4]


JSON_REFUSED = {
    "duplicate": ('{"a": 1,\n"a": 2}', 2, "a: duplicate key, first on line 1"),
    "nan": ('{"a": "NaN",\n "b": NaN}', 2, "NaN is not a finite number"),
    "infinity": ('{"b": -Infinity}', 1, "-Infinity is not a finite number"),
    "overflow": ('{"b":\n 1e999}', 2, "b: 1e999 is too large"),
    "many digits": ('{"b": ' + "1" * 5000 + "}", 1, "at most 1000 digits"),
    "comma": ('{\n"a": 1,}', 2, "it is not JSON"),
    "comment": ('{"a": 1 // x\n}', 1, "it is not JSON"),
    "two": ('{"a": 1}\n{}', 2, "it is not JSON"),
    "empty": (" \n", None, "it is empty"),
    "null": ("null", None, "it is empty"),
    "deep": ("[" * 60 + "]" * 60, 1, "nested more than 50 levels deep"),
    "much too deep": ("[" * 100_000 + "]" * 100_000, None, "nested more than 50 levels deep"),
    "surrogate": ('{"a": "\\ud800"}', 1, "half a character"),
}


@pytest.mark.parametrize("name", JSON_REFUSED)
def test_parse_document_reports_invalid_json_with_its_line(name):
    text, line, message = JSON_REFUSED[name]
    found = mistakes(text, is_json=True)
    assert any(message in each for each in found), found
    assert line is None or any(each.startswith(f"line {line}: ") for each in found), found


def test_parse_document_reports_nan_of_json_beside_other_mistakes():
    found = mistakes('{"a": NaN,\n "b": [-Infinity],\n "a": Infinity}', is_json=True)
    assert found == [
        "line 1: a: NaN is not a finite number, and not JSON",
        "line 2: b[0]: -Infinity is not a finite number, and not JSON",
        "line 3: a: duplicate key, first on line 1; remove one",
        "line 3: a: Infinity is not a finite number, and not JSON",
    ]


def test_parse_document_joins_pairs_of_surrogates_of_json():
    assert parse_document('{"a": "\\ud83d\\ude00"}', is_json=True).data == {"a": "😀"}


# Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), [("r.yaml", "a: 1"), ("r.JSON", '{"a":\t1}')])
def test_read_document_chooses_the_format_by_the_suffix(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_document(tmp_path / name).data == {"a": 1}


def test_read_document_names_a_missing_file(tmp_path):
    with pytest.raises(RewardConfigError, match=r"no\.yaml: No such file") as caught:
        read_document(tmp_path / "no.yaml")
    assert isinstance(caught.value.__cause__, OSError)


def test_read_document_refuses_a_folder(tmp_path):
    with pytest.raises(RewardConfigError, match="Is a directory"):
        read_document(tmp_path)


def test_read_document_refuses_other_encodings_with_the_line(tmp_path):
    (tmp_path / "r.yaml").write_bytes("a: 1\nb: ä".encode("latin-1"))
    with pytest.raises(RewardConfigError, match=r"r\.yaml:2: it is not UTF-8"):
        read_document(tmp_path / "r.yaml")
    (tmp_path / "r.yaml").write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(RewardConfigError, match="it is not UTF-8"):
        read_document(tmp_path / "r.yaml")


def test_read_document_refuses_a_file_that_is_too_long(tmp_path):
    (tmp_path / "r.yaml").write_bytes(b"a: 1\n" + b"# " * MAX_BYTES)
    with pytest.raises(RewardConfigError, match="larger than"):
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
def test_to_yaml_and_json_are_read_back(data):
    for document in (
        parse_document(to_yaml(data)),
        parse_document(json.dumps(data, indent=1), is_json=True),
        parse_document(json.dumps(data, ensure_ascii=False), is_json=True),
    ):
        assert (document.data, document.problems) == (data, ())


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`\t\n ,?01.~<\\\ufeff", max_size=40), st.booleans())
def test_parse_document_reads_any_text_or_reports_why_not(text, is_json):
    found = mistakes(text, is_json=is_json)
    assert all(found)
    if not found:
        assert parse_document(text, is_json=is_json).data is not None
