"""Whether a sandbox holds: abuse cases that every level and plug-in can be tried with.

Example:
    >>> from guerdon.sandbox.conformance import check_sandbox
    >>> report = check_sandbox(lambda: MySandbox())  # doctest: +SKIP
    >>> report.raise_for_failures()  # doctest: +SKIP
"""

from __future__ import annotations

from guerdon.sandbox.conformance.case import Case, Way
from guerdon.sandbox.conformance.cases import CASES
from guerdon.sandbox.conformance.checking import check_sandbox
from guerdon.sandbox.conformance.report import Outcome, Report, Result
from guerdon.sandbox.conformance.trial import Trial

__all__ = ["CASES", "Case", "Outcome", "Report", "Result", "Trial", "Way", "check_sandbox"]
