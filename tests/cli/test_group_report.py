"""What guerdon score prints of groups."""

import io

import pytest
from rich.console import Console

from guerdon.cli.score import group_tables
from guerdon.rollouts.crediting import CreditSettings
from guerdon.rollouts.scoring.summary import GroupStats, GroupSummary

GIGPO = CreditSettings("gigpo")


def printed(*facts, credit=None, width=160, summary=None):
    """The lines of the tables, without the space around their cells."""
    groups = summary or GroupSummary()
    for each in facts:
        groups.add(each)
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, emoji=False)
    for part in group_tables(groups, credit):
        console.print(part)
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]


def test_group_tables_have_a_line_per_group():
    lines = printed(
        GroupStats("q7", 3, (1.0, 0.0, 0.5)),
        GroupStats(8, 2, (1.0, 1.0)),
        GroupStats({"a": 1}, 2, (0.25,)),
        GroupStats("none", 1, ()),
    )
    assert lines[0] == "group rows mean score scores"
    assert lines[2:6] == [
        "q7 3 0.500 1 0 0.5",
        "8 2 1.000 1 1 dead",
        "{'a': 1} 2 0.250 0.25 one valid score",
        "none 1 – no valid score",
    ]
    assert "groups 4" in lines
    assert "dead: all scores are the same 1" in lines
    assert "of one valid score 1" in lines


def test_group_tables_without_credit_have_no_steps():
    text = "\n".join(printed(GroupStats("q7", 2, (1.0, 0.0))))
    assert "steps" not in text
    assert "credit" not in text


def test_group_tables_with_credit_have_steps_and_anchor_groups():
    lines = printed(
        GroupStats("q7", 2, (1.0, 0.0), steps=1004, shared_steps=1003,
                   anchors={1: 1, 3: 1, 1000: 1}, dead_anchors=1),
        credit=GIGPO,
    )  # fmt: skip
    assert lines[0] == "group rows mean score scores steps in shared states"
    assert "q7 2 0.500 1 0 1,004 1,003" in lines
    assert "credit: gigpo" in lines
    for expected in (
        "steps with an advantage 1,004",
        "in states that others share 1,003 (99.9%)",
        "anchor groups 3",
        "of one step 1",
        "of 3 steps 1",
        "of more than 8 steps 1",
        "of two or more, all returns the same 1",
    ):
        assert expected in lines


def test_group_tables_count_large_anchor_groups_together():
    lines = printed(
        GroupStats("q7", 2, (1.0, 0.0), steps=40, shared_steps=40, anchors={8: 1, 9: 2, 14: 1}),
        credit=GIGPO,
    )
    assert "of 8 steps 1" in lines
    assert "of more than 8 steps 3" in lines


def test_group_tables_of_methods_without_anchors_have_none():
    lines = printed(GroupStats("q7", 2, (1.0, 0.0), steps=2), credit=CreditSettings("grpo"))
    assert "credit: grpo" in lines
    assert "steps with an advantage 2" in lines
    assert not any("anchor" in line or "share" in line for line in lines[4:])


def test_group_tables_mark_a_group_without_credit():
    lines = printed(GroupStats("q7", 2, (1.0, 0.0), uncredited=True), credit=GIGPO)
    assert "q7 2 0.500 1 0 0 no credit" in lines
    assert "groups without credit 1" in lines
    assert not any("without credit" in line for line in printed(GroupStats("q7", 2, (1.0, 0.0))))


def test_group_tables_count_rollouts_without_a_group():
    lines = printed(GroupStats(None, 1, (1.0,)), GroupStats("q7", 2, (1.0, 0.0)))
    assert "rollouts without a group 1" in lines
    assert "groups 1" in lines
    assert not any(line.startswith("None") for line in lines)


def test_group_tables_count_groups_that_are_not_listed():
    lines = printed(*(GroupStats(f"q{n}", 2, (1.0, 0.0)) for n in range(1234)))
    assert sum(line.startswith("q") for line in lines) == 20
    assert "1,214 more groups; --json lists the first 100" in lines
    assert "groups 1,234" in lines


def test_group_tables_list_all_of_a_few_groups():
    lines = printed(*(GroupStats(f"q{n}", 2, (1.0, 0.0)) for n in range(20)))
    assert not any("more groups" in line for line in lines)


@pytest.mark.parametrize(("count", "more"), [(8, False), (9, True), (10_000, True)])
def test_group_tables_cut_off_many_scores(count, more):
    [line] = [each for each in printed(GroupStats("q7", count, (0.5,) * (count - 1) + (1.0,)))
              if each.startswith("q7")]  # fmt: skip
    assert ("…" in line) is more
    assert line.count("0.5") <= 9


@pytest.mark.parametrize(
    "name",
    ["[bold]", "[/]", "[/bold]x", "a\\", "\\[bold]", "[link=file]", ":smile:", "[@click=x]", "[]",
     ["a", 1], {"[b]": None}, 0, False, ""],
    ids=repr,
)  # fmt: skip
def test_group_tables_print_names_unchanged(name):
    lines = printed(GroupStats(name, 2, (1.0, 0.0)), credit=GIGPO)
    assert any(line.startswith(f"{name} 2".strip()) for line in lines)


def test_group_tables_print_a_name_with_newlines_on_one_line():
    text = " ".join(printed(GroupStats("a\nb\tc", 2, (1.0, 0.0))))
    assert "2 0.500 1 0" in text


@pytest.mark.parametrize("width", [20, 40, 110])
def test_group_tables_fit_narrow_terminals(width):
    lines = printed(GroupStats("x" * 500, 2, (1.0, 0.0), steps=2), credit=GIGPO, width=width)
    assert all(len(line) <= width for line in lines)


def test_group_tables_shorten_large_and_small_scores():
    lines = printed(GroupStats("q7", 4, (1e300, -1e-300, 1 / 3, 12345.678)))
    assert any("1e+300 -1e-300 0.333 1.23e+04" in line for line in lines)


def test_group_tables_of_nothing_are_empty():
    assert "groups 0" in printed()
    assert "rollouts without a group 2" in printed(GroupStats(None, 2, (1.0,)), credit=GIGPO)
