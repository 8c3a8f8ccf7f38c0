# ruff: noqa: E501  (programs, a line each)
"""What the kernel reports of processes."""

import os
import signal
import subprocess
import sys

import pytest

from guerdon.sandbox.supervisor.processes import (
    children,
    deleted_files,
    members,
    memory_of,
    stat_of,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

NOBODY = 2**22 + 1  # above the highest id that there can be

FAMILY = """
import os, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
for _ in range(2):
    if not os.fork():
        if not os.fork(): signal = threading.Event().wait()
        threading.Event().wait()
kept = b"x" * (20 << 20)
print("there", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def family(until):
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout.readline() == b"there\n"
        until(lambda: len(list(members(process.pid))) == 4)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_members_finds_all_descendants(family):
    assert len(children(family.pid)) == 2
    assert len(set(members(family.pid))) == 4
    assert family.pid not in members(family.pid)
    assert family.pid in children(os.getpid())


def test_children_finds_those_of_any_thread(family):
    import threading

    started = []
    stop = threading.Event()

    def start():
        started.append(subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1))
        stop.wait()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        while not started:
            thread.join(0.001)
        assert started[0].pid in children(os.getpid())
    finally:
        stop.set()
        thread.join()
        started[0].communicate(b"\n")


def test_stat_of_describes_a_process(family):
    stat = stat_of(family.pid)
    assert (stat.group, stat.session) == (family.pid, family.pid)
    assert stat.state in "SR"
    assert stat.threads == 2
    assert stat.cpu >= 0


def test_memory_of_counts_anonymous_memory(family):
    assert 20 << 20 <= memory_of(family.pid) < 60 << 20


def test_stat_of_accepts_any_name_of_a_process(until):
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') R 1 (x\\n'); print(1, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=-1, stdin=-1)
    try:
        assert process.stdout.readline() == b"1\n"
        assert stat_of(process.pid).session == os.getsid(0)
        assert memory_of(process.pid) > 0
    finally:
        process.communicate(b"\n")


def test_stat_of_a_missing_process_is_none():
    assert children(NOBODY) == []
    assert list(members(NOBODY)) == []
    assert stat_of(NOBODY) is None
    assert memory_of(NOBODY) == 0
    assert deleted_files([NOBODY], 0) == {}


def test_memory_of_an_ended_process_is_zero():
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert stat_of(process.pid).state == "Z"
    assert children(process.pid) == []
    assert memory_of(process.pid) == 0
    assert stat_of(process.pid).ended
    process.wait()


def test_deleted_files_counts_files_without_a_name(tmp_path):
    device = tmp_path.stat().st_dev
    with open(tmp_path / "file", "wb", 0) as file, open(tmp_path / "kept", "wb", 0) as kept:
        kept.write(b"x" * 5000)
        file.write(b"x" * 3000)
        inode = os.fstat(file.fileno()).st_ino
        assert inode not in deleted_files([os.getpid()], device)
        os.unlink(tmp_path / "file")
        found = deleted_files([os.getpid()], device)
        assert 3000 <= found[inode] <= 4096
        assert os.fstat(kept.fileno()).st_ino not in found
        assert inode not in deleted_files([os.getpid()], device + 1)
