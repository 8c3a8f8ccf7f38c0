"""The numbers on the page of ``guerdon view`` are those that the commands print."""

import re

import pytest

from tests.viewer.page import figure, figures, go, rows_of, signed, texts_of, wait_for

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", ["tau", "gsm8k", "failing"])
def test_overview_has_the_numbers_of_guerdon_score(show, recorded, name):
    printed = recorded.files[name].printed
    page = show(recorded.address, f"#file={recorded.file(name)}")
    assert (
        figures(page).items()
        >= {
            "rows": f"{printed['rows']:,}",
            "mean score": f"{printed['mean_score']:.3f}",
            "scored 0": f"{printed['zeros']:,}",
            "failed": f"{printed['failed']:,}",
        }.items()
    )
    assert means_of(page) == {
        name: f"{mean['mean']:.3f}" for name, mean in printed["components"].items()
    }
    failed = {"failed": f"{printed['failed']:,}"} if printed["failed"] else {}
    assert {name: bar_of(page, name) for name in ("zero", *failed)} == {
        "zero": f"{printed['zeros']:,}"
    } | failed


def means_of(page):
    """The means of the components, without their intervals."""
    return {name: mean.split()[0] for name, mean, *_ in rows_of(page, ".means")}


def bar_of(page, kind):
    """How many rows a bar of the histogram has."""
    label = page.locator(f".score .bar.{kind}").get_attribute("aria-label")
    return re.search(r": ([\d,]+) of", label)[1]


@pytest.mark.parametrize("name", ["gsm8k", "failing"])
def test_overview_by_a_column_has_the_numbers_of_guerdon_score(show, recorded, name):
    printed = recorded.files[name].printed["by"]
    page = show(recorded.address, f"#file={recorded.file(name)}&by=model")
    found = {
        model: [mean.split()[0], *counts] for model, mean, _, *counts in rows_of(page, ".parts")
    }
    assert found == {
        model: [
            f"{part['mean_score']:.3f}", f"{part['rows']:,}", f"{part['zeros']:,}",
            f"{part['failed']:,}",
        ]
        for model, part in printed.items()
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "key", "meter"),
    [("failing", "failures", "failure"), ("failing", "stopped", "stopped_by"),
     ("gsm8k", "stopped", "stopped_by")],
)  # fmt: skip
def test_overview_counts_what_failed_and_what_was_stopped(show, recorded, name, key, meter):
    printed = recorded.files[name].printed[key]
    page = show(recorded.address, f"#file={recorded.file(name)}")
    names, amounts = (texts_of(page, f".meter.{meter} .{part}") for part in ("name", "amount"))
    assert dict(zip(names, amounts, strict=True)) == {
        name: f"{count:,}" for name, count in printed.items()
    }
    largest = max(printed, key=printed.__getitem__)
    page.locator(f".meter.{meter}", has_text=largest).first.click()
    wait_for(page, "document.querySelector('.chip') !== null")
    assert page.locator(".chips .amount").inner_text() == f"{printed[largest]:,} of 1,600 rows"


def test_filtered_overview_has_the_numbers_of_its_rows(show, recorded):
    printed = recorded.files["failing"].printed["by"]["6b_finetuning"]
    page = show(recorded.address, f"#file={recorded.file('failing')}&f.model==6b_finetuning")
    assert figure(page, "rows") == f"{printed['rows']:,}"
    assert figure(page, "mean score") == f"{printed['mean_score']:.3f}"
    assert means_of(page) == {
        name: f"{mean['mean']:.3f}" for name, mean in printed["components"].items()
    }


@pytest.mark.parametrize("name", ["tau", "failing"])
def test_group_has_the_numbers_of_guerdon_score(show, recorded, name):
    groups = recorded.files[name].printed["groups"]["by_group"]
    chosen = [next(each for each in groups if each["dead"] == dead) for dead in (True, False)]
    page = show(
        recorded.address, f"#file={recorded.file(name)}&view=group&group={chosen[0]['group']}"
    )
    for group in chosen:
        page.evaluate(
            f"location.hash = '#file={recorded.file(name)}&view=group&group={group['group']}'"
        )
        wait_for(page, f"document.querySelector('h1').innerText === 'group {group['group']}'")
        about = page.locator(".title > .muted").inner_text()
        assert about.startswith(f"{group['rows']} rollouts · mean score {group['mean_score']:.3f}")
        assert ("all scores are the same" in about) == group["dead"]
        scores = [f"{score:.3f}" for score in group["scores"]]
        assert texts_of(page, ".lane .big") == scores


def test_group_lists_the_shared_states_of_guerdon_score(show, recorded):
    printed = recorded.files["tau"].printed["groups"]["by_group"]
    group = max(printed, key=lambda each: each["shared_steps"])
    page = show(recorded.address, f"#file=0&view=group&group={group['group']}")
    sizes = [int(each.split()[0]) for each in texts_of(page, ".state > .muted")]
    all_steps = f"all {group['steps']} steps of the group"
    assert texts_of(page, ".state-text")[-1] == all_steps
    assert sum(sizes) == group["shared_steps"]
    assert min(sizes) > 1


@pytest.mark.parametrize(("name", "formula"), [("tau", "GiGPO, ω = 1"), ("failing", "GRPO")])
def test_group_writes_out_the_arithmetic_of_each_advantage(show, recorded, name, formula):
    scored = recorded.files[name]
    groups = [each for each in scored.printed["groups"]["by_group"] if not each["dead"]]
    group = max(groups, key=lambda each: (each["shared_steps"], len(each["scores"])))
    steps = {
        f"{row['id']}, step {step['step_index']}": step["advantage"]
        for row in scored.rows
        for step in row.get("steps", ())
    }
    page = show(recorded.address, f"#file={recorded.file(name)}&view=group&group={group['group']}")
    lines = page.locator(".steps tbody tr")
    assert lines.count() > 1
    for place in range(lines.count()):
        lines.nth(place).locator("button").click()
        title = page.locator(".arithmetic h3").inner_text().removeprefix("the advantage of ")
        formulas = page.locator(".formula").inner_text().splitlines()
        assert page.locator(".arithmetic .about").first.inner_text().startswith(f"{formula}:")
        assert formulas[-1].endswith(f"= {signed(steps[title])}")
        assert computed(formulas[-1]) == pytest.approx(steps[title], abs=0.0015)


def computed(line):
    """The value of the arithmetic in a line such as ``A = R − μ = 1.0 − 0.5 = +0.500``."""
    text = line.split("=")[-2].replace("−", "-").replace("×", "*")
    assert re.fullmatch(r"[\d\s.+*/()-]+", text), text
    return eval(text)


@pytest.mark.parametrize("name", ["tau", "failing"])
def test_rollout_has_the_numbers_of_its_steps(show, recorded, name):
    rows = recorded.files[name].rows
    place = next(
        place for place, row in enumerate(rows)
        if row["score"] and any(each["advantage"] for each in row["steps"])
    )  # fmt: skip
    page = show(recorded.address, f"#file={recorded.file(name)}&view=rollout&row={place}")
    assert [each.splitlines()[2::2] for each in texts_of(page, ".beside")] == [
        [f"{reward:.3f}", f"{step['return_to_go']:.3f}", signed(step["advantage"])]
        for reward, step in zip(rows[place]["step_rewards"], rows[place]["steps"], strict=True)
    ]


def test_rollout_has_the_tree_of_its_row(show, recorded):
    rows = recorded.files["gsm8k"].rows
    places = [next(place for place, row in enumerate(rows) if bool(row["score"]) == passed)
              for passed in (False, True)]  # fmt: skip
    page = show(recorded.address)
    statuses = set()
    for place in places:
        go(page, f"#file={recorded.file('gsm8k')}&view=rollout&row={place}")
        nodes = list(nodes_of(rows[place]["trees"][-1]))
        assert texts_of(page, ".tree .name") == [name for name, _ in nodes]
        assert texts_of(page, ".tree .value") == [value for _, value in nodes]
        statuses |= {value for _, value in nodes}
    assert "stopped" in statuses


def nodes_of(node):
    """The names and values of a tree as the page shows them."""
    value = {"skipped": "stopped", "failed": "failed"}.get(node["status"])
    yield node["name"] or "reward", value or f"{node['value']:.3f}"
    for child in node.get("children", ()):
        yield from nodes_of(child)


def test_diff_has_the_numbers_of_guerdon_diff(show, recorded):
    printed = recorded.files["diff"].printed
    page = show(recorded.address, f"#file={recorded.file('diff')}")
    assert figures(page) == {
        "valid in both": f"{printed['valid_in_both']:,}",
        "mean before": f"{printed['mean_before']:.3f}",
        "mean after": f"{printed['mean_after']:.3f}",
        "rose": f"{printed['rose']:,}",
        "fell": f"{printed['fell']:,}",
        "unmoved": f"{printed['unmoved']:,}",
        "valid before only": f"{printed['valid_before_only']:,}",
        "valid after only": f"{printed['valid_after_only']:,}",
        "pairs flipped": f"{printed['groups']['flipped']:,}",
    }
    pairs = page.locator(".figures dl > div:has(dt:text-is('pairs flipped')) small").inner_text()
    assert pairs == f"of {printed['groups']['pairs']:,}"
    moved = [each["difference"] for each in printed["moved"]]
    assert [cells[-1] for cells in rows_of(page, ".moves")][: len(moved)] == list(
        map(signed, moved)
    )
    flips = printed["groups"]["flips"]
    assert len(flips) > 1
    shown = {tuple(each[1::2]): each for each in rows_of(page, ".pairs")}
    assert all((each["better_before"], each["better_after"]) in shown for each in flips)


def test_arena_has_the_medians_of_guerdon_arena(show, arena):
    address, printed = arena
    page = show(address)
    table = re.findall(
        r"^ *(gigpo|grpo) +([\d.]+) +(\d+) \[.*?\] +([\d.]+) \[", printed, re.MULTILINE
    )
    found = [tuple(cells[:4]) for cells in rows_of(page, ".results")]
    assert len(found) == 2
    assert sorted(found) == sorted(table)
