"""The strict level holds every case: as this user, and as an ordinary one where this is root."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import guerdon
from guerdon import SandboxError, SandboxUnavailableError, open_sandbox
from guerdon.sandbox.conformance import CASES, Outcome, Report, Trial, check_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strict is for Linux")

ORDINARY = 54_321  # a number that is nobody's

WHOLE_RUN = """
import dataclasses, json, sys
from guerdon import open_sandbox
from guerdon.sandbox.conformance import check_sandbox
from guerdon.sandbox.local import bubblewrap

if "bare" in sys.argv:
    bubblewrap._WHERE = "/nowhere"
report = check_sandbox(lambda: open_sandbox("strict", workers=2))
json.dump([dataclasses.asdict(outcome) for outcome in report.outcomes], sys.stdout)
"""


@pytest.fixture(scope="module")
def trial():
    try:
        with Trial(lambda: open_sandbox("strict", workers=2)) as trial:
            yield trial
            assert trial.close().said == "nothing is left"
    except SandboxUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}-{case.name}")
def test_strict_holds(trial, case):
    outcome = trial.outcome_of(case)
    if outcome.result == "not tried":
        pytest.skip(outcome.said)
    assert outcome.result == "held", outcome.said


def test_a_hole_in_strict_is_found_by_the_canaries():
    with (
        pytest.raises(SandboxError, match=r"strict shuts too little off .* BROKEN: read gave"),
        Trial(lambda: open_sandbox("strict", allow_read=[tempfile.gettempdir()])),
    ):
        pass


def test_the_process_level_is_refused_at_the_first_canary():
    with pytest.raises(SandboxError, match=r"process shuts too little off .* BROKEN: read gave"):
        check_sandbox(lambda: open_sandbox("process"))


@pytest.fixture
def open_python():
    """An interpreter that everybody can start, which this one need not be: root's home is shut."""
    # Not in pytest's own folder: each run of pytest shuts it again.
    with tempfile.TemporaryDirectory(prefix="guerdon-python-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield copied_python(folder)


def copied_python(folder):
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


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
@pytest.mark.parametrize("way", ["bare", "in bubblewrap where it works"])
def test_strict_holds_for_an_ordinary_user(open_python, way):
    home = open_python.parents[1] / "home"
    home.mkdir()
    (home / "notes").write_text("mine")
    os.chown(home, ORDINARY, ORDINARY)
    source = Path(guerdon.__file__).parents[1]
    path = [str(source), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    done = subprocess.run(
        [open_python, "-c", WHOLE_RUN, way],
        user=ORDINARY,
        group=ORDINARY,
        extra_groups=[],
        cwd=home,
        env={
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = Report("strict", tuple(Outcome(**outcome) for outcome in json.loads(done.stdout)))
    assert len(report.outcomes) == len(CASES) + 1
    report.raise_for_failures()
    tried = [outcome for outcome in report.outcomes if outcome.result == "held"]
    assert len(tried) >= 150
