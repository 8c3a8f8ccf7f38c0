"""Trying again, with pauses that grow."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from guerdon.errors import InvalidArgumentError

__all__ = ["Backoff"]

T = TypeVar("T")

MAX_RETRIES = 100


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often something is tried again, and how long to wait before.

    Before the n-th new attempt (from 1) come min(`longest_s`, `first_s` · 2ⁿ⁻¹) · u seconds, u
    drawn evenly from [0.5, 1], so that many who failed together don't come again together.

    Example:
        >>> Backoff(retries=2).retries
        2

    Args:
        retries: How often to try again, from 0 to 100.
        first_s: Seconds before the second attempt, at least 0.
        longest_s: The longest pause in seconds, whoever asks for it.

    Raises:
        InvalidArgumentError: An argument is out of range.
    """

    retries: int = 3
    first_s: float = 0.5
    longest_s: float = 30.0

    def __post_init__(self) -> None:
        if type(self.retries) is not int or not 0 <= self.retries <= MAX_RETRIES:
            raise InvalidArgumentError(
                f"retries is {self.retries!r:.80}; it takes an int from 0 to {MAX_RETRIES}"
            )
        for name, value in (("first_s", self.first_s), ("longest_s", self.longest_s)):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0.0 <= value < math.inf:
                raise InvalidArgumentError(f"{name} is {value!r:.80}; it takes seconds, from 0")

    def pause(self, attempt: int, asked: float = 0.0) -> float:
        """Seconds to wait after an attempt that failed.

        Args:
            attempt: Its number, from 1.
            asked: The least that the other side asked for, in seconds.
        """
        grown = min(self.longest_s, self.first_s * 2.0 ** min(attempt - 1, 60))
        return min(self.longest_s, max(asked, grown * random.uniform(0.5, 1.0)))


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    passing: Callable[[Exception], float | None],
    on_retry: Callable[[Exception], None] | None = None,
) -> T:
    """Try until it works, or there is no use in trying.

    Example:
        >>> import asyncio
        >>> async def lookup():
        ...     return 42
        >>> asyncio.run(retrying(lookup, Backoff(), passing=lambda error: 0.0))
        42

    Args:
        attempt: What is tried. It runs on asyncio.
        backoff: How often, and how long to wait.
        passing: Whether what was raised may pass: the seconds that the other side asked to wait,
            0.0 where it didn't say; None where another attempt is of no use.
        on_retry: Called before each new attempt with what the last one raised.

    Returns:
        What the first attempt that works gives.

    Raises:
        Exception: What the last attempt raised, with a note of how many there were.
    """
    number = 1
    while True:
        try:
            return await attempt()
        except Exception as error:
            asked = passing(error)
            if asked is None or number > backoff.retries:
                if number > 1:
                    error.add_note(f"after {number} attempts")
                raise
            if on_retry is not None:
                on_retry(error)
            pause = backoff.pause(number, asked)
        await asyncio.sleep(pause)
        number += 1


def asked_pause(headers: Mapping[str, str]) -> float:
    """The seconds that an HTTP answer asks to wait: `Retry-After`, in seconds or as a date.

    Example:
        >>> asked_pause({"retry-after": "2"}), asked_pause({"retry-after-ms": "250"})
        (2.0, 0.25)

    Args:
        headers: The answer's headers, with names in lower case.

    Returns:
        At least 0.0; 0.0 also where nothing was said, or nothing that can be meant.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        said = headers.get(name, "").strip()
        try:
            seconds = float(said) / unit
        except ValueError:
            seconds = _until(said)
        if 0.0 < seconds < math.inf:
            return seconds
    return 0.0


def _until(date: str) -> float:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return 0.0
    zoned = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (zoned - datetime.now(UTC)).total_seconds()
