"""Random numbers that are a function of a seed and a counter, in Python and in numpy."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

__all__ = ["derive", "uniform"]

# SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
# the increment, and the multipliers of its mixing function.
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = (1 << 64) - 1

Seeds = TypeVar("Seeds", bound=Any)


def uniform(seed: Seeds, counter: int) -> Any:
    """Return the ``counter``-th number in [0, 1) of a seed.

    An environment that is played alone and a thousand that are played at once draw the same
    numbers, whatever the order of the draws.

    Example:
        >>> import numpy as np
        >>> from guerdon.arena.chance import uniform
        >>> numbers = uniform(np.array([7, 8], np.uint64), 3)
        >>> float(numbers[0]) == uniform(7, 3)
        True

    Args:
        seed: A seed in [0, 2⁶⁴), or an array of these of the type ``uint64``.
        counter: The number of the draw, 0 or more.
    """
    return (_mix(seed, counter) >> _like(seed, 11)) * 2.0**-53


def derive(seed: Seeds, counter: int) -> Any:
    """Return a seed in [0, 2⁵³) that depends on another and a counter; see `uniform`."""
    return _mix(seed, counter) >> _like(seed, 11)


def _mix(seed: Any, counter: int) -> Any:
    if not isinstance(seed, np.ndarray):
        z = (seed + (counter + 1) * GOLDEN) & WORD
        z = ((z ^ z >> 30) * FIRST) & WORD
        z = ((z ^ z >> 27) * SECOND) & WORD
        return z ^ z >> 31
    z = seed + np.uint64((counter + 1) * GOLDEN & WORD)
    z = (z ^ z >> np.uint64(30)) * np.uint64(FIRST)
    z = (z ^ z >> np.uint64(27)) * np.uint64(SECOND)
    return z ^ z >> np.uint64(31)


def _like(seed: Any, value: int) -> Any:
    return np.uint64(value) if isinstance(seed, np.ndarray) else value
