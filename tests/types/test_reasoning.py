import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError
from guerdon.types import REASONING_TAGS, split_reasoning
from guerdon.types.reasoning import check_reasoning_tags
from tests.hostile import linear_time


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("A: 18", "", "A: 18"),
        (" A: 18\n", "", " A: 18\n"),
        ("<think>Simple.</think>\n\n18", "Simple.", "18"),
        ("<think>It may be 7", "It may be 7", ""),
        ("It may be 7</think>\nA: 9", "It may be 7", "A: 9"),
        ("It may be 7</think>", "It may be 7", ""),
        ("<THINK>7</Think>9", "7", "9"),
        ("<think>a</think>5<think>b</think>6", "a\nb", "5\n6"),
        ("<think>the <thinking> tag</think>5", "the <thinking> tag", "5"),
        ("<think>the <think> tag</think>5", "the <think> tag", "5"),
        ("<think>a</think>b</think>5", "a\nb", "5"),
        ("<reasoning>7</reasoning>\n<answer>9</answer>", "7", "<answer>9</answer>"),
        ("[THINK]7[/THINK]9", "7", "9"),
        ("<|begin_of_thought|>7<|end_of_thought|>9", "7", "9"),
        ("◁think▷7◁/think▷9", "7", "9"),
        ("<seed:think>7</seed:think>9", "7", "9"),
        ("<|START_THINKING|>7<|END_THINKING|>9", "7", "9"),
        ("<|channel|>analysis<|message|>7<|end|><|start|>assistant<|channel|>final<|message|>9",
         "7<|end|><|start|>assistant", "9"),
        ("I close `<think>` with `</think>`: 9", "", "I close `<think>` with `</think>`: 9"),
        ("a < b and x <thin> y", "", "a < b and x <thin> y"),
    ],
)  # fmt: skip
def test_split_reasoning_separates_reasoning_from_the_answer(text, reasoning, answer):
    assert split_reasoning(text) == (reasoning, answer)


def test_split_reasoning_takes_tags():
    text = "<plan>7</plan><think>8</think>9"
    assert split_reasoning(text, ["plan"]) == ("7", "<think>8</think>9")
    assert split_reasoning("{{7}}9", ["{{…}}"]) == ("7", "9")
    assert split_reasoning(text, []) == ("", text)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<thought>", "[/THINK]", "x", "\n"])).map(
        "".join
    )
)
def test_split_reasoning_loses_no_character_but_tags_and_space(text):
    reasoning, answer = split_reasoning(text)
    assert (reasoning + answer).count("x") == text.count("x")
    assert split_reasoning(answer, REASONING_TAGS)[1].count("x") <= answer.count("x")


@pytest.mark.parametrize("tags", ["think", [""], ["…"], ["<a>…"], ["a…b…c"], [3], None])
def test_check_reasoning_tags_rejects_what_is_no_list_of_tags(tags):
    with pytest.raises(InvalidArgumentError, match="`reasoning_tags` must"):
        check_reasoning_tags("reasoning_tags", tags)


@pytest.mark.parametrize("mark", ["</think>", "<think>", "`</think>", "<", "[/", "x</think>"])
def test_split_reasoning_takes_linear_time_on_hostile_text(mark):
    with linear_time():
        split_reasoning(mark * 200_000)
