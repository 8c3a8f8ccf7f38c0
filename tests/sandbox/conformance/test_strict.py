"""The level `strict` passes every case: as this user, and as an ordinary one if this is root."""

import json
import os
import sys
import tempfile

import pytest

from guerdon import open_sandbox
from guerdon.errors import SandboxError, SandboxUnavailableError
from tests.sandbox.conformance import CASES, Outcome, Report, Trial, check_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strict is for Linux")

WHOLE_RUN = """
import dataclasses, json, sys
from guerdon import open_sandbox
from tests.sandbox.conformance import check_sandbox
from guerdon.sandbox import levels

if "bare" in sys.argv:
    levels.BUBBLEWRAP_PATH = "/nowhere"
report = check_sandbox(lambda: open_sandbox("strict", workers=2))
json.dump([dataclasses.asdict(outcome) for outcome in report.outcomes], sys.stdout)
"""


@pytest.fixture(scope="module")
def trial():
    try:
        with Trial(lambda: open_sandbox("strict", workers=2)) as trial:
            yield trial
            assert trial.close().detail == "nothing is left"
    except SandboxUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}-{case.name}")
def test_strict_passes_each_case(trial, case):
    outcome = trial.outcome_of(case)
    if outcome.result == "skipped":
        pytest.skip(outcome.detail)
    assert outcome.result == "passed", outcome.detail


def test_trial_finds_a_hole_in_strict_by_the_canaries():
    with (
        pytest.raises(SandboxError, match=r"strict isolates too little .* FAILED: read gave"),
        Trial(lambda: open_sandbox("strict", allow_read=[tempfile.gettempdir()])),
    ):
        pass


def test_check_sandbox_refuses_the_level_process_at_the_first_canary():
    with pytest.raises(SandboxError, match=r"process isolates too little .* FAILED: read gave"):
        check_sandbox(lambda: open_sandbox("process"))


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
@pytest.mark.parametrize("way", ["bare", "in bubblewrap where it works"])
def test_strict_passes_each_case_as_an_ordinary_user(as_ordinary_user, way):
    output = as_ordinary_user(WHOLE_RUN, way)
    report = Report("strict", tuple(Outcome(**outcome) for outcome in json.loads(output)))
    assert len(report.outcomes) == len(CASES) + 1
    report.raise_for_failures()
    assert sum(outcome.result == "passed" for outcome in report.outcomes) >= 150
