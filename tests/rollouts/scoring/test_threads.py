"""Scoring in threads: in order, at the same time, and ended at once by ctrl-C."""

import threading

import pytest

from guerdon.errors import RolloutError
from guerdon.rollouts.scoring.desk import Scored
from guerdon.rollouts.scoring.interrupts import Interrupts
from guerdon.rollouts.scoring.threads import score_in_threads

PATIENCE = 60  # seconds


def batches(count):
    return ([(number, b"line")] for number in range(count))


def scored(lines):
    return Scored(b"".join(b"%d\n" % number for number, _ in lines), [], [])


class Run:
    """A run, with what was stopped and how often."""

    def __init__(self, found, workers=2, score=scored, on_stop=lambda: None):
        self.interrupts = Interrupts()
        self.stops = 0
        self.found = []
        self.on_stop = on_stop
        self.done = score_in_threads(
            found(self.interrupts) if callable(found) else found,
            workers,
            score=score,
            stop=self.stop,
            interrupts=self.interrupts,
        )

    def stop(self):
        self.stops += 1
        self.on_stop()

    def numbers(self):
        for each, _ in self.done:
            self.found.append(int(each.lines))
        return self.found


def test_everything_comes_out_in_order():
    run = Run(batches(50))
    assert run.numbers() == list(range(50))
    assert run.stops == 1


def test_the_lines_come_with_what_became_of_them():
    assert [lines for _, lines in Run(batches(3)).done] == list(batches(3))


def test_nothing_to_score_is_nothing():
    run = Run(batches(0))
    assert run.numbers() == []
    assert run.stops == 1


def test_as_many_as_there_are_workers_run_at_the_same_time():
    together = threading.Barrier(3)

    def score(lines):
        together.wait(PATIENCE)
        return scored(lines)

    assert Run(batches(6), workers=3, score=score).numbers() == list(range(6))


def test_one_that_is_faster_waits_for_those_before_it():
    second = threading.Event()

    def score(lines):
        if lines[0][0] == 0:
            assert second.wait(PATIENCE)
        elif lines[0][0] == 1:
            second.set()
        return scored(lines)

    assert Run(batches(2), score=score).numbers() == [0, 1]


def test_no_more_is_read_than_can_soon_be_scored():
    read = []

    def found():
        for batch in batches(100):
            read.append(batch)
            yield batch

    run = Run(found(), workers=2)
    next(run.done)
    assert len(read) == 5
    run.done.close()
    assert run.stops == 1


def test_what_reading_raises_comes_after_what_stood_before_it():
    def found():
        yield from batches(5)
        raise RolloutError("a group comes again")

    run = Run(found())
    with pytest.raises(RolloutError, match="a group comes again"):
        run.numbers()
    assert run.found == list(range(5))
    assert run.stops == 1


def test_what_scoring_raises_ends_it():
    def score(lines):
        if lines[0][0] == 3:
            raise OSError("no more descriptors")
        return scored(lines)

    run = Run(batches(10), score=score)
    with pytest.raises(OSError, match="no more descriptors"):
        run.numbers()
    assert run.found == [0, 1, 2]
    assert run.stops == 1


@pytest.mark.parametrize("after", [0, 1, 7])
def test_ctrl_c_keeps_what_is_finished_and_ends_what_runs(after):
    hangs, stopped = threading.Event(), threading.Event()

    def found(interrupts):
        yield from batches(after)
        yield [(after, b"hangs")]
        assert hangs.wait(PATIENCE)
        interrupts.asked = True
        raise KeyboardInterrupt

    def score(lines):
        if lines[0][1] == b"hangs":
            hangs.set()
            assert stopped.wait(PATIENCE)
        return scored(lines)

    run = Run(found, workers=2, score=score, on_stop=stopped.set)
    numbers = run.numbers()
    assert numbers == list(range(len(numbers)))
    # The one that hangs was begun, and so were those before it; one of them may still have run.
    assert after - 1 <= len(numbers) <= after
    assert run.stops == 1


def test_after_ctrl_c_nothing_is_begun_any_more():
    begun = []

    def score(lines):
        begun.append(lines)
        return scored(lines)

    run = Run(batches(1000), workers=1, score=score)
    next(run.done)
    run.interrupts.asked = True
    rest = [int(each.lines) for each, _ in run.done]
    assert rest == list(range(1, 1 + len(rest)))
    assert len(begun) <= 4
