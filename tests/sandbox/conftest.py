# ruff: noqa: E501  (programs, a line each)
"""Sandboxes at each level, programs and functions for them, and what they leave behind."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

import guerdon
from guerdon import Limits, open_sandbox
from guerdon.errors import SandboxUnavailableError
from guerdon.rubrics import RewardSource
from guerdon.rubrics.sandboxed.engines import LOADER
from guerdon.rubrics.sandboxed.source import find_source
from guerdon.sandbox.function_pool import FunctionPool
from guerdon.sandbox.supervisor.processes import members, stat_of

# After that long, what was waited for doesn't come.
PATIENCE = 15.0

ORDINARY = 54_321  # a user id that no account has

ROOT = Path(__file__).parents[2]  # of the repository


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


@pytest.fixture(scope="session")
def open_python():
    """An interpreter that everybody can start, which this one need not be: root's home is shut."""
    # Not in pytest's own folder: each run of pytest shuts it again.
    with tempfile.TemporaryDirectory(prefix="guerdon-python-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir()
        (home / "notes").write_text("mine")
        os.chown(home, ORDINARY, ORDINARY)
        yield _copied_python(folder)


def _copied_python(folder):
    base, library = Path(sys.base_prefix).resolve(), Path(os.__file__).resolve().parent
    copy = os.link if base.stat().st_dev == folder.stat().st_dev else shutil.copy2
    ignored = shutil.ignore_patterns("site-packages", "__pycache__", "test", "idlelib", "*.a")
    shutil.copytree(
        library, folder / "lib" / library.name, copy_function=copy, symlinks=True, ignore=ignored
    )
    for shared in base.glob("lib/libpython*.so*"):
        copy(shared, folder / "lib" / shared.name)
    (folder / "bin").mkdir()
    python = folder / "bin" / "python3"
    # It may look for its library by an absolute path, which leads back to where it came from.
    way_back = os.fsencode(base / "lib") + b"\0"
    beside = b"$ORIGIN/../lib".ljust(len(way_back), b"\0")
    content = Path(sys.executable).resolve().read_bytes()
    python.write_bytes(content.replace(way_back, beside[: len(way_back)]))
    python.chmod(0o755)
    return python


@pytest.fixture
def as_ordinary_user(open_python):
    """Runs Python as an ordinary user, and returns what it prints."""

    def as_ordinary_user(program, *arguments, stdin=""):
        home = open_python.parents[1] / "home"
        packages = [each for each in sys.path if each.endswith("site-packages")]
        done = subprocess.run(
            [open_python, "-c", program, *arguments],
            input=stdin,
            user=ORDINARY,
            group=ORDINARY,
            extra_groups=[],
            cwd=home,
            env={
                "HOME": str(home),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(guerdon.__file__).parents[1]), str(ROOT), *packages]
                ),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return as_ordinary_user


@pytest.fixture(scope="session")
def printed():
    """Runs a program that ends well, and gives what it printed."""

    def printed(sandbox, program, **given):
        execution = sandbox.run(program, **given)
        assert execution.ending == "ok", execution
        return execution.stdout

    return printed


@pytest.fixture
def meeting(tmp_path, until):
    """A file that a program at `process` writes its id into, and waits."""

    class Meeting:
        def __init__(self):
            self.folder = tmp_path / "meeting"
            self.folder.mkdir()

        def program(self, name="a", then="import threading; threading.Event().wait()"):
            path = self.folder / name
            return (
                f"import os\nwith open({str(path) + '.new'!r}, 'w') as file: "
                f"file.write(str(os.getpid()))\nos.rename({str(path) + '.new'!r}, {str(path)!r})\n{then}"
            )

        def pid(self, name="a"):
            path = self.folder / name
            until(path.exists)
            return int(path.read_text())

    return Meeting()


@pytest.fixture
def pool_of(level):
    """Opens pools of a function `f(messages)`, given as text; closes them at the end."""
    opened = []

    def pool_of(text, **given):
        source = RewardSource(textwrap.dedent(text), "f")
        reuse = given.get("reuse", False)
        found = find_source(source, None, allow_read=(), keep_loop=reuse)
        pool = FunctionPool(
            found.reward.model_dump_json().encode(),
            LOADER,
            level=level,
            **{"workers": 1, "limits": Limits()} | given,
            read=found.read,
            path=found.path,
        )
        opened.append(pool)
        return pool

    yield pool_of
    for pool in opened:
        pool.close()


@pytest.fixture
def host(tmp_path):
    """Starts a Python program that uses guerdon, as another host."""
    started = []
    packages = [each for each in sys.path if each.endswith("site-packages")]
    source = str(Path(guerdon.__file__).parents[1])

    def host(text, *arguments, **given):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(text), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([source, *packages]),
                "TMPDIR": str(given.get("temporary", tmp_path)),
            },
        )
        started.append(process)
        return process

    yield host
    for process in started:
        process.kill()
        process.communicate()
