"""What all tests share."""

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Async tests run on both event loops."""
    return request.param


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let reports of tests that log lone surrogates be sent between the processes that test."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
