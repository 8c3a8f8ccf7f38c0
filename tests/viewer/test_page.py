"""The page of ``guerdon view`` in Chromium: its views, filters, addresses and keyboard."""

import json
import random
import re
import statistics
from urllib.parse import parse_qs

import pytest

from guerdon.rollouts.comparing.group_comparison import count_pairs
from tests.viewer.conftest import rollout, row, write_log
from tests.viewer.page import (
    figure,
    go,
    read_lines,
    rows_of,
    run_guerdon,
    signed,
    texts_of,
    wait_for,
    write_lines,
)

pytestmark = pytest.mark.browser

ALL_FETCHED = """
    ![...document.querySelectorAll(".line:not([hidden]) .id")].some(each => each.innerText === "…")
"""


@pytest.fixture
def at(show, recorded):
    """Opens a file of the recordings by its name."""

    def at(name, state="", **options):
        return show(recorded.address, f"#file={recorded.file(name)}&{state}", **options)

    return at


def shown_rows(page):
    return page.locator(".chips .amount").inner_text()


def listed_ids(page):
    wait_for(page, ALL_FETCHED)
    return texts_of(page, ".line:not([hidden]) .id")


# Views -------------------------------------------------------------------------------------------


def test_overview_filters_by_a_click_on_a_bar_and_on_a_value(at, recorded):
    printed = recorded.files["failing"].printed
    page = at("failing", "by=model")
    page.locator(".score .bar.failed").click()
    wait_for(page, "document.querySelectorAll('.chip').length === 1")
    assert shown_rows(page) == f"{printed['failed']:,} of 1,600 rows"
    page.locator(".parts button", has_text="6b_verification").click()
    wait_for(page, "document.querySelectorAll('.chip').length === 2")
    failed = printed["by"]["6b_verification"]["failed"]
    assert shown_rows(page) == f"{failed:,} of 1,600 rows"
    assert page.locator(".scroller").get_attribute("aria-rowcount") == str(failed + 1)
    page.locator(".chip").first.click()
    wait_for(page, "document.querySelectorAll('.chip').length === 1")
    page.go_back()
    wait_for(page, "document.querySelectorAll('.chip').length === 2")


def test_overview_filters_by_a_rectangle_of_the_scatter(at, recorded):
    page = at("failing", "x=turns&y=score")
    plot = page.locator(".scatter g-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    wait_for(page, "document.querySelectorAll('.chip').length === 2")
    [interval] = parse_qs(page.url.partition("#")[2])["f.score"]
    low, high = map(float, interval.strip("[]()").split(","))
    scores = [each["score"] for each in recorded.files["failing"].rows]
    amount = sum(score is not None and low <= score <= high for score in scores)
    assert 0 < amount < len(scores)
    assert shown_rows(page) == f"{amount:,} of 1,600 rows"


def test_overview_scatter_forgets_a_rectangle_that_becomes_a_scroll(at):
    page = at("tau")
    page.locator(".scatter .brush").evaluate("""brush => {
        const { left, top } = brush.getBoundingClientRect();
        for (const [type, place] of [["down", 80], ["move", 120], ["cancel", 120], ["move", 150]]) {
            brush.dispatchEvent(new PointerEvent(`pointer${type}`,
                { pointerId: 1, clientX: left + place, clientY: top + place }));
        }
    }""")
    assert page.locator(".scatter .selection").get_attribute("d") == ""


def test_overview_scatter_has_categories_as_axes(at, recorded):
    page = at("failing", "x=score&y=model")
    plot = page.locator(".scatter g-plot")
    plot.scroll_into_view_if_needed()
    rows = recorded.files["failing"].rows
    models = {each["id"].partition("/")[2] for each in rows}
    shown = [text for text in plot.locator("text").all_text_contents() if len(text) > 8]
    assert all(any(model.startswith(text.rstrip("…")) for text in shown) for model in models)
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] / 2 - 20, steps=4)
    page.mouse.up()
    wait_for(page, "document.querySelectorAll('.chip').length === 2")
    chosen = [each.removeprefix("=") for each in parse_qs(page.url.partition("#")[2])["f.model"]]
    assert len(chosen) == 2
    kept = [each for each in rows if each["id"].partition("/")[2] in chosen]
    amount = sum(each["score"] is not None for each in kept)
    assert shown_rows(page) == f"{amount:,} of 1,600 rows"


@pytest.mark.parametrize("size", [2, 40])
def test_overview_draws_scores_that_differ_by_rounding(show, serve, size):
    scores = [0.3 + place * 2.0**-54 for place in range(size)]
    page = show(serve([row(f"r{place}", score) for place, score in enumerate(scores)]))
    wait_for(page, "document.querySelectorAll('.scatter svg text').length > 4")
    assert figure(page, "mean score") == "0.300"
    bars = page.locator(".score .bar").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert sum(int(each.split(": ")[1].split()[0]) for each in bars) == size
    assert len(bars) == (2 if size == 2 else 1)


def test_overview_filters_by_a_rectangle_of_a_narrow_scatter(show, serve):
    rows = [row(f"r{place}", 5000 + place / 100) for place in range(100)]
    page = show(serve(rows), "#x=score&y=score")
    plot = page.locator(".scatter g-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    wait_for(page, "document.querySelectorAll('.chip').length === 1")
    assert 35 < int(shown_rows(page).split()[0]) < 60


def test_overview_by_a_column_counts_rows_without_a_value(show, serve, tmp_path):
    rollouts = [rollout("a", model="m"), rollout("b", model="m"), rollout("c")]
    write_lines(tmp_path / "played.jsonl", rollouts)
    (tmp_path / "reward.py").write_text("def reward(action, observation): return 1.0\n")
    printed = run_guerdon(tmp_path, "score", "played.jsonl", "--reward", "reward.py:reward",
                          "--by", "model", "--json", "--out", "scored.jsonl")  # fmt: skip
    rows = {name: str(part["rows"]) for name, part in json.loads(printed)["by"].items()}
    page = show(serve(tmp_path / "scored.jsonl", rollouts=rollouts), "#by=model")
    assert {name: count for name, _, _, count, *_ in rows_of(page, ".parts")} == rows
    assert rows["(none)"] == "1"
    page.locator(".parts button", has_text="(none)").click()
    wait_for(page, "document.querySelector('.chips .amount').innerText === '1 of 3 rows'")


def test_list_shows_rows_with_their_text(at, recorded):
    rows = recorded.files["tau"].rows
    page = at("tau", "view=list")
    shown = listed_ids(page)
    assert len(shown) > 10
    assert shown == [each["id"] for each in rows][: len(shown)]
    scores = [f"{each['score']:.3f}" for each in rows]
    assert texts_of(page, ".line:not([hidden]) > .score") == scores[: len(shown)]
    turns = [str(len(each["step_rewards"])) for each in rows]
    assert texts_of(page, ".line:not([hidden]) > .turns") == turns[: len(shown)]
    assert all(texts_of(page, ".line:not([hidden]) > .text"))


@pytest.mark.parametrize("sort", ["score", "-score"])
def test_list_sorts_and_has_failures_last(at, recorded, sort):
    rows = recorded.files["failing"].rows[:40]
    page = at("failing", f"view=list&sort={sort}&f.group=={'&f.group=='.join(map(str, range(10)))}",
              viewport={"width": 1280, "height": 2000})  # fmt: skip
    valid = sorted(
        (each["score"] for each in rows if each["is_score_valid"]), reverse=sort[0] == "-"
    )
    failed = len(rows) - len(valid)
    assert failed > 0
    shown = texts_of(page, ".line:not([hidden]) > .score")
    assert shown == [f"{score:.3f}" for score in valid] + ["failed"] * failed


@pytest.mark.parametrize("is_report", [False, True])
def test_list_sorts_texts_and_has_rows_without_one_last(show, serve, write, tmp_path, is_report):
    errors = {"a": None, "b": "B: no", "c": None, "d": "A: no"}
    rows = [row(id, 1.0, error=error) for id, error in errors.items()]
    address = serve(rows)
    if is_report:
        run_guerdon(tmp_path, "view", str(write("rows.jsonl", rows)), "--out", "report.html")
        address = (tmp_path / "report.html").as_uri()
    page = show(address, "#view=list&sort=error")
    assert listed_ids(page) == ["d", "b", "a", "c"]
    go(page, "#view=list&sort=-error")
    assert listed_ids(page) == ["b", "d", "a", "c"]


def test_rollout_shows_messages_calls_and_steps(at, recorded):
    place = 2
    scored = recorded.files["tau"].rows[place]
    rollouts = (recorded.files["tau"].path.parent / "airline.jsonl").read_text().splitlines()
    messages = json.loads(rollouts[place])["messages"]
    page = at("tau", f"view=rollout&row={place}")
    assert page.locator("h1").inner_text() == scored["id"]
    assert texts_of(page, ".message .role") == [each["role"] for each in messages]
    calls = [call["function"]["name"] for each in messages for call in each.get("tool_calls") or ()]
    assert texts_of(page, ".call-name") == calls
    assert page.locator(".strip .step").count() == len(scored["step_rewards"])
    page.locator(".strip .step").nth(1).click()
    wait_for(page, "document.querySelector('.side h2').innerText === 'Step 1'")
    assert "step=1" in page.url
    assert signed(scored["steps"][1]["advantage"]) in page.locator(".beside.current").inner_text()


def test_rollout_that_failed_has_no_number(at, recorded):
    rows = recorded.files["failing"].rows
    place = next(place for place, each in enumerate(rows) if not each["is_score_valid"])
    page = at("failing", f"view=rollout&row={place}")
    assert page.locator(".title .tag.failed").inner_text() == "failed"
    assert "the judge is down" in page.locator(".note.is-failed").inner_text()
    assert "0.000" not in page.locator(".title").inner_text()
    assert "0.000" not in page.locator(".beside").inner_text()


def test_rollout_distinguishes_stopped_failed_and_zero(show, serve):
    tree = {
        "name": "", "value": None, "status": "failed", "children": [
            {"name": "gate", "value": 0.0, "status": "scored", "weight": 0.25, "seconds": 0.5,
             "reason": "too long"},
            {"name": "style", "value": None, "status": "skipped", "reason": "gate scored 0"},
            {"name": "judge", "value": None, "status": "failed", "error": "OSError: refused",
             "details": {"prompt": "Is it good?", "answer": "Yes."}},
        ],
    }  # fmt: skip
    page = show(serve([row("a", 0.0, trees=[tree])]), "#view=rollout&row=0")
    nodes = {
        line.locator("> .node .name").inner_text(): line for line in page.locator(".tree li").all()
    }
    assert nodes["gate"].locator(".value").inner_text() == "0.000"
    assert nodes["gate"].locator(".weight").inner_text() == "× 0.25"
    assert nodes["style"].locator(".value").inner_text() == "stopped"
    assert nodes["judge"].locator(".value").inner_text() == "failed"
    assert nodes["judge"].locator(".error").inner_text() == "OSError: refused"
    nodes["judge"].locator("summary").first.click()
    assert nodes["judge"].locator(".prose").first.inner_text() == "Is it good?"


@pytest.mark.parametrize("has_trees", [True, False])
def test_rollout_that_failed_opens_at_the_step_that_failed(show, serve, has_trees):
    tree = {"name": "", "value": 1.0, "status": "scored", "children": []}
    failed = row("a", None, error="step 1: OSError: refused", components={"right": 0.5})
    if has_trees:
        failed["trees"] = [tree, tree | {"value": None, "status": "failed", "error": "OSError: x"}]
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant")] * 3
    page = show(serve([failed], rollouts=[rollout("a", messages=turns)]), "#view=rollout&row=0")
    side = page.locator(".side")
    assert side.locator("h2").inner_text() == "Step 1"
    assert ("OSError: x" if has_trees else "0.500") in side.inner_text()
    go(page, "#view=rollout&row=0&step=2")
    assert side.locator(".tree").count() == (0 if has_trees else 1)
    about = "was not scored" if has_trees else "components of the whole rollout"
    assert about in side.inner_text()


def test_rollout_shows_the_components_of_each_step(show, serve):
    scored = row("a", 1.5, components={"right": 1.0, "long": 1.0}, step_rewards=[0.5, 1.0],
                 step_components=[{"right": 0.25, "long": 1.0}, {"right": 0.75}])  # fmt: skip
    page = show(serve([scored]), "#view=rollout&row=0")
    for step, values in ((0, ["0.500", "0.250", "1.000"]), (1, ["1.000", "0.750"])):
        go(page, f"#view=rollout&row=0&step={step}")
        assert texts_of(page, ".tree .value") == values
        assert "From the components of this step." in page.locator(".side").inner_text()


def test_rollout_with_a_handled_failure_has_its_number(show, serve):
    tree = {"name": "", "value": 0.5, "status": "failed", "error": "OSError: refused"}
    page = show(serve([row("a", 0.5, trees=[tree])]), "#view=rollout&row=0")
    assert page.locator(".strip .step").count() == 1
    assert page.locator(".strip .step.failed").count() == 0
    assert page.locator(".tree .value").inner_text().split() == ["failed", "0.500"]


def test_rollout_shows_numbers_as_they_were_written(show, serve):
    id, text = 1234567890123456789, '{"b": 12345678901234567890, "a": 1.0, "b": [], "c": "\\u00e9"}'
    page = show(serve([row(id, 1.0)], rollouts=[rollout(id, text + " " * 80)]), "#view=list")
    assert listed_ids(page) == [str(id)]
    go(page, "#view=rollout&row=0")
    assert page.locator("h1").inner_text() == str(id)
    shown = page.locator(".message.assistant pre").inner_text()
    assert shown == '{\n  "b": 12345678901234567890,\n  "a": 1.0,\n  "b": [],\n  "c": "é"\n}'


@pytest.mark.parametrize("group", [True, ["x", 1], 1.0, "g" * 300])
def test_rollout_opens_its_group(show, serve, group):
    rows = [row("a", 0.0), row("b", 1.0), row("c", 0.5, group=group), row("d", 0.5, group=group)]
    page = show(serve(rows), "#view=rollout&row=2")
    page.locator(".title a", has_text="group").click()
    wait_for(page, "document.querySelector('g-group h1') !== null")
    assert texts_of(page, ".lane header a") == ["c", "d"]


def test_group_shows_rollouts_side_by_side_and_the_steps_of_a_state(at, recorded):
    groups = recorded.files["tau"].printed["groups"]["by_group"]
    group = max(groups, key=lambda each: each["shared_steps"])["group"]
    own = [each for each in recorded.files["tau"].rows if each["group"] == group]
    page = at("tau", f"view=group&group={group}")
    assert texts_of(page, ".lane > header a") == [each["id"] for each in own]
    page.locator(".states button").nth(1).click()
    wait_for(page, "document.querySelectorAll('.states button')[1].ariaPressed === 'true'")
    [anchor] = parse_qs(page.url.partition("#")[2])["anchor"]
    steps = [
        [f"{step['base_reward']:.3f}", f"{step['return_to_go']:.3f}", signed(step["advantage"])]
        for each in own
        for step in each["steps"]
        if step["anchor"] == int(anchor)
    ]
    assert [cells[2:] for cells in rows_of(page, ".steps")] == steps
    page.keyboard.press("j")
    wait_for(page, f"document.querySelector('h1').innerText === 'group {group + 1}'")


def test_group_of_a_file_without_groups_ignores_the_keys(show, serve):
    page = show(serve([row("a", 1.0, group=None)]), "#view=group")
    assert "no groups" in page.locator("main .empty").inner_text()
    page.keyboard.press("j")
    page.wait_for_timeout(50)
    assert "group=" not in page.url.split("view=group")[1]


def test_diff_of_a_file_without_another_closes_the_row(show, serve):
    pair = {"id": "a", "group": "g", "before": row("a", 0.0), "after": row("a", 1.0)}
    page = show(serve([pair], [row("b", 1.0)]), "#row=0")
    assert page.locator(".diff-row h2").inner_text() == "a"
    go(page, "#file=1&view=diff&row=0")
    assert "Open two files" in page.locator("main .empty").inner_text()
    assert page.locator(".diff-row *").count() == 0


def test_diff_opens_a_row_with_both_trees(at, recorded):
    moved = recorded.files["diff"].printed["moved"][0]
    page = at("diff")
    page.locator(".moves button").first.click()
    page.wait_for_selector(".diff-row h2")
    assert page.locator(".diff-row h2").inner_text() == moved["id"]
    assert texts_of(page, ".diff-row .big") == [f"{moved['before']:.3f}", f"{moved['after']:.3f}"]
    assert page.locator(".diff-row .tree").count() == 2
    assert {"answered", "correct"} <= set(texts_of(page, ".diff-row .tree .name"))


def test_diff_shows_the_row_that_was_clicked_last(at, recorded):
    page = at("diff")
    second = recorded.files["diff"].printed["moved"][1]["id"]
    requests = []  # for the rows of the tables, and then for the row that is opened
    page.route("**/api/rows?*", lambda route: requests.append(route))
    for place in (0, 1):
        page.locator(".moves button").nth(place).click()
        wait_for(page, lambda place=place: len(requests) == 2 * place + 1)
        requests[2 * place].continue_()
        wait_for(page, lambda place=place: len(requests) == 2 * place + 2)
    requests[3].continue_()
    page.wait_for_selector(".diff-row h2")
    requests[1].continue_()  # the first answer comes last
    page.wait_for_timeout(300)
    assert page.locator(".diff-row h2").inner_text() == second


def test_diff_compares_two_files_of_rows(show, serve):
    before = [row("a", 0.25), row("b", 0.5), row("c", None), row("d", 1.0)]
    after = [row("d", 0.75), row("c", 1.0), row("a", 0.5), row("other", 0.0)]
    page = show(serve(before, after), "#view=diff")
    expected = {"valid in both": "2", "rose": "1", "fell": "1", "valid before only": "1",
                "valid after only": "1", "pairs flipped": "0"}  # fmt: skip
    assert {name: figure(page, name) for name in expected} == expected


def test_training_draws_runs_and_changes(show, serve, tmp_path):
    logs = [write_log(tmp_path, "first", 30), write_log(tmp_path, "second", 20)]
    page = show(serve(*logs))
    assert page.locator(".curves .main .curve").count() == 2
    assert page.locator(".curves .main .mark").count() == 2
    assert [cells[:2] for cells in rows_of(page, ".updates")] == [["1", "10"], ["2", "15"]]
    assert "style.weight: 0.2 → 0.4" in page.locator(".changes").inner_text()
    rewards = [
        [each["reward"] for each in read_lines(log) if each.get("reward") is not None]
        for log in logs
    ]
    shown = texts_of(page, ".curves .main .legend li")
    assert shown == ["last", *(f"{each[-1]:.3f}" for each in rewards)]
    titles = texts_of(page, ".curves .card h2")
    # Of each kind, what doesn't change is last.
    assert titles == ["reward", "right", "style", "weight of style", "weight of right"]
    page.locator(".runs input").last.uncheck()
    wait_for(page, "document.querySelectorAll('.curves .main .curve').length === 1")
    assert "runs=0" in page.url


def test_training_draws_numbers_of_any_size_and_leaves_out_records_without_a_step(show, serve):
    records = [
        {
            "kind": "step",
            "step": step,
            "reward": 1e300,
            "components": {"right": 0.5},
            "weights": {"right": 1.0},
        }
        for step in (5, 6, 7)
    ]
    without = records[0] | {"step": None, "components": {"right": 100.0}}
    page = show(serve([*records, without, without | {"step": "8"}]))
    assert texts_of(page, ".curves .main .legend li") == ["last", "1.00e+300"]
    paths = page.locator(".curves .curve").evaluate_all(
        "all => all.map(each => each.attributes.d.value)"
    )
    assert len(paths) == 3
    assert all(path.count("L") == 2 or "V" in path for path in paths), paths
    assert len({point.split()[1] for point in re.findall(r"[ML]([\d.]+ [\d.]+)", paths[1])}) == 1


def test_training_has_the_values_of_single_steps_of_a_long_log(show, serve, tmp_path):
    log = write_log(tmp_path, "long", 1000)  # the points of a curve are means of several steps
    page = show(serve(log))
    rewards = {each["step"]: each["reward"] for each in read_lines(log) if "reward" in each}
    legend = page.locator(".curves .main .legend li")
    assert legend.all_inner_texts() == ["last", f"{rewards[999]:.3f}"]
    plot = page.locator(".curves .main g-plot").bounding_box()
    for share in (0.2, 0.45, 0.7):
        page.mouse.move(plot["x"] + share * plot["width"], plot["y"] + 100)
        step, reward = legend.all_inner_texts()
        assert reward == f"{rewards[int(step.split()[1])]:.3f}"


def test_training_titles_change_the_beginning_of_a_name_only(show, serve, write):
    record = {"kind": "step", "step": 1, "reward": 1.0, "components": {"a.weights.b": 1.0}}
    page = show(serve(write("log.jsonl", [record])))
    assert texts_of(page, ".curves .card h2") == ["reward", "a.weights.b"]


def test_arena_hides_a_method(show, arena):
    page = show(arena[0])
    assert page.locator("g-plot .curve").count() == 2
    page.locator(".results button", has_text="grpo").click()
    wait_for(page, "document.querySelectorAll('g-plot .curve').length === 1")
    assert "without=grpo" in page.url


# Filters and addresses ----------------------------------------------------------------------------


def model_of(each):
    return each["id"].partition("/")[2]


FILTERS = {
    "f.score=[0,0]": lambda each: each["score"] == 0,
    "f.score=(0,1.2]": lambda each: each["score"] is not None and 0 < each["score"] <= 1.2,
    "f.score=none": lambda each: each["score"] is None,
    "f.score=none&f.score=[0,0]": lambda each: each["score"] in (None, 0),
    "f.group==2&f.group==3": lambda each: each["group"] in (2, 3),
    "f.group==absent": lambda each: False,
    "f.model==6b_finetuning&f.status==failed": lambda each: (
        model_of(each) == "6b_finetuning" and each["score"] is None
    ),
    "f.failure==ConnectionError": lambda each: each["score"] is None,
    "f.components.rubric_1.rubric_0=[1,1]": lambda each: (
        each["score"] is not None and each["components"].get("rubric_1.rubric_0") == 1
    ),
    "f.advantage.max=(0,]": lambda each: any(
        (step["advantage"] or 0) > 0 for step in each.get("steps", ())
    ),
    "q=175b_VER": lambda each: model_of(each) == "175b_verification",
    "q=judge is down": lambda each: each["score"] is None,
}


def test_filters_keep_the_rows_that_match(at, recorded):
    rows = recorded.files["failing"].rows
    page = at("failing", "view=list")
    for state, matches in FILTERS.items():
        wanted = [each["id"] for each in rows if matches(each)]
        assert wanted or "absent" in state, state
        go(page, f"#file={recorded.file('failing')}&view=list&{state}")
        assert shown_rows(page) == f"{len(wanted):,} of 1,600 rows", state
        shown = listed_ids(page)
        assert shown == wanted[: len(shown)], state


def test_search_finds_texts_of_messages(at, recorded):
    lines = (recorded.files["gsm8k"].path.parent / "solved.jsonl").read_text().splitlines()
    found = [line for line in lines if "lemonade" in "".join(
        each["content"] for each in json.loads(line)["messages"]).lower()]  # fmt: skip
    assert found
    page = at("gsm8k", "view=list")
    page.keyboard.press("/")
    page.keyboard.type("Lemonade")
    page.wait_for_selector(".chip")
    wait_for(page, "document.querySelector('.amount').innerText.includes(' of ')")
    assert shown_rows(page) == f"{len(found):,} of 1,600 rows"


def test_address_has_the_whole_state(at):
    page = at("failing")
    page.locator(".score .bar.zero").click()
    page.get_by_label("Column of the table").select_option("model")
    page.get_by_label("Column of the distribution").select_option("characters")
    page.get_by_label("Horizontal axis").select_option("characters")
    page.locator(".parts button", has_text="6b_finetuning").click()
    page.keyboard.press("/")
    page.keyboard.type("the")
    wait_for(page, "document.querySelectorAll('.chip').length === 3")
    page.locator(".head button", has_text="score").click()
    wait_for(page, "document.querySelector('.head .score').ariaSort === 'ascending'")
    state = page.evaluate(STATE)
    assert state["amount"].endswith("of 1,600 rows")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector("g-app[ready]")
    wait_for(other, "document.querySelector('.scatter select') !== null")
    assert other.evaluate(STATE) == state


STATE = """() => ({
    amount: document.querySelector(".amount").innerText,
    chips: [...document.querySelectorAll(".chip")].map(each => each.innerText),
    chosen: [...document.querySelectorAll("select")].map(each => each.selectedOptions[0].innerText),
    sorted: document.querySelector(".head .score").getAttribute("aria-sort"),
    bars: document.querySelectorAll(".bar[aria-pressed=true]").length,
    search: document.querySelector("input[type=search]").value,
})"""


@pytest.mark.parametrize(
    ("state", "selector", "text"),
    [
        ("view=rollout&row=3&step=0", ".side h2", "Step 0"),
        ("view=group&group=5", "h1", "group 5"),
        ("view=list&f.group==7", ".amount", "2 of 100 rows"),
    ],
)
def test_address_opens_a_state_in_a_new_browser(at, state, selector, text):
    page = at("tau", state)
    wait_for(page, f"document.querySelector({selector!r}).innerText === {text!r}")


def test_address_of_a_step_scrolls_to_its_turn(at):
    page = at("tau", "view=rollout&row=1&step=9")
    page.wait_for_selector(".turn.current")
    top = page.locator(".turn.current").bounding_box()["y"]
    assert 0 <= top < 800, "it is out of sight"


# Keyboard ----------------------------------------------------------------------------------------


def test_keyboard_moves_opens_and_searches(at, recorded):
    ids = [each["id"] for each in recorded.files["tau"].rows]
    page = at("tau", "view=list")
    for key in ("j", "j", "k", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("g-rollout h1")
    assert page.locator("g-rollout h1").inner_text() == ids[0]
    page.keyboard.press("j")
    wait_for(page, f"document.querySelector('h1').innerText === '{ids[1]}'")
    page.keyboard.press("Escape")
    page.wait_for_selector("g-list")
    wait_for(page, f"document.querySelector('.line.current').innerText.startsWith('{ids[1]}')")
    page.keyboard.press("/")
    page.keyboard.type("jo?")
    assert page.locator("input[type=search]").input_value() == "jo?"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert "next row" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    for key, view in (("o", "overview"), ("g", "group"), ("r", "rollout"), ("l", "list")):
        page.keyboard.press(key)
        page.wait_for_selector(f"g-{view}")


def test_keyboard_reaches_the_end_of_the_list(at, recorded):
    page = at("gsm8k", "view=list")
    page.locator(".scroller").focus()
    page.keyboard.press("End")
    last = recorded.files["gsm8k"].rows[-1]["id"]
    wait_for(page, f"document.querySelector('.scroller').innerText.includes('{last}')")
    assert page.locator(".line").count() < 60
    page.keyboard.press("Enter")
    wait_for(page, f"document.querySelector('h1')?.innerText === '{last}'")


def test_keyboard_presses_the_bars_of_a_histogram(at, recorded):
    failed = recorded.files["failing"].printed["failed"]
    page = at("failing")
    page.locator(".score .bar").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # from the first bar to the last, which is of failures
    page.keyboard.press("Enter")
    page.wait_for_selector(".chip")
    assert shown_rows(page) == f"{failed:,} of 1,600 rows"
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("failed")


# Theme and size ----------------------------------------------------------------------------------


def test_theme_changes_and_is_remembered(at):
    background = "getComputedStyle(document.documentElement).backgroundColor"
    page = at("tau", "view=list", color_scheme="light")
    light = page.evaluate(background)
    page.keyboard.press("t")
    page.keyboard.press("t")
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    page.wait_for_selector("g-app[ready]")
    assert page.evaluate(background) == dark


@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_not_wider_than_the_screen(at, recorded, width):
    page = at("tau", viewport={"width": width, "height": 740})
    for name in ("tau", "failing", "diff"):
        for view in ("overview", "list", "rollout&row=3", "group", "diff"):
            go(page, f"#file={recorded.file(name)}&view={view}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, view)


def test_page_has_no_layout_shift(at):
    page = at("failing")
    page.wait_for_timeout(200)
    shifts = page.evaluate(SHIFTS)
    assert sum(shifts) <= 0.02, shifts


SHIFTS = """() => new Promise(resolve => {
    new PerformanceObserver(list => resolve(list.getEntries().map(each => each.value)))
        .observe({ type: "layout-shift", buffered: true });
    setTimeout(() => resolve([]), 300);
})"""


def test_address_has_no_token(at):
    assert not re.search("token", at("tau").url)


# Gates, large groups, marks -----------------------------------------------------------------------


def test_overview_counts_each_gate_and_filters_by_it(show, serve):
    stops = [["a"], ["a", "b"], ["b"], None, [""]]
    rows = [
        row(f"r{place}", 0.0, **({} if each is None else {"stopped_by": each}))
        for place, each in enumerate(stops)
    ]
    page = show(serve(rows))
    names, amounts = (texts_of(page, f".meter.stopped_by .{part}") for part in ("name", "amount"))
    assert dict(zip(names, amounts, strict=True)) == {"a": "2", "b": "2", "the reward itself": "1"}
    page.locator(".meter.stopped_by", has_text=re.compile("^b")).click()
    wait_for(page, "document.querySelectorAll('.chip').length === 1")
    assert shown_rows(page) == "2 of 5 rows"
    assert listed_ids(page) == ["r1", "r2"]


def test_list_has_the_numbers_of_components_and_sorts_by_them(show, serve):
    values = [0.5, 0.25, None, 1.0]
    rows = [row(f"r{place}", value) for place, value in enumerate(values)]
    page = show(serve(rows), "#view=list")
    assert texts_of(page, ".line:not([hidden]) > .component") == ["0.5", "0.25", "–", "1"]
    page.get_by_label("Sort by").select_option("components.right")
    wait_for(page, "location.hash.includes('sort=components.right')")
    page.get_by_label("Reverse the order").click()
    wait_for(page, "location.hash.includes('sort=-components.right')")
    assert listed_ids(page) == ["r3", "r0", "r1", "r2"]


def test_rollout_shows_the_columns_of_the_task_and_the_gates(show, serve):
    scored = row("a", 0.0, stopped_by=["format", ""])
    rollouts = [rollout("a", level="hard", expected=18, notes="long " * 40)]
    page = show(serve([scored], rollouts=rollouts), "#view=rollout&row=0")
    assert texts_of(page, ".facts dt") == ["level", "expected"]
    assert texts_of(page, ".facts dd") == ["hard", "18"]
    assert page.locator(".title .skipped").inner_text() == "stopped by format, the reward itself"
    assert "notes" in texts_of(page, ".conversation summary")


@pytest.mark.parametrize("size", [30, 201])
def test_group_writes_out_the_arithmetic_of_a_large_group(show, serve, size):
    scores = [place % 3 / 2 for place in range(size)]
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
    steps = [
        [{"step_index": 0, "base_reward": each, "return_to_go": each,
          "advantage": (each - mean) / (deviation + 1e-6)}]
        for each in scores
    ]  # fmt: skip
    rows = [row(f"r{place}", scores[place], steps=steps[place]) for place in range(size)]
    page = show(serve(rows), "#view=group")
    assert page.locator(".lane").count() == 24
    shown = page.locator(".arithmetic").inner_text()
    if size == 30:
        assert f"= {signed(steps[0][0]['advantage'])}" in page.locator(".formula").inner_text()
        assert "GRPO" in shown
    else:
        assert "groups of at most 200 rollouts; this one has 201." in shown


def test_group_shows_where_rollouts_differ(show, serve):
    def spoken(id, *texts):
        messages = [{"role": "user", "content": "Hi"}]
        messages += [{"role": "assistant", "content": text} for text in texts]
        return {"id": id, "messages": messages}

    rollouts = [spoken("a", "one", "two"), spoken("b", "one", "three"), spoken("c", "four")]
    page = show(serve([row(id, 0.0) for id in "abc"], rollouts=rollouts), "#view=group")
    assert "All begin with the same message" in page.locator(".beside-each-other").inner_text()
    lanes = [lane.locator("li").all_inner_texts() for lane in page.locator(".lane").all()]
    assert [[line for line in lane if line.startswith("same as ")] for lane in lanes] == [
        ["same as b until here"], ["same as a until here"], [],
    ]  # fmt: skip


def test_diff_counts_the_flipped_pairs_of_a_large_group(show, serve):
    chance = random.Random(0)
    before, after = ([chance.randint(0, 50) / 50 for _ in range(4000)] for _ in range(2))
    rows = [
        {"id": f"r{place}", "group": "g", "before": row("", a), "after": row("", b)}
        for place, (a, b) in enumerate(zip(before, after, strict=True))
    ]
    page = show(serve(rows))
    assert figure(page, "pairs flipped") == f"{count_pairs(before, after).flipped:,}"
    for _, _, first, _, second in rows_of(page, ".pairs"):
        (was, became), (others, other) = (map(float, each.split(" → ")) for each in (first, second))
        assert was > others
        assert became < other


def test_diff_marks_the_rubrics_that_changed(show, serve):
    sides = {
        side: row("", score, components={"same": 1.0, "other": score, "other.part": 0.25})
        for side, score in (("before", 0.5), ("after", 0.75))
    }
    page = show(serve([{"id": "a", "group": "g", **sides}]), "#row=0")
    marked = [
        texts_of(page, f".diff-row .halves > section:nth-child({place}) .changed > .node .name")
        for place in (1, 2)
    ]
    assert marked == [["reward", "other"]] * 2


def test_training_draws_weights_as_steps_and_counts_failures(show, serve, write):
    def record(step):
        failed = {"invalid": {"style": "TimeoutError"}} if step % 4 == 0 else {}
        weights = {"style": 0.2 if step < 10 else 0.5}
        return {"kind": "step", "step": step, "reward": step / 20, "weights": weights, **failed}

    change = {"what": "style.weight", "from": 0.2, "to": 0.5, "who": "anna"}
    records = [record(step) for step in range(20)]
    records.insert(10, {"kind": "config", "step": 10, "change": change})
    page = show(serve(write("first.jsonl", records), write("second.jsonl", records)))
    cards = {card.locator("h2").inner_text(): card for card in page.locator(".curves .card").all()}
    path = cards["weight of style"].locator("g-plot .curve").first.get_attribute("d")
    assert re.fullmatch(r"M[\d. ]+h0\.1(H[\d.]+V[\d.]+)+", path)
    assert cards["share of failures of style"].locator("li").all_inner_texts() == [
        "last", "0.000", "0.000",
    ]  # fmt: skip
    assert rows_of(page, ".updates") == [
        ["1", "10", "style.weight: 0.2 → 0.5", "first.jsonl, second.jsonl", "anna"]
    ]
    assert cards["reward"].locator(".mark text").all_text_contents() == ["style.weight: 0.2 → 0.5"]
    plot = cards["reward"].locator("g-plot").bounding_box()
    page.mouse.move(plot["x"] + 47, plot["y"] + 100)
    assert cards["reward"].locator("li").all_inner_texts() == ["step 0", "0.000", "0.000"]
    colours = page.locator(".runs label").last.locator("path").get_attribute("style")
    page.locator(".runs input").first.uncheck()
    wait_for(page, "document.querySelectorAll('.curves .main .curve').length === 1")
    assert cards["reward"].locator("g-plot .curve").get_attribute("style") == colours
