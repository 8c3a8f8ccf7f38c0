"""Scoring in order: in this thread and in threads, with errors and ctrl-C in between."""

import threading
from functools import partial

import pytest

from guerdon.errors import RolloutError
from guerdon.rollouts.scoring.execution import (
    Interrupts,
    InThisThread,
    InThreads,
    ScoredChunk,
    score_in_order,
)

PATIENCE = 60  # seconds


def batches(count):
    return ([(number, b"line")] for number in range(count))


def scored(chunk, **fields):
    encoded = b"".join(b"%d\n" % number for lines in chunk for number, _ in lines)
    rows = sum(len(lines) for lines in chunk)
    return ScoredChunk(encoded, rows, 0, len(chunk), 0.0, **fields)


class Run:
    """A run in threads that counts how often it was stopped."""

    def __init__(self, found, workers=2, score=scored, on_stop=lambda: None):
        self.interrupts = Interrupts()
        self.stops = 0
        self.found = []
        self.on_stop = on_stop
        self.chunks = score_in_order(
            found(self.interrupts) if callable(found) else found,
            InThreads(score, workers=workers, stop=self.stop),
            interrupts=self.interrupts,
        )

    def stop(self):
        self.stops += 1
        self.on_stop()

    def numbers(self):
        for chunk in self.chunks:
            self.found += map(int, chunk.encoded.split())
        return self.found


def here(found, score=scored, interrupts=None):
    interrupts = interrupts or Interrupts()
    chunks = score_in_order(found, InThisThread(score), interrupts=interrupts)
    return [int(number) for chunk in chunks for number in chunk.encoded.split()]


def test_score_in_order_in_threads_yields_everything_in_order():
    run = Run(batches(50))
    assert run.numbers() == list(range(50))
    assert run.stops == 1


def test_score_in_order_in_this_thread_yields_everything_in_order():
    assert here(batches(2000)) == list(range(2000))


def test_score_in_order_in_threads_yields_one_chunk_per_batch():
    assert [chunk.batches for chunk in Run(batches(3)).chunks] == [1, 1, 1]


def test_score_in_order_in_this_thread_makes_chunks_of_fast_batches_larger():
    chunks = score_in_order(batches(9), InThisThread(scored), interrupts=Interrupts())
    assert [chunk.batches for chunk in chunks] == [1, 2, 4, 2]


def test_score_in_order_in_threads_of_nothing_yields_nothing():
    run = Run(batches(0))
    assert run.numbers() == []
    assert run.stops == 1
    assert here(batches(0)) == []


def test_score_in_order_in_threads_runs_as_many_at_once_as_there_are_workers():
    together = threading.Barrier(3)

    def score(chunk):
        together.wait(PATIENCE)
        return scored(chunk)

    assert Run(batches(6), workers=3, score=score).numbers() == list(range(6))


def test_score_in_order_in_threads_keeps_a_fast_result_until_those_before_it():
    second = threading.Event()

    def score(chunk):
        if chunk[0][0][0] == 0:
            assert second.wait(PATIENCE)
        elif chunk[0][0][0] == 1:
            second.set()
        return scored(chunk)

    assert Run(batches(2), score=score).numbers() == [0, 1]


def test_score_in_order_in_threads_reads_ahead_in_bounds():
    read = []

    def found():
        for batch in batches(100):
            read.append(batch)
            yield batch

    run = Run(found(), workers=2)
    next(run.chunks)
    assert len(read) == 5
    run.chunks.close()
    assert run.stops == 1


@pytest.mark.parametrize("count", [0, 1, 5])
def test_score_in_order_in_this_thread_raises_an_error_of_reading_after_the_results_before(count):
    def found():
        yield from batches(count)
        raise RolloutError("a group is split")

    run = Run(found())
    with pytest.raises(RolloutError, match="a group is split"):
        run.numbers()
    assert run.found == list(range(count))
    assert run.stops == 1
    chunks = score_in_order(found(), InThisThread(scored), interrupts=Interrupts())
    numbers = []
    with pytest.raises(RolloutError, match="a group is split"):
        numbers.extend(int(each) for chunk in chunks for each in chunk.encoded.split())
    assert numbers == list(range(count))


def test_score_in_order_in_threads_ends_on_an_error_of_scoring():
    def score(chunk):
        if chunk[0][0][0] == 3:
            raise OSError("no more descriptors")
        return scored(chunk)

    run = Run(batches(10), score=score)
    with pytest.raises(OSError, match="no more descriptors"):
        run.numbers()
    assert run.found == [0, 1, 2]
    assert run.stops == 1


@pytest.mark.parametrize("after", [0, 1, 7])
def test_score_in_order_in_threads_after_ctrl_c_keeps_finished_results_and_stops(after):
    hangs, stopped = threading.Event(), threading.Event()

    def found(interrupts):
        yield from batches(after)
        yield [(after, b"hangs")]
        assert hangs.wait(PATIENCE)
        raise KeyboardInterrupt

    def score(chunk):
        if chunk[0][0][1] == b"hangs":
            hangs.set()
            assert stopped.wait(PATIENCE)
        return scored(chunk)

    run = Run(found, workers=2, score=score, on_stop=stopped.set)
    numbers = run.numbers()
    assert numbers == list(range(len(numbers)))
    # Up to 5 are submitted and not yet yielded: the other thread may still run the first of them.
    assert max(after - 4, 0) <= len(numbers) <= after
    assert run.stops == 1
    assert run.interrupts.requested


def test_score_in_order_in_threads_after_ctrl_c_submits_nothing():
    begun = []

    def score(chunk):
        begun.append(chunk)
        return scored(chunk)

    run = Run(batches(1000), workers=1, score=score)
    next(run.chunks)
    run.interrupts.requested = True
    rest = run.numbers()
    assert rest == list(range(1, 1 + len(rest)))
    assert len(begun) <= 4


def test_score_in_order_in_this_thread_ends_after_a_chunk_that_was_interrupted():
    interrupts = Interrupts()

    def score(chunk):
        return scored(chunk[:2], interrupted=len(chunk) > 2)

    assert here(batches(100), score, interrupts) == [0, 1, 2, 3, 4]
    assert interrupts.requested


def test_interrupts_end_what_is_allowed_and_raise_the_second_time_anywhere():
    interrupts = Interrupts()
    interrupt = partial(interrupts._interrupt, 2, None)
    interrupt()
    assert interrupts.requested
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    interrupts.requested = False
    with interrupts.allowed():
        interrupt()
        pytest.fail("ctrl-C didn't end it")
    assert interrupts.requested
    with pytest.raises(KeyboardInterrupt), interrupts.allowed():
        interrupt()
