"""The strict level holds every case: as this user, and as an ordinary one where this is root."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import guerdon
from guerdon import SandboxUnavailableError, open_sandbox
from guerdon.sandbox.conformance import CASES, Outcome, Report, Trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strict is for Linux")

ORDINARY = 54_321  # a number that is nobody's

WHOLE_RUN = """
import dataclasses, json, sys
from guerdon import open_sandbox
from guerdon.sandbox.conformance import check_sandbox

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


@pytest.fixture(scope="module")
def open_python(tmp_path_factory):
    """An interpreter that everybody can start, which this one need not be: root's home is shut."""
    base = Path(sys.base_prefix).resolve()
    library = Path(os.__file__).resolve().parent
    copy = tmp_path_factory.mktemp("python")
    for folder in (copy, *copy.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    link = _link_or_copy(base, copy)
    (copy / "bin").mkdir()
    link(str(Path(sys.executable).resolve()), str(copy / "bin" / "python3"))
    shutil.copytree(
        library,
        copy / "lib" / library.name,
        copy_function=link,
        symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "__pycache__", "test", "idlelib", "*.a"),
    )
    for shared in base.glob("lib/libpython*.so*"):
        link(str(shared), str(copy / "lib" / shared.name))
    return copy


def _link_or_copy(base, copy):
    return os.link if base.stat().st_dev == copy.stat().st_dev else shutil.copy2


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
def test_strict_holds_for_an_ordinary_user(open_python):
    home = open_python / "home"
    home.mkdir()
    (home / "notes").write_text("mine")
    os.chown(home, ORDINARY, ORDINARY)
    source = Path(guerdon.__file__).parents[1]
    path = [str(source), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    done = subprocess.run(
        [open_python / "bin" / "python3", "-c", WHOLE_RUN],
        user=ORDINARY,
        group=ORDINARY,
        extra_groups=[],
        cwd=home,
        env={
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(open_python / "lib"),
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
