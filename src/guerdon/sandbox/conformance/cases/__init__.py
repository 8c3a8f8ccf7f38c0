"""The abuse cases, by group."""

from __future__ import annotations

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.cases.between import case as between
from guerdon.sandbox.conformance.cases.cheating import case as cheating
from guerdon.sandbox.conformance.cases.endings import case as endings
from guerdon.sandbox.conformance.cases.files import case as files
from guerdon.sandbox.conformance.cases.network import case as network
from guerdon.sandbox.conformance.cases.privileges import case as privileges
from guerdon.sandbox.conformance.cases.processes import case as processes
from guerdon.sandbox.conformance.cases.resources import case as resources

__all__ = ["CASES"]

CASES: tuple[Case, ...] = tuple(
    case
    for group in (network, files, processes, privileges, resources, endings, cheating, between)
    for case in group.cases
)
