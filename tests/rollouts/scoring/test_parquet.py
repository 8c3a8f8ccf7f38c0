"""Rollouts from Parquet and result rows to Parquet: the same rows as with JSONL."""

import io
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest

from guerdon.errors import MissingExtraError, RolloutError
from guerdon.rollouts import CreditSettings, ScoringJob
from guerdon.rollouts.scoring.parquet import read_parquet, rows_of_table, table_of_rows

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def rollout(number, *messages):
    said = [{"role": "user", "content": "6 × 7?"}, *messages]
    return {
        "id": f"q{number}", "group": f"g{number // 2}", "ground_truth": "42",
        "messages": [*said, {"role": "assistant", "content": f"A: {40 + number % 3}"}],
    }  # fmt: skip


ROLLOUTS = [
    *map(rollout, range(6)),
    rollout(6, {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "content": "42", "tool_call_id": "c1"}),
    {"id": "q7", "group": "g3", "messages": [{"role": "user", "content": "?"}]},
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A folder with the same rollouts as JSONL and as Parquet."""
    lines = [json.dumps(row) + "\n" for row in ROLLOUTS]
    (tmp_path / "rollouts.jsonl").write_text("".join(lines), encoding="utf-8")
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(ROLLOUTS), tmp_path / "rollouts.parquet", row_group_size=3
    )
    return tmp_path


def score(folder, rollouts, out, **options):
    job = ScoringJob(
        str(folder / rollouts), "guerdon:NumericAnswer", str(folder / out), **options
    )  # fmt: skip
    return job.run()


def jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def parquet(path):
    return pyarrow.parquet.read_table(path).to_pylist(maps_as_pydicts="strict")


def present(row):
    return {name: value for name, value in row.items() if value is not None}


def test_scoring_job_writes_the_same_rows_for_parquet_as_for_jsonl(folder):
    score(folder, "rollouts.jsonl", "from_lines.jsonl")
    score(folder, "rollouts.parquet", "from_parquet.jsonl")
    assert (folder / "from_parquet.jsonl").read_bytes() == (
        folder / "from_lines.jsonl"
    ).read_bytes()


def test_scoring_job_writes_parquet_with_one_row_per_rollout(folder):
    report = score(folder, "rollouts.jsonl", "scored.jsonl")
    score(folder, "rollouts.jsonl", "scored.parquet")
    assert list(map(present, parquet(folder / "scored.parquet"))) == list(
        map(present, jsonl(folder / "scored.jsonl"))
    )
    assert report.summary.failed == 1
    failed = parquet(folder / "scored.parquet")[-1]
    assert (failed["score"], failed["is_score_valid"]) == (None, False)
    assert "no assistant turn" in failed["error"]
    assert not list(folder.glob("*.partial")) + list(folder.glob("*.unfinished"))


def test_scoring_job_writes_steps_and_ids_that_are_no_text_as_json(folder):
    rows = [rollout(number) | {"id": number, "group": None} for number in range(2)]
    rows = [row | {"group": [1, "a"]} for row in rows]
    (folder / "numbered.jsonl").write_text("\n".join(map(json.dumps, rows)))
    score(folder, "numbered.jsonl", "scored.parquet", credit=CreditSettings("grpo"))
    stored = parquet(folder / "scored.parquet")
    assert [(row["id"], row["group"]) for row in stored] == [("0", '[1, "a"]'), ("1", '[1, "a"]')]
    assert "advantage" in json.loads(stored[0]["steps"])[0]


@pytest.mark.parametrize("left", ["partial", "whole"])
def test_scoring_job_resumes_a_parquet_file(folder, left):
    score(folder, "rollouts.jsonl", "whole.parquet")
    whole = parquet(folder / "whole.parquet")
    if left == "partial":
        score(folder, "rollouts.jsonl", "lines.jsonl")
        some = (folder / "lines.jsonl").read_bytes().splitlines(keepends=True)[:3]
        (folder / "out.parquet.partial").write_bytes(b"".join(some) + b'{"id": "q3')
    else:
        pyarrow.parquet.write_table(
            pyarrow.parquet.read_table(folder / "whole.parquet").slice(0, 3), folder / "out.parquet"
        )
    report = score(folder, "rollouts.jsonl", "out.parquet", resume=True)
    assert (report.resumed, report.scored) == (3, 5)
    assert parquet(folder / "out.parquet") == whole


def test_read_parquet_leaves_out_nulls_and_writes_other_values_as_text():
    file = io.BytesIO()
    rows = [{"at": None, "size": float("inf"), "tags": [None, {"a": 1}]}, {"tags": [{"b": 2}]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    lines = [(number, json.loads(line)) for number, line in read_parquet(file)]
    assert lines == [(1, {"size": "inf", "tags": [None, {"a": 1}]}), (2, {"tags": [{"b": 2}]})]


def test_read_parquet_raises_a_rollout_error_for_another_file():
    with pytest.raises(RolloutError, match="not a Parquet file"):
        list(read_parquet(io.BytesIO(b'{"id": 1}\n')))


def test_table_of_rows_replaces_lone_surrogates(folder):
    score(folder, "rollouts.jsonl", "scored.jsonl")
    row = jsonl(folder / "scored.jsonl")[0] | {"error": "\ud800!"}
    [stored] = rows_of_table(table_of_rows([row]))
    assert stored["error"] == "?!"
    assert stored["components"] == row["components"]


def test_scoring_job_with_parquet_requires_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for rollouts, out in (("rollouts.parquet", "a.jsonl"), ("rollouts.jsonl", "a.parquet")):
        with pytest.raises(MissingExtraError, match=r"guerdon\[parquet\]"):
            score(folder, rollouts, out)
    assert not (folder / "a.parquet.partial").exists()
