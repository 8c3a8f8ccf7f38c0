"""Hostile texts must be read in linear time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# Linear code takes under 1 s for the texts of these tests, on any machine; code that backtracks
# takes minutes.
LIMIT_S = 20.0


@contextmanager
def linear_time() -> Iterator[None]:
    """Fails if its block takes the processor for as long as only backtracking code does."""
    start = time.process_time()
    yield
    assert time.process_time() - start < LIMIT_S
