"""The fixture `figure`: what a test measured, printed after all tests."""

import pytest

_figures = []


@pytest.fixture
def figure():
    """Add a line to the figures."""
    return _figures.append


def pytest_terminal_summary(terminalreporter):
    """Print the figures."""
    if _figures:
        terminalreporter.section("figures")
        for line in _figures:
            terminalreporter.line(line)
