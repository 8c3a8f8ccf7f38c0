"""What the keeper tells and what was read, made into an execution; captures and papers."""

import fcntl
import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Limits
from guerdon.sandbox.local.captures import Capture
from guerdon.sandbox.local.endings import execution_of
from guerdon.sandbox.local.papers import paper_of

ENDINGS = {"ok", "nonzero", "signal", "timeout", "memory", "output_limit", "sandbox_error"}


def task(*, out=b"", err=b"", cause=None, **limits):
    captures = [Capture(piped=False) for _ in range(2)]
    captures[0].content += out
    captures[1].content += err
    return SimpleNamespace(
        limits=Limits(**limits), out=captures[0], err=captures[1], cause=cause, answer_bytes=1024
    )


@pytest.mark.parametrize(
    ("report", "cause", "ending", "words"),
    [
        ({"status": 0}, None, "ok", None),
        ({"status": 3}, None, "nonzero", "it left with exit code 3"),
        ({"status": -11}, None, "signal", "it died of signal 11 (SIGSEGV)"),
        ({"status": -63}, None, "signal", "it died of signal 63 (63)"),
        ({"status": -9}, None, "sandbox_error", "killed from outside"),
        ({"status": -9, "cpu": 100.0}, None, "timeout", "processor time"),
        ({"status": -24, "cpu": 100.0}, None, "timeout", "processor time"),
        ({"status": -24, "cpu": 0.0}, None, "signal", "SIGXCPU"),
        ({"status": -9, "cause": "timeout"}, None, "timeout", "within 5 s"),
        ({"status": -9, "cause": "cpu"}, None, "timeout", "processor time"),
        ({"status": -9, "cause": "memory"}, None, "memory", "more than 256 MiB of memory"),
        ({"status": 0, "cause": "files"}, None, "output_limit", "more than 100 files"),
        ({"status": 0, "cause": "file_bytes"}, None, "output_limit", "more than 1 MiB into files"),
        ({"status": -9}, "output", "output_limit", "printed more than 64 KiB"),
        ({"status": -9}, "answer", "output_limit", "its answer has more than 1 KiB"),
        ({"status": -9, "cause": "over"}, None, "ok", "when its checker had ended"),
        ({"problem": "gone"}, None, "sandbox_error", "gone"),
        ({"problem": "gone"}, "output", "output_limit", "printed"),
        ({"status": -9, "cause": "host"}, None, "sandbox_error", "host"),
        ({}, None, "sandbox_error", "nobody knows"),
    ],
)
def test_an_ending_is_told_in_words(report, cause, ending, words):
    execution = execution_of(report, task(cause=cause))
    assert execution.ending == ending
    assert execution.detail is words if words is None else words in execution.detail


@given(
    report=st.fixed_dictionaries(
        {},
        optional={
            "status": st.none() | st.integers(-64, 255),
            "cause": st.none()
            | st.sampled_from(["timeout", "cpu", "memory", "files", "over", "?"]),
            "problem": st.none() | st.text(min_size=1),
            "cpu": st.floats(0, 1000),
        },
    ),
    out=st.binary(max_size=40),
    err=st.binary(max_size=40),
    most=st.integers(1, 50),
)
def test_every_report_makes_an_execution(report, out, err, most):
    execution = execution_of(report, task(out=out, err=err, output_bytes=most))
    assert execution.ending in ENDINGS
    if execution.ending != "ok":
        assert execution.detail
    assert execution.stdout == out[:most].decode("utf-8", "replace")
    kept = len(out[:most])
    assert execution.stderr == err[: most - kept].decode("utf-8", "replace")


@given(parts=st.lists(st.binary(max_size=300), max_size=5), most=st.integers(0, 500))
def test_a_capture_reads_no_more_than_one_too_many(parts, most):
    capture = Capture()
    try:
        for part in parts:
            os.write(capture.writing, part)
            capture.read(most)
        capture.given()
        capture.read(most)
        whole = b"".join(parts)
        assert capture.content == whole[: most + 1]
        assert capture.ended == (len(whole) <= most)
        assert capture.text(most) == whole[:most].decode("utf-8", "replace")
    finally:
        capture.close()
        capture.close()


def test_a_capture_without_a_pipe_only_holds():
    capture = Capture(piped=False)
    capture.content += b"x"
    capture.read(10)
    assert (capture.text(10), capture.ended, capture.writing) == ("x", True, None)
    capture.close()


@pytest.mark.parametrize(
    "content", [b"", b"x", bytes(range(256)) * 20_000], ids=["empty", "one", "5 MB"]
)
def test_a_paper_holds_what_was_written_and_nothing_else(content):
    fd = paper_of(content)
    try:
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
        with open(fd, "rb", closefd=False) as file:
            assert file.read() == content
        assert not os.get_inheritable(fd)
        if sys.platform == "linux":
            for change in (lambda: os.pwrite(fd, b"y", 0), lambda: os.ftruncate(fd, 99_999_999)):
                with pytest.raises(PermissionError):
                    change()
            with pytest.raises(PermissionError):
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    finally:
        os.close(fd)
