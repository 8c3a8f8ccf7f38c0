"""The fenced blocks of a Markdown text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.rubrics.checks.fences import fenced_blocks, without_fences
from tests.hostile import linear_time


def texts(text, *languages):
    return [block.text for block in fenced_blocks(text, *languages)]


def test_fenced_blocks_blocks_of_the_language_are_found_in_order_with_their_lines():
    text = "One:\n```python\na = 1\nb = 2\n```\ntwo:\n~~~py\nc = 3\n~~~\n```bash\nls\n```"
    assert fenced_blocks(text, "python", "py") == [("a = 1\nb = 2", 3), ("c = 3", 8)]


def test_fenced_blocks_blocks_without_a_language_count_only_where_none_names_it():
    assert texts("```\na\n```\n```bash\nls\n```", "python") == ["a"]
    assert texts("```\na\n```\n```Python\nb\n```", "python") == ["b"]
    assert texts("```bash\nls\n```", "python") == []


def test_fenced_blocks_a_block_that_is_never_closed_runs_to_the_end():
    assert texts("```json\n{\n", "json") == ["{\n"]


def test_fenced_blocks_a_longer_fence_contains_a_shorter_one():
    assert texts("````json\n```\nx\n```\n````", "json") == ["```\nx\n```"]


def test_fenced_blocks_the_indentation_of_the_fence_is_removed():
    assert texts("- so:\n  ```python\n  if x:\n    y\n  ```", "python") == ["if x:\n  y"]


def test_fenced_blocks_windows_line_ends_and_further_words_after_the_language_are_accepted():
    assert texts("```python title=x\r\na\r\n```\r\n", "python") == ["a"]


def test_fenced_blocks_a_text_without_fences_has_no_blocks():
    assert texts("x = 1", "python") == []
    assert texts("inline ```code``` here", "python") == []


@given(st.text(alphabet="`~ \npython{x", max_size=80))
def test_fenced_blocks_never_raise(text):
    for block in fenced_blocks(text, "python"):
        assert block.line >= 2


@pytest.mark.parametrize("text", ["`" * 10**6, "```" + "a" * 10**6 + "`", "```\n" * 10**5])
def test_fenced_blocks_takes_linear_time_on_hostile_text(text):
    with linear_time():
        fenced_blocks(text, "python")


def test_without_fences_keeps_a_line_that_the_line_above_asks_for():
    def kept(above, line):
        return above == "Answer:"

    text = "Code:\n```\n5\n```\nAnswer:\n```\n6\n```\n"
    assert without_fences(text, kept=kept).split() == ["Code:", "Answer:", "6"]
    assert without_fences("```\n5\n6\n```", kept=kept) == "5\n6"
    assert without_fences("```python\n5\n```", kept=kept) == ""
