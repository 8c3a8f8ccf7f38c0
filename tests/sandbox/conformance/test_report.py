"""The report of a conformance run: as a table, and as an error."""

import pytest

from guerdon.errors import SandboxError
from tests.sandbox.conformance import Outcome, Report

PASSED = Outcome("TCP", "network", "no server is reached", "passed", "connect EPERM", 0.02)
FAILED = Outcome("home", "files", "keys stay unread", "failed", "FAILED: read b'key'", 0.03)
SKIPPED = Outcome("io_uring", "network", "it isn't made", "skipped", "no io_uring here", 0.0)


def test_report_str_is_a_table():
    report = Report("strict", (PASSED, SKIPPED, FAILED))
    assert str(report).splitlines() == [
        "network",
        "  passed   TCP                              connect EPERM",
        "  skipped  io_uring                         no io_uring here",
        "files",
        "  failed   home                             FAILED: read b'key'",
        "strict: 1 passed, 1 failed, 1 skipped",
    ]


def test_report_str_shortens_details_to_a_line():
    outcome = Outcome("TCP", "network", "", "failed", "a\nb " + "c" * 200, 0.0)
    line = str(Report("strict", (outcome,))).splitlines()[1]
    assert "a b ccc" in line
    assert len(line) < 140


def test_report_raise_for_failures_names_each_failure():
    other = Outcome("shm", "files", "nothing is put there", "failed", "it was put", 0.0)
    with pytest.raises(SandboxError) as raised:
        Report("mine", (PASSED, FAILED, other)).raise_for_failures()
    message = str(raised.value)
    assert message.startswith("mine fails:")
    assert "files: home (keys stay unread): FAILED: read b'key'" in message
    assert "files: shm (nothing is put there): it was put" in message
    assert "TCP" not in message


def test_report_raise_for_failures_without_failures():
    Report("strict", (PASSED, SKIPPED)).raise_for_failures()


def test_report_failed():
    assert Report("strict", (PASSED, SKIPPED, FAILED)).failed == (FAILED,)


def test_report_str_without_outcomes():
    assert str(Report("strict", ())) == "strict: no case"
