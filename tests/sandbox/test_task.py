"""What the supervisor reports and what was read, made into an execution; captures, sealed files."""

import fcntl
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Limits
from guerdon.sandbox.task import Capture, Task, sealed_file

ENDINGS = {"ok", "nonzero", "signal", "timeout", "memory", "output_limit", "sandbox_error"}


def task(*, out=b"", err=b"", cause=None, **limits):
    made = Task(Limits(**limits), answer_bytes=1024, cause=cause)
    made.close()
    made.out.content += out
    made.err.content += err
    return made


@pytest.mark.parametrize(
    ("report", "cause", "ending", "words"),
    [
        ({"status": 0}, None, "ok", None),
        ({"status": 3}, None, "nonzero", "it exited with code 3"),
        ({"status": -11}, None, "signal", "it was killed by signal 11 (SIGSEGV)"),
        ({"status": -63}, None, "signal", "it was killed by signal 63 (63)"),
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
        ({}, None, "sandbox_error", "is unknown"),
    ],
)
def test_task_execution_explains_each_ending(report, cause, ending, words):
    execution = task(cause=cause).execution(report)
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
def test_task_execution_accepts_every_report(report, out, err, most):
    execution = task(out=out, err=err, output_bytes=most).execution(report)
    assert execution.ending in ENDINGS
    if execution.ending != "ok":
        assert execution.detail
    assert execution.stdout == out[:most].decode("utf-8", "replace")
    kept = len(out[:most])
    assert execution.stderr == err[: most - kept].decode("utf-8", "replace")


@given(parts=st.lists(st.binary(max_size=300), max_size=5), most=st.integers(0, 500))
def test_capture_reads_at_most_one_byte_too_many(parts, most):
    capture = Capture()
    try:
        for part in parts:
            os.write(capture.writing, part)
            capture.read(most)
        capture.close_writing()
        capture.read(most)
        whole = b"".join(parts)
        assert capture.content == whole[: most + 1]
        assert capture.ended
        assert capture.text(most) == whole[:most].decode("utf-8", "replace")
    finally:
        capture.close()
        capture.close()


def test_capture_without_a_pipe_keeps_its_content():
    capture = Capture(piped=False)
    capture.content += b"x"
    capture.read(10)
    assert (capture.text(10), capture.ended, capture.writing) == ("x", True, None)
    capture.close()


@pytest.mark.parametrize(
    "content", [b"", b"x", bytes(range(256)) * 20_000], ids=["empty", "one", "5 MB"]
)
def test_sealed_file_contains_what_was_written_and_never_changes(content):
    fd = sealed_file(content)
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
