"""Tests the isolation of a sandbox: abuse cases for every level and plug-in.

Example:
    >>> from tests.sandbox.conformance import check_sandbox
    >>> report = check_sandbox(lambda: MySandbox())  # doctest: +SKIP
    >>> report.raise_for_failures()  # doctest: +SKIP
"""

from __future__ import annotations

from tests.sandbox.conformance.case import Case, Way
from tests.sandbox.conformance.cases import CASES
from tests.sandbox.conformance.report import Outcome, Report, Result
from tests.sandbox.conformance.trial import Trial, check_sandbox

__all__ = ["CASES", "Case", "Outcome", "Report", "Result", "Trial", "Way", "check_sandbox"]
