"""Each case can fail: only evidence makes it pass."""

from collections import Counter
from dataclasses import replace

import pytest

from guerdon.sandbox import Execution
from tests.sandbox.conformance import CASES

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}-{case.name}")

#: Runs of programs that succeeded, crashed, or never started.
WITHOUT_EVIDENCE = {
    "silence": Execution("ok", 0),
    "success": Execution("ok", 0, stdout="FAILED: read 12 bytes\n"),
    "success after an attempt": Execution("ok", 0, stdout="trying\nFAILED: read 12 bytes\n"),
    "passed, then success": Execution("ok", 0, stdout="passed: EPERM\nFAILED: read\n"),
    "a crash": Execution("nonzero", 1, stderr="NameError: name 'refusd' is not defined"),
    "a crash after a result": Execution("nonzero", 1, stdout="passed: EPERM\n", stderr="NameError"),
    "a syntax error": Execution("nonzero", 1, stderr="SyntaxError: invalid syntax"),
    "a segfault at the start": Execution("signal", -11),
    "a timeout at the start": Execution("timeout", -9),
    "memory at the start": Execution("memory", -9),
    "output at the start": Execution("output_limit", -9, stdout="x" * 70_000),
    "the sandbox failed": Execution("sandbox_error", None, detail="its worker is gone"),
    "the sandbox failed later": Execution("sandbox_error", None, stdout="trying\n"),
    "other output": Execution("ok", 0, stdout="all tests passed\n"),
    "only trying": Execution("sandbox_error", 0, stdout="trying\npassed: EPERM\n"),
}


@each_case
def test_case_failure_is_none_only_with_evidence(case):
    for what, execution in WITHOUT_EVIDENCE.items():
        assert case.failure(execution) is not None, what
        assert case.skip_reason(execution) is None, what
    for ending in ("nonzero", "signal", "timeout", "memory", "output_limit"):
        execution = Execution(ending, case.exit_code, stdout="trying\n")
        assert (case.failure(execution) is None) == (ending in case.ends)
    assert case.failure(Execution("ok", 0, stdout="passed: EPERM\n")) is None


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.exit_code is not None], ids=lambda case: case.name
)
def test_case_failure_with_another_exit_code(case):
    (ending,) = case.ends
    assert case.failure(Execution(ending, case.exit_code, stdout="trying\n")) is None
    assert case.failure(Execution(ending, case.exit_code + 1, stdout="trying\n"))


@pytest.mark.parametrize(
    "case",
    # The evidence of the others is their verdict.
    [case for case in CASES if case.way not in ("checked", "right")],
    ids=lambda case: case.name,
)
def test_case_programs_compile_and_report_their_result(case):
    compile(case.source, case.name, "exec")
    compile(case.companion_source, case.name, "exec")
    shows = ("passed", "refused(", "survived(", "bounded(", "clean(")
    assert any(word in case.program for word in shows) or (case.ends and "trying()" in case.program)
    if case.ends:
        assert any(word in case.program for word in ("trying()", "survived(", "bounded("))


def test_case_skip_reason():
    case = CASES[0]
    skipped = Execution("ok", 0, stdout="skipped: there is no home\n")
    assert case.skip_reason(skipped) == "there is no home"
    assert case.failure(skipped)
    assert case.skip_reason(replace(skipped, ending="nonzero")) is None
    assert case.skip_reason(replace(skipped, stdout="skipped: so\nFAILED: read\n")) is None


def test_cases_has_enough_cases_in_each_group():
    groups = Counter(case.group for case in CASES)
    assert sum(groups.values()) >= 150
    assert set(groups) == {
        "network", "files", "processes", "privileges", "resources", "endings", "cheating",
        "between calls",
    }  # fmt: skip
    assert min(groups.values()) >= 10


def test_cases_have_different_names():
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert not set(names) & {case.group for case in CASES}


def test_cases_cap_their_limits():
    for case in CASES:
        assert case.limits.seconds <= 4
        assert case.limits.memory_bytes <= 512 << 20
        assert case.limits.processes <= 8
        assert case.limits.file_bytes <= 1 << 20
