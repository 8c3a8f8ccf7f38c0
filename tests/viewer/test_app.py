"""ViewerApp: its answers, the token, and what it refuses."""

import json
import struct

import numpy as np
import pytest
from starlette.testclient import TestClient

from guerdon.errors import InvalidArgumentError
from guerdon.viewer import ViewerApp, app
from tests.viewer.conftest import rollout, row

TOKEN = "s3cret"


@pytest.fixture
def client(write, viewed):
    """A client with the token, of a server with two files."""
    recorded = write("r.jsonl", [rollout("b", "bee"), rollout("a")])
    rows = [row("a", 1.0), row("b", None), row("c", 0.5)]
    shown = [
        viewed(write("one.jsonl", rows), recorded),
        viewed(write("two.jsonl", [row("c", 0.25), row("a", 0.75)])),
    ]
    application = ViewerApp(shown, TOKEN)
    application.on_loopback = True
    with TestClient(application, base_url="http://127.0.0.1", follow_redirects=False) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        yield client


def unpacked(answer):
    """The header and the arrays of an answer with columns."""
    assert answer.headers["content-type"] == "application/octet-stream"
    [size] = struct.unpack_from("<I", answer.content)
    header, start = json.loads(answer.content[4 : 4 + size]), 4 + size
    assert start % 8 == 0
    arrays = {}
    for each in header["columns"]:
        assert each["offset"] % 8 == 0
        kind = {"number": "<f8", "category": "<i4"}[each["type"]]
        data = answer.content[start + each["offset"] :][: each["bytes"]]
        arrays[each["name"]] = np.frombuffer(data, kind).tolist()
    return header, arrays


# Data


def test_viewer_app_lists_its_files(client):
    one, two = client.get("/api/files").json()["files"]
    assert [one["index"], two["index"]] == [0, 1]
    expected = {"name": "one.jsonl", "kind": "rows", "rows": 3, "complete": True,
                "without_rollout": 1, "duplicates": 0, "note": ""}  # fmt: skip
    assert {name: one[name] for name in expected} == expected
    types = {each["name"]: each["type"] for each in one["columns"]}
    assert [types[name] for name in ("score", "status", "id")] == ["number", "category", "text"]


def test_viewer_app_sends_columns_as_typed_arrays(client):
    query = {"file": 0, "names": ["status", "score", "group"]}
    header, arrays = unpacked(client.get("/api/columns", params=query))
    assert header["rows"] == 3
    assert arrays["status"] == [0, 1, 0]
    assert arrays["group"] == [0, 0, 0]
    assert arrays["score"][::2] == [1.0, 0.5]
    assert np.isnan(arrays["score"][1])


def test_viewer_app_sends_rows_with_their_rollouts(client):
    rows = client.get("/api/rows", params={"file": 0, "at": "1,2"}).json()["rows"]
    assert [each["id"] for each in rows] == ["b", "c"]
    assert rows[0]["_rollout"]["messages"][-1]["content"] == "bee"
    assert rows[1]["_rollout"] is None
    brief = client.get("/api/rows", params={"file": 0, "at": "1", "brief": 1}).json()["rows"]
    assert brief == [{"id": "b", "group": "g", "error": "JudgeError: no answer", "text": "bee"}]


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("search", {"file": 0, "q": "BEE"}, [1]),
        ("search", {"file": 0, "q": "none"}, []),
        ("order", {"file": 1, "by": "id"}, [1, 0]),
        ("join", {"file": 0, "other": 1}, [1, -1, 0]),
    ],
)
def test_viewer_app_sends_row_numbers(client, path, query, expected):
    answer = client.get(f"/api/{path}", params=query)
    assert np.frombuffer(answer.content, "<i4").tolist() == expected
    assert "guerdon-truncated" not in answer.headers


def test_viewer_app_marks_a_search_that_ran_out_of_time(client, monkeypatch):
    monkeypatch.setattr("guerdon.viewer.files.SEARCH_S", -1.0)
    answer = client.get("/api/search", params={"file": 0, "q": "a"})
    assert answer.headers["guerdon-truncated"] == "1"


def test_viewer_app_lists_a_group_with_half_of_a_pair_of_surrogates(client, tmp_path):
    with (tmp_path / "two.jsonl").open("a") as file:
        file.write(json.dumps(row("d", 1.0, group="\ud800")) + "\n")
    columns = client.get("/api/files").json()["files"][1]["columns"]
    assert [each["values"] for each in columns if each["name"] == "group"] == [["g", "\ud800"]]


def versions(client):
    return [file["version"] for file in client.get("/api/files").json()["files"]]


def test_viewer_app_changes_waits_until_a_file_has_grown(client, tmp_path, monkeypatch):
    waits = []

    async def grow(seconds):
        waits.append(seconds)
        with (tmp_path / "two.jsonl").open("a") as file:
            file.write(json.dumps(row("d", 1.0)) + "\n")

    monkeypatch.setattr(app.anyio, "sleep", grow)
    one, two = versions(client)
    answer = client.get("/api/changes", params={"versions": [one, two]}).json()
    assert answer == {"versions": versions(client)}
    assert answer["versions"][0] == one
    assert answer["versions"][1] != two
    assert waits == [app.LOOK_S]
    _, arrays = unpacked(client.get("/api/columns", params={"file": 1, "names": "score"}))
    assert arrays["score"] == [0.25, 0.75, 1.0]


def test_viewer_app_refuses_rows_and_searches_of_a_file_that_was_removed(client, tmp_path):
    (tmp_path / "two.jsonl").unlink()
    for path in ("rows?file=1&at=0", "search?file=1&q=a", "changes"):
        answer = client.get(f"/api/{path}")
        assert answer.status_code == 400
        assert "two.jsonl: No such file or directory" in answer.json()["error"]


def test_viewer_app_changes_ends_after_its_time(client, monkeypatch):
    monkeypatch.setattr(app, "CHANGES_S", 0.0)
    known = versions(client)
    assert client.get("/api/changes", params={"versions": known}).json() == {"versions": known}


def test_viewer_app_changes_answers_once_rollouts_or_as_many_rows_are_written(client, tmp_path):
    for name in ("one.jsonl", "r.jsonl"):
        known = versions(client)
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace('"g"', '"h"'))
        answer = client.get("/api/changes", params={"versions": known}).json()
        assert answer["versions"][0] != known[0], name
        assert answer == {"versions": versions(client)}


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/api/rows?file=2&at=0", 404, "`file` must be the number of one of the files"),
        ("/api/rows?at=0", 404, "`file` must be the number of one of the files"),
        ("/api/rows?file=x&at=0", 400, "`file` must be integers"),
        ("/api/rows?file=0&at=3", 400, "`at` must be in [0, 3), the rows of one.jsonl, got 3"),
        ("/api/rows?file=0&at=-1", 400, "`at` must be in [0, 3), the rows of one.jsonl, got -1"),
        ("/api/columns?file=0&names=no", 400, "there is no column of numbers or categories 'no'"),
        ("/api/order?file=0&by=no", 400, "there is no column of texts 'no'"),
        ("/api/no", 404, "Not Found"),
        ("/x.py", 404, "there is no page 'x.py'"),
        ("/..%2fone.jsonl", 404, "Not Found"),
        ("/%2e%2e/one.jsonl", 404, "Not Found"),
    ],
)
def test_viewer_app_refuses_bad_requests(client, path, status, error):
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (status, {"error": error})


# Access


def test_viewer_app_makes_a_cookie_of_the_token_in_the_address(client):
    del client.headers["authorization"]
    assert client.get("/").status_code == 401
    answer = client.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert client.get("/").text.startswith("<!doctype html>")
    assert client.get("/main.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/api/files").status_code == 200


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/main.js", {}),
        ("/api/files", {}),
        ("/?token=wrong", {}),
        ("/?token=s3cret%E9", {}),
        ("/api/files?token=s3cret", {}),
        ("/api/files", {"authorization": "Bearer wrong"}),
        ("/api/files", {"cookie": "guerdon=s3cret"}),
    ],
)
def test_viewer_app_requires_the_token(client, path, headers):
    del client.headers["authorization"]
    answer = client.get(path, headers=headers)
    assert answer.status_code == 401
    assert "address" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"host": "localhost:80"}, 200),
        ({"origin": "http://127.0.0.1"}, 200),
    ],
)
def test_viewer_app_refuses_other_hosts_and_sites(client, headers, status):
    assert client.get("/api/files", headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/", "/api/files", "/no.js", "/api/rows?file=9"])
def test_viewer_app_sends_its_policy_with_every_answer(client, path):
    headers = client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["img-src"] == "'self' data:"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_viewer_app_accepts_only_get_and_head(client, method):
    assert client.request(method, "/api/files").status_code == 405


@pytest.mark.parametrize("token", ["", "two words", "ü"])
def test_viewer_app_refuses_a_token_that_no_header_can_have(viewed, write, token):
    with pytest.raises(InvalidArgumentError, match="`token`"):
        ViewerApp([viewed(write("s.jsonl", [row(1, 1.0)]))], token)


def test_cookies_of_two_viewer_apps_on_one_host_have_different_names(viewed, write):
    file = viewed(write("s.jsonl", [row(1, 1.0)]))
    names = set()
    for token in ("one", "two"):
        application = ViewerApp([file], token)
        with TestClient(application, base_url="http://127.0.0.1") as client:
            assert client.get(f"/?token={token}").status_code == 200
            names |= set(client.cookies)
    assert len(names) == 2


@pytest.mark.parametrize("name", ["a" * 5000, "é" * 200, "a%00b", "..", "%2e%2e%2f..%2fx"])
def test_viewer_app_has_no_page_of_any_other_name(client, name):
    assert client.get(f"/{name}.js").status_code == 404
