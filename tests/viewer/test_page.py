"""The page of ``guerdon view`` in Chromium."""

import json
import re
import time

import pytest

from guerdon.rollouts import ScoringJob
from guerdon.rollouts.crediting import CreditSettings
from guerdon.rollouts.scoring.summary import Summary
from tests.viewer.page import File, Server, browser, chromium_path, column_mean, opened

pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
if chromium_path() is None:
    pytest.skip("there is no Chromium on this machine", allow_module_level=True)

REWARD = '''
from guerdon import Gate, Rubric, Sequential, WeightedSum

class Polite(Rubric):
    """The text contains please."""
    def forward(self, action, observation):
        return float("please" in action.content)

class Short(Rubric):
    """The shorter, the better."""
    def forward(self, action, observation):
        if "boom" in action.content:
            raise ConnectionError("the judge is down")
        return max(0.0, 1 - len(action.content) / 40)

reward = Sequential(Gate(Polite()), WeightedSum([Polite(), Short()], weights=[1.0, 0.5]))
'''
TEXTS = ["please help", "do it", "please, please help me now", "boom please", "please", "no"]
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}

NO_PENDING_ROW = """
    ![...document.querySelectorAll(".line:not([hidden]) .id")].some(each => each.innerText === "…")
"""

HOSTILE = [
    "<script>window.executed = true</script>",
    "<img src=x onerror='window.executed = true'>",
    "<svg onload='window.executed = true'>",
    "<iframe srcdoc='<script>parent.executed = true</script>'></iframe>",
    "<a href='javascript:window.executed = true'>click</a>",
    "javascript:window.executed=true",
    '"><script>window.executed = true</script>',
    "'><img src=x onerror=window.executed=true>",
    "</textarea><script>window.executed = true</script>",
    "</script><script>window.executed = true</script>",
    "<style>body { display: none }</style>",
    "<link rel=stylesheet href=http://evil.test/x.css>",
    "<meta http-equiv=refresh content='0;url=http://evil.test/'>",
    "<base href=http://evil.test/>",
    "<form action=http://evil.test/><input name=q></form>",
    "<object data=http://evil.test/x></object>",
    "<math><mtext><img src=x onerror=window.executed=true></mtext></math>",
    "<details open ontoggle=window.executed=true>",
    "<body onload=window.executed=true>",
    "<!-- --><script>window.executed = true</script>",
    "{{constructor.constructor('window.executed = true')()}}",
    "${window.executed = true}",
    "`${window.executed = true}`",
    "url(javascript:window.executed=true)",
    "http://evil.test/?track",
    "![picture](http://evil.test/picture.png)",
    "[click](javascript:window.executed=true)",
    "data:text/html,<script>window.executed=true</script>",
    "\u202eevil\u202c",
    "\u2066isolated\u2069 \u200fmark",
    "\u0000\u0001\u0007\u001b[31mred\u001b[0m",
    "zero\u200bwidth\ufeffspace\u2060",
    "z\u0337\u0321" * 50,
    "W" * 5000,
    "\U000e0041\U000e0042tags",
    "__proto__",
    "constructor",
    "=cmd|' /C calc'!A0",
    "%3Cscript%3Ewindow.executed=true%3C/script%3E",
    "\u2028window.executed = true\u2029",
]


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened_browser:
        yield opened_browser


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Rollouts in groups of four, their rows with advantages, and the summary of the command."""
    folder = tmp_path_factory.mktemp("scored")
    rollouts = [rollout(group, member) for group in range(6) for member in range(4)]
    (folder / "reward.py").write_text(REWARD)
    lines = "".join(json.dumps(each) + "\n" for each in rollouts)
    (folder / "rollouts.jsonl").write_text(lines)
    job = ScoringJob(
        str(folder / "rollouts.jsonl"),
        f"{folder / 'reward.py'}:reward",
        str(folder / "scored.jsonl"),
        credit=CreditSettings("gigpo", "last", {"gamma": 0.9, "omega": 0.5}),
    )
    summary = job.run().summary
    rows = [json.loads(line) for line in (folder / "scored.jsonl").read_text().splitlines()]
    file = File("scored.jsonl", rows, {each["id"]: each for each in rollouts})
    return file, summary


def rollout(group, member):
    texts = [TEXTS[(group + member * turn + turn) % len(TEXTS)] for turn in range(2)]
    messages = [{"role": "system", "content": "Be polite."}, {"role": "user", "content": "a door"}]
    messages += [
        {"role": "assistant", "content": texts[0], "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": ["it is shut", "it is open"][member % 2]},
        {"role": "assistant", "content": texts[1]},
    ]  # fmt: skip
    model = "small" if member < 2 else "large"
    return {"id": f"{group}-{member}", "group": group, "model": model, "messages": messages}


@pytest.fixture
def server(scored):
    return Server(scored[0])


def texts_of(page, selector):
    return page.locator(selector).all_inner_texts()


def wait_for(page, condition, timeout_s=10.0):
    """Wait for an expression; playwright's own `wait_for_function` is refused by the policy."""
    end = time.monotonic() + timeout_s
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition} is still false"
        page.wait_for_timeout(20)


def figure(page, name):
    line = page.locator(f".figures dl > div:has(dt:text-is('{name}')) dd")
    return line.evaluate("each => each.firstChild.textContent")


def shown_rows(page):
    return page.locator(".chips .amount").inner_text()


# Numbers ------------------------------------------------------------------------------------------


def test_overview_has_the_numbers_of_the_summary(chromium, scored, server):
    _, summary = scored
    with opened(chromium, server) as page:
        assert figure(page, "rows") == str(summary.rows)
        assert figure(page, "mean score") == f"{summary.score.value:.3f}"
        assert figure(page, "scored 0") == str(summary.zeros)
        assert figure(page, "failed") == str(summary.failed)
    assert summary.failed > 0
    assert summary.zeros > 0


def test_overview_has_the_means_of_components(chromium, scored, server):
    file, summary = scored
    names = [name for name in summary.components if not name.endswith("/mean")]
    with opened(chromium, server) as page:
        lines = page.locator(".means tbody tr").all()
        found = {
            line.locator("th").inner_text(): line.locator("td").first.inner_text().split()[0]
            for line in lines
        }
    assert found == {name: f"{summary.components[name].value:.3f}" for name in names}
    assert found["rubric_0"] == f"{column_mean(file.rows, 'rubric_0'):.3f}"


def test_overview_by_column_has_the_parts_of_the_summary(chromium, scored, server):
    file, _ = scored
    parts = {"small": Summary(), "large": Summary()}
    for row in file.rows:
        parts[file.rollouts[row["id"]]["model"]].add(row)
    with opened(chromium, server, "#by=model") as page:
        lines = [
            line.locator("th, td").all_inner_texts()
            for line in page.locator(".parts tbody tr").all()
        ]
    found = {
        name: (rows, mean.split()[0], zeros, failed) for name, mean, _, rows, zeros, failed in lines
    }
    assert found == {
        name: (str(each.rows), f"{each.score.value:.3f}", str(each.zeros), str(each.failed))
        for name, each in parts.items()
    }


def test_histogram_has_failures_and_zeros_apart(chromium, scored, server):
    _, summary = scored
    with opened(chromium, server) as page:
        zero = page.locator(".score .bar.zero").get_attribute("aria-label")
        failed = page.locator(".score .bar.failed").get_attribute("aria-label")
    assert zero == f"score is 0: {summary.zeros} of {summary.zeros} rows"
    assert failed == f"failed: {summary.failed} of {summary.failed} rows"


def test_rollout_has_the_numbers_of_each_step(chromium, scored, server):
    file, _ = scored
    place = next(place for place, row in enumerate(file.rows) if row["score"])
    row = file.rows[place]
    with opened(chromium, server, f"#view=rollout&row={place}") as page:
        beside = [each.splitlines() for each in texts_of(page, ".beside")]
        tree = texts_of(page, ".tree .name")
    assert [lines[2::2] for lines in beside] == [
        [f"{reward:.3f}", f"{step['return_to_go']:.3f}", signed(step["advantage"])]
        for reward, step in zip(row["step_rewards"], row["steps"], strict=True)
    ]
    assert tree[0] == "reward"
    assert {"rubric_0", "rubric"} <= set(tree)


def signed(value):
    return f"+{value:.3f}" if value > 0 else f"{value + 0.0:.3f}"


def test_rollout_that_failed_has_no_number(chromium, scored, server):
    file, _ = scored
    place = next(place for place, row in enumerate(file.rows) if not row["is_score_valid"])
    with opened(chromium, server, f"#view=rollout&row={place}") as page:
        assert page.locator(".title .tag.failed").inner_text() == "failed"
        assert "the judge is down" in page.locator(".note.is-failed").inner_text()
        assert "0.000" not in page.locator(".side").inner_text()


def test_tree_distinguishes_stopped_failed_and_zero(chromium, scored):
    file, _ = scored
    tree = {
        "name": "", "value": None, "status": "failed", "children": [
            {"name": "gate", "value": 0.0, "status": "scored", "weight": 0.25, "seconds": 0.5,
             "reason": "too long"},
            {"name": "style", "value": None, "status": "skipped", "reason": "gate scored 0"},
            {"name": "judge", "value": None, "status": "failed", "error": "OSError: refused",
             "prompt": "Is it good?", "answer": "Yes."},
        ],
    }  # fmt: skip
    rows = [{**file.rows[0], "trees": [tree, tree]}]
    with opened(
        chromium, Server(File("a.jsonl", rows, file.rollouts)), "#view=rollout&row=0"
    ) as page:
        nodes = {
            line.locator("> .node .name").inner_text(): line
            for line in page.locator(".tree li").all()
        }
        assert nodes["gate"].locator(".value").inner_text() == "0.000"
        assert nodes["gate"].locator(".weight").inner_text() == "× 0.25"
        assert nodes["style"].locator(".value").inner_text() == "stopped"
        assert nodes["judge"].locator(".value").inner_text() == "failed"
        assert nodes["judge"].locator(".error").inner_text() == "OSError: refused"
        nodes["judge"].locator("summary").first.click()
        assert nodes["judge"].locator(".prose").first.inner_text() == "Is it good?"


def test_group_writes_out_the_arithmetic_of_an_advantage(chromium, scored, server):
    file, _ = scored
    group = next(row["group"] for row in file.rows if row["steps"][0]["advantage"])
    with opened(chromium, server, f"#view=group&group={group}") as page:
        about = page.locator(".arithmetic").inner_text()
        lines = page.locator(".formula").inner_text().splitlines()
        recorded = page.locator(".steps tbody tr").first.locator("td").last.inner_text()
        columns = page.locator(".lane").count()
    assert "GiGPO, ω = 0.5" in about
    assert f"Recorded in the file: {recorded}" in about
    assert lines[-1].endswith(f"= {recorded}")
    assert columns == 4


def test_group_lists_the_steps_of_a_state(chromium, scored, server):
    file, _ = scored
    own = [row for row in file.rows if row["group"] == 0]
    wanted = own[0]["steps"][0]["anchor"]
    steps = [step for row in own for step in row["steps"] if step.get("anchor") == wanted]
    with opened(chromium, server, f"#view=group&group=0&anchor={wanted}") as page:
        found = [
            line.locator("td.number").all_inner_texts()
            for line in page.locator(".steps tbody tr").all()
        ]
    assert [(returned, advantage) for _, returned, advantage in found] == [
        (f"{step['return_to_go']:.3f}", signed(step["advantage"])) for step in steps
    ]


def test_diff_counts_moves_and_flips(chromium, scored):
    file, _ = scored
    sides = [(0.2, 0.9), (0.8, 0.1), (0.5, 0.5), (None, 0.4), (0.3, None)]
    rows = [
        {"id": f"r{place}", "group": "g", "before": side(a), "after": side(b)}
        for place, (a, b) in enumerate(sides)
    ]
    with opened(chromium, Server(File("diff.jsonl", rows, file.rollouts)), "#row=0") as page:
        figures = {name: figure(page, name) for name in texts_of(page, ".figures dt")}
        flips = texts_of(page, ".flips tbody tr")
        scores = texts_of(page, ".diff-row .big")
    expected = {"valid in both": "3", "rose": "1", "fell": "1", "unmoved": "1"}
    expected |= {"valid before only": "1", "valid after only": "1", "pairs flipped": "3"}
    assert figures.items() >= expected.items()
    assert len(flips) == 3
    assert scores == ["0.200", "0.900"]


def side(score):
    valid = score is not None
    return {"score": score, "is_score_valid": valid, "error": None, "components": {"right": 1.0}}


def test_diff_compares_two_files(chromium, scored):
    file, _ = scored
    other = [{**row, "score": row["score"] and row["score"] + 0.5} for row in reversed(file.rows)]
    moved = sum(bool(row["score"]) for row in file.rows)
    server = Server(file, File("other.jsonl", other, file.rollouts))
    with opened(chromium, server, "#view=diff") as page:
        assert figure(page, "rose") == str(moved)
        assert figure(page, "fell") == "0"


def test_training_draws_runs_and_changes(chromium):
    first, second = training_log(30), training_log(20)
    change = {"what": "style.weight", "from": 0.2, "to": 0.4, "who": "anna"}
    first.append({"kind": "config", "step": 12, "change": change})
    server = Server(File("first.jsonl", first), File("second.jsonl", second))
    with opened(chromium, server) as page:
        assert page.locator(".curves .main .curve").count() == 2
        assert page.locator(".curves .main .mark").count() == 1
        assert "style.weight: 0.2 → 0.4" in page.locator(".changes").inner_text()
        page.locator(".runs input").last.uncheck()
        wait_for(page, "document.querySelectorAll('.curves .main .curve').length === 1")
        assert "runs=0" in page.url


def training_log(steps):
    return [{"kind": "step", "step": step, "reward": step / steps} for step in range(steps)]


def test_training_follows_a_log_that_grows(chromium):
    server = Server(File("log.jsonl", training_log(10)))
    with opened(chromium, server) as page:
        assert "10 records" in page.locator(".runs").inner_text()
        server.replace(0, File("log.jsonl", training_log(15)))
        wait_for(page, "document.querySelector('.runs').innerText.includes('15 records')")


def test_arena_draws_the_curves_of_a_world(chromium):
    rows = [
        {"world": "lock", "method": method, "curve": [[0, 0, 0.1, 0.2], [10, 0.5, 0.6, 0.7]],
         "area": [0.5, 0.6], "final": [0.6], "updates": [5, None], "coverage": 0.5,
         "learning_rate": 0.1}
        for method in ("gigpo", "grpo")
    ]  # fmt: skip
    with opened(chromium, Server(File("arena.jsonl", rows))) as page:
        assert page.locator("g-plot .curve").count() == 2
        # The lower medians, as in the command's tables.
        cells = page.locator("tbody tr").first.locator("td").all_inner_texts()
        assert cells[-4:] == ["5", "0.5", "0.6", "50 %"]


# Filters, addresses, keyboard ---------------------------------------------------------------------


def test_filters_follow_a_click_on_a_bar_and_are_in_the_address(chromium, scored, server):
    _, summary = scored
    with opened(chromium, server) as page:
        page.locator(".score .bar.failed").click()
        wait_for(
            page, f"document.querySelector('.chips').innerText.startsWith('{summary.failed} of')"
        )
        address = page.url
        assert figure(page, "failed") == str(summary.failed)
        page.locator(".chip").click()
        wait_for(page, "!document.querySelector('.chip')")
        page.go_back()
        page.wait_for_selector(".chip")
    with opened(
        chromium, server, address.partition("/#")[2] and "#" + address.partition("#")[2]
    ) as page:
        assert shown_rows(page) == f"{summary.failed} of {summary.rows} rows"


@pytest.mark.parametrize(
    ("hash", "matches"),
    [
        ("f.score=[0,0]", lambda row: row["score"] == 0),
        ("f.score=(0,1.2]", lambda row: row["score"] is not None and 0 < row["score"] <= 1.2),
        ("f.score=none", lambda row: row["score"] is None),
        ("f.score=none&f.score=[0,0]", lambda row: row["score"] in (None, 0)),
        ("f.group==2&f.group==3", lambda row: row["group"] in (2, 3)),
        ("f.group==absent", lambda row: False),
        ("f.group==2&f.score=(0,9]", lambda row: row["group"] == 2 and (row["score"] or 0) > 0),
        ("q=open", lambda row: row["id"][-1] in "13"),
    ],
)
def test_filters_keep_the_rows_that_match(chromium, scored, server, hash, matches):
    file, summary = scored
    amount = sum(matches(row) for row in file.rows)
    with opened(chromium, server, f"#view=list&{hash}") as page:
        assert shown_rows(page) == f"{amount} of {summary.rows} rows"
        wanted = [row["id"] for row in file.rows if matches(row)]
        wait_for(page, NO_PENDING_ROW)
        assert (
            texts_of(page, ".line:not([hidden]) .id")
            == wanted[: page.locator(".line:not([hidden])").count()]
        )


@pytest.mark.parametrize("sort", ["score", "-score"])
def test_list_sorts_and_has_failures_last(chromium, scored, server, sort):
    file, summary = scored
    valid = sorted(
        (row["score"] for row in file.rows if row["is_score_valid"]), reverse=sort[0] == "-"
    )
    with opened(
        chromium, server, f"#view=list&sort={sort}", viewport={"width": 1280, "height": 1200}
    ) as page:
        shown = texts_of(page, ".line:not([hidden]) > .score")
    assert shown == [f"{score:.3f}" for score in valid] + ["failed"] * summary.failed


def test_list_scrolls_through_a_hundred_thousand_rows(chromium):
    rows = [
        {"id": f"r{place}", "group": None, "score": place / 1e5, "is_score_valid": True,
         "components": {}, "step_rewards": [0.0], "error": None}
        for place in range(100_000)
    ]  # fmt: skip
    with opened(chromium, Server(File("big.jsonl", rows)), "#view=list") as page:
        page.locator(".scroller").focus()
        page.keyboard.press("End")
        wait_for(page, "document.querySelector('.scroller').innerText.includes('r99999')")
        assert page.locator(".line").count() < 60


def test_keyboard_moves_opens_and_searches(chromium, scored, server):
    file, _ = scored
    with opened(chromium, server, "#view=list") as page:
        for key in ("j", "j", "k", "Enter"):
            page.keyboard.press(key)
        page.wait_for_selector("g-rollout h1")
        assert page.locator("g-rollout h1").inner_text() == file.rows[0]["id"]
        page.keyboard.press("j")
        wait_for(page, f"document.querySelector('h1').innerText === '{file.rows[1]['id']}'")
        page.keyboard.press("Escape")
        page.wait_for_selector("g-list")
        page.keyboard.press("/")
        page.keyboard.type("jo?")
        assert page.locator("input[type=search]").input_value() == "jo?"
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert "next row" in page.locator("dialog").inner_text()
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")


def test_keyboard_presses_the_bars_of_a_histogram(chromium, scored, server):
    _, summary = scored
    with opened(chromium, server) as page:
        page.locator(".score .bar").first.focus()
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")  # from the first bar to the last, which is of failures
        page.keyboard.press("Enter")
        page.wait_for_selector(".chip")
        assert shown_rows(page) == f"{summary.failed} of {summary.rows} rows"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(
            "failed"
        )


def test_theme_changes_and_is_remembered(chromium, server):
    with opened(chromium, server, color_scheme="light") as page:
        light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        page.keyboard.press("t")
        page.keyboard.press("t")
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert dark != light
        page.reload()
        page.wait_for_selector("g-app[ready]")
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark


@pytest.mark.parametrize("view", ["overview", "list", "rollout", "group"])
def test_page_fits_a_phone(chromium, server, view):
    with opened(
        chromium, server, f"#view={view}&row=0", viewport={"width": 360, "height": 740}
    ) as page:
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


# Hostile text -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile_server():
    """Each text in every field that contains text."""
    rows, rollouts = [], {}
    for text in HOSTILE:
        node = {"name": text, "value": None, "status": "failed", "reason": text, "error": text,
                "prompt": text, "answer": text}  # fmt: skip
        rows.append({
            "id": text, "group": text, "score": 1.0, "is_score_valid": True, "error": text,
            "components": {text: 1.0}, "step_rewards": [1.0], "reason": text, "notes": [text],
            "steps": [{"step_index": 0, "advantage": 0.5, "return_to_go": 1.0, "anchor": 0,
                       "reason": text}],
            "trees": [{**node, "children": [node]}],
        })  # fmt: skip
        call = {"id": text, "function": {"name": text, "arguments": text}}
        parts = [
            {"type": "text", "text": f"{text}\n```\n{text}\n```"},
            {"type": "image_url", "image_url": {"url": text}},
            {"type": text, "other": text},
        ]
        rollouts[text] = {"id": text, "model": text, "column": {text: text}, "messages": [
            {"role": text, "content": text, "name": text},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": text, "tool_calls": [call], "reasoning_content": text},
            {"role": "tool", "tool_call_id": text, "content": text},
        ]}  # fmt: skip
    return Server(File("<img src=x onerror=window.executed=true>.jsonl", rows, rollouts))


@pytest.mark.parametrize("view", ["overview", "list", "group"])
def test_page_shows_hostile_text_as_text(chromium, hostile_server, view):
    with opened(chromium, hostile_server, f"#view={view}&by=model") as page:
        page.wait_for_timeout(200)
        check_nothing_executed(page, hostile_server)


def test_rollout_shows_hostile_text_as_text(chromium, hostile_server):
    with opened(chromium, hostile_server, "#view=rollout&row=0") as page:
        for place, text in enumerate(HOSTILE):
            page.evaluate(f"location.hash = '#view=rollout&row={place}'")
            wait_for(page, f"document.querySelector('.title').innerText.includes('{place + 1} of')")
            page.evaluate(
                "document.querySelectorAll('details').forEach(each => { each.open = true })"
            )
            page.wait_for_timeout(20)
            check_nothing_executed(page, hostile_server)
            shown = page.locator(".message.assistant").first.inner_text()
            assert all(part in shown for part in re.findall(r"[!-~]+", text))


def check_nothing_executed(page, server):
    assert page.evaluate("window.executed") is None
    assert server.refused == []
    active = "script, iframe, object, embed, form, style, link, meta, base, [onerror], [onload]"
    assert page.locator(f"main :is({active})").count() == 0
    assert page.locator("main a:not([href^='#'])").count() == 0
    assert page.locator("main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_page_makes_invisible_characters_visible(chromium, hostile_server):
    place = HOSTILE.index("\u202eevil\u202c")
    with opened(chromium, hostile_server, f"#view=rollout&row={place}") as page:
        text = page.locator(".message.assistant .prose").first.inner_text()
    assert text == "U+202EevilU+202C"


def test_rollout_shows_images_of_allowed_types(chromium, scored):
    file, _ = scored
    urls = [PIXEL, "data:image/svg+xml;base64,PHN2Zy8+", "http://evil.test/a.png"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "I see."}]
    rollouts = {file.rows[0]["id"]: {"id": file.rows[0]["id"], "messages": messages}}
    server = Server(File("images.jsonl", file.rows[:1], rollouts))
    with opened(chromium, server, "#view=rollout&row=0") as page:
        assert page.locator("main img").count() == 1
        assert page.evaluate("document.querySelector('main img').naturalWidth") == 1
        assert server.refused == []
