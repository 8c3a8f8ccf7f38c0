from __future__ import annotations

from difflib import SequenceMatcher
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.credit.states import group_similar


def greedy(states: list[str], threshold: float) -> list[int]:
    """The definition, as plainly as it can be written."""
    templates: list[str] = []
    groups = []
    for state in states:
        for number, template in enumerate(templates):
            if SequenceMatcher(None, template, state, autojunk=False).ratio() >= threshold:
                groups.append(number)
                break
        else:
            templates.append(state)
            groups.append(len(templates) - 1)
    return groups


def ratio(template: str, state: str) -> float:
    return SequenceMatcher(None, template, state, autojunk=False).ratio()


def edited(random: Random, text: str, letters: str, edits: int) -> str:
    """The text with letters put in, taken out and replaced, and pieces of it moved."""
    out = list(text)
    for _ in range(edits):
        place = random.randrange(len(out) + 1)
        kind = random.randrange(4)
        if kind == 0:
            out.insert(place, random.choice(letters))
        elif kind == 1:
            out[place : place + 1] = []
        elif kind == 2:
            out[place : place + 1] = [random.choice(letters)]
        else:
            piece, out[place : place + 9] = out[place : place + 9], []
            target = random.randrange(len(out) + 1)
            out[target:target] = piece
    return "".join(out)


thresholds = st.sampled_from([0.05, 0.5, 0.6, 2 / 3, 0.75, 0.8, 6 / 7, 0.9, 0.95, 1.0]) | st.floats(
    0, 1, exclude_min=True
)


@settings(max_examples=150)
@given(st.lists(st.text("ab", max_size=9), max_size=9), thresholds)
def test_group_similar_short_texts_of_two_letters_are_grouped_as_difflib_does(
    states: list[str], threshold: float
) -> None:
    assert group_similar(states, threshold).tolist() == greedy(states, threshold)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=12), max_size=8), thresholds)
def test_group_similar_any_unicode_is_grouped_as_difflib_does(
    states: list[str], threshold: float
) -> None:
    assert group_similar(states, threshold).tolist() == greedy(states, threshold)


@pytest.mark.parametrize(
    "letters", ["#.@", "ab \n", "漢字äé", "a😀\ud800\x00"], ids=["grid", "text", "wide", "astral"]
)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), length=st.integers(20, 180), edits=st.integers(1, 25))
def test_group_similar_the_threshold_at_the_very_ratio_groups_as_difflib_does(
    letters: str, seed: int, length: int, edits: int
) -> None:
    random = Random(seed)
    unit = "".join(random.choices(letters, k=random.choice([1, 2, 7, length])))
    template = (unit * length)[:length]  # from "aaaa…" over periods to no pattern at all
    states = [template, *(edited(random, template, letters, edits) for _ in range(4))]
    for state in states[1:]:
        if (threshold := ratio(template, state)) > 0:
            above = float(np.nextafter(threshold, 2))
            assert group_similar([template, state], threshold).tolist() == [0, 0]
            if above <= 1:
                assert group_similar([template, state], above).tolist() == [0, 1]
            assert group_similar(states, threshold).tolist() == greedy(states, threshold)


def test_group_similar_long_texts_around_templates_are_grouped_as_difflib_does() -> None:
    random = Random(0)
    letters = "etaoins hrdlu"
    templates = ["".join(random.choices(letters, k=250)) for _ in range(6)]
    templates += [template[:200] + "." * 90 for template in templates[:2]]  # the same beginning
    states = [edited(random, random.choice(templates), letters, 9) for _ in range(24)]
    for threshold in (0.6, 0.9, 0.95):
        assert group_similar(states, threshold).tolist() == greedy(states, threshold)


@pytest.mark.parametrize("first", [0x100, 0x10000], ids=["2 bytes each", "4 bytes each"])
def test_group_similar_distinguishes_many_different_letters(first: int) -> None:
    places = range(first, first + 300)
    text = "".join(map(chr, places))
    edits = [text[:100] + "?" + text[101:], text[:150] + text[151:] + "!"]
    threshold = ratio(text, edits[1])

    assert group_similar([text, *edits], threshold).tolist() == [0, 0, 0]
    assert group_similar([text, *edits], np.nextafter(threshold, 1)).tolist() == greedy(
        [text, *edits], np.nextafter(threshold, 1)
    )


def test_group_similar_runs_of_one_letter_are_grouped_as_difflib_does() -> None:
    states = ["." * left + "@" + "." * right for left in (0, 90, 150) for right in (10, 150, 160)]
    for threshold in (0.7, 0.9, 0.99):
        assert group_similar(states, threshold).tolist() == greedy(states, threshold)


def test_group_similar_grids_that_differ_in_one_cell_are_together() -> None:
    rows = ["#####################"] + ["#...................#"] * 19 + ["#####################"]
    grid = "\n".join(rows)[:447]
    grid += "." * (447 - len(grid))
    moved = grid[:230] + "@" + grid[231:]

    assert SequenceMatcher(None, grid, moved).ratio() < 0.95  # difflib's junk heuristic
    assert group_similar([grid, moved], 0.95).tolist() == [0, 0]


def test_group_similar_a_text_joins_the_first_similar_group_and_not_the_most_similar() -> None:
    assert ratio("aaaaab", "aaaabb") < 0.85 < ratio("aaaaab", "aaaaabb")
    states = ["aaaaab", "aaaabb", "aaaaabb"]

    assert ratio("aaaabb", "aaaaabb") >= ratio("aaaaab", "aaaaabb")
    assert group_similar(states, 0.85).tolist() == [0, 1, 0]


def test_group_similar_a_text_is_compared_with_the_first_of_a_group_alone() -> None:
    assert ratio("aaaa", "aaab") == ratio("aaab", "aabb") == 0.75

    assert group_similar(["aaaa", "aaab", "aabb"], 0.75).tolist() == [0, 0, 1]


def test_group_similar_the_template_comes_first_where_the_order_matters() -> None:
    one, other = "tide", "diet"
    assert (ratio(one, other), ratio(other, one)) == (0.25, 0.5)

    assert group_similar([one, other], 0.5).tolist() == [0, 1]
    assert group_similar([other, one], 0.5).tolist() == [0, 0]


def test_group_similar_equal_texts_share_a_group_at_threshold_1() -> None:
    assert group_similar(["ab", "ba", "ab", "", "ba", ""], 1.0).tolist() == [0, 1, 0, 2, 1, 2]


def test_group_similar_an_empty_text_is_similar_to_empty_texts_alone() -> None:
    assert group_similar(["", " ", "", "  "], 0.01).tolist() == [0, 1, 0, 1]


def test_group_similar_returns_int64_and_is_empty_without_texts() -> None:
    groups = group_similar([], 0.9)

    assert groups.dtype == np.int64
    assert groups.shape == (0,)
    assert group_similar(["a"], 0.9).dtype == np.int64
