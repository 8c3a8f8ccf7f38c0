"""What a machine lacks, and which processes are on it."""

import os
import subprocess
import sys

import pytest

from guerdon.sandbox.conformance import CASES, machine
from guerdon.sandbox.conformance.machine import lacks
from guerdon.sandbox.conformance.processes import descendants, marked, open_descriptors, status

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it")


@pytest.fixture
def on(monkeypatch):
    def pretend(name):
        lacks.cache_clear()
        monkeypatch.setattr(machine, "machine", lambda: name)

    yield pretend
    lacks.cache_clear()


@pytest.mark.parametrize("kind", ["x86", "x32"])
def test_calls_of_other_tables_are_for_x86(on, kind):
    on("aarch64")
    assert lacks(kind) == "not on aarch64"


def test_where_calls_have_no_numbers_none_is_tried(on):
    on("darwin")
    assert lacks("system call", "bpf") == "not on darwin"
    untried = {case.name for case in CASES if case.unless()}
    assert {"bpf", "keyctl", "io_uring", "x32 system calls"} <= untried
    assert len(untried) < 12


@linux
def test_a_call_that_the_kernel_has_is_tried():
    assert lacks("system call", "getpid") is None


@linux
def test_a_call_that_no_kernel_has_is_not_tried(monkeypatch):
    lacks.cache_clear()
    monkeypatch.setitem(machine.NUMBERS, "no_such_call", (9999, 9999))
    assert lacks("system call", "no_such_call") == "this kernel has no no_such_call"


def test_a_family_that_python_has_not_is_not_tried():
    assert lacks("socket", "AF_NONSENSE") == "Python has no AF_NONSENSE here"


@linux
def test_children_and_theirs_are_descendants():
    nested = (
        "import subprocess, sys; "
        "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE); "
        "print(child.pid, flush=True); sys.stdin.read(); child.communicate()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        inner = int(process.stdout.readline())
        assert {process.pid, inner} <= descendants(os.getpid())
        assert descendants(process.pid) == {inner}
        assert inner in marked("cat")
        process.stdin.close()
    assert not {process.pid, inner} & descendants(os.getpid())


@linux
def test_the_status_of_what_is_gone_is_empty():
    with subprocess.Popen(["true"]) as process:
        pass
    assert status(process.pid) == ()
    assert status(os.getpid()) != ()


@linux
def test_open_descriptors_are_listed_without_the_one_that_lists_them():
    before = open_descriptors()
    reader, writer = os.pipe()
    assert open_descriptors() - before == {reader, writer}
    os.close(reader)
    os.close(writer)
    assert open_descriptors() == before
