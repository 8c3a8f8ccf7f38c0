"""The names that the programs of cases use."""

import re

import pytest

from guerdon.sandbox.locking.syscalls import NUMBERS as LOCKED
from tests.sandbox.conformance import CASES, preamble

NUMBERS = preamble.NUMBERS


def test_numbers_equal_those_of_the_lock():
    both = NUMBERS.keys() & LOCKED.keys()
    assert len(both) >= 5
    assert {name: NUMBERS[name] for name in both} == {name: LOCKED[name] for name in both}


def test_numbers_has_the_calls_of_all_cases_and_no_others():
    source = "".join(case.program + case.companion for case in CASES)
    assert set(re.findall(r'call\(\s*["\'](\w+)["\']', source)) == NUMBERS.keys()


def attempt(error):
    def raise_it(*_):
        raise error

    return raise_it


def test_refused_passes_if_each_attempt_is_denied(capsys):
    preamble.refused("EXDEV", a=attempt(PermissionError(1, "")), b=attempt(OSError(18, "")))
    assert capsys.readouterr().out == "passed: a EPERM, b EXDEV\n"


@pytest.mark.parametrize("attempt", [lambda: 0, attempt(OSError(5, ""))], ids=["returns", "EIO"])
def test_refused_fails_if_an_attempt_is_not_denied(capsys, attempt):
    with pytest.raises(SystemExit):
        preamble.refused(a=attempt)
    assert capsys.readouterr().out.startswith("FAILED: a ")


def test_bounded_fails_after_the_last_time(capsys):
    preamble.bounded(attempt(MemoryError()), 1, errors=MemoryError)
    with pytest.raises(SystemExit):
        preamble.bounded(lambda count: count, 3)
    lines = ["trying", "passed: MemoryError() after 0", "trying", "FAILED: 3 parts were taken"]
    assert capsys.readouterr().out.splitlines() == lines


def test_clean_fails_if_a_finding_is_true(capsys):
    preamble.clean(a=False, b=[])
    with pytest.raises(SystemExit):
        preamble.clean(a=False, b=[1])
    assert capsys.readouterr().out.splitlines() == ["passed: found nothing", "FAILED: found: b"]


def test_change_denies_an_attempt_that_changes_nothing(tmp_path):
    with pytest.raises(PermissionError):
        preamble.change(str(tmp_path), lambda: None)
    preamble.change(str(tmp_path), lambda: tmp_path.chmod(0o700))
