"""The report of a conformance run."""

import pytest

from guerdon.errors import SandboxError
from guerdon.sandbox.conformance import Outcome, Report

HELD = Outcome("TCP", "network", "no server is reached", "held", "connect EPERM", 0.02)
BROKEN = Outcome("home", "files", "keys stay unread", "broken", "BROKEN: read b'key'", 0.03)
SKIPPED = Outcome("io_uring", "network", "it isn't made", "not tried", "no io_uring here", 0.0)


def test_printed_it_is_a_table():
    report = Report("strict", (HELD, SKIPPED, BROKEN))
    assert str(report).splitlines() == [
        "network",
        "  held       TCP                              connect EPERM",
        "  not tried  io_uring                         no io_uring here",
        "files",
        "  broken     home                             BROKEN: read b'key'",
        "strict: 1 held, 1 broken, 1 not tried",
    ]


def test_what_is_said_stays_in_its_line():
    said = Outcome("TCP", "network", "", "broken", "a\nb " + "c" * 200, 0.0)
    line = str(Report("strict", (said,))).splitlines()[1]
    assert "a b ccc" in line
    assert len(line) < 140


def test_failures_are_raised_with_all_names():
    other = Outcome("shm", "files", "nothing is put there", "broken", "it was put", 0.0)
    with pytest.raises(SandboxError) as raised:
        Report("mine", (HELD, BROKEN, other)).raise_for_failures()
    said = str(raised.value)
    assert said.startswith("mine doesn't hold:")
    assert "files: home (keys stay unread): BROKEN: read b'key'" in said
    assert "files: shm (nothing is put there): it was put" in said
    assert "TCP" not in said


def test_what_was_held_or_not_tried_raises_nothing():
    Report("strict", (HELD, SKIPPED)).raise_for_failures()


def test_broken_and_groups_list_the_outcomes():
    report = Report("strict", (HELD, SKIPPED, BROKEN))
    assert report.broken == (BROKEN,)
    assert report.groups == {"network": (HELD, SKIPPED), "files": (BROKEN,)}


def test_a_report_of_nothing_says_so():
    assert str(Report("strict", ())) == "strict: no case"
