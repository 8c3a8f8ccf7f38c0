"""Fixtures and hooks of all tests."""

import gc
import signal

import hypothesis
import pytest

from guerdon import _logging

# A shell without job control starts background commands with SIGINT ignored, and so all processes
# that the tests start; some tests are about ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine.
hypothesis.settings.register_profile("guerdon", deadline=None)
hypothesis.settings.load_profile("guerdon")


def pytest_collection_finish():
    """Keep thousands of tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_anew():
    """Don't count what earlier tests have logged."""
    _logging._seen.clear()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Run async tests on both event loops."""
    return request.param


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Escape lone surrogates in reports, which xdist's processes couldn't send otherwise."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
