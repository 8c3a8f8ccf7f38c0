"""Texts from models are shown as texts by the page of ``guerdon view``."""

import json
import re
from urllib.parse import urlencode

import pytest

from tests.viewer.page import HOSTILE, go, run_guerdon, viewed, wait_for, write_lines

pytestmark = pytest.mark.browser

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
LONG = [text for text in HOSTILE if len(text) > 90]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 800}


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """Files with each text in every field that has a text, and their rollouts."""
    folder = tmp_path_factory.mktemp("hostile")
    files = {
        "<img src=x onerror=window.executed=true>.jsonl": [
            row for text in HOSTILE for row in (scored(text), failed(text))
        ],
        "diff.jsonl": [
            {"id": text, "group": text, "before": scored(text), "after": failed(text)}
            for text in HOSTILE
        ],
        "log.jsonl": [record for text in HOSTILE for record in records(text)],
        "arena.jsonl": [
            {"arena": "f", "protocol": {}},
            *(result(text, method) for text in HOSTILE for method in ("grpo", text)),
        ],
    }
    rollouts = write_lines(folder / "rollouts.jsonl", list(map(rollout, HOSTILE)))
    return [write_lines(folder / name, rows) for name, rows in files.items()], rollouts


@pytest.fixture(scope="session")
def address(hostile):
    with viewed(*hostile) as address:
        yield address


def scored(text):
    node = {"name": text, "value": None, "status": "failed", "reason": text, "error": text,
            "details": {"prompt": text, "answer": text}}  # fmt: skip
    skipped = {"name": text, "value": None, "status": "skipped", "reason": text}
    step = {"step_index": 0, "advantage": 0.5, "return_to_go": 1.0, "anchor": 0, "reason": text}
    return {
        "id": text, "group": text, "score": 1.0, "is_score_valid": True, "error": text,
        "components": {text: 1.0, f"a.{text}": 0.5}, "step_rewards": [1.0], "reason": text,
        "notes": [text], "steps": [step], "trees": [{**node, "children": [node, skipped]}],
        text: text,
    }  # fmt: skip


def failed(text):
    # The name of an exception, and its message.
    error = f"{text}: {text}"
    return scored(text) | {"score": None, "is_score_valid": False, "error": error, "steps": []}


def rollout(text):
    call = {"id": text, "function": {"name": text, "arguments": text}}
    other = {"id": "b", "function": {"name": text, "arguments": json.dumps({text: f"{text}\n"})}}
    parts = [
        {"type": "text", "text": f"{text}\n```\n{text}\n```"},
        {"type": "image_url", "image_url": {"url": text}},
        {"type": text, "other": text},
    ]
    messages = [
        {"role": text, "content": text, "name": text},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": text, "tool_calls": [call, other],
         "reasoning_content": text},
        {"role": "tool", "tool_call_id": text, "content": text},
    ]  # fmt: skip
    return {"id": text, "model": text, text: text, "column": {text: text}, "messages": messages}


def records(text):
    change = {"what": text, "from": text, "to": {text: text}, "who": text}
    yield {"kind": "step", "step": 1, "reward": 1.0, "components": {text: 1.0}, "env_id": text,
           "weights": {text: 1.0}, "invalid": {text: text}}  # fmt: skip
    yield {"kind": "config", "step": 1, "change": change}


def result(world, method):
    return {"world": world, "method": method, "curve": [[0, 0.0, 0.1, 0.2], [9, 0.5, 0.6, 0.7]],
            "area": [0.5], "final": [0.5], "updates": [3], "coverage": 0.5, "learning_rate": 0.1,
            "error": world}  # fmt: skip


INSPECT = """() => {
    const active = "script, iframe, object, embed, form, style, link, meta, base, img, [onerror], "
        + "[onload], a:not([href^='#'])";
    const found = document.querySelectorAll(`g-app :is(${active})`).length;
    return [window.executed ?? null, found, document.documentElement.scrollWidth];
}"""


def check(page, width):
    """Nothing was executed, nothing is active, and the page isn't wider than the screen."""
    executed, active, needed = page.evaluate(INSPECT)
    assert (executed, active) == (None, 0)
    assert needed <= width


def states(texts):
    """A state of the page for each view, and for each view and text."""
    yield from ("#view=overview", "#view=list", "#view=group", "#view=rollout&row=1")
    yield from ("#file=1", "#file=1&view=overview", "#file=1&view=list", "#file=2", "#file=3")
    for text in texts:
        yield "#" + urlencode({"by": text, "column": f"components.{text}", "f.group": f"={text}"})
        yield "#" + urlencode({"view": "group", "group": text})
        yield f"#file=1&row={HOSTILE.index(text)}"
    for text in LONG:
        yield "#" + urlencode({"file": 3, "world": text})


@pytest.mark.parametrize(
    ("viewport", "texts"), [(DESKTOP, HOSTILE), (PHONE, LONG)], ids=["desktop", "phone"]
)
def test_every_view_shows_hostile_text_as_text(show, address, viewport, texts):
    page = show(address, viewport=viewport)
    for state in states(texts):
        go(page, state)
        check(page, viewport["width"])


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_rollout_shows_hostile_text_as_text(show, address, viewport):
    page = show(address, viewport=viewport)
    for place, text in enumerate(HOSTILE):
        go(page, f"#view=rollout&row={2 * place}")
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        page.wait_for_timeout(30)
        check(page, viewport["width"])
        shown = page.locator(".message.assistant").first.inner_text()
        assert all(part in shown for part in re.findall(r"[!-~]+", text))


def test_report_shows_hostile_text_as_text(show, hostile, tmp_path):
    files, rollouts = hostile
    names = map(str, (*files, "--rollouts", rollouts, "--out", tmp_path / "report.html"))
    run_guerdon(tmp_path, "view", *names)
    page = show((tmp_path / "report.html").as_uri(), offline=True)
    for state in states(LONG):
        go(page, state)
        check(page, 1280)


def test_page_makes_invisible_characters_visible(show, address):
    place = 2 * HOSTILE.index("\u202eevil\u202c")
    page = show(address, f"#view=rollout&row={place}")
    assert page.locator(".message.assistant .prose").last.inner_text() == "U+202EevilU+202C"


def test_rollout_shows_images_of_allowed_types(show, serve):
    urls = [PIXEL, "data:image/svg+xml;base64,PHN2Zy8+", "http://evil.test/a.png"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "I see."}]
    page = show(serve([scored("a")], rollouts=[{"id": "a", "messages": messages}]),
                "#view=rollout&row=0")  # fmt: skip
    assert page.locator("main img").count() == 1
    wait_for(page, "document.querySelector('main img').naturalWidth === 1")


# Values of another type ---------------------------------------------------------------------------

ODD = [None, 5, "text", True, [], {}, [None, 5, ["a"], {"a": 1}], {"a": {"b": [1]}}, 10**400]
ODD.append([{"step_index": 10**9, "advantage": "x", "return_to_go": {}}, {"step_index": -1}])
KEYS = ["error", "components", "step_rewards", "reason", "notes", "steps", "trees", "stopped_by"]
OF_TREE = ["value", "status", "weight", "seconds", "reason", "hook_errors", "details", "children"]
OF_ROLLOUT = ["messages", "first_turn"]
OF_MESSAGE = ["role", "content", "tool_calls", "name", "reasoning_content"]


def test_page_shows_rows_with_values_of_another_type(show, serve):
    rows, rollouts = [], []
    for key in KEYS + OF_TREE + OF_ROLLOUT + OF_MESSAGE:
        for value in ODD:
            line, joined = scored("t") | {"id": f"{key}{len(rows)}"}, rollout("t")
            if key in KEYS:
                line |= {key: value}
            elif key in OF_TREE:
                line["trees"][0] |= {key: value}
            elif key in OF_ROLLOUT:
                joined |= {key: value}
            else:
                joined["messages"][2] |= {key: value}
            rows.append(line)
            rollouts.append(joined | {"id": line["id"]})
    page = show(serve(rows, rollouts=rollouts))
    for hash in ("#view=overview", "#view=list", "#view=group"):
        go(page, hash)
    for place in range(len(rows)):
        go(page, f"#view=rollout&row={place}")
    place = next(at for at, row in enumerate(rows) if row["step_rewards"] == 5)
    go(page, f"#view=rollout&row={place}")
    assert "Not all of step_rewards is shown: it has another form." in page.inner_text("g-rollout")


def test_page_shows_logs_comparisons_and_arenas_with_values_of_another_type(show, serve):
    log = [{"kind": "step", "step": 0, "reward": 0.5, "components": {"a": 0.5}}]
    change = {"what": "a", "from": 1, "to": 2, "who": "me"}
    for value in ODD:
        log += [{"kind": "config", "step": 1, "change": value},
                {"kind": "config", "step": value, "change": change}]  # fmt: skip
        log += [{"kind": "config", "step": 1, "change": change | {key: value}} for key in change]
    pair = {"group": "g", "before": scored("t"), "after": scored("t")}
    diff = [pair | {"id": 0}]
    for key in ("before", "after"):
        diff += [pair | {"id": len(diff) + at, key: value} for at, value in enumerate(ODD)]
    whole = result("world", "grpo")
    arena = [{"arena": "f", "protocol": {}}, whole]
    for key in ("curve", "area", "final", "updates", "coverage", "error"):
        arena += [whole | {key: value} for value in ODD]
    page = show(serve(log, diff, arena))
    for hash in ("#file=0", "#file=1", "#file=1&view=list", "#file=2"):
        go(page, hash)
    for place in range(len(diff)):
        go(page, f"#file=1&row={place}")
