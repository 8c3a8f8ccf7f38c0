import pytest

from guerdon import open_sandbox
from guerdon.errors import SandboxUnavailableError


@pytest.fixture(scope="session")
def sandbox():
    """The strictest that works here: what these tests run is bold, but harmless."""
    try:
        opened = open_sandbox("strict", workers=1)
    except SandboxUnavailableError:
        opened = open_sandbox("process", workers=1)
    with opened:
        yield opened


class Bare:
    """A sandbox that knows nothing of the modules that run inside, as a plug-in's doesn't."""

    def __init__(self, sandbox):
        self.name, self.promise = sandbox.name, sandbox.promise
        self.run_pair, self.run_pair_async = sandbox.run_pair, sandbox.run_pair_async


@pytest.fixture(scope="session")
def bare(sandbox):
    return Bare(sandbox)
