from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import threading

import pytest

from guerdon.sandbox.locking import rlimits
from guerdon.sandbox.locking.rlimits import threads_of_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's own")


LIMITS = {"cpu": 1.5, "memory": 1 << 30, "processes": 16, "file_bytes": 99}
KINDS = ["CPU", "FSIZE", "NOFILE", "CORE", "MEMLOCK", "STACK"]


def limits_of_a_process(code: str, limits: dict[str, object]) -> list[object]:
    """The limits of a process that runs code and then `limit_call`."""
    lines = [
        "import resource",
        "from guerdon.sandbox.locking.rlimits import limit_call",
        code,
        f"limit_call({limits})",
        f"print([resource.getrlimit(getattr(resource, 'RLIMIT_' + kind)) for kind in {KINDS}])",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return list(ast.literal_eval(done.stdout))


def test_limit_call_sets_all_limits() -> None:
    stack = (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1])  # which a program may raise
    same = [(100, 100), (64, 64), (0, 0), (0, 0), stack]
    assert limits_of_a_process("", LIMITS) == [(2, 3), *same]


def test_limit_call_keeps_a_lower_limit() -> None:
    lower = "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))"
    assert limits_of_a_process(lower, LIMITS)[2] == (10, 10)


def test_limit_call_without_processor_time_keeps_that_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU)
    assert limits_of_a_process("", LIMITS | {"cpu": None})[0] == before


def test_threads_of_user_caches_its_count(
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
