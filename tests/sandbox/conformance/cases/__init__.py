"""The abuse cases, by group."""

from __future__ import annotations

from tests.sandbox.conformance.case import Case
from tests.sandbox.conformance.cases.between import case as between
from tests.sandbox.conformance.cases.cheating import case as cheating
from tests.sandbox.conformance.cases.endings import case as endings
from tests.sandbox.conformance.cases.files import case as files
from tests.sandbox.conformance.cases.network import case as network
from tests.sandbox.conformance.cases.privileges import case as privileges
from tests.sandbox.conformance.cases.processes import case as processes
from tests.sandbox.conformance.cases.resources import case as resources

__all__ = ["CASES"]

CASES: tuple[Case, ...] = tuple(
    case
    for group in (network, files, processes, privileges, resources, endings, cheating, between)
    for case in group.cases
)
