"""`check_sandbox`: whether a sandbox holds what the levels promise."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches

from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.cases import CASES
from guerdon.sandbox.conformance.report import Report
from guerdon.sandbox.conformance.trial import Trial
from guerdon.sandbox.protocol import Sandbox

__all__ = ["check_sandbox"]


def check_sandbox(factory: Callable[[], Sandbox], *, only: Collection[str] | None = None) -> Report:
    """Try a sandbox with each abuse case, and report what it held.

    The cases are aimed at this machine, in forms that do no harm. Three canaries go first; where
    one gets through, the sandbox shuts too little off, and no case is run.

    Example:
        >>> from guerdon import open_sandbox
        >>> from guerdon.sandbox.conformance import check_sandbox
        >>> check_sandbox(lambda: open_sandbox("strict"), only=["the networks"])
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: only: 'the networks' is no case and no group; near \
it is network

    Args:
        factory: Opens the sandbox; it is closed when all is tried.
        only: Groups or names of cases; None tries all.

    Returns:
        What came of each case. Printed, it is a table; `Report.raise_for_failures` raises where
        one wasn't held.

    Raises:
        SandboxError: A canary got through, or couldn't be tried.
        InvalidArgumentError: A name in `only` is not a case or a group.
    """
    cases = _chosen(only)
    with Trial(factory) as trial:
        outcomes = [trial.outcome_of(case) for case in cases]
        return Report(trial.name, (*outcomes, trial.close()))


def _chosen(only: Collection[str] | None) -> tuple[Case, ...]:
    if only is None:
        return CASES
    known = {name for case in CASES for name in (case.name, case.group)}
    for name in only:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; near it is {close[0]}" if close else ""
            raise InvalidArgumentError(f"only: {name!r} is no case and no group{hint}")
    return tuple(case for case in CASES if case.name in only or case.group in only)
