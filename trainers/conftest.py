"""Fixtures of what a test measured, which is printed after all tests."""

import pytest

from trainers import homes
from trainers.agreement import agreement

_figures = []


@pytest.fixture
def figure():
    """Add a line to the figures."""
    return _figures.append


@pytest.fixture
def agrees():
    """Check that what arrived is the reward, and add a line to the table of `make trainers`."""

    def check(way, arrived, *, failures, tolerance=1e-9):
        found = agreement(way, arrived)
        homes.HOMES.mkdir(exist_ok=True)
        with homes.AGREEMENTS.open("a") as file:
            file.write(f"| {' | '.join(found.cells(tolerance))} |\n")
        assert (found.rows, found.numbers, found.failures) == (1_000, 0, failures)
        assert max(found.score, found.advantage) <= tolerance

    return check


def pytest_terminal_summary(terminalreporter):
    """Print the figures."""
    if _figures:
        terminalreporter.section("figures")
        for line in _figures:
            terminalreporter.line(line)
