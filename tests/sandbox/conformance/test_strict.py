"""The strict level holds every case: as this user, and as an ordinary one where this is root."""

import json
import os
import sys
import tempfile

import pytest

from guerdon import open_sandbox
from guerdon.errors import SandboxError, SandboxUnavailableError
from guerdon.sandbox.conformance import CASES, Outcome, Report, Trial, check_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strict is for Linux")

WHOLE_RUN = """
import dataclasses, json, sys
from guerdon import open_sandbox
from guerdon.sandbox.conformance import check_sandbox
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
def test_strict_holds(trial, case):
    outcome = trial.outcome_of(case)
    if outcome.result == "not tried":
        pytest.skip(outcome.detail)
    assert outcome.result == "held", outcome.detail


def test_a_hole_in_strict_is_found_by_the_canaries():
    with (
        pytest.raises(SandboxError, match=r"strict shuts too little off .* BROKEN: read gave"),
        Trial(lambda: open_sandbox("strict", allow_read=[tempfile.gettempdir()])),
    ):
        pass


def test_the_process_level_is_refused_at_the_first_canary():
    with pytest.raises(SandboxError, match=r"process shuts too little off .* BROKEN: read gave"):
        check_sandbox(lambda: open_sandbox("process"))


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
@pytest.mark.parametrize("way", ["bare", "in bubblewrap where it works"])
def test_strict_holds_for_an_ordinary_user(as_ordinary_user, way):
    told = as_ordinary_user(WHOLE_RUN, way)
    report = Report("strict", tuple(Outcome(**outcome) for outcome in json.loads(told)))
    assert len(report.outcomes) == len(CASES) + 1
    report.raise_for_failures()
    tried = [outcome for outcome in report.outcomes if outcome.result == "held"]
    assert len(tried) >= 150
