"""Retrying the calls of services."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from guerdon.errors import ServiceError

_Result = TypeVar("_Result")

# The first and the longest pause before a call is retried, in seconds.
PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


async def retry(
    call: Callable[[int], Awaitable[_Result]],
    retries: int,
    pause_of: Callable[[ServiceError], float | None],
) -> _Result:
    """Return the result of a call, retried after pauses that double, with jitter.

    Example:
        >>> import asyncio
        >>> async def call(attempt):
        ...     if attempt < 2:
        ...         raise ServiceError("busy")
        ...     return attempt
        >>> asyncio.run(retry(call, retries=3, pause_of=lambda error: 0.001))
        2

    Args:
        call: It is called with the number of the attempt, from 1.
        retries: The most attempts after the first.
        pause_of: The pause after an error in seconds, 0 for the usual one; None if the call isn't
            retried.

    Raises:
        ServiceError: The last attempt failed; a note says how many there were.
    """
    attempt = 1
    while True:
        try:
            return await call(attempt)
        except ServiceError as error:
            pause = pause_of(error)
            if pause is None or attempt > retries:
                if attempt > 1:
                    error.add_note(f"after {attempt} attempts")
                raise
        usual = min(LONGEST_PAUSE_S, PAUSE_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        await asyncio.sleep(pause or usual)
        attempt += 1
