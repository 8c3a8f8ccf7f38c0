"""ViewedFile: rows with their rollouts, columns, search, order and joins."""

import json

import numpy as np
import pytest

from guerdon.errors import InvalidArgumentError
from guerdon.viewer import files, searching
from tests.viewer.conftest import rollout, row


def read(file, rows, **options):
    return [json.loads(line) for line in file.read(rows, **options)]


def column(file, name):
    _, [parts] = file.columns([name])
    return np.concatenate(list(parts)).tolist()


def test_viewed_file_joins_rows_with_rollouts_by_id(write, viewed):
    scored = write("s.jsonl", [row("b", 1.0), row(7, 0.0), row("lost", 1.0), row(None, 1.0)])
    recorded = write("r.jsonl", [rollout("7", "seven"), rollout("b", "bee"), rollout("b", "other")])
    file = viewed(scored, recorded)
    assert file.join(file.rollouts).tolist() == [1, 0, -1, -1]
    found = [each["_rollout"] and each["_rollout"]["id"] for each in read(file, [0, 1, 2, 3])]
    assert found == ["b", "7", None, None]
    info = file.info()
    counts = [info[name] for name in ("duplicates", "duplicate_rollouts", "without_rollout")]
    assert counts == [0, 1, 2]


def test_viewed_file_joins_ids_that_differ_at_their_end(write, viewed):
    ids = [f"{'x' * 100}{number}" for number in range(50)]
    scored = write("s.jsonl", [row(id, 1.0) for id in ids])
    recorded = write("r.jsonl", [rollout(id) for id in reversed(ids)])
    assert viewed(scored, recorded).join(viewed(recorded).index).tolist() == list(range(49, -1, -1))


def test_viewed_file_joins_rows_with_the_same_id_in_their_order(write, viewed):
    scored = viewed(write("s.jsonl", [row(id, 1.0) for id in ["a", "b", "a", "a", None, None]]))
    others = write("r.jsonl", [row(id, 1.0) for id in [None, "a", "c", "a", None]])
    assert scored.join(viewed(others).index).tolist() == [1, -1, 3, 1, -1, -1]


def test_viewed_file_never_shows_the_rollout_of_another_id(write, viewed, monkeypatch):
    file = viewed(write("s.jsonl", [row("a", 1.0)]), write("r.jsonl", [rollout("b")]))
    monkeypatch.setattr(file, "join", lambda other: np.array([0], np.int32))  # as if hashes collide
    assert read(file, [0])[0]["_rollout"] is None


def test_viewed_file_counts_ids_given_twice(write, viewed):
    file = viewed(write("s.jsonl", [row("a", 1.0), row("b", 1.0), row("a", 0.0), row("a", 1.0)]))
    assert file.info()["duplicates"] == 2
    assert "without_rollout" not in file.info()


def test_viewed_file_has_the_columns_of_the_rollouts(write, viewed):
    scored = write("s.jsonl", [row("a", 1.0, step_rewards=None, model="scorer"), row("z", 0.5)])
    recorded = write("r.jsonl", [rollout("z", model="m", level=0.5), rollout("y", model="n")])
    file = viewed(scored, recorded)
    names = {each["name"]: each.get("values") for each in file.info()["columns"]}
    assert names["task.model"] == ["m", "n"]
    assert column(file, "task.model") == [-1, 0]
    assert column(file, "model") == [0, -1]
    assert np.isnan(column(file, "level")[0])
    assert column(file, "level")[1] == 0.5
    with pytest.raises(InvalidArgumentError, match="no column of numbers or categories 'id'"):
        file.columns(["id"])


def test_viewed_file_columns_of_more_rows_than_a_block(write, viewed, monkeypatch):
    scored = write("s.jsonl", [row(i, i / 1000) for i in range(1000)])
    recorded = write("r.jsonl", [rollout(i, "x" * i) for i in range(0, 1000, 3)])
    for module in ("columns", "files", "searching"):
        monkeypatch.setattr(f"guerdon.viewer.{module}.BLOCK", 64)
    file = viewed(scored, recorded)
    order = sorted(range(1000), key=lambda i: str(i).encode())
    assert file.order("id").tolist() == order
    assert file.search("998")[0].tolist() == [998]
    assert file.info()["duplicates"] == 0
    expected = [2.0 + i if i % 3 == 0 else None for i in range(1000)]
    found = [None if np.isnan(each) else each for each in column(file, "characters")]
    assert found == expected
    assert column(file, "score") == [i / 1000 for i in range(1000)]


def test_viewed_file_order_sorts_texts_and_leaves_out_rows_without_one(write, viewed):
    ids = ["step-10", "step-9", None, "step-1", "step-10"]
    file = viewed(write("s.jsonl", [row(id, 1.0) for id in ids]))
    assert file.order("id").tolist() == [3, 0, 4, 1]
    with pytest.raises(InvalidArgumentError, match="no column of texts 'score'"):
        file.order("score")


def test_viewed_file_order_compares_after_a_long_shared_beginning(write, viewed):
    beginning = "checkpoints/run-2024-01-01/evaluation/"
    ids = [f"{beginning}{each}" for each in ("c", "a", "b")]
    assert viewed(write("s.jsonl", [row(id, 1.0) for id in ids])).order("id").tolist() == [1, 2, 0]


# Search


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SEVEN", [0]),  # an id, in other case
        ("judgeerror", [1]),
        ("straße", [2]),  # in the messages
        ("STRASSE", []),
        ('say "no"\n', [2]),  # escaped in JSON
        ("get_user", [3]),  # a tool call
        ("1729", [3]),  # its arguments
        ("assistant", []),  # a role
        ("fingerprint", []),  # a key
        ("é", [0]),  # no ASCII
        ("nowhere", []),
    ],
)
@pytest.mark.parametrize("is_ascii", [False, True])
def test_viewed_file_search_finds_texts_of_messages_and_reasons(
    tmp_path, viewed, text, rows, is_ascii
):
    call = {"function": {"name": "get_user", "arguments": '{"number": 1729}'}}
    conversations = [
        rollout("seven", "é"),
        rollout(1),
        rollout(2, 'Straße: say "no"\nor yes'),
        rollout(3, "", messages=[{"role": "assistant", "content": None, "tool_calls": [call]}]),
    ]
    scored = [row("seven", 1.0), row(1, None), row(2, 1.0), row(3, 0.0)]
    for name, values in (("s.jsonl", scored), ("r.jsonl", conversations)):
        data = "".join(json.dumps(each, ensure_ascii=is_ascii) + "\n" for each in values)
        (tmp_path / name).write_text(data)
    found, is_cut = viewed(tmp_path / "s.jsonl", tmp_path / "r.jsonl").search(text)
    assert (found.tolist(), is_cut) == (rows, False)
    assert found.dtype == np.int32


def test_viewed_file_search_across_pieces_of_the_file(write, viewed, monkeypatch):
    monkeypatch.setattr(searching, "PIECE", 1000)
    reasons = ["needle" if number % 7 == 0 else "hay" for number in range(200)]
    rows = [row(number, 1.0, reason=reason) for number, reason in enumerate(reasons)]
    rows[50]["reason"] = "needle" * 1000  # longer than a piece
    found, _ = viewed(write("s.jsonl", rows)).search("needle")
    assert found.tolist() == sorted({*range(0, 200, 7), 50})


def test_viewed_file_search_stops_after_its_time(write, viewed, monkeypatch):
    monkeypatch.setattr(files, "SEARCH_S", -1.0)
    found, is_cut = viewed(write("s.jsonl", [row("a", 1.0)])).search("a")
    assert (found.tolist(), is_cut) == ([], True)


# Rows


def test_viewed_file_read_brief_has_the_last_answer_or_its_calls(write, viewed):
    call = {"function": {"name": "look", "arguments": '{"at": 1}'}}
    calling = [{"role": "assistant", "content": None, "tool_calls": [call, None]}]
    recorded = [rollout("a", "x" * 300), rollout("b", messages=calling), rollout("c", messages=[7])]
    scored = [row("a", 1.0), row("b", None), row("c", 1.0), row("d", 1.0, reason="It is short.")]
    file = viewed(write("s.jsonl", scored), write("r.jsonl", recorded))
    found = read(file, [0, 1, 2, 3], brief=True)
    assert [each["text"] for each in found] == ["x" * 200, 'look("at": 1)', "", "It is short."]
    assert found[1] == {"id": "b", "group": "g", "error": "JudgeError: no answer",
                        "text": 'look("at": 1)'}  # fmt: skip


def test_viewed_file_read_leaves_out_rows_over_the_size_of_an_answer(write, viewed, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    rows = [row(1, 1.0), row(2, 1.0, reason="x" * 2000), row(3, 1.0)]
    found = read(viewed(write("s.jsonl", rows)), [0, 1, 2])
    assert found[1].keys() == {"_too_large", "id"}
    assert [found[0]["id"], found[2]["id"]] == [1, 3]
    with pytest.raises(InvalidArgumentError, match="at most 200 rows, got 201"):
        viewed(write("s.jsonl", rows)).read([0] * 201)


def test_viewed_file_read_returns_strict_json(tmp_path, viewed):
    (tmp_path / "s.jsonl").write_text('{"id": "\\ud800", "score": NaN, "components": {}}\n')
    [found] = read(viewed(tmp_path / "s.jsonl"), [0])
    assert found["score"] == "nan"


def test_viewed_file_refresh_joins_new_rows(write, viewed):
    scored = write("s.jsonl", [row("a", 1.0)])
    recorded = write("r.jsonl", [rollout("a")])
    file = viewed(scored, recorded)
    assert file.info()["without_rollout"] == 0
    with scored.open("a") as out:
        out.write(json.dumps(row("b", 1.0)) + "\n")
    assert file.refresh()
    assert file.info()["without_rollout"] == 1
    with recorded.open("a") as out:
        out.write(json.dumps(rollout("b")) + "\n")
    assert file.refresh()
    assert file.info()["without_rollout"] == 0
    assert not file.refresh()


def test_note_of_viewed_file_names_what_is_missing(tmp_path, viewed):
    text = json.dumps(row(1, 1.0)) + "\noops\n" + '{"id": 2, "sco'
    (tmp_path / "s.jsonl").write_text(text)
    note = viewed(tmp_path / "s.jsonl").info()["note"]
    assert note == "1 rows of s.jsonl can't be read; the last line of s.jsonl is cut off"


ODD = [None, 5, -1.5, True, "text", [], {}, [None, 5, "a", [1], {"a": 1}], {"a": {"b": [1]}}]
OF_MESSAGE = ["role", "content", "tool_calls", "name", "tool_call_id", "reasoning_content"]


@pytest.mark.parametrize("key", OF_MESSAGE)
def test_viewed_file_reads_and_searches_messages_with_odd_values(write, viewed, key):
    rows = [row(each, 0.5) for each in range(len(ODD))]
    rollouts = [
        {"id": each, "messages": [{"role": "assistant", "content": None, key: value}, 5, None]}
        for each, value in enumerate(ODD)
    ]
    file = viewed(write("s.jsonl", rows), write("r.jsonl", rollouts))
    places = range(len(ODD))
    assert [json.loads(each)["id"] for each in file.read(places, brief=True)] == list(places)
    assert [json.loads(each)["_rollout"]["id"] for each in file.read(places)] == list(places)
    assert file.search("a")[1] is False


def test_viewed_file_reads_and_searches_a_row_of_any_depth(tmp_path, viewed):
    deep = "[" * 150 + '"needle"' + "]" * 150
    line = json.dumps(row(1, 0.5))
    path = tmp_path / "s.jsonl"
    path.write_text(f'{line}\n{line[:-1]}, "deep": {deep}}}\n')
    file = viewed(path)
    assert len(file.read([0, 1])) == 2
    assert file.search("needle")[0].tolist() == [1]


def test_viewed_file_has_a_note_in_place_of_a_row_that_cant_be_shown(write, viewed, monkeypatch):
    def fail(row):
        raise RecursionError("nested too deeply")

    file = viewed(write("s.jsonl", [row(1, 0.5)]))
    monkeypatch.setattr("guerdon.viewer.files._brief", fail)
    [line] = file.read([0], brief=True)
    assert json.loads(line)["error"] == "the row can't be shown: nested too deeply"
