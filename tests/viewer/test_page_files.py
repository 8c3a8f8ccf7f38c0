"""The page of ``guerdon view``: files that grow, that are bad or large, and reports."""

import json

import pytest

from tests.viewer.conftest import rollout, row, write_log
from tests.viewer.page import (
    figure,
    figures,
    go,
    read_lines,
    rows_of,
    run_guerdon,
    texts_of,
    wait_for,
    write_lines,
)

pytestmark = pytest.mark.browser


def note_of(page):
    return page.locator(".chips").inner_text()


# Files that grow ----------------------------------------------------------------------------------


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_training_follows_a_log_that_grows(show, serve, tmp_path):
    whole = write_log(tmp_path, "run", 40).read_text().splitlines(keepends=True)
    path = tmp_path / "growing.jsonl"
    path.write_text("".join(whole[:10]))
    page = show(serve(path))
    assert "10 records" in page.locator(".runs").inner_text()
    assert page.locator(".changes tr").count() == 0
    last = page.locator(".curves .main .legend").inner_text()
    append(path, "".join(whole[10:]))
    wait_for(page, f"document.querySelector('.runs').innerText.includes('{len(whole)} records')")
    assert page.locator(".curves .main .legend").inner_text() != last
    wait_for(page, "document.querySelectorAll('.changes tbody tr').length === 1")


def test_list_and_overview_follow_rows_that_are_added(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row("a", 1.0), row("b", 0.0)])
    page = show(serve(path), "#f.score=[1,1]")
    assert page.locator(".chips .amount").inner_text() == "1 of 2 rows"
    append(path, json.dumps(row("c", 1.0)) + "\n" + json.dumps(row("d", None))[:20])
    wait_for(page, "document.querySelector('.chips .amount').innerText === '2 of 3 rows'")
    append(path, json.dumps(row("d", None))[20:] + "\n")
    wait_for(page, "document.querySelector('.chips .amount').innerText === '2 of 4 rows'")
    page.locator(".chip").click()
    wait_for(page, "document.querySelector('.chips .amount').innerText === '4 rows'")
    wait_for(page, lambda: figure(page, "failed") == "1")
    wait_for(page, "document.querySelector('.scroller').innerText.includes('d')")


def test_views_follow_rows_that_are_scored_again(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row("a", 1.0), row("b", 1.0)])
    page = show(serve(path, rollouts=[rollout("a", "Hello")]))
    write_lines(path, [row("a", 0.5), row("b", 0.5)])
    wait_for(page, "document.querySelector('.figures').innerText.includes('0.500')")
    go(page, "#view=rollout&row=0")
    write_lines(path, [row("a", 0.25), row("b", 0.25)])
    wait_for(page, "document.querySelector('.score-of').innerText.includes('0.250')")
    write_lines(tmp_path / "rollouts.jsonl", [rollout("a", "Bye")])
    wait_for(page, "document.querySelector('.messages').innerText.includes('Bye')")


def test_rollout_of_a_file_that_grows_stays_unfolded(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row("a", 1.0)])
    page = show(serve(path, rollouts=[rollout("a", prompt="x" * 200)]), "#view=rollout&row=0")
    page.locator(".conversation summary").click()
    append(path, json.dumps(row("b", 1.0)) + "\n")
    wait_for(page, "document.querySelector('.title').innerText.includes('1 of 2')")
    assert page.locator(".conversation details").get_attribute("open") is not None


def test_rollout_is_shown_again_after_a_row_that_does_not_exist(show, serve):
    page = show(serve([row("a", 1.0)]), "#view=rollout&row=0")
    go(page, "#view=rollout&row=9")
    assert page.locator("g-rollout").inner_text() == "There is no such row."
    go(page, "#view=rollout&row=0")
    assert page.locator("h1").inner_text() == "a"


def test_list_that_grows_stays_where_it_was_scrolled_to(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row(f"r{each}", 1.0) for each in range(100)])
    page = show(serve(path), "#view=list")
    for _ in range(60):
        page.keyboard.press("j")
    top = page.evaluate("document.querySelector('.scroller').scrollTop")
    append(path, json.dumps(row("new", 1.0)) + "\n")
    wait_for(page, "document.querySelector('.chips .amount').innerText === '101 rows'")
    assert page.evaluate("document.querySelector('.scroller').scrollTop") == top > 0
    wait_for(page, "document.querySelector('.line.current').innerText.startsWith('r59')")


def test_page_says_that_a_file_was_removed(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row("a", 1.0)])
    page = show(serve(path), tolerated="Failed to load resource")
    lines = path.read_text()
    path.unlink()
    page.wait_for_selector(".status .is-failed")
    assert "rows.jsonl: No such file" in page.locator(".status").inner_text()
    path.write_text(lines)
    wait_for(page, "!document.querySelector('.status').innerText")


# Bad and large files ------------------------------------------------------------------------------


def test_page_shows_rows_of_other_schemas(show, serve, tmp_path):
    lines = [
        row("a", 1.0),
        {"id": "b", "score": 0.5, "components": {"style": 0.5}, "language": "en"},
        {"score": None, "components": None, "error": "JudgeError: no answer"},
        {"id": {"x": 1}, "group": ["y"], "score": "high", "components": {"right": "high"}},
        {"kind": "step", "step": 3},
    ]
    path = write_lines(tmp_path / "rows.jsonl", lines)
    append(path, "[1, 2]\nnot JSON\n")
    page = show(serve(path))
    assert figure(page, "rows") == "7"
    assert figure(page, "mean score") == "0.750"
    assert figure(page, "failed") == "5"
    assert "3 rows of rows.jsonl can't be read" in note_of(page)
    shown = []
    for place in range(7):
        go(page, f"#view=rollout&row={place}")
        shown.append(page.locator(".title :is(.tag, .big)").inner_text())
    assert shown == ["1.000", "0.500", "failed", "failed", "failed", "unreadable", "unreadable"]
    assert page.locator("g-rollout pre.code").inner_text().strip() == "not JSON"


def test_rollout_and_group_show_rows_whose_lists_are_something_else(show, serve):
    trees = [{"name": 5, "children": "x"}, None, 7]
    rows = [
        row("a", float("nan"), step_rewards=[float("nan")]),
        row("b", 0.5, steps="x", step_rewards="x", trees="x", stopped_by="x", notes="x"),
        row("c", 0.5, steps=[None, 5], step_rewards=[0.25, 0.5, 0.5], trees=trees, error=5),
    ]
    calls = [{"role": "assistant", "tool_calls": given} for given in ("x", [None, {"function": 5}])]
    rollouts = [
        {"id": "a", "messages": "x"},
        {"id": "b", "messages": [None, 5, {"role": 7, "content": {"x": 1}}, *calls]},
    ]
    page = show(serve(rows, rollouts=rollouts))
    for view in ("group", "rollout&row=0", "rollout&row=1", "rollout&row=2&step=1"):
        go(page, f"#view={view}")


def test_page_shows_that_a_file_is_cut_off(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row("a", 1.0), row("b", 0.0)])
    append(path, json.dumps(row("c", 1.0))[:30])
    page = show(serve(path))
    assert figure(page, "rows") == "2"
    assert "the last line of rows.jsonl is cut off" in note_of(page)


def test_page_shows_that_a_row_is_too_large(show, serve, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [row("a", 1.0)])
    with path.open("a") as file:
        file.write('{"id": "large", "score": 1.0, "components": {}, "reason": "')
        for _ in range(100):
            file.write("x" * 1_000_000)
        file.write('"}\n' + json.dumps(row("c", 0.5)) + "\n")
    size = path.read_bytes().index(b"\n{", 100_000_000) - path.read_bytes().index(b"\n")
    page = show(serve(path), "#view=list")
    wait_for(page, "document.querySelector('.scroller').innerText.includes('large')")
    assert "1 rows of rows.jsonl can't be read" in note_of(page)
    go(page, "#view=rollout&row=1")
    assert f"This row has {size:,} bytes" in page.locator("g-rollout").inner_text()
    go(page, "#view=rollout&row=2")
    assert page.locator("h1").inner_text() == "c"


def test_page_shows_that_a_rollout_is_too_large(show, serve):
    rollouts = [rollout("a", "y" * 9_000_000), rollout("b", "bee")]
    page = show(serve([row("a", 1.0), row("b", 0.5)], rollouts=rollouts), "#view=rollout&row=1")
    assert "bee" in page.locator(".conversation").inner_text()
    go(page, "#view=rollout&row=0")
    assert "which is more than is shown" in page.locator("g-rollout").inner_text()
    assert page.locator("h1").inner_text() == "a"
    assert "1 rows of rollouts.jsonl can't be read" in note_of(page)


def test_page_shows_500_of_a_million_columns(show, serve):
    rows = [
        row(f"r{number}", 1.0, components={f"c{number}.{place}": 0.5 for place in range(1000)})
        for number in range(1000)
    ]
    page = show(serve(rows))
    assert figure(page, "rows") == "1,000"
    assert "the first 500 columns of 0.jsonl are shown" in note_of(page)
    assert 100 < page.locator(".means tbody tr").count() <= 500
    go(page, "#view=list&f.components.c0.7=[0.5,0.5]")
    assert page.locator(".chips .amount").inner_text() == "1 of 1,000 rows"


def test_page_counts_ids_given_twice_and_rows_without_a_rollout(show, serve):
    rows = [row("a", 1.0), row("a", 0.5), row("b", 0.0), row("c", 0.0)]
    page = show(serve(rows, rollouts=[rollout("a"), rollout("x")]))
    shown = figures(page)
    assert (shown["ids given twice"], shown["without rollout"]) == ("1", "2")
    go(page, "#view=rollout&row=2")
    assert "There is no rollout with this id" in page.locator("g-rollout").inner_text()


# Reports ------------------------------------------------------------------------------------------


def test_report_works_from_a_file_without_a_network(show, recorded, tmp_path):
    folder = recorded.files["tau"].path.parent
    names = [each.path.name for each in recorded.files.values()]
    out = tmp_path / "report.html"
    line = run_guerdon(folder, "view", *names, "--rollouts", "rollouts.jsonl", "--out", str(out))
    assert f"{out.stat().st_size / 1e6:.2f} MB" in line
    served = show(recorded.address)
    page = show(out.as_uri(), offline=True)
    for name in recorded.files:
        for view in ("overview", "diff"):
            state = f"#file={recorded.file(name)}&view={view}"
            go(page, state)
            go(served, state)
            assert figures(page) == figures(served)
    states = {
        "view=rollout&row=4": (".message", ".beside", ".tree .name"),
        "view=group&group=11": ("h1", ".state", ".formula", ".lane > header"),
        "view=list&sort=-id&q=refund": (".chips .amount", ".head"),
        "view=list&q=get_reservation_details": (".chips .amount",),  # in tool calls alone
        "view=list&f.score=[1,1]": (".chips .amount",),
    }
    for state, selectors in states.items():
        go(page, f"#{state}")
        go(served, f"#{state}")
        for selector in selectors:
            assert texts_of(page, selector) == texts_of(served, selector), (state, selector)
            assert texts_of(page, selector)


def test_report_lists_calls_as_the_served_page_does(show, serve, tmp_path):
    calls = [{"function": {"name": name, "arguments": '{"at": 1}'}} for name in ("look", "go")]
    messages = [{"role": "assistant", "content": None, "tool_calls": calls}]
    address = serve([row("a", 1.0)], rollouts=[{"id": "a", "messages": messages}])
    files = ("0.jsonl", "--rollouts", "rollouts.jsonl")
    run_guerdon(tmp_path, "view", *files, "--out", "report.html")
    for page in (
        show(address, "#view=list"),
        show((tmp_path / "report.html").as_uri() + "#view=list"),
    ):
        wait_for(page, "document.querySelector('.line > .text').innerText !== ''")
        assert texts_of(page, ".line:not([hidden]) > .text") == ['look("at": 1); go("at": 1)']


def test_report_of_a_sample_has_a_note(show, recorded, tmp_path):
    folder = recorded.files["gsm8k"].path.parent
    out = tmp_path / "report.html"
    run_guerdon(folder, "view", "gsm8k.jsonl", "--out", str(out), "--sample", "40")
    page = show(out.as_uri(), offline=True)
    assert figure(page, "rows") == "40"
    assert "a random sample of 40 of 1,600 rows" in note_of(page)
    assert len(read_lines(folder / "gsm8k.jsonl")) == 1600


def test_report_of_a_sample_of_a_log_has_a_note(show, tmp_path):
    write_log(tmp_path, "run", 40)
    out = tmp_path / "report.html"
    run_guerdon(tmp_path, "view", "run/rewards.jsonl", "--out", str(out), "--sample", "10")
    assert note_of(show(out.as_uri(), offline=True)) == "a random sample of 10 of 41 rows"


def test_report_sorts_and_compares_like_the_server(show, serve, tmp_path):
    ids = [7, "b", None, "a", "a", None]
    rows = [row(id, place / 8 if place else None) for place, id in enumerate(ids)]
    others = [row(id, place / 4) for place, id in enumerate(["a", None, "7", "a", "b", "c"])]
    write_lines(tmp_path / "one.jsonl", rows)
    write_lines(tmp_path / "other.jsonl", others)
    run_guerdon(tmp_path, "view", "one.jsonl", "other.jsonl", "--out", "report.html")
    pages = [
        show((tmp_path / "report.html").as_uri(), offline=True),
        show(serve(tmp_path / "one.jsonl", tmp_path / "other.jsonl")),
    ]
    for sort in ("id", "-id", "error", "-error"):
        for page in pages:
            go(page, f"#view=list&sort={sort}")
            wait_for(page, "!document.querySelector('.space').innerText.includes('…')")
        first, second = (texts_of(page, ".line:not([hidden])") for page in pages)
        assert first == second, sort
        assert "failed" in first[0] or "error" not in sort
    for page in pages:
        go(page, "#view=diff")
        assert [each[:3] for each in rows_of(page, ".moves")] == [
            ["b", "0.125", "1.000"], ["a", "0.375", "0.000"], ["a", "0.500", "0.750"],
        ]  # fmt: skip
        assert figures(page)["valid in both"] == "3"
        assert figures(page)["valid after only"] == "1"
