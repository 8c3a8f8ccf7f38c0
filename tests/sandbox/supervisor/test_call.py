"""What a call uses and writes, as the supervisor counts it."""

import os
import subprocess
import sys

import pytest

from guerdon.sandbox.supervisor import call as calls
from guerdon.sandbox.supervisor.call import Call
from guerdon.sandbox.supervisor.processes import memory_of, stat_of

LIMITS = {"seconds": 60, "cpu": None, "memory": 1 << 40, "processes": 99, "file_bytes": 99}


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it reads /proc")

# The kernel counts processor time in ticks of 10 ms, and Python can start within one of them.
THREADED = """
import os, threading
while sum(os.times()[:2]) < 0.05:
    pass
threading.Thread(target=threading.Event().wait, daemon=True).start()
kept = b"x" * (20 << 20)
print("there", flush=True)
input()
"""


@pytest.fixture
def two():
    """The ids of two processes with two threads and 50 ms of processor time each."""
    command = [sys.executable, "-S", "-c", THREADED]
    processes = [subprocess.Popen(command, stdin=-1, stdout=-1) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout.readline() == b"there\n"
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.communicate(b"\n")


def test_call_measure_adds_up_what_its_processes_use(two):
    memory, threads = Call(LIMITS, lambda: two, 0).measure()
    assert abs(memory - sum(map(memory_of, two))) < 1 << 20
    assert memory > 40 << 20
    assert threads == 4
    assert Call(LIMITS, lambda: two, 1 << 40).measure() == (0, 4)


def test_call_measure_leaves_out_what_a_process_had_before(two):
    before = {two[0]: stat_of(two[0])}
    call = Call(LIMITS, lambda: two, 0, before=before)
    assert call.measure()[1] == 2
    assert 0.05 <= call.seen_cpu <= stat_of(two[1]).cpu


def test_call_measure_never_lowers_processor_time(two):
    found = [two]
    call = Call(LIMITS, lambda: found[-1], 0)
    call.measure()
    cpu = call.seen_cpu
    found.append([])
    assert call.measure() == (0, 0)
    assert call.seen_cpu == cpu >= 0.1


def test_call_does_not_count_the_stderr_of_the_supervisor_as_a_file(tmp_path, monkeypatch):
    call = Call(LIMITS | {"files": 0}, list, 0, folder=str(tmp_path))
    own = os.fstat(2).st_ino
    monkeypatch.setattr(calls, "deleted_files", lambda pids, device: {own: 0})
    assert call.exceeded() is None
    call.searched = 0.0
    monkeypatch.setattr(calls, "deleted_files", lambda pids, device: {own: 0, own + 1: 0})
    assert call.exceeded() == "files"
