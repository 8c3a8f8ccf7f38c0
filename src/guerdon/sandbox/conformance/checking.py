"""`check_sandbox`: whether a sandbox holds what the levels promise."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from difflib import get_close_matches

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.cases import CASES
from guerdon.sandbox.conformance.host import Host
from guerdon.sandbox.conformance.report import Outcome, Report
from guerdon.sandbox.conformance.running import LOCAL_LEVELS, execute
from guerdon.sandbox.execution import Execution
from guerdon.sandbox.protocol import Sandbox

__all__ = ["check_sandbox"]

#: How long a sandbox may take beyond a call's limit.
_SLACK = 2.0

_CANARIES: tuple[Case, ...] = (
    Case(
        "reading a file of the host",
        "canaries",
        "files are shut off",
        "refused(read=lambda: read(host['secret']))",
    ),
    Case(
        "reaching a server of the host",
        "canaries",
        "the network is shut off",
        "refused(connect=lambda: socket.create_connection(('127.0.0.1', host['tcp']), 1))",
    ),
    Case(
        "signalling a process of the host",
        "canaries",
        "processes are shut off",
        # Signal 0 asks who may send one, and sends none.
        "refused(host=lambda: os.kill(host['pid'], 0), other=lambda: os.kill(host['sleeper'], 0))",
    ),
)


def check_sandbox(factory: Callable[[], Sandbox], *, only: Collection[str] | None = None) -> Report:
    """Try a sandbox with each abuse case, and report what it held.

    The cases are aimed at this machine, in forms that do no harm. Three of them are tried first;
    where one gets through, the sandbox shuts nothing off and the others aren't run.

    Example:
        >>> from guerdon import open_sandbox
        >>> from guerdon.sandbox.conformance import check_sandbox
        >>> report = check_sandbox(lambda: open_sandbox("strict"), only=["DNS"])  # doctest: +SKIP
        >>> report.raise_for_failures()  # doctest: +SKIP

    Args:
        factory: Opens the sandbox; it is closed when all is tried.
        only: Groups or names of cases; None tries all.

    Raises:
        SandboxError: A canary got through, or couldn't be tried.
        InvalidArgumentError: A name in `only` is none of a case or group.
    """
    cases = _chosen(only)
    with Host() as host:
        started = time.monotonic()
        with factory() as sandbox:
            name = sandbox.name
            for canary in _CANARIES:
                outcome = _try(canary, sandbox, host)
                if outcome.result != "held":
                    raise SandboxError(
                        f"{name} shuts too little off for abuse cases to be run in it: "
                        f"{canary.name}: {outcome.said}"
                    )
            outcomes = [_try(case, sandbox, host) for case in cases]
        left = host.left_open()
        outcomes.append(
            Outcome(
                "closing",
                "closing",
                "a closed sandbox leaves no process and no descriptor",
                "broken" if left else "held",
                left or "nothing is left",
                time.monotonic() - started,
            )
        )
    return Report(name, tuple(outcomes))


def _chosen(only: Collection[str] | None) -> tuple[Case, ...]:
    if only is None:
        return CASES
    known = {name for case in CASES for name in (case.name, case.group)}
    for name in only:
        if name not in known:
            close = get_close_matches(name, known, n=3)
            hint = f"; near it are {', '.join(close)}" if close else ""
            raise InvalidArgumentError(f"only: {name!r} is no case and no group{hint}")
    return tuple(case for case in CASES if case.name in only or case.group in only)


def _try(case: Case, sandbox: Sandbox, host: Host) -> Outcome:
    """Run a case, where this machine has what it takes, and judge it."""

    def outcome(result: str, said: str) -> Outcome:
        seconds = time.monotonic() - started
        return Outcome(case.name, case.group, case.proves, result, said, seconds)  # type: ignore[arg-type]

    started = time.monotonic()
    reason = case.unless()
    if case.way == "rewarded" and sandbox.name not in LOCAL_LEVELS:
        reason = "reward functions run in the local levels"
    if reason:
        return outcome("not tried", reason)
    try:
        execution = execute(case, sandbox, host.facts)
    except SandboxError as error:
        return outcome("broken", f"the sandbox failed: {error}")
    seconds = time.monotonic() - started
    wrong = case.held(execution) if case.not_tried(execution) is None else None
    wrong = wrong or _overran(case, execution, seconds) or _leaked(execution, host)
    wrong = wrong or host.disturbed() or host.left_running()
    if wrong:
        return outcome("broken", wrong)
    if reason := case.not_tried(execution):
        return outcome("not tried", reason)
    evidence = execution.stdout.rpartition("held: ")[2].strip()
    return outcome("held", evidence if "held: " in execution.stdout else _ended(execution))


def _overran(case: Case, execution: Execution, seconds: float) -> str | None:
    """What went past a limit, whatever the program said."""
    limits = case.limits
    calls = 2 if case.way in ("after", "rewarded") else 1
    if seconds > calls * limits.seconds + _SLACK:
        return f"it took {seconds:.1f} s, of {limits.seconds} s"
    printed = len(execution.stdout.encode()) + len(execution.stderr.encode())
    # What isn't UTF-8 takes up to three times its place when it is told as text.
    if printed > 3 * limits.output_bytes + 4096:
        return f"{printed} bytes came out, of {limits.output_bytes}"
    return None


def _leaked(execution: Execution, host: Host) -> str | None:
    seen = host.secret in execution.stdout or host.secret in execution.stderr
    return "the host's secret was printed" if seen else None


def _ended(execution: Execution) -> str:
    code = "" if execution.exit_code is None else f" {execution.exit_code}"
    detail = f", {execution.detail}" if execution.detail else ""
    return f"{execution.ending}{code}{detail}"
