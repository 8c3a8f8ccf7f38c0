"""The abuse cases, by group."""

from __future__ import annotations

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.cases.between import BETWEEN
from guerdon.sandbox.conformance.cases.cheating import CHEATING
from guerdon.sandbox.conformance.cases.endings import ENDINGS
from guerdon.sandbox.conformance.cases.files import FILES
from guerdon.sandbox.conformance.cases.lasting import LASTING
from guerdon.sandbox.conformance.cases.network import NETWORK
from guerdon.sandbox.conformance.cases.privileges import PRIVILEGES
from guerdon.sandbox.conformance.cases.processes import PROCESSES
from guerdon.sandbox.conformance.cases.resources import RESOURCES

__all__ = ["CASES"]

CASES: tuple[Case, ...] = (
    *NETWORK,
    *FILES,
    *PROCESSES,
    *PRIVILEGES,
    *RESOURCES,
    *LASTING,
    *ENDINGS,
    *CHEATING,
    *BETWEEN,
)
