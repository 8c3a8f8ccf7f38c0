"""Running a case: each way that a program comes into a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.cases.cheating import CHEATING_TESTS
from guerdon.sandbox.protocol import Execution, Program, Sandbox

__all__ = ["LOCAL_LEVELS", "execute"]

#: The levels that functions run in too; a plug-in's runs programs.
LOCAL_LEVELS = ("strict", "process")

#: What loads the function of a case in its process.
LOADER = "guerdon.sandbox.conformance.functions:load"


def execute(case: Case, sandbox: Sandbox, facts: Mapping[str, object]) -> Execution:
    """Run a case's program the way it is meant to be.

    Args:
        case: What runs.
        sandbox: Where it runs; its canaries must have been held.
        facts: What the program receives about the host.

    Raises:
        SandboxError: The sandbox failed.
    """
    if case.way in ("checked", "right"):
        return _checked(case, sandbox)
    if case.way == "function":
        return _called(case, sandbox, facts)
    facts_json = json.dumps(facts)
    if case.way == "beside":
        pair = (
            Program(case.companion_source, facts_json.encode()),
            Program(case.source, facts_json.encode()),
        )
        return sandbox.run_pair(*pair, limits=case.limits)[1]
    if case.way == "after":
        before = sandbox.run(case.companion_source, stdin=facts_json, limits=case.limits)
        if not before.stdout.startswith("held: "):
            return replace(before, ending="nonzero", stdout="BROKEN: the call before it failed")
        facts_json = json.dumps({**facts, "before": before.stdout})
    return sandbox.run(case.source, stdin=facts_json, limits=case.limits)


def _checked(case: Case, sandbox: Sandbox) -> Execution:
    from guerdon.sandbox.testing.checking import check_program

    verdict = check_program(
        sandbox, case.source, CHEATING_TESTS, entry_point="combine", limits=case.limits
    )
    total = len(CHEATING_TESTS)
    wanted = total if case.way == "right" else 0
    words = "held" if (verdict.passed, verdict.total) == (wanted, total) else "BROKEN"
    output = f"{words}: {verdict.passed} of {verdict.total} passed ({verdict.failure})"
    return Execution("ok", 0, stdout=" ".join(output.split()), seconds=verdict.seconds)


def _called(case: Case, sandbox: Sandbox, facts: Mapping[str, object]) -> Execution:
    from guerdon.sandbox.function_pool import FunctionPool

    source = dedent(case.program).encode()
    aims = [facts["secret"], facts["tcp"], facts["pid"]]
    pool = FunctionPool(source, LOADER, level=sandbox.name, workers=1, limits=case.limits)
    try:
        for task in ("leave", aims):
            answer = pool.call(json.dumps(task).encode())
    finally:
        pool.close()
    if answer.content is None:
        return answer.execution
    return Execution("ok", 0, stdout=" ".join(answer.content.decode().split()))
