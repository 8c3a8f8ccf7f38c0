"""What all tests share."""

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Async tests run on both event loops."""
    return request.param
