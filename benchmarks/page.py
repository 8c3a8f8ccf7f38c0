"""The page of ``guerdon view`` in Chromium: its size, its speed and its memory.

Times are those that a person waits: from opening the address, or setting a filter, until the page
is painted. Of a frame while the list is scrolled, the work is measured: from the scroll event to
the end of the frame's rendering. Frames come every 16.7 ms however little there is to do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.timing import Counted, Findings, Measured
from benchmarks.viewer import made_rollouts, made_rows, start_view, write_rows
from scripts.chromium import MISSING, chromium_path

ROWS, MANY_ROWS = 100_000, 1_000_000
ROUNDS = 5
SCROLLS = 300
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
SCREEN = {"width": 1280, "height": 800}
TIMEOUT_MS = 120_000

# Milliseconds from the navigation until the view is painted.
OBSERVE = """
new MutationObserver((_, observer) => {
    if (!document.querySelector("g-app")?.hasAttribute("ready")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.shown = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
SHOWN = "() => window.shown ?? null"
# Milliseconds from changing the address until the page is painted, for each state.
FILTER = """async states => {
    const app = document.querySelector("g-app");
    const times = [];
    for (const state of states) {
        app.removeAttribute("ready");
        const isReady = new Promise(resolve => new MutationObserver((_, observer) => {
            observer.disconnect();
            resolve();
        }).observe(app, { attributeFilter: ["ready"] }));
        const start = performance.now();
        location.hash = state;
        await isReady;
        await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
        times.push(performance.now() - start);
        await new Promise(resolve => setTimeout(resolve, 300));
    }
    return times;
}"""
# Milliseconds of work of each frame, and between two frames, while the list is scrolled.
SCROLL = """async amount => {
    const scroller = document.querySelector(".scroller");
    const channel = new MessageChannel();
    const work = [], frames = [];
    let start = 0;
    scroller.scrollTop = 0;
    await new Promise(resolve => setTimeout(resolve, 300));
    scroller.addEventListener("scroll", () => { start = performance.now(); }, { capture: true });
    for (let place = 0; place < amount; place++) {
        scroller.scrollTop += place % 10 ? 120 : 50_000;
        await new Promise(resolve => requestAnimationFrame(time => {
            frames.push(time);
            channel.port1.onmessage = resolve;
            channel.port2.postMessage(null);  // is received after the frame was rendered
        }));
        work.push(performance.now() - start);
    }
    channel.port1.close();
    return [work, frames.slice(1).map((time, place) => time - frames[place])];
}"""
SIZES = """() => performance.getEntries()
    .filter(each => "encodedBodySize" in each && !each.name.includes("/api/"))
    .map(each => each.encodedBodySize)"""


def run() -> Findings:
    """Run the benchmark."""
    found = Findings()
    if (path := chromium_path()) is None:
        found.lines.append(Counted("page of guerdon view", "", 0, missing=MISSING))
        return found
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="guerdon-bench-")))
        playwright = stack.enter_context(sync_playwright())
        chromium = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        stack.callback(chromium.close)
        _measure_rows(chromium, folder, found)
        _measure_memory(chromium, folder, found)
        _measure_report(chromium, folder, found)
        found.notes.append(f"page: Chromium {chromium.version}")
    return found


def _measure_rows(chromium: Any, folder: Path, found: Findings) -> None:
    rows = folder / "rows.jsonl"
    write_rows(rows, made_rows(), most=ROWS)
    painted = _time(f"first paint of {ROWS:,} rows")
    with _served(rows) as address:
        for _ in range(ROUNDS):
            with _opened(chromium, address) as (page, requests):
                painted.pairs.append((_shown(page), 0.0))
                sizes = page.evaluate(SIZES)
        with _opened(chromium, address) as (page, _):
            # The filters of different columns, each with its opposite.
            states = [f"#f.{name}={interval}" for name in ("score", "components.style", "turns")
                      for interval in ("[0.5,1.5]", "(1.5,9]", "[0,0.5)", "none")]  # fmt: skip
            page.evaluate(FILTER, states)  # fetches the columns
            filters = [page.evaluate(FILTER, states) for _ in range(ROUNDS)]
        with _opened(chromium, address + "#view=list") as (page, _):
            scrolls = [page.evaluate(SCROLL, SCROLLS) for _ in range(ROUNDS)]
    found.lines += [
        Counted("page before its data, compressed", "60 kB", 60e3, sum(sizes), unit="B"),
        Counted("requests to other servers", "", 0, _external(requests, address)),
        painted,
        _time("filter, median of a round", 0.1, filters),
        _time("work of a frame while scrolling, median", 0.016, [work for work, _ in scrolls]),
    ]
    frames = [frame for _, frames in scrolls for frame in frames]
    work = sorted(each for work, _ in scrolls for each in work)
    worst = work[int(0.99 * len(work))]
    found.notes.append(
        f"page: {len(sizes)} requests before the data; a frame every {median(frames):.1f} ms while "
        f"scrolling, whose work is under {worst:.1f} ms in 99 % of them"
    )


def _measure_memory(chromium: Any, folder: Path, found: Findings) -> None:
    line = Counted(f"memory of the browser, {MANY_ROWS:,} rows", "500 MB", 500e6, unit="B")
    found.lines.append(line)
    if not Path("/proc/self/smaps_rollup").exists():
        line.missing = "memory is measured on Linux only"
        return
    rows = folder / "many.jsonl"
    write_rows(rows, _without_steps(), most=MANY_ROWS)
    sizes = []
    with _served(rows) as address, _opened(chromium, address) as (page, _):
        seconds = _shown(page)
        for act in (None, "#f.score=[1,2]", "#by=group", "#view=list&sort=-components.style"):
            if act is not None:
                page.evaluate(FILTER, [act])
            sizes.append(_memory(chromium))
        heap = page.evaluate("performance.memory.usedJSHeapSize")
    rows.unlink()
    line.ours = max(sizes)
    found.notes.append(
        f"page: {MANY_ROWS:,} rows are shown after {seconds:.2f} s; {heap / 1e6:.0f} MB of the "
        "memory are JavaScript objects"
    )


def _without_steps() -> Iterator[dict[str, Any]]:
    for row in made_rows():
        del row["steps"]
        yield row


def _measure_report(chromium: Any, folder: Path, found: Findings) -> None:
    rows, rollouts = folder / "rows.jsonl", folder / "rollouts.jsonl"
    write_rows(rows, islice(made_rows(), 1000), most=1000)
    write_rows(rollouts, made_rollouts(messages=20), most=1000)
    size = _report_size(rows, rollouts)
    opened = _time("report of 1,000 rollouts of 20 messages")
    address = (folder / "report.html").as_uri()
    for _ in range(ROUNDS):
        with _opened(chromium, address) as (page, _):
            opened.pairs.append((_shown(page), 0.0))
    found.lines += [
        Counted("report of 1,000 rollouts of 20 messages", "5 MB", 5e6, size, unit="B"),
        opened,
    ]


def _report_size(rows: Path, rollouts: Path) -> int:
    """Write ``report.html`` beside the rows; return its size in bytes."""
    from guerdon.viewer import FileIndex, ViewedFile, write_report

    cache = rows.parent / "cache"
    with FileIndex(rows, cache=cache) as index, FileIndex(rollouts, cache=cache) as joined:
        return write_report([ViewedFile(index, joined)], rows.parent / "report.html")


# The browser -------------------------------------------------------------------------------------


@contextmanager
def _served(rows: Path) -> Iterator[str]:
    process, announced = start_view(rows)
    try:
        assert announced is not None, "guerdon view did not start"
        yield announced[0]
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def _opened(chromium: Any, address: str) -> Iterator[tuple[Any, list[str]]]:
    """A page in a browser without a cache, and the addresses that it asks for."""
    context = chromium.new_context(viewport=SCREEN)
    context.set_default_timeout(TIMEOUT_MS)
    try:
        page = context.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.add_init_script(OBSERVE)
        page.goto(address)
        page.wait_for_selector("g-app[ready]")
        yield page, requests
    finally:
        context.close()


def _shown(page: Any) -> float:
    """Seconds from the navigation until the overview was painted."""
    while (time := page.evaluate(SHOWN)) is None:
        page.wait_for_timeout(20)
    return float(time) / 1000


def _external(requests: list[str], address: str) -> int:
    return sum(
        urlsplit(each).netloc != urlsplit(address).netloc and not each.startswith("data:")
        for each in requests
    )


def _memory(chromium: Any) -> int:
    """Bytes of memory of the processes of pages; what several share is divided among them."""
    session = chromium.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    total = 0
    for process in processes:
        if process["type"] == "renderer":
            text = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
            total += next(
                int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")
            )
    return total


def _time(name: str, bar: float = 1.0, rounds: Sequence[list[float]] = ()) -> Measured:
    """A line of the table; each round has milliseconds, of which the median counts."""
    pairs = [(median(each) / 1000, 0.0) for each in rounds]
    return Measured(f"page: {name}", "", bar, pairs, absolute=True)
