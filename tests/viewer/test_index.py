"""FileIndex: the places and the columns of the rows of a file, of any kind and in any state."""

import json
import math
import shutil

import numpy as np
import pytest

from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.scoring.summary import Summary
from guerdon.viewer import FileIndex, columns, kinds, lines
from guerdon.viewer import index as index_module
from tests.viewer.conftest import rollout, row


def labels(index, name):
    """The values of a category, row by row."""
    values = [*index.store.columns[name].values, None]
    return [values[code] for code in index.store.read(name)]


def numbers(index, name):
    """The numbers of a column, None where there is none."""
    return [None if math.isnan(each) else each for each in index.store.read(name).tolist()]


# Kinds


def test_file_index_of_result_rows_distinguishes_a_failure_from_a_score_of_0(write, opened):
    index = opened(write("s.jsonl", [row(1, 0.0), row(2, None), row(3, 0.5)]))
    assert (index.kind, index.rows, index.is_complete, index.unreadable) == ("rows", 3, True, 0)
    assert numbers(index, "score") == [0.0, None, 0.5]
    assert numbers(index, "components.right") == [0.0, None, 0.5]
    assert labels(index, "status") == ["scored", "failed", "scored"]
    assert labels(index, "failure") == [None, "JudgeError", None]
    assert index.store.read("id").tolist() == [b"1", b"2", b"3"]


def test_components_of_a_failed_row_are_in_no_column_like_in_summary(write, opened):
    rows = [row(1, 1.0), row(2, None, components={"right": 0.25})]
    index = opened(write("s.jsonl", rows))
    summary = Summary()
    for each in rows:
        summary.add(each)
    assert np.nanmean(index.store.read("components.right")) == summary.components["right"].value


def test_file_index_has_the_extremes_and_the_mean_of_the_advantages(write, opened):
    steps = [{"step_index": i, "advantage": value} for i, value in enumerate([0.5, None, -1.5])]
    index = opened(write("s.jsonl", [row(1, 1.0, steps=steps), row(2, 1.0)]))
    found = [numbers(index, f"advantage.{name}") for name in ("min", "mean", "max")]
    assert found == [[-1.5, None], [-0.5, None], [0.5, None]]


def test_file_index_has_other_columns_as_numbers_or_categories(write, opened):
    more = {"model": "small", "level": 3, "temperature": 0.5, "is_new": True, "text": "x" * 201}
    index = opened(write("s.jsonl", [row(1, 1.0, **more), row(2, 1.0)]))
    assert [labels(index, name) for name in ("model", "level", "is_new")] == [
        ["small", None], ["3", None], ["True", None],
    ]  # fmt: skip
    assert numbers(index, "temperature") == [0.5, None]
    assert "text" not in index.store.columns


def test_file_index_of_comparisons_has_a_difference_only_if_both_are_valid(write, opened):
    sides = [(0.5, 1.0), (0.5, None), (None, 0.5), (None, None)]
    rows = [
        {"id": i, "group": "g", "before": row(i, one), "after": row(i, other)}
        for i, (one, other) in enumerate(sides)
    ]
    index = opened(write("d.jsonl", rows))
    assert index.kind == "diff"
    assert labels(index, "status") == ["both", "lost", "won", "failed"]
    assert numbers(index, "difference") == [0.5, None, None, None]
    assert numbers(index, "before.right") == [0.5, 0.5, None, None]
    assert numbers(index, "after.right") == [1.0, None, 0.5, None]


def test_file_index_of_a_log_of_reward_logger(tmp_path, opened):
    from guerdon import RewardLogger

    with RewardLogger("jsonl", path=tmp_path, run_name="r") as logger:
        logger.log_step(0, 1, 0.5, {"brief": 1.0}, weights={"brief": 0.5})
        logger.log_step(1, 1, None, {"brief": None}, invalid={"brief": "TimeoutError"})
        logger.log_config_update("brief.weight", before=0.5, after=1.0, who="ann")
    index = opened(tmp_path / "r" / "rewards.jsonl")
    assert (index.kind, index.rows) == ("log", 3)
    assert labels(index, "kind") == ["step", "step", "config"]
    assert numbers(index, "reward") == [0.5, None, None]
    assert numbers(index, "components.brief") == [1.0, None, None]
    assert numbers(index, "weights.brief") == [0.5, None, 1.0]
    assert numbers(index, "invalid.brief") == [None, 1.0, None]
    assert numbers(index, "invalid.the reward itself") == [None, 1.0, None]


def test_file_index_of_an_arena_leaves_out_its_first_line(write, opened):
    result = {"world": "w", "method": "m", "area": [0.1, 0.9, 0.5], "updates": [3, None, None]}
    failure = {"world": "w", "method": "n", "error": "ValueError: no"}
    index = opened(write("a.jsonl", [{"arena": "f", "protocol": {}}, result, failure]))
    assert (index.kind, index.rows) == ("arena", 2)
    assert labels(index, "method") == ["m", "n"]
    assert numbers(index, "area") == [0.5, None]
    assert numbers(index, "updates") == [None, None]  # the median seed didn't reach the target
    assert index.read([0]) == [result]


def test_file_index_of_rollouts_counts_turns_calls_and_characters(write, opened):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": [{}, {}]},
        {"role": "tool", "content": "de"},
        {"role": "assistant", "content": "f"},
    ]
    index = opened(write("r.jsonl", [{"messages": messages, "model": "m"}, {"messages": 7}]))
    assert index.kind == "rollouts"
    found = {name: numbers(index, name) for name in ("turns", "tool_calls", "characters")}
    assert found == {"turns": [2, 0], "tool_calls": [2, 0], "characters": [6, 0]}
    assert labels(index, "model") == ["m", None]


# Reading


def test_file_index_read_returns_the_rows_of_the_file(write, opened):
    rows = [row(number, number / 7, text="ü" * number) for number in range(300)]
    index = opened(write("s.jsonl", rows))
    assert index.read([299, 0, 150]) == [rows[299], rows[0], rows[150]]
    with pytest.raises(InvalidArgumentError, match=r"`at` must be in \[0, 300\)"):
        index.read([300])


def test_file_index_skips_blank_lines_and_a_byte_order_mark(tmp_path, opened):
    lines = "\n".join(["", json.dumps(row(1, 1.0)), "  ", json.dumps(row(2, 0.0)), "", ""])
    (tmp_path / "s.jsonl").write_text("\ufeff" + lines)
    index = opened(tmp_path / "s.jsonl")
    assert [each["id"] for each in index.read([0, 1])] == [1, 2]
    assert index.is_complete


def test_file_index_reads_json_that_only_python_accepts(tmp_path, opened):
    text = json.dumps(row("\ud800", 1.0))[:-1] + ', "x": NaN, "y": 1e999}\n'
    (tmp_path / "s.jsonl").write_text(text)
    index = opened(tmp_path / "s.jsonl")
    assert index.read([0])[0]["id"] == "\ud800"
    assert numbers(index, "y") == [None]  # infinity is no number


# Growing and changing


def test_file_index_is_loaded_from_the_cache_without_reading_the_file(write, tmp_path, monkeypatch):
    path = write("s.jsonl", [row(1, 1.0), row(2, None)])
    FileIndex(path, cache=tmp_path / "cache").close()
    monkeypatch.setattr(index_module, "read_rows", None)
    with FileIndex(path, cache=tmp_path / "cache") as index:
        assert index.rows == 2
        assert labels(index, "status") == ["scored", "failed"]


@pytest.mark.parametrize("restart", [False, True])
def test_file_index_is_extended_when_the_file_grows(write, opened, restart, monkeypatch):
    path = write("s.jsonl", [row(1, 1.0)])
    index = opened(path)
    starts = []
    real = lines.read_rows

    def spy(file, offset, number):
        starts.append(offset)
        return real(file, offset, number)

    monkeypatch.setattr(index_module, "read_rows", spy)
    size = path.stat().st_size
    with path.open("a") as file:
        file.write(json.dumps(row(2, 0.5, components={"new": 3.0}, group="h")) + "\n")
    if restart:
        index.close()
        index = opened(path)
    else:
        assert index.refresh()
        assert not index.refresh()
    assert starts == [size]
    assert numbers(index, "components.new") == [None, 3.0]
    assert numbers(index, "components.right") == [1.0, None]
    assert labels(index, "group") == ["g", "h"]
    assert index.read([1])[0]["id"] == 2


def test_file_index_is_rebuilt_when_the_file_has_changed(write, opened):
    index = opened(write("s.jsonl", [row(1, 1.0), row(2, 1.0)]))
    write("s.jsonl", [row(3, 0.5), row(4, None, model="m"), row(5, 0.25)])
    assert index.refresh()
    assert numbers(index, "score") == [0.5, None, 0.25]
    assert labels(index, "model") == [None, "m", None]


def test_file_index_is_rebuilt_when_an_early_row_is_edited_in_place(write, opened):
    rows = [row(each, 0.5, note="x" * 500) for each in range(100)]
    index = opened(write("s.jsonl", rows))
    write("s.jsonl", [row(0, 0.7, note="x" * 500), *rows[1:]])
    assert index.refresh()
    assert numbers(index, "score")[:2] == [0.7, 0.5]


@pytest.mark.parametrize("changed", [0, 3, 150, 199])
@pytest.mark.parametrize("is_open", [True, False])
def test_file_index_is_rebuilt_when_a_file_that_grew_was_scored_again(
    write, opened, changed, is_open
):
    rows = [row(each, 0.5, note="x" * 500) for each in range(200)]
    index = opened(write("s.jsonl", rows))
    if not is_open:
        index.close()
    rows[changed] = row(changed, 0.9, note="x" * 500)
    path = write("s.jsonl", [*rows, row(200, 0.5)])  # in place, as guerdon score writes
    if not is_open:
        index = opened(path)
    index.refresh()
    assert numbers(index, "score") == [each["score"] for each in rows] + [0.5]


def test_file_index_compares_both_ends_of_a_large_file_that_grows(write, opened, monkeypatch):
    monkeypatch.setattr(index_module, "BLOCK_BYTES", 1000)
    rows = [row(each, 0.5) for each in range(500)]
    index = opened(write("s.jsonl", rows))
    write("s.jsonl", [row(0, 0.9), *rows[1:], row(500, 0.5)])
    index.refresh()
    assert numbers(index, "score")[0] == 0.9


def test_file_index_waits_for_the_rest_of_a_line(write, opened):
    whole = json.dumps(row(2, 0.5)) + "\n"
    path = write("s.jsonl", [row(1, 1.0)])
    with path.open("a") as file:
        file.write(whole[:40])
        file.flush()
        index = opened(path)
        assert (index.rows, index.is_complete) == (1, False)
        file.write(whole[40:])
    assert index.refresh()
    assert (index.rows, index.is_complete) == (2, True)
    assert numbers(index, "score") == [1.0, 0.5]


def test_file_index_accepts_a_last_line_without_a_line_break(write, opened):
    path = write("s.jsonl", [row(1, 1.0), row(2, 0.5)], end="")
    index = opened(path)
    assert (index.rows, index.is_complete) == (2, True)
    with path.open("a") as file:
        file.write("\n" + json.dumps(row(3, 0.0)))
    index.refresh()
    assert numbers(index, "score") == [1.0, 0.5, 0.0]


def test_file_index_of_a_file_that_another_process_indexes(write, opened):
    path = write("s.jsonl", [row(1, 1.0)])
    one, other = opened(path), opened(path)
    assert one.folder != other.folder
    assert numbers(other, "score") == [1.0]
    other.close()
    assert not other.folder.exists()


def test_file_index_of_a_cache_that_cant_be_written(write):
    path = write("s.jsonl", [row(1, 0.5)])
    with FileIndex(path, cache=path / "cache") as index:  # a file is in the way
        assert numbers(index, "score") == [0.5]


def test_file_index_with_a_damaged_cache_is_rebuilt(write, opened):
    path = write("s.jsonl", [row(1, 1.0)])
    index = opened(path)
    index.close()
    (index.folder / "index.json").write_text('{"version": 1, "path"')
    assert numbers(opened(path), "score") == [1.0]


@pytest.mark.parametrize("name", ["column-0", "column-1", "places", "index.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "zeros"])
def test_file_index_with_a_damaged_file_is_rebuilt(write, opened, name, damage):
    index = opened(path := write("s.jsonl", [row(1, 1.0), row(2, 0.5)]))
    index.close()
    file = index.folder / name
    data = file.read_bytes()
    file.unlink()
    if damage != "missing":
        kinds = {"empty": b"", "cut": data[:-1], "longer": data + b"x", "zeros": bytes(len(data))}
        file.write_bytes(kinds[damage])
    index = opened(path)
    assert numbers(index, "score") == [1.0, 0.5]
    assert [each["id"] for each in index.read([0, 1])] == [1, 2]


def test_file_index_whose_folder_was_removed_is_rebuilt(write, opened):
    index = opened(write("s.jsonl", [row(1, 1.0), row(2, 0.5)]))
    shutil.rmtree(index.folder)
    assert index.refresh()
    assert numbers(index, "score") == [1.0, 0.5]


# Bad input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("\n\n", "has no rows"),
        ('{"id": 1, "sc', "has no rows"),
        ("not json\n", "has no rows"),
        ("[1, 2]\n", "has no rows"),
        ('{"x": 1, "y\\u001b": 2}\n', r"its first row has the keys x, y\\x1b"),
    ],
)
def test_file_index_refuses_a_file_without_rows(tmp_path, opened, text, message):
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(InvalidArgumentError, match=message):
        opened(tmp_path / "s.jsonl")


def test_file_index_refuses_a_missing_file(tmp_path, opened):
    with pytest.raises(InvalidArgumentError, match=r"can't read .*none\.jsonl: No such file"):
        opened(tmp_path / "none.jsonl")


def test_file_index_keeps_unreadable_lines_as_rows(tmp_path, opened):
    good = json.dumps(row(1, 1.0))
    deep = "[" * 100_000
    bad = ["oops", "[1]", '{"id": "q", "x": 1}', deep]
    (tmp_path / "s.jsonl").write_text("\n".join([bad[0], good, *bad[1:], good]) + "\n")
    index = opened(tmp_path / "s.jsonl")
    assert (index.rows, index.unreadable) == (6, 4)
    assert labels(index, "status") == ["unreadable", "scored", *["unreadable"] * 3, "scored"]
    assert index.store.read("id").tolist() == [b"", b"1", b"", b"q", b"", b"1"]
    found = index.read([0, 2, 4])
    assert [each["_unreadable"][:4] for each in found] == ["oops", "[1]\n", "[[[["]
    assert found[1]["error"] == "the line is not an object"


@pytest.mark.parametrize("first", [rollout("a"), {"world": "lock", "method": "grpo"}])
def test_file_index_keeps_unreadable_lines_of_rollouts_and_of_arenas(tmp_path, opened, first):
    header = {"arena": "f", "protocol": {}} if "world" in first else {}
    lines = [json.dumps(each) for each in (header, first) if each]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*lines, "not JSON", json.dumps(first)]) + "\n")
    index = opened(path)
    assert (index.rows, index.unreadable) == (3, 1)
    assert "_unreadable" in index.read([1])[0]


@pytest.mark.parametrize("value", [None, 7, "x", True, [1], [[]], {"a": [None]}, 1e400, 10**400])
def test_file_index_reads_rows_whose_values_have_other_types(write, opened, value):
    names = [
        "id",
        "group",
        "score",
        "is_score_valid",
        "components",
        "step_rewards",
        "error",
        "steps",
    ]
    rows = [row("a", 1.0), *({**row("b", 1.0), name: value} for name in names)]
    rows.append(dict.fromkeys(names, value))
    index = opened(write("s.jsonl", rows))
    assert index.rows == len(rows)
    scores = numbers(index, "score")
    assert scores[0] == 1.0
    assert [each is None for each in scores] == [
        each != "scored" for each in labels(index, "status")
    ]


def test_file_index_reads_only_the_id_of_a_row_of_100_mb(tmp_path, opened):
    path = tmp_path / "s.jsonl"
    with path.open("w") as file:
        file.write('{"id": "huge", "score": 1.0, "components": {}, "text": "')
        for _ in range(100):
            file.write("x" * 1_000_000)
        file.write('"}\n' + json.dumps(row(2, 0.5)) + "\n")
    index = opened(path)
    assert (index.rows, index.unreadable) == (2, 1)
    assert labels(index, "status") == ["unreadable", "scored"]
    [large, small] = index.read([0, 1])
    assert large == {"_too_large": path.stat().st_size - len(json.dumps(row(2, 0.5))) - 1,
                     "id": "huge"}  # fmt: skip
    assert small["id"] == 2


def test_file_index_leaves_out_columns_over_500(write, opened):
    many = {f"c{number}": 0.5 for number in range(1_000_000 // 20)}
    index = opened(write("s.jsonl", [row(1, 1.0), row(2, 1.0, components=many), row(3, 0.25)]))
    assert len(index.store.columns) == columns.MAX_COLUMNS
    assert index.store.is_cut
    assert numbers(index, "score") == [1.0, 1.0, 0.25]
    assert numbers(index, "components.c0") == [None, 0.5, None]


def test_category_with_too_many_values_becomes_a_text(write, opened, monkeypatch):
    monkeypatch.setattr(columns, "MAX_VALUES", 200)
    rows = [row(i, i / 8, group=f"g{i:03}") for i in range(300)] + [row(300, 1.0, group=None)]
    index = opened(write("s.jsonl", rows))
    assert index.store.columns["group"].type == "text"
    assert numbers(index, "score") == [each["score"] for each in rows]
    assert labels(index, "status") == ["scored"] * 301
    groups = index.store.read("group").tolist()
    assert groups == [f"g{i:03}".encode() for i in range(300)] + [b""]


def test_file_index_distinguishes_long_groups_with_the_same_beginning(write, opened):
    rows = [row(i, 1.0, group="x" * 500 + end) for i, end in enumerate("aba")]
    values = labels(opened(write("s.jsonl", rows)), "group")
    assert values[0] == values[2] != values[1]
    assert max(map(len, values)) < 220


def test_column_store_adds_a_column_in_the_middle_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MAX_WAITING", 1000)
    monkeypatch.setattr(columns, "BLOCK", 7)
    store = columns.ColumnStore(tmp_path)
    for number in range(100):
        batch = columns.Batch(2, {"a": [number, math.inf]}, texts={"id": ["x", None]})
        if number >= 50:
            batch.categories["late"] = ["y", None]
        store.append(batch)
    store.flush()
    assert store.read("a")[::2].tolist() == list(range(100))
    assert np.isnan(store.read("a")[1::2]).all()
    assert store.read("late").tolist() == [-1] * 100 + [0, -1] * 50
    loaded = columns.ColumnStore(tmp_path, json.loads(json.dumps(store.state())))
    assert loaded.read("late", 98, 4).tolist() == [-1, -1, 0, -1]


def test_rollouts_of_a_conversation_without_messages_are_rows(write, opened):
    index = opened(write("r.jsonl", [rollout(1), {"id": 2, "ended": "invalid", "error": "no"}]))
    assert numbers(index, "turns") == [1, 0]


def test_rollouts_without_an_id_have_the_number_of_their_line(tmp_path, opened):
    lines = [rollout(None), rollout("b"), rollout(None)]
    del lines[0]["id"], lines[2]["id"]
    (tmp_path / "r.jsonl").write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    index = opened(tmp_path / "r.jsonl")
    with (tmp_path / "r.jsonl").open("a") as file:
        file.write(json.dumps(lines[0]) + "\n")
    index.refresh()
    assert index.store.read("id").tolist() == [b"1", b"b", b"5", b"6"]


def test_columns_of_a_task_with_names_of_ours_get_a_prefix(write, opened):
    index = opened(write("r.jsonl", [rollout(1, turns=7, score=0.5, failure="x")]))
    assert numbers(index, "turns") == [1]
    assert labels(index, "task.turns") == ["7"]
    assert numbers(index, "task.score") == [0.5]


def test_cache_folder_removes_indexes_of_files_that_are_gone(write, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    kept, gone = write("kept.jsonl", [row(1, 1.0)]), write("gone.jsonl", [row(1, 1.0)])
    folders = []
    for path in (kept, gone):
        with FileIndex(path) as index:
            folders.append(index.folder)
    gone.unlink()
    FileIndex(kept).close()
    assert [folder.exists() for folder in folders] == [True, False]


def test_cache_folder_keeps_an_index_that_is_open(write, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    path, other = write("s.jsonl", [row(1, 1.0)]), write("other.jsonl", [row(1, 1.0)])
    with FileIndex(path) as index:
        away = path.rename(tmp_path / "away.jsonl")
        FileIndex(other).close()
        away.rename(path)
        assert index.read([0])[0]["id"] == 1
        with path.open("a") as file:
            file.write(json.dumps(row(2, 0.5)) + "\n")
        assert index.refresh()
        assert numbers(index, "score") == [1.0, 0.5]


ODD = [None, 5, -1.5, True, "text", [], {}, [None, 5, "a", [1], {"a": 1}], {"a": {"b": [1]}},
       10**400, 1e308, math.nan, math.inf, [{"step_index": "x", "advantage": 10**400}]]  # fmt: skip
KEYS = ["id", "group", "score", "is_score_valid", "error", "components", "step_rewards", "steps",
        "trees", "stopped_by", "reason", "notes", "column"]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_file_index_of_a_row_with_an_odd_value_has_all_rows(write, opened, key):
    rows = [row(each, 0.5) | {key: value} for each, value in enumerate(ODD)]
    index = opened(write("s.jsonl", [row("first", 1.0), *rows, row("last", 0.25)]))
    assert index.rows == len(ODD) + 2
    scores = numbers(index, "score")
    assert (scores[0], scores[-1]) == (1.0, 0.25)
    assert len(index.read(range(index.rows))) == index.rows


def test_file_index_leaves_out_only_the_advantages_that_are_no_numbers(write, opened):
    steps = [{"advantage": each} for each in (10**400, "x", None, 0.5, True, 1.5)]
    rows = [row(1, 1.0, steps=[*steps, 5]), row(2, 1.0, steps=steps[3:4])]
    index = opened(write("s.jsonl", rows))
    found = [numbers(index, f"advantage.{name}") for name in ("min", "mean", "max")]
    assert found == [[0.5, 0.5], [1.0, 0.5], [1.5, 0.5]]


def test_file_index_keeps_a_row_that_has_no_columns(write, opened, monkeypatch):
    def batch_of(kind, rows):
        if any(each.get("id") == 2 for each in rows):
            raise RecursionError("too deep")
        return kinds.batch_of(kind, rows)

    monkeypatch.setattr(index_module, "batch_of", batch_of)
    index = opened(write("s.jsonl", [row(each, 0.5) for each in (1, 2, 3)]))
    assert numbers(index, "score") == [0.5, None, 0.5]
    assert labels(index, "status") == ["scored", "unreadable", "scored"]
    assert (index.unreadable, index.read([1])[0]["id"]) == (1, 2)


def test_file_index_has_the_gates_that_stopped_a_row_as_a_category(write, opened):
    rows = [row(1, 0.0, stopped_by=["syntax", "tests"]), row(2, 1.0), row(3, 0.0, stopped_by=[""])]
    index = opened(write("s.jsonl", rows))
    assert labels(index, "stopped_by") == ["syntax, tests", None, "the reward itself"]
