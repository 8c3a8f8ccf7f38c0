"""Groups: consecutive rollouts, and groups that are split."""

import json
import tracemalloc
from collections import deque
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import RolloutError
from guerdon.rollouts.json_forms import group_key
from guerdon.rollouts.scoring import reading
from guerdon.rollouts.scoring.reading import groups_of, lines_by_group, read_batches
from guerdon.types import Rollout

BROKEN = b"{broken"


def lines(*groups, start=1):
    """A line for each group; `BROKEN` is one that can't be read."""
    return [
        (number, each if each is BROKEN else json.dumps({"group": each}).encode())
        for number, each in enumerate(groups, start=start)
    ]


def numbers(batches):
    return [[number for number, _ in batch] for batch in batches]


def rollout(group, id=None):
    return Rollout.from_row(
        {"id": id, "group": group, "messages": [{"role": "assistant", "content": "x"}]}
    )


def test_lines_by_group_yields_the_lines_of_each_group():
    assert numbers(lines_by_group(lines("a", "a", "b", "c", "c"))) == [[1, 2], [3], [4, 5]]


def test_lines_by_group_yields_lines_unchanged():
    given = lines("a", "a")
    assert list(lines_by_group(given)) == [given]


def test_lines_by_group_yields_rollouts_without_a_group_alone():
    assert numbers(lines_by_group(lines(None, None, "a", None))) == [[1], [2], [3], [4]]
    assert numbers(lines_by_group([(1, b"{}"), (2, b"{}"), (3, b"[1]"), (4, b"3")])) == [
        [1], [2], [3], [4],
    ]  # fmt: skip


def test_lines_by_group_of_nothing_yields_nothing():
    assert list(lines_by_group([])) == []
    assert list(groups_of([])) == []


@pytest.mark.parametrize(
    "groups", [(1, "1"), (1, 1.5), (True, 1), ("a", ["a"]), ({"a": 1}, {"a": 2}), ("", "null")],
    ids=repr,
)  # fmt: skip
def test_lines_by_group_distinguishes_groups_by_value_and_type(groups):
    assert numbers(lines_by_group(lines(*groups))) == [[1], [2]]


def test_lines_by_group_ignores_the_order_of_keys():
    given = [(1, b'{"group": {"a": 1, "b": 2}}'), (2, b'{"group": {"b": 2, "a": 1}}')]
    assert numbers(lines_by_group(given)) == [[1, 2]]


def test_lines_by_group_accepts_groups_that_json_does_not_have():
    assert group_key(float("inf")) == group_key(float("inf")) != group_key(float("-inf"))
    assert group_key((1, 2)) == group_key([1, 2])
    hash(group_key({"a": {1}}))
    assert group_key(None) is None


@pytest.mark.parametrize("depth", [900, 3000])
def test_lines_by_group_accepts_deep_nesting(depth):
    nested = b'{"group": ' + b"[" * depth + b"]" * depth + b"}"
    assert numbers(lines_by_group([(1, nested), (2, b'{"group": 1}')])) == [[1], [2]]


# Groups that are split


def test_lines_by_group_rejects_a_split_group_with_both_lines():
    with pytest.raises(
        RolloutError, match=r'group "a" is split: it ends at line 2 and continues here. .* sort'
    ) as caught:
        list(lines_by_group(lines("a", "a", "b", "a")))
    assert caught.value.line == 4


def test_lines_by_group_yields_the_groups_before_a_split():
    batches = lines_by_group(lines("a", "b", "b", "a"))
    assert numbers([next(batches), next(batches)]) == [[1], [2, 3]]
    with pytest.raises(RolloutError, match="is split"):
        next(batches)


def test_lines_by_group_is_split_by_a_rollout_without_a_group():
    with pytest.raises(RolloutError, match="is split"):
        list(lines_by_group(lines("a", None, "a")))


def test_read_batches_checks_the_groups_of_a_file_before_the_first_batch(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    for groups, split in ((["a", "a", None, "b"], False), (["a", "b", "a"], True)):
        path.write_bytes(b"".join(line + b"\n" for _, line in lines(*groups)))
        with open(path, "rb") as file:
            if split:
                with pytest.raises(RolloutError, match="is split"):
                    read_batches(file, str(path), format="jsonl", together=True)
            else:
                batches = read_batches(file, str(path), format="jsonl", together=True)
                assert numbers(batches) == [[1, 2], [3], [4]]


def test_groups_of_groups_rollouts_like_lines():
    rollouts = [rollout("a"), rollout("a"), rollout(None), rollout(None), rollout("b")]
    assert [len(each) for each in groups_of(rollouts)] == [2, 1, 1, 1]
    with pytest.raises(RolloutError, match="group 1 is split: it ends at line 1") as caught:
        list(groups_of([rollout(1), rollout(2), rollout(1)]))
    assert caught.value.line == 3


# Lines that can't be read


def test_lines_by_group_is_not_split_by_an_unreadable_line():
    found = list(lines_by_group(lines("a", BROKEN, "a", "b", BROKEN, BROKEN, "b")))
    assert [number for batch in numbers(found) for number in batch] == [1, 2, 3, 4, 5, 6, 7]
    of_a, of_b = ({number for number, line in batch if b"group" in line}
                  for batch in found if any(b"group" in line for _, line in batch))  # fmt: skip
    assert (of_a, of_b) == ({1, 3}, {4, 7})


def test_lines_by_group_accepts_unreadable_lines_at_the_ends():
    found = list(lines_by_group(lines(BROKEN, "a", "a", BROKEN, "b", BROKEN)))
    assert [number for batch in numbers(found) for number in batch] == [1, 2, 3, 4, 5, 6]
    assert {tuple(line for line in batch if line[1] != BROKEN) for batch in found} - {()} == {
        tuple(lines("a", "a", start=2)), tuple(lines("b", start=5)),
    }  # fmt: skip


def test_lines_by_group_accepts_only_unreadable_lines():
    found = list(lines_by_group(lines(BROKEN, BROKEN)))
    assert [number for batch in numbers(found) for number in batch] == [1, 2]


# Bounds


def test_lines_by_group_rejects_a_group_that_is_too_large(monkeypatch):
    monkeypatch.setattr(reading, "MAX_GROUP", 3)
    assert numbers(lines_by_group(lines("a", "a", "a", "b"))) == [[1, 2, 3], [4]]
    with pytest.raises(RolloutError, match='group "a" has more than 3 rollouts') as caught:
        list(lines_by_group(lines("a", "a", "a", "a")))
    assert caught.value.line == 4


def test_lines_by_group_accepts_many_rollouts_without_a_group(monkeypatch):
    monkeypatch.setattr(reading, "MAX_GROUP", 3)
    assert len(list(lines_by_group(lines(*[None] * 10)))) == 10


def test_lines_by_group_bounds_unreadable_lines_in_a_group(monkeypatch):
    monkeypatch.setattr(reading, "MAX_GROUP", 3)
    try:
        longest = max(map(len, lines_by_group(lines("a", *[BROKEN] * 20, "b"))))
    except RolloutError:
        return  # refused is bounded too
    assert longest <= 4


def test_lines_by_group_keeps_one_group_in_memory():
    taken = []

    def given():
        for line in lines("a", "a", "b", "c"):
            taken.append(line[0])
            yield line

    batches = lines_by_group(given())
    assert taken == []
    assert len(next(batches)) == 2
    assert taken == [1, 2, 3]


def test_lines_by_group_keeps_no_names_of_groups():
    def given():
        for number in range(1, 3001):
            yield number, json.dumps({"group": f"{number:05}" + "x" * 5000}).encode()

    tracemalloc.start()
    try:
        deque(lines_by_group(given()), maxlen=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000  # the names have 15 MB


@given(st.lists(st.sampled_from([None, "a", "b", 1, "1", [1]]), max_size=8))
def test_lines_by_group_yields_every_line_once_or_rejects_a_split(groups):
    keys = [json.dumps(each) for each in groups]
    runs = [key for key, _ in groupby(keys) if key != "null"]
    split = len(runs) != len(set(runs))
    found = []
    try:
        for batch in lines_by_group(lines(*groups)):
            found += [batch]
    except RolloutError:
        assert split
    else:
        assert not split
        assert [line for batch in found for line in batch] == lines(*groups)
    for batch in found:
        assert len({line for _, line in batch}) == 1
        assert len(batch) == 1 or b"null" not in batch[0][1]
