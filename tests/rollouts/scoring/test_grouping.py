"""Groups: runs of rollouts that stand together, and those that don't."""

import json
import tracemalloc
from collections import deque
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import RolloutError
from guerdon.rollouts.keys import group_key
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


def test_lines_of_a_group_come_together():
    assert numbers(lines_by_group(lines("a", "a", "b", "c", "c"))) == [[1, 2], [3], [4, 5]]


def test_lines_come_as_they_are():
    given = lines("a", "a")
    assert list(lines_by_group(given)) == [given]


def test_rollouts_without_a_group_stand_for_themselves():
    assert numbers(lines_by_group(lines(None, None, "a", None))) == [[1], [2], [3], [4]]
    assert numbers(lines_by_group([(1, b"{}"), (2, b"{}"), (3, b"[1]"), (4, b"3")])) == [
        [1], [2], [3], [4],
    ]  # fmt: skip


def test_no_lines_are_no_groups():
    assert list(lines_by_group([])) == []
    assert list(groups_of([])) == []


@pytest.mark.parametrize(
    "groups", [(1, "1"), (1, 1.5), (True, 1), ("a", ["a"]), ({"a": 1}, {"a": 2}), ("", "null")],
    ids=repr,
)  # fmt: skip
def test_groups_are_told_apart_by_content_and_kind(groups):
    assert numbers(lines_by_group(lines(*groups))) == [[1], [2]]


def test_the_order_of_keys_does_not_matter():
    given = [(1, b'{"group": {"a": 1, "b": 2}}'), (2, b'{"group": {"b": 2, "a": 1}}')]
    assert numbers(lines_by_group(given)) == [[1, 2]]


def test_what_json_can_not_hold_is_a_group_all_the_same():
    assert group_key(float("inf")) == group_key(float("inf")) != group_key(float("-inf"))
    assert group_key((1, 2)) == group_key([1, 2])
    hash(group_key({"a": {1}}))
    assert group_key(None) is None


@pytest.mark.parametrize("depth", [900, 3000])
def test_groups_that_are_nested_deeply_end_nothing(depth):
    nested = b'{"group": ' + b"[" * depth + b"]" * depth + b"}"
    assert numbers(lines_by_group([(1, nested), (2, b'{"group": 1}')])) == [[1], [2]]


# Groups that are split


def test_a_split_group_is_refused_with_both_places():
    with pytest.raises(
        RolloutError, match=r'group "a" is split: it ends at line 2 and continues here. .* sort'
    ) as caught:
        list(lines_by_group(lines("a", "a", "b", "a")))
    assert caught.value.line == 4


def test_the_groups_before_a_split_come_all_the_same():
    batches = lines_by_group(lines("a", "b", "b", "a"))
    assert numbers([next(batches), next(batches)]) == [[1], [2, 3]]
    with pytest.raises(RolloutError, match="is split"):
        next(batches)


def test_a_rollout_without_a_group_splits_one():
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


def test_rollouts_are_grouped_alike():
    rollouts = [rollout("a"), rollout("a"), rollout(None), rollout(None), rollout("b")]
    assert [len(each) for each in groups_of(rollouts)] == [2, 1, 1, 1]
    with pytest.raises(RolloutError, match="group 1 is split: it ends at line 1") as caught:
        list(groups_of([rollout(1), rollout(2), rollout(1)]))
    assert caught.value.line == 3


# Lines that can't be read


def test_a_line_that_can_not_be_read_splits_no_group():
    found = list(lines_by_group(lines("a", BROKEN, "a", "b", BROKEN, BROKEN, "b")))
    assert [number for batch in numbers(found) for number in batch] == [1, 2, 3, 4, 5, 6, 7]
    of_a, of_b = ({number for number, line in batch if b"group" in line}
                  for batch in found if any(b"group" in line for _, line in batch))  # fmt: skip
    assert (of_a, of_b) == ({1, 3}, {4, 7})


def test_lines_that_can_not_be_read_stand_at_the_ends_too():
    found = list(lines_by_group(lines(BROKEN, "a", "a", BROKEN, "b", BROKEN)))
    assert [number for batch in numbers(found) for number in batch] == [1, 2, 3, 4, 5, 6]
    assert {tuple(line for line in batch if line[1] != BROKEN) for batch in found} - {()} == {
        tuple(lines("a", "a", start=2)), tuple(lines("b", start=5)),
    }  # fmt: skip


def test_only_broken_lines_end_nothing():
    found = list(lines_by_group(lines(BROKEN, BROKEN)))
    assert [number for batch in numbers(found) for number in batch] == [1, 2]


# Bounds


def test_a_group_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "MAX_GROUP", 3)
    assert numbers(lines_by_group(lines("a", "a", "a", "b"))) == [[1, 2, 3], [4]]
    with pytest.raises(RolloutError, match='group "a" has more than 3 rollouts') as caught:
        list(lines_by_group(lines("a", "a", "a", "a")))
    assert caught.value.line == 4


def test_rollouts_without_a_group_may_be_many(monkeypatch):
    monkeypatch.setattr(reading, "MAX_GROUP", 3)
    assert len(list(lines_by_group(lines(*[None] * 10)))) == 10


def test_broken_lines_inside_of_a_group_are_held_in_bounds(monkeypatch):
    monkeypatch.setattr(reading, "MAX_GROUP", 3)
    try:
        longest = max(map(len, lines_by_group(lines("a", *[BROKEN] * 20, "b"))))
    except RolloutError:
        return  # refused is bounded too
    assert longest <= 4


def test_no_more_than_a_group_is_held():
    taken = []

    def given():
        for line in lines("a", "a", "b", "c"):
            taken.append(line[0])
            yield line

    batches = lines_by_group(given())
    assert taken == []
    assert len(next(batches)) == 2
    assert taken == [1, 2, 3]


def test_names_of_groups_are_not_kept():
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
def test_every_line_comes_once_or_a_group_is_split(groups):
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
