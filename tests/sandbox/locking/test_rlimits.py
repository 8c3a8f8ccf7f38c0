from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from guerdon.sandbox.locking import rlimits
from guerdon.sandbox.locking.rlimits import resource_limits, threads_of_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's own")


def in_a_process(code: str) -> str:
    lines = ["import resource", "from guerdon.sandbox.locking.rlimits import *", code]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_limits_are_in_force() -> None:
    code = """
set_limits(resource_limits(cpu_seconds=1.5, file_bytes=100))
kinds = "CPU FSIZE NOFILE CORE MEMLOCK STACK".split()
print([resource.getrlimit(getattr(resource, f"RLIMIT_{kind}")) for kind in kinds])
"""
    stack = (8 << 20, 8 << 20)
    same = [(100, 100), (64, 64), (0, 0), (0, 0), stack]
    assert in_a_process(code) == str([(2, 3), *same])


def test_what_is_lower_already_stays() -> None:
    code = """
resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))
set_limits(resource_limits())
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    assert in_a_process(code) == "(10, 10)"


def test_none_leaves_a_limit_as_it_is() -> None:
    names = resource_limits()
    kinds = ["CORE", "MEMLOCK", "MSGQUEUE", "NOFILE", "SIGPENDING", "STACK"]
    assert sorted(names) == [f"RLIMIT_{kind}" for kind in kinds]


def test_threads_are_counted_and_a_count_holds_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(rlimits.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(rlimits, "_counted", {})
    uid = os.stat("/proc/self").st_uid
    before = threads_of_user(uid)
    assert before >= 1
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(50)]
    for thread in threads:
        thread.start()
    try:
        assert threads_of_user(uid) == before
        clock[0] += 2
        # Others of this user come and go; fifty don't.
        assert threads_of_user(uid) > before
    finally:
        stop.set()
        for thread in threads:
            thread.join()
