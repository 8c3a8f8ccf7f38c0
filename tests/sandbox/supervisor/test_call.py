"""What a call may write, as the supervisor counts it."""

import os

import pytest

from guerdon.sandbox.supervisor import call as calls
from guerdon.sandbox.supervisor.call import Call

LIMITS = {"seconds": 60, "cpu": None, "memory": 1 << 40, "processes": 99, "file_bytes": 99}


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="it reads /proc")
def test_call_does_not_count_the_stderr_of_the_supervisor_as_a_file(tmp_path, monkeypatch):
    call = Call(LIMITS | {"files": 0}, list, 0, str(tmp_path))
    own = os.fstat(2).st_ino
    monkeypatch.setattr(calls, "deleted_files", lambda pids, device: {own: 0})
    assert call.exceeded() is None
    call.searched = 0.0
    monkeypatch.setattr(calls, "deleted_files", lambda pids, device: {own: 0, own + 1: 0})
    assert call.exceeded() == "files"
