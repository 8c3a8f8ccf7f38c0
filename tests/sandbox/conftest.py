"""Sandboxes at each level of this machine, and ways to look at what they leave behind."""

import os
import sys
import time
from pathlib import Path

import pytest

from guerdon import SandboxUnavailableError, open_sandbox
from guerdon.sandbox.server.tree import members, stat_of

# After that long, what was waited for doesn't come.
PATIENCE = 15.0


@pytest.fixture(scope="session", params=["process", "strict"])
def level(request):
    """A level that works here."""
    if sys.platform == "win32":
        pytest.skip("no level of this machine's own")
    try:
        open_sandbox(request.param, workers=1).close()
    except SandboxUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return request.param


@pytest.fixture(scope="session")
def shared(level):
    """A sandbox for tests that leave it as it was."""
    with open_sandbox(level, workers=1) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def until():
    """Waits until something is so, and gives what it is."""

    def until(condition):
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, "it doesn't come"
            time.sleep(0.001)
        return found

    return until


@pytest.fixture(scope="session")
def below():
    """The processes under this one, or another, that have not ended."""

    def below(pid=None):
        found = list(members(os.getpid() if pid is None else pid))
        stats = {each: stat_of(each) for each in found}
        return {each for each, stat in stats.items() if stat is not None and stat.state not in "ZX"}

    return below


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """An empty folder in which sandboxes opened by the test have theirs."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    for each in (folder, *folder.parents):  # another user passes through
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def alive():
    """Whether a process runs."""

    def alive(pid):
        stat = stat_of(pid)
        return stat is not None and stat.state not in "ZX"

    return alive
