"""Spools: what is appended is read in order, once, also by somebody else."""

import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import TrackerError
from guerdon.tracking import spool as spools
from guerdon.tracking.spool import left_behind, new_spool


def read_all(spool):
    found = []
    while lines := spool.read():
        found += lines
        spool.advance(lines)
    return found


def lines(first, last):
    return [b"%d\n" % number for number in range(first, last)]


def test_lines_are_read_in_order_and_the_folder_goes_with_the_last(tmp_path):
    spool = new_spool(tmp_path, max_bytes=1000)
    assert spool.read() == []
    assert spool.append(b"1\n2\n", 2)
    assert spool.append(b"3\n", 1)
    assert read_all(spool) == lines(1, 4)
    assert (spool.appended, spool.taken, spool.bytes_waiting) == (3, 3, 0)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_what_was_read_but_not_sent_is_read_again(tmp_path):
    spool = new_spool(tmp_path, max_bytes=1000)
    spool.append(b"1\n2\n", 2)
    assert spool.read() == spool.read() == lines(1, 3)
    assert spool.read(1) == lines(1, 2)
    spool.advance(lines(1, 2))
    assert spool.read() == lines(2, 3)
    spool.close()


def test_what_is_left_is_anothers_once_its_owner_has_ended(tmp_path):
    first = new_spool(tmp_path, max_bytes=1000)
    first.append(b"1\n2\n3\n", 3)
    first.advance(lines(1, 2))
    assert left_behind(tmp_path) == []
    first.close()
    [again] = left_behind(tmp_path)
    assert left_behind(tmp_path) == []
    assert again.bytes_waiting == 4
    assert read_all(again) == lines(2, 4)
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_segments_go_as_soon_as_they_are_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 10)
    spool = new_spool(tmp_path, max_bytes=1000)
    for number in range(20):
        spool.append(b"%02d\n" % number, 1)
    assert len(list(spool.folder.glob("*.jsonl"))) == 5
    assert read_all(spool) == [b"%02d\n" % number for number in range(20)]
    assert len(list(spool.folder.glob("*.jsonl"))) == 1
    spool.close()


@settings(max_examples=25, deadline=None)  # it writes files
@given(
    st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=5), max_size=12),
    st.integers(1, 40),
    st.integers(1, 40),
    st.lists(st.integers(0, 3)),
)
def test_nothing_is_lost_or_doubled_whatever_the_sizes(
    tmp_path_factory, batches, segment, at_once, turns
):
    folder = tmp_path_factory.mktemp("spool")
    wanted, found = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spools, "SEGMENT_BYTES", segment)
        patch.setattr(spools, "BATCH_BYTES", at_once)
        spool = new_spool(folder, max_bytes=10**6)
        for number, batch in enumerate(batches):
            batch = [each.hex().encode() + b"\n" for each in batch]
            wanted += batch
            assert spool.append(b"".join(batch), len(batch))
            for _ in range(turns[number] if number < len(turns) else 0):
                got = spool.read()
                found += got
                spool.advance(got)
        spool.close()
        for each in left_behind(folder):
            found += read_all(each)
            each.close()
    assert found == wanted
    assert list(folder.iterdir()) == []


def test_at_the_bound_it_takes_nothing_until_there_is_room(tmp_path):
    spool = new_spool(tmp_path, max_bytes=5)
    assert spool.append(b"1\n2\n", 2)
    assert not spool.append(b"3\n", 1)
    assert not spool.has_room
    assert spool.appended == 2
    spool.advance(lines(1, 2))
    assert spool.has_room
    assert spool.append(b"3\n", 1)
    assert read_all(spool) == lines(2, 4)
    spool.close()


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    spool = new_spool(tmp_path, max_bytes=1000)
    spool.append(b"1\n", 1)

    def half(file, data):
        os.write(file, data[:1])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spools, "write_all", half)
        with pytest.raises(OSError, match="No space"):
            spool.append(b"2222\n", 1)
    spool.append(b"3\n", 1)
    assert read_all(spool) == [b"1\n", b"3\n"]
    spool.close()


@pytest.mark.parametrize("said", [b"", b"garbage", b"00000009 00\n", b"1 2 3\n"], ids=ascii)
def test_a_note_that_says_nothing_means_from_the_beginning(tmp_path, said):
    spool = new_spool(tmp_path, max_bytes=1000)
    spool.append(b"1\n", 1)
    spool.close()
    (spool.folder / "sent").write_bytes(said)
    [again] = left_behind(tmp_path)
    assert read_all(again) == [b"1\n"]
    again.close()


def test_a_last_line_without_its_end_is_given_as_it_is(tmp_path):
    spool = new_spool(tmp_path, max_bytes=1000)
    spool.append(b"1\n", 1)
    spool.close()
    with open(spool.folder / "00000000.jsonl", "ab") as file:
        file.write(b"2")
    [again] = left_behind(tmp_path)
    assert read_all(again) == [b"1\n", b"2"]
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match="records can't be spooled in"):
        new_spool(tmp_path / "file", max_bytes=10)


def test_a_folder_that_is_taken_away_is_begun_anew(tmp_path):
    spool = new_spool(tmp_path / "run" / "kept", max_bytes=1000)
    spool.append(b"1\n2\n", 2)
    spool.advance(lines(1, 2))
    shutil.rmtree(tmp_path / "run")
    assert read_all(spool) == []
    assert (spool.taken, spool.gone, spool.bytes_waiting) == (2, 1, 0)
    spool.append(b"3\n", 1)
    assert left_behind(tmp_path / "run" / "kept") == []  # it is locked again
    assert read_all(spool) == [b"3\n"]
    spool.close()
    assert list((tmp_path / "run" / "kept").iterdir()) == []


def test_a_segment_that_is_taken_away_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 2)
    spool = new_spool(tmp_path, max_bytes=1000)
    for number in range(5):
        spool.append(b"%d\n" % number, 1)
    (spool.folder / "00000001.jsonl").unlink()
    (spool.folder / "00000003.jsonl").unlink()
    spool.close()
    [again] = left_behind(tmp_path)
    assert read_all(again) == [b"0\n", b"2\n", b"4\n"]
    assert again.bytes_waiting == 0
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_what_was_sent_counts_where_the_disk_takes_no_note_of_it(tmp_path, monkeypatch, caplog):
    spool = new_spool(tmp_path, max_bytes=1000)
    spool.append(b"1\n2\n", 2)

    def full(self):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spools.Spool, "note", full)
        assert read_all(spool) == lines(1, 3)
    assert (spool.taken, spool.bytes_waiting) == (2, 0)
    assert caplog.text.count("what was sent can't be noted") == 1
    spool.append(b"3\n", 1)
    spool.close()
    [again] = left_behind(tmp_path)  # the note was made up for
    assert read_all(again) == [b"3\n"]
    again.close()
