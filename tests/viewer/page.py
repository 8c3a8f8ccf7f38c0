"""Serves files to the page of ``guerdon view``, and opens pages in Chromium."""

import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from guerdon.viewer import FileIndex, ViewedFile, ViewerApp
from scripts.chromium import MISSING, chromium_path

REPOSITORY = Path(__file__).parents[2]
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
TOKEN = "s3cret"
# Texts that a page must show as texts.
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
PATIENCE_S = 20.0  # after which what should happen is taken not to happen


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright; skips the test if it isn't installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed")
    path = chromium_path()
    if path is None:
        pytest.skip(MISSING)
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def opened(
    chromium: Any, address: str, *, ready: str = "[ready]", tolerated: str = "", **options: Any
) -> Iterator[Any]:
    """A page in a browser of its own, which ends with an error if the page has reported one.

    Args:
        chromium: The browser.
        address: The address. The page may send requests to its server alone.
        ready: A selector that matches once the page is shown.
        tolerated: A part of the errors that are expected.
        options: Of playwright's ``new_context``; by default the page has 1,280 × 800 pixels.
    """
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
    context.set_default_timeout(1000 * PATIENCE_S)
    problems: list[str] = []
    own = urlsplit(address)[:2]

    def watch(request: Any) -> None:
        if urlsplit(request.url)[:2] != own and not request.url.startswith("data:"):
            problems.append(f"a request to {request.url}")

    try:
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: line.type == "error" and problems.append(line.text))
        page.on("request", watch)
        page.goto(address)
        page.wait_for_selector(ready)
        yield page
        found = [each for each in problems if not tolerated or tolerated not in each]
        assert not found, "; ".join(found)
    finally:
        context.close()


def wait_for(page: Any, condition: str | Callable[[], Any]) -> None:
    """Wait until a function, or an expression in the page, returns something true.

    The page's policy refuses playwright's own `wait_for_function`.
    """
    is_true = condition if callable(condition) else lambda: page.evaluate(condition)
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end, f"{condition} is still false"
        page.wait_for_timeout(20)


def go(page: Any, hash: str) -> None:
    """Open another state of the page of `guerdon view`, and wait until it is shown."""
    page.evaluate("document.querySelector('g-app').removeAttribute('ready')")
    page.evaluate("hash => { location.hash = hash }", hash)
    page.wait_for_selector("g-app[ready], .status .is-failed")
    problem = page.locator(".status").inner_text()
    assert not problem, f"{hash}: {problem}"
    page.wait_for_timeout(20)  # some plots are drawn later


# What a page shows -------------------------------------------------------------------------------


def texts_of(page: Any, selector: str) -> list[str]:
    """The texts of the elements that match."""
    return page.locator(selector).all_inner_texts()


def rows_of(page: Any, table: str) -> list[list[str]]:
    """The texts of the cells of each row of a table."""
    lines = page.locator(f"{table} tbody tr").all()
    return [line.locator("th, td").all_inner_texts() for line in lines]


def figures(page: Any) -> dict[str, str]:
    """The figures of an overview by name, without what is small beside them."""
    names = texts_of(page, ".figures dt")
    return {name: figure(page, name) for name in names}


def figure(page: Any, name: str) -> str:
    """One of the figures of an overview."""
    line = page.locator(f".figures dl > div:has(dt:text-is('{name}')) dd")
    return line.evaluate("each => each.firstChild.textContent")


# WCAG 2.0 to 2.2, levels A and AA.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
RUN_AXE = """async tags => (await axe.run({ runOnly: tags })).violations.flatMap(
    each => each.nodes.map(node => `${each.id}: ${node.html}: ${node.failureSummary}`))"""


def violations(page: Any) -> list[str]:
    """What axe-core finds on a page; skips the test if it isn't installed."""
    axe = REPOSITORY / ".npm" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core isn't installed: `make page` installs it with npm")
    page.evaluate(axe.read_text())
    return page.evaluate(RUN_AXE, TAGS)


def signed(value: float) -> str:
    """An advantage or a difference as the page shows it."""
    return f"+{value:.3f}" if value > 0 else f"{value + 0.0:.3f}"


# Servers -----------------------------------------------------------------------------------------


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serves an application in a thread; gives the address of its root."""
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the server didn't end"


@contextmanager
def viewed(files: Sequence[Path], rollouts: Path | None = None) -> Iterator[str]:
    """Serves files as ``guerdon view`` does; gives the address with the token."""
    with ExitStack() as stack:

        def index(path: Path) -> FileIndex:
            return stack.enter_context(FileIndex(path, cache=path.parent / "cache"))

        joined = None if rollouts is None else index(rollouts)
        app = ViewerApp([ViewedFile(index(path), joined) for path in files], TOKEN)
        app.on_loopback = True
        yield stack.enter_context(served(app)) + f"?token={TOKEN}"


# The command -------------------------------------------------------------------------------------


def run_guerdon(folder: Path, *arguments: str) -> str:
    """What ``guerdon`` prints, run in a folder; rows may fail."""
    done = subprocess.run(
        _command(arguments), cwd=folder, env=_environment(folder), timeout=60, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@contextmanager
def guerdon_view(folder: Path, *arguments: str) -> Iterator[str]:
    """Runs ``guerdon view --no-open`` in a folder; gives the address that it prints."""
    process = subprocess.Popen(
        _command(("view", "--no-open", *arguments)), cwd=folder, env=_environment(folder),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], PATIENCE_S)[0], "it printed nothing"
        line = os.read(process.stdout.fileno(), 10_000).decode()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "guerdon", *arguments]


def _environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "cache")}


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    """Write rows as lines of JSON; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
