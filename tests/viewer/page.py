"""Opens the page in Chromium, with a server in the test's process."""

import json
import math
import re
import shutil
import statistics
import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import guerdon

PAGE = Path(guerdon.__file__).parent / "viewer" / "page"
ADDRESS = "http://guerdon.test/"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]

Row = dict[str, Any]


def chromium_path() -> str | None:
    """The browser of the system; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class File:
    """A file of rows, and the columns that the page reads."""

    def __init__(self, name: str, rows: list[Row], rollouts: dict[str, Row] | None = None) -> None:
        self.name, self.rows, self.rollouts = name, rows, rollouts or {}
        self.kind = _kind(rows[0])
        self.columns: dict[str, tuple[str, array[Any] | None, list[str] | None]] = {}
        getattr(self, f"_add_{self.kind}")()

    @property
    def info(self) -> dict[str, Any]:
        columns = [
            {"name": name, "type": kind, **({"values": values} if values is not None else {})}
            for name, (kind, _, values) in self.columns.items()
        ]
        return {
            "name": self.name, "kind": self.kind, "rows": len(self.rows), "bytes": 1,
            "complete": True, "columns": columns,
        }  # fmt: skip

    def _add_rows(self) -> None:
        rows = self.rows
        self._number("score", [row["score"] for row in rows])
        self._category("group", [row["group"] for row in rows])
        self._category("failure", [_failure(row) for row in rows])
        names = dict.fromkeys(name for row in rows for name in row["components"])
        for name in names:
            self._number(f"components.{name}", [row["components"].get(name) for row in rows])
        self._number("turns", [len(row["step_rewards"] or ()) or None for row in rows])
        own = [self.rollouts.get(row["id"], {}) for row in rows]
        self._category("model", [each.get("model") for each in own])
        self.columns |= {"id": ("text", None, None), "error": ("text", None, None)}

    def _add_diff(self) -> None:
        before, after = ([row[side]["score"] for row in self.rows] for side in ("before", "after"))
        self._number("before", before)
        self._number("after", after)
        both = [None not in pair for pair in zip(before, after, strict=True)]
        pairs = zip(before, after, both, strict=True)
        self._number("difference", [b - a if valid else None for a, b, valid in pairs])
        self._category("group", [row["group"] for row in self.rows])
        self.columns["id"] = ("text", None, None)

    def _add_log(self) -> None:
        self._number("step", [row["step"] for row in self.rows])
        self._number("reward", [row.get("reward") for row in self.rows])
        self._category("kind", [row["kind"] for row in self.rows])

    def _add_arena(self) -> None:
        self._category("world", [row["world"] for row in self.rows])

    def _number(self, name: str, values: list[float | None]) -> None:
        numbers = array("d", [math.nan if each is None else each for each in values])
        self.columns[name] = ("number", numbers, None)

    def _category(self, name: str, values: list[Any]) -> None:
        places: dict[str, int] = {}
        codes = [
            -1 if each is None else places.setdefault(str(each), len(places)) for each in values
        ]
        self.columns[name] = ("category", array("i", codes), list(places))

    def arrays(self, names: list[str]) -> bytes:
        """The answer of ``api/columns``."""
        header: list[dict[str, Any]] = []
        body = b""
        for name in names:
            kind, numbers, _ = self.columns[name]
            data = b"" if numbers is None else numbers.tobytes()
            header.append({"name": name, "type": kind, "offset": len(body), "bytes": len(data)})
            body += data + bytes(-len(data) % 8)
        text = json.dumps({"rows": len(self.rows), "columns": header}).encode()
        text += b" " * (-(4 + len(text)) % 8)
        return struct.pack("<I", len(text)) + text + body

    def row(self, place: int, *, is_brief: bool) -> Row:
        row = self.rows[place]
        rollout = self.rollouts.get(row.get("id", ""))
        if not is_brief:
            return {**row, "_rollout": rollout}
        text = rollout["messages"][-1]["content"] if rollout else ""
        return {**{name: row.get(name) for name in ("id", "group", "error")}, "text": text}

    def found(self, text: str) -> list[int]:
        return [
            place
            for place in range(len(self.rows))
            if text.lower() in json.dumps(self.row(place, is_brief=False)).lower()
        ]


def _kind(row: Row) -> str:
    if "before" in row:
        return "diff"
    return "arena" if "world" in row else "log" if "kind" in row else "rows"


def _failure(row: Row) -> str | None:
    return None if row["is_score_valid"] else re.findall(r"\w+Error", row["error"])[0]


class Server:
    """Answers the page's requests.

    Args:
        files: The files.
    """

    def __init__(self, *files: File) -> None:
        self.files = list(files)
        self.refused: list[str] = []
        self._waiting: list[Any] = []

    def answer(self, route: Any) -> None:
        address = urlsplit(route.request.url)
        query = parse_qs(address.query)
        name = address.path.strip("/")
        if address.hostname != "guerdon.test":
            self.refused.append(route.request.url)
            return route.abort()
        if not name.startswith("api/"):
            return self._static(route, name or "index.html")
        answers: dict[str, Callable[[], bytes]] = {
            "api/files": lambda: self._json(files=self._infos()),
            "api/columns": lambda: self._file(query).arrays(query["names"]),
            "api/rows": lambda: self._json(rows=self._rows(query)),
            "api/search": lambda: array("i", self._file(query).found(query["q"][0])).tobytes(),
            "api/order": lambda: array("i", self._order(query)).tobytes(),
            "api/join": lambda: array("i", self._join(query)).tobytes(),
        }
        if name == "api/changes":
            return self._changes(route, [int(each) for each in query["rows"]])
        return route.fulfill(body=answers[name]())

    def _static(self, route: Any, name: str) -> None:
        headers = {"content-type": TYPES[name.rpartition(".")[2]]}
        headers["content-security-policy"] = POLICY
        return route.fulfill(body=(PAGE / name).read_bytes(), headers=headers)

    def _changes(self, route: Any, known: list[int]) -> None:
        if [len(each.rows) for each in self.files] == known:
            self._waiting.append(route)  # until a file grows
        else:
            self._report_changes(route)

    def replace(self, place: int, file: File) -> None:
        """Let a file grow."""
        self.files[place] = file
        while self._waiting:
            self._report_changes(self._waiting.pop())

    def _report_changes(self, route: Any) -> None:
        route.fulfill(body=self._json(rows=[len(each.rows) for each in self.files]))

    @staticmethod
    def _json(**data: Any) -> bytes:
        return json.dumps(data).encode()

    def _infos(self) -> list[dict[str, Any]]:
        return [{"index": place, **each.info} for place, each in enumerate(self.files)]

    def _file(self, query: dict[str, list[str]]) -> File:
        return self.files[int(query["file"][0])]

    def _rows(self, query: dict[str, list[str]]) -> list[Row]:
        file = self._file(query)
        places = map(int, query["at"][0].split(","))
        return [file.row(place, is_brief="brief" in query) for place in places]

    def _order(self, query: dict[str, list[str]]) -> list[int]:
        rows = self._file(query).rows
        return sorted(range(len(rows)), key=lambda place: str(rows[place].get(query["by"][0])))

    def _join(self, query: dict[str, list[str]]) -> list[int]:
        places = {
            row["id"]: place for place, row in enumerate(self.files[int(query["other"][0])].rows)
        }
        return [places.get(row["id"], -1) for row in self._file(query).rows]


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, driven by playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=ARGUMENTS)
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def opened(chromium: Any, server: Server, hash: str = "", **options: Any) -> Iterator[Any]:
    """The page with the data of a server; it must not report an error while it is open."""
    options = {"viewport": {"width": 1280, "height": 800}, **options}
    context = chromium.new_context(**options)
    context.set_default_timeout(10_000)
    try:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: line.type == "error" and errors.append(line.text))
        page.route("**/*", server.answer)
        page.goto(ADDRESS + hash)
        page.wait_for_selector("g-app[ready]")
        yield page
        assert errors == []
    finally:
        context.close()


def column_mean(rows: list[Row], name: str) -> float:
    """The mean of a component over the valid rows that have it."""
    valid = [row["components"] for row in rows if row["is_score_valid"]]
    return statistics.fmean(each[name] for each in valid if name in each)
