import pytest

from guerdon import open_sandbox
from guerdon.errors import SandboxUnavailableError


@pytest.fixture(scope="session")
def sandbox():
    """The strictest sandbox that works here; the programs are hostile, but harmless."""
    try:
        opened = open_sandbox("strict", workers=1)
    except SandboxUnavailableError:
        opened = open_sandbox("process", workers=1)
    with opened:
        yield opened


class Bare:
    """A sandbox without preloaded modules, such as a plug-in's."""

    def __init__(self, sandbox):
        self.level, self.promise = sandbox.level, sandbox.promise
        self.run_pair, self.run_pair_async = sandbox.run_pair, sandbox.run_pair_async


@pytest.fixture(scope="session")
def bare(sandbox):
    return Bare(sandbox)
