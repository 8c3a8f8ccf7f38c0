"""Trying again: how often, after how long, and when not."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from guerdon.errors import InvalidArgumentError
from guerdon.services.models.retrying import Backoff, asked_pause, retrying

AT_ONCE = Backoff(3, first_s=0.0)


class Tried:
    """Fails so often, and then gives its number of attempts."""

    def __init__(self, failures, error=OSError):
        self.attempts, self.failures, self.error = 0, failures, error

    async def __call__(self):
        self.attempts += 1
        if self.attempts <= self.failures:
            raise self.error(f"failure {self.attempts}")
        return self.attempts


def always(error):
    return 0.0


@pytest.mark.parametrize("failures", range(4))
def test_it_is_tried_until_it_works(failures):
    assert asyncio.run(retrying(Tried(failures), AT_ONCE, passing=always)) == failures + 1


def test_the_last_failure_is_raised_and_tells_the_attempts():
    tried, seen = Tried(9), []
    with pytest.raises(OSError, match="failure 4") as raised:
        asyncio.run(retrying(tried, AT_ONCE, passing=always, on_retry=seen.append))
    assert raised.value.__notes__ == ["after 4 attempts"]
    assert [str(error) for error in seen] == ["failure 1", "failure 2", "failure 3"]


def test_what_will_not_pass_is_raised_at_once():
    tried = Tried(9)
    with pytest.raises(OSError, match="failure 1") as raised:
        asyncio.run(retrying(tried, AT_ONCE, passing=lambda error: None))
    assert not hasattr(raised.value, "__notes__")
    assert tried.attempts == 1


def test_a_cancellation_is_not_tried_again():
    tried = Tried(9, asyncio.CancelledError)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(retrying(tried, AT_ONCE, passing=always))
    assert tried.attempts == 1


def test_pauses_grow_and_are_drawn_from_their_upper_half():
    backoff = Backoff(first_s=1.0, longest_s=6.0)
    for attempt, longest in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 6.0), (5000, 6.0)):
        pauses = {backoff.pause(attempt) for _ in range(50)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_an_asked_pause_is_kept_up_to_the_longest():
    backoff = Backoff(first_s=1.0, longest_s=6.0)
    assert backoff.pause(1, 3.0) == 3.0
    assert backoff.pause(1, 3600.0) == 6.0
    assert backoff.pause(1, 0.01) >= 0.5


@pytest.mark.parametrize(
    "arguments",
    [{"retries": -1}, {"retries": 101}, {"retries": True}, {"retries": 1.0}, {"first_s": -1},
     {"first_s": float("nan")}, {"longest_s": float("inf")}, {"longest_s": "1"}],
    ids=lambda arguments: "-".join(map(str, *arguments.items())),
)  # fmt: skip
def test_what_can_not_be_meant_is_refused(arguments):
    with pytest.raises(InvalidArgumentError, match=next(iter(arguments))):
        Backoff(**arguments)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({}, 0.0, id="none"),
        pytest.param({"retry-after": "2"}, 2.0, id="seconds"),
        pytest.param({"retry-after": " 0.5 "}, 0.5, id="parts_of_a_second"),
        pytest.param({"retry-after": "9", "retry-after-ms": "250"}, 0.25, id="milliseconds_first"),
        pytest.param({"retry-after": "-2"}, 0.0, id="negative"),
        pytest.param({"retry-after": "nan"}, 0.0, id="nan"),
        pytest.param({"retry-after": "inf"}, 0.0, id="infinite"),
        pytest.param({"retry-after": "soon"}, 0.0, id="words"),
        pytest.param({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0, id="in_the_past"),
        pytest.param({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, 0.0, id="no_date"),
    ],
)
def test_retry_after_is_read(headers, seconds):
    assert asked_pause(headers) == seconds


@pytest.mark.parametrize("zone", [UTC, None], ids=["with_a_zone", "without"])
def test_retry_after_may_be_a_date(zone):
    date = format_datetime((datetime.now(UTC) + timedelta(seconds=100)).replace(tzinfo=zone))
    assert 90 < asked_pause({"retry-after": date}) <= 100
