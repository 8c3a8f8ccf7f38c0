"""guerdon view: a process that serves the page, and reports."""

import json
import os
import re
import select
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.viewer.conftest import rollout, row

pytestmark = pytest.mark.edge  # real servers and processes

PATIENCE = 30  # seconds after which what should happen is taken not to happen


@pytest.fixture
def environ(environ, tmp_path):
    """Caches are in the folder of the test; opening a browser writes its address to a file."""
    browser = f"sh -c 'echo %s > {tmp_path}/opened'"
    return environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "BROWSER": browser}


@pytest.fixture
def scored(tmp_path):
    """Two rows, the rollout of one, and a page if the package has none."""
    for name, values in (
        ("scored.jsonl", [row("a", 1.0), row("b", None)]),
        ("rollouts.jsonl", [rollout("b", "bee")]),
    ):
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in values))


def first_line(process):
    """The first line that a process prints."""
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    assert ready, "it printed nothing"
    return os.read(process.stdout.fileno(), 10_000).decode()


def address_of(process):
    return re.search(r"http://\S+", first_line(process))[0]


def test_view_serves_rows_and_their_rollouts_until_ctrl_c(started, scored):
    process = started("view", "scored.jsonl", "--rollouts", "rollouts.jsonl", "--no-open")
    address = address_of(process)
    assert address.startswith("http://127.0.0.1:")
    with httpx.Client(base_url=address.partition("?")[0], timeout=PATIENCE) as client:
        assert client.get("/api/files").status_code == 401
        assert client.get(address).status_code == 303
        [file] = client.get("/api/files").json()["files"]
        assert (file["rows"], file["without_rollout"]) == (2, 1)
        rows = client.get("/api/rows", params={"file": 0, "at": "1"}).json()["rows"]
        assert rows[0]["_rollout"]["messages"][-1]["content"] == "bee"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b""


def test_view_opens_a_browser_at_its_address(started, scored, tmp_path):
    os.mkfifo(tmp_path / "opened")
    address = address_of(started("view", "scored.jsonl"))
    with open(tmp_path / "opened") as opened:  # waits for the browser
        assert opened.read().strip() == address


def test_view_follows_a_file_that_grows(started, scored, tmp_path):
    address = address_of(started("view", "scored.jsonl", "--no-open"))
    with httpx.Client(base_url=address.partition("?")[0], timeout=PATIENCE) as client:
        client.get(address)
        [before] = client.get("/api/files").json()["files"]
        with (tmp_path / "scored.jsonl").open("a") as file:
            file.write(json.dumps(row("c", 0.5)) + "\n")
        answer = client.get("/api/changes", params={"versions": before["version"]}).json()
        assert answer["versions"] != [before["version"]]
        assert client.get("/api/files").json()["files"][0]["rows"] == 3


def test_view_names_files_of_the_same_name_by_their_paths(started, tmp_path):
    paths = [f"{run}/rewards.jsonl" for run in ("first", "second")]
    for path in paths:
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text('{"kind": "step", "step": 1, "reward": 0.5}\n')
    address = address_of(started("view", *paths, "--no-open"))
    with httpx.Client(base_url=address.partition("?")[0], timeout=PATIENCE) as client:
        client.get(address)
        assert [file["name"] for file in client.get("/api/files").json()["files"]] == paths


def test_view_ends_while_the_page_waits_for_changes(started, scored):
    process = started("view", "scored.jsonl", "--no-open")
    address = address_of(process)
    with httpx.Client(base_url=address.partition("?")[0], timeout=PATIENCE) as client:
        client.get(address)
        [file] = client.get("/api/files").json()["files"]
        known = {"versions": file["version"]}
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(client.get, "/api/changes", params=known)
            with pytest.raises(TimeoutError):
                waiting.result(1)
            process.send_signal(signal.SIGINT)
            assert waiting.result().json()["versions"] == [file["version"]]
        assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.jsonl"], "can't read"),
        (["rollouts.jsonl"], "rollouts without scores; score them with guerdon score --out"),
        (["scored.jsonl", "--rollouts", "scored.jsonl"], "--rollouts must be a file of rollouts"),
        (["scored.jsonl", "--sample", "3"], "--sample requires a report: --out F.html"),
        (["scored.jsonl", "--out", "scored.jsonl"], "--out must not be one of the files"),
        (
            ["scored.jsonl", "--rollouts", "rollouts.jsonl", "--out", "rollouts.jsonl"],
            "--out must not be one of the files",
        ),
        (["scored.jsonl", "--out", "none/x.html"], "can't write none/x.html: No such file"),
        (["scored.jsonl", "--host", "256.0.0.1"], "can't listen on 256.0.0.1"),
    ],
)
def test_view_refuses_other_files_and_options(guerdon, scored, args, message):
    done = guerdon("view", *args)
    assert done.returncode == 2
    assert message in done.stderr


def test_diff_out_has_the_rows_of_both_rewards_for_view(guerdon, started, rewards, rows, tmp_path):
    rows(["1", "0.5", "x"])
    done = guerdon(
        "diff", "reward.py:Number", "reward.py:polite", "rollouts.jsonl", "--out", "diff.jsonl"
    )
    assert done.returncode == 1  # a row failed
    found = [json.loads(line) for line in (tmp_path / "diff.jsonl").read_text().splitlines()]
    assert [each["id"] for each in found] == [0, 1, 2]
    scores = [(each["before"]["score"], each["after"]["score"]) for each in found]
    assert scores == [(1.0, 0.0), (0.5, 0.0), (None, 0.0)]
    assert all("id" not in each["before"] and "fingerprint" in each["before"] for each in found)
    address = address_of(started("view", "diff.jsonl", "--no-open"))
    with httpx.Client(base_url=address.partition("?")[0], timeout=PATIENCE) as client:
        client.get(address)
        [file] = client.get("/api/files").json()["files"]
    assert (file["kind"], file["rows"]) == ("diff", 3)


def test_diff_out_refuses_the_file_of_the_rollouts(guerdon, rewards, rows, tmp_path):
    data = rows(["1"])
    done = guerdon(
        "diff", "reward.py:Number", "reward.py:polite", "rollouts.jsonl", "--out", "rollouts.jsonl"
    )
    assert done.returncode == 2
    assert "`out` must not be the file of the rollouts" in done.stderr
    assert (tmp_path / "rollouts.jsonl").read_bytes() == data


def test_diff_out_on_standard_output_has_the_rows_only(guerdon, rewards, rows):
    rows(["1", "0.5"])
    done = guerdon("diff", "reward.py:Number", "reward.py:polite", "rollouts.jsonl", "--out", "-")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    assert "mean score" in done.stderr
