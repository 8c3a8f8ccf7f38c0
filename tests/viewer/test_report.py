"""write_report: one file with the page and its data, and the bundle of the page's modules."""

import base64
import errno
import gzip
import hashlib
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from guerdon.errors import GuerdonError, InvalidArgumentError
from guerdon.viewer import bundle, write_report
from tests.viewer.conftest import rollout, row


def data_of(report):
    """The header and the body of a report's data."""
    text = re.search(r'id="data">([^<]*)</script>', report.read_text())[1]
    data = gzip.decompress(base64.b64decode(text))
    [size] = struct.unpack_from("<I", data)
    assert (4 + size) % 8 == 0
    return json.loads(data[4 : 4 + size]), data[4 + size :]


def column(header, body, name, file=0):
    [found] = [each for each in header["columns"][file]["columns"] if each["name"] == name]
    assert found["offset"] % 8 == 0
    kind = {"number": "<f8", "category": "<i4"}[found["type"]]
    return np.frombuffer(body[found["offset"] :][: found["bytes"]], kind).tolist()


def rows(header, body, file=0):
    place = header["rows"][file]
    return list(map(json.loads, body[place["offset"] :][: place["bytes"]].splitlines()))


def test_write_report_has_the_columns_and_the_rows_with_their_rollouts(
    write, viewed, page, tmp_path
):
    recorded = write("r.jsonl", [rollout("b", "bee")])
    shown = [
        viewed(write("one.jsonl", [row("a", 1.0), row("b", 0.5)]), recorded),
        viewed(write("two.jsonl", [row("</script><script>alert(1)</script>", 0.25)])),
    ]
    out = tmp_path / "report.html"
    assert write_report(shown, out) == out.stat().st_size
    header, body = data_of(out)
    assert [each["name"] for each in header["files"]] == ["one.jsonl", "two.jsonl"]
    assert header["files"][0]["without_rollout"] == 1
    assert column(header, body, "score") == [1.0, 0.5]
    assert column(header, body, "score", file=1) == [0.25]
    found = rows(header, body)
    assert [each["id"] for each in found] == ["a", "b"]
    assert found[0]["_rollout"] is None
    assert found[1]["_rollout"]["messages"][-1]["content"] == "bee"
    assert "alert(1)" not in out.read_text()


def test_write_report_allows_only_its_own_script_and_style(write, viewed, page, tmp_path):
    out = tmp_path / "report.html"
    write_report([viewed(write("s.jsonl", [row("a", 1.0)]))], out)
    document = out.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)[1]
    script = re.search(r'<script type="module">(.*?)</script>', document, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)[1]
    for text, kind in ((script, "script"), (style, "style")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r'(?:src|href)="(?!data:)', document)


def test_write_report_samples_whole_groups(write, viewed, page, tmp_path):
    groups = [f"g{number // 4}" for number in range(100)]
    scored = write("s.jsonl", [row(i, 1.0, group=group) for i, group in enumerate(groups)])
    found = []
    for seed in (0, 0, 1):
        out = tmp_path / "report.html"
        write_report([viewed(scored)], out, sample=10, seed=seed)
        header, body = data_of(out)
        assert header["files"][0]["rows"] == header["columns"][0]["rows"] == 8
        assert "a random sample of 8 of 100 rows" in header["files"][0]["note"]
        ids = [each["id"] for each in rows(header, body)]
        assert ids == sorted(ids)
        assert all(ids.count(4 * (id // 4) + k) == 1 for id in ids for k in range(4))
        found.append(ids)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("group", ["all", None])
def test_write_report_samples_rows_of_a_large_group_and_without_groups(
    write, viewed, page, tmp_path, group
):
    scored = write("s.jsonl", [row(i % 20, 1.0, group=group) for i in range(40)])
    out = tmp_path / "report.html"
    write_report([viewed(scored)], out, sample=30)
    header, body = data_of(out)
    ids = [each["id"] for each in rows(header, body)]
    assert len(ids) == 30
    assert header["files"][0]["duplicates"] == 30 - len(set(ids))


def test_write_report_over_its_size_writes_nothing(write, viewed, page, tmp_path):
    noise = np.random.default_rng(0).bytes(3000).hex()
    file = viewed(write("s.jsonl", [row(1, 1.0, reason=noise)]))
    out = tmp_path / "report.html"
    with pytest.raises(InvalidArgumentError, match=r"more than 0\.002 MB; --sample N limits"):
        write_report([file], out, max_mb=0.002)
    assert not out.exists()


@pytest.mark.parametrize("older", ["the old report", None])
def test_write_report_on_a_full_disk_keeps_the_older_one(
    write, viewed, page, tmp_path, monkeypatch, older
):
    def full(path, data):
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "reports" / "report.html"
    out.parent.mkdir()
    if older is not None:
        out.write_text(older)
    file = viewed(write("s.jsonl", [row(1, 1.0)]))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(GuerdonError, match=r"can't write .*: No space left on device"):
        write_report([file], out)
    assert [each.read_text() for each in out.parent.iterdir()] == ([older] if older else [])


def test_write_report_follows_a_link(write, viewed, page, tmp_path):
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    link.symlink_to(target)
    write_report([viewed(write("s.jsonl", [row(1, 1.0)]))], link)
    assert link.is_symlink()
    assert target.read_text().startswith("<!")


# The bundle


def test_bundled_modules_come_after_those_that_they_import(tmp_path):
    sources = {
        "main.js": 'import { b } from "./b.js";\nimport { a, c } from "./a.js";\nb(a);\n',
        "b.js": 'import { a } from "./a.js";\nexport async function b() { return a; }\n',
        "a.js": '/** @typedef {import("./b.js").B} B */\nexport const a = 1;\nexport class c {}\n',
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    found = bundle.bundled_modules(tmp_path)
    assert [line for line in found.splitlines() if line and not line.startswith("/")] == [
        "const a = 1;", "class c {}", "async function b() { return a; }", "b(a);",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        'import { a as b } from "./a.js";\n',
        'import * as a from "./a.js";\n',
        'import "./a.js";\n',
        'import { a } from "https://cdn.example/a.js";\n',
        "export default 1;\n",
        "export { a };\n",
    ],
)
def test_bundled_modules_refuse_other_imports_and_exports(tmp_path, text):
    (tmp_path / "main.js").write_text(text)
    (tmp_path / "a.js").write_text("export const a = 1;\n")
    with pytest.raises(GuerdonError, match=r"main\.js can't be bundled"):
        bundle.bundled_modules(tmp_path)


def test_bundled_modules_refuse_two_definitions_of_a_name(tmp_path):
    (tmp_path / "main.js").write_text('import { a } from "./a.js";\nfunction own() {}\n')
    (tmp_path / "a.js").write_text("export const a = 1;\nconst own = 2;\n")
    with pytest.raises(GuerdonError, match=r"main\.js and a\.js both define own"):
        bundle.bundled_modules(tmp_path)


@pytest.mark.parametrize("text", ['"</SCRIPT>"', '"<!--"'])
def test_bundled_page_refuses_a_module_that_would_end_its_element(page, text):
    (page / "names.js").write_text(f"export const name = {text};\n")
    with pytest.raises(GuerdonError, match="must not contain"):
        bundle.bundled_page(page, "")


def test_bundled_page_refuses_a_page_of_another_form(page):
    (page / "index.html").write_text("<!doctype html>")
    with pytest.raises(GuerdonError, match=r"the page must contain .* once"):
        bundle.bundled_page(page, "")
