"""A tracker that stores its records, and fails or blocks on request."""

import threading

import pytest


class Kept:
    def __init__(self, name="kept"):
        self.name = name
        self.records = []
        self.fails = None  # what write raises
        self.fails_to_open = None
        self.refuses = lambda record: False
        self.go = threading.Event()
        self.go.set()
        self.began = threading.Event()
        self.closed = 0

    def open(self, run):
        if self.fails_to_open is not None:
            raise self.fails_to_open

    def write(self, records):
        self.began.set()
        assert self.go.wait(30)
        if self.fails is not None:
            raise self.fails
        from guerdon.errors import TrackerError

        if any(self.refuses(record) for record in records):
            raise TrackerError("not that one")
        self.records += records

    def close(self):
        self.closed += 1

    @property
    def steps(self):
        return [record.step for record in self.records]


@pytest.fixture
def kept():
    return Kept


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    ours = [each.name for each in threading.enumerate() if each.name.startswith("guerdon-t")]
    assert ours == []
