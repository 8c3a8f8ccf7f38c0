"""What the tests of environments share."""

import threading

import pytest

from tests.envs.worlds import SOON, Blocks, Server


@pytest.fixture
def blocking():
    """Makes a class of environments that block until the test, or its end, lets them go."""
    made = []

    def make(**attributes):
        own = {
            "gate": threading.Event(),
            "notes": [],
            "begun": threading.Semaphore(0),
            "closes": threading.Semaphore(0),
        }
        kind = type("Blocks", (Blocks,), {**own, **attributes})
        made.append(kind)
        return kind

    before = set(threading.enumerate())
    yield make
    for kind in made:
        kind.gate.set()
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("guerdon-pool"):
            thread.join(SOON)
            assert not thread.is_alive(), "a thread of the pool is left"


@pytest.fixture(scope="session")
def world_server():
    """A process that serves `Served`, for all tests that don't change it."""
    with Server() as server:
        yield server
