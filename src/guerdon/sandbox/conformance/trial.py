"""`Trial`: a sandbox that has held the canaries, and so may be tried with abuse cases."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from guerdon.errors import SandboxError
from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.host import Host
from guerdon.sandbox.conformance.report import Outcome, Result
from guerdon.sandbox.conformance.running import LOCAL_LEVELS, execute
from guerdon.sandbox.protocol import Execution, Sandbox

__all__ = ["CANARIES", "Trial"]

#: How long a sandbox may take beyond a call's limit.
_SLACK = 2.0

_canary = "canaries"
CANARIES: tuple[Case, ...] = (
    Case(
        "reading a file of the host",
        _canary,
        "files are shut off",
        "refused(read=lambda: read(host['secret']))",
    ),
    Case(
        "reaching a server of the host",
        _canary,
        "the network is shut off",
        "refused(connect=lambda: socket.create_connection(('127.0.0.1', host['tcp']), 1))",
    ),
    Case(
        "signalling a process of the host",
        _canary,
        "processes are shut off",
        # Signal 0 asks who may send one, and sends none.
        "refused(host=lambda: os.kill(host['pid'], 0), other=lambda: os.kill(host['sleeper'], 0))",
    ),
)


class Trial:
    """A sandbox, and what cases aim at; `check_sandbox` runs all cases through one.

    Opened, it lets three canaries out: to read a file, reach a server and signal a process, all
    three of its own making. Where one gets through, no case is run.

    Example:
        >>> from guerdon import open_sandbox
        >>> from guerdon.sandbox.conformance import CASES, Trial
        >>> with Trial(lambda: open_sandbox("strict")) as trial:  # doctest: +SKIP
        ...     trial.outcome_of(CASES[0]).result
        'held'

    Args:
        factory: Opens the sandbox; it is closed with the trial.

    Raises:
        SandboxError: A canary got through, or couldn't be tried (when it is entered).
    """

    def __init__(self, factory: Callable[[], Sandbox]) -> None:
        self._factory = factory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._host = stack.enter_context(Host())
            self._opened = time.monotonic()
            self._sandbox = stack.enter_context(self._factory())
            self.name = self._sandbox.name
            for canary in CANARIES:
                outcome = self.outcome_of(canary)
                if outcome.result != "held":
                    raise SandboxError(
                        f"{self.name} shuts too little off for abuse cases to be run in it: "
                        f"{canary.name}: {outcome.detail}"
                    )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def outcome_of(self, case: Case) -> Outcome:
        """Run a case, where this machine has what it takes, and judge it."""
        started = time.monotonic()
        result, detail = self._judged(case)
        seconds = time.monotonic() - started
        return Outcome(case.name, case.group, case.proves, result, detail, seconds)

    def close(self) -> Outcome:
        """Close the sandbox, and say whether it left anything."""
        self._sandbox.close()
        left = self._host.left_open()
        return Outcome(
            "closing",
            "closing",
            "a closed sandbox leaves no process and no descriptor",
            "broken" if left else "held",
            left or "nothing is left",
            time.monotonic() - self._opened,
        )

    def _judged(self, case: Case) -> tuple[Result, str]:
        reason = case.unless()
        if case.way == "function" and self._sandbox.name not in LOCAL_LEVELS:
            reason = "functions run in the local levels"
        if reason:
            return "not tried", reason
        started = time.monotonic()
        try:
            execution = execute(case, self._sandbox, self._host.facts)
        except Exception as error:
            # A plug-in may fail in any way, and the other cases are still worth trying.
            self._host.disturbed()  # so that the next case isn't taken for it
            kind = "" if isinstance(error, SandboxError) else f"{type(error).__name__}: "
            return "broken", f"the sandbox failed: {kind}{error}"
        seconds = time.monotonic() - started
        reason = case.not_tried(execution)
        wrong = None if reason else case.held(execution)
        found = wrong, _overran(case, execution, seconds=seconds), *self._seen(execution)
        if any(found):
            return "broken", "; ".join(each for each in found if each)
        if reason:
            return "not tried", reason
        _, marker, evidence = execution.stdout.rpartition("held: ")
        return "held", evidence.strip() if marker else _ended(execution)

    def _seen(self, execution: Execution) -> tuple[str | None, ...]:
        """Return what shows on this side, whatever the program printed."""
        printed = execution.stdout + execution.stderr
        leaked = "the host's secret was printed" if self._host.secret in printed else None
        return leaked, self._host.disturbed(), self._host.left_running()


def _overran(case: Case, execution: Execution, *, seconds: float) -> str | None:
    """Which limit was passed."""
    limits = case.limits
    calls = 2 if case.way in ("after", "function") else 1
    if seconds > calls * limits.seconds + _SLACK:
        return f"it took {seconds:.1f} s, of {limits.seconds} s"
    printed = len(execution.stdout.encode()) + len(execution.stderr.encode())
    # What isn't UTF-8 takes up to three times its place when it is decoded.
    if printed > 3 * limits.output_bytes + 4096:
        return f"{printed} bytes came out, of {limits.output_bytes}"
    return None


def _ended(execution: Execution) -> str:
    code = "" if execution.exit_code is None else f" {execution.exit_code}"
    detail = f", {execution.detail}" if execution.detail else ""
    return f"{execution.ending}{code}{detail}"
