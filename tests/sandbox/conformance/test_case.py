"""Each case can fail: nothing but its evidence counts as held."""

from collections import Counter
from dataclasses import replace

import pytest

from guerdon.sandbox import Execution
from guerdon.sandbox.conformance import CASES
from guerdon.sandbox.conformance.trial import CANARIES

EVERY = (*CASES, *CANARIES)
each_case = pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case.group}-{case.name}")

#: What a program that was let through, crashed, or never began leaves behind.
WORTHLESS = {
    "silence": Execution("ok", 0),
    "let through": Execution("ok", 0, stdout="BROKEN: read 12 bytes\n"),
    "let through in the end": Execution("ok", 0, stdout="trying\nBROKEN: read 12 bytes\n"),
    "held and let through": Execution("ok", 0, stdout="held: EPERM\nBROKEN: read\n"),
    "a crash": Execution("nonzero", 1, stderr="NameError: name 'refusd' is not defined"),
    "a crash after words": Execution("nonzero", 1, stdout="held: EPERM\n", stderr="NameError"),
    "a syntax error": Execution("nonzero", 1, stderr="SyntaxError: invalid syntax"),
    "a segfault at the start": Execution("signal", -11),
    "a timeout at the start": Execution("timeout", -9),
    "memory at the start": Execution("memory", -9),
    "output at the start": Execution("output_limit", -9, stdout="x" * 70_000),
    "the sandbox failed": Execution("sandbox_error", None, detail="its worker is gone"),
    "the sandbox failed later": Execution("sandbox_error", None, stdout="trying\n"),
    "other words": Execution("ok", 0, stdout="all tests passed\n"),
    "only trying": Execution("sandbox_error", 0, stdout="trying\nheld: EPERM\n"),
}


@each_case
def test_nothing_but_its_evidence_is_held(case):
    taken = [what for what, execution in WORTHLESS.items() if case.held(execution) is None]
    passed_over = [what for what, execution in WORTHLESS.items() if case.not_tried(execution)]
    assert taken == passed_over == []
    for ending in ("nonzero", "signal", "timeout", "memory", "output_limit"):
        execution = Execution(ending, case.exit_code, stdout="trying\n")
        assert (case.held(execution) is None) == (ending in case.ends)
    assert case.held(Execution("ok", 0, stdout="held: EPERM\n")) is None


@pytest.mark.parametrize(
    "case", [case for case in EVERY if case.exit_code is not None], ids=lambda case: case.name
)
def test_another_exit_code_is_not_held(case):
    (ending,) = case.ends
    assert case.held(Execution(ending, case.exit_code, stdout="trying\n")) is None
    assert case.held(Execution(ending, case.exit_code + 1, stdout="trying\n"))


@pytest.mark.parametrize(
    "case",
    # Of those that are checked the verdict is the evidence.
    [case for case in EVERY if case.way not in ("checked", "right")],
    ids=lambda case: case.name,
)
def test_a_program_says_what_it_got_or_how_it_is_to_end(case):
    compile(case.source, case.name, "exec")
    compile(case.companion_source, case.name, "exec")
    shows = ("held", "refused(", "survived(")
    assert any(word in case.program for word in shows) or (case.ends and "trying()" in case.program)
    if case.ends:
        assert "trying()" in case.program or "survived(" in case.program


def test_a_program_that_cannot_try_says_why():
    case = CASES[0]
    said = Execution("ok", 0, stdout="not tried: there is no home\n")
    assert case.not_tried(said) == "there is no home"
    assert case.held(said)
    assert case.not_tried(replace(said, ending="nonzero")) is None
    assert case.not_tried(replace(said, stdout="not tried: so\nBROKEN: read\n")) is None


def test_there_are_enough_cases_in_each_group():
    groups = Counter(case.group for case in CASES)
    assert sum(groups.values()) >= 150
    assert set(groups) == {
        "network", "files", "processes", "privileges", "resources", "endings", "cheating",
        "between calls",
    }  # fmt: skip
    assert min(groups.values()) >= 10


def test_names_are_told_apart():
    names = [case.name for case in EVERY]
    assert len(names) == len(set(names))
    assert not set(names) & {case.group for case in CASES}


def test_bombs_are_capped():
    for case in CASES:
        assert case.limits.seconds <= 4
        assert case.limits.memory_bytes <= 512 << 20
        assert case.limits.processes <= 8
        assert case.limits.file_bytes <= 1 << 20
