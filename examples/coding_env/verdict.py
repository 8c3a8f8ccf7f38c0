"""`Limits` and `Verdict`: what a program may use, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Ended", "Limits", "Verdict"]

Ended = Literal["ok", "timeout", "memory", "output_limit", "crashed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Example:
        >>> from examples.coding_env.verdict import Limits
        >>> Limits(seconds=1.5).memory_bytes
        268435456

    Args:
        seconds: Wall-clock time for the program and all of its tests, above 0.
        memory_bytes: Address space of each process.
        output_bytes: What it may print, both streams together.
        file_bytes: The size of a file that it writes.
    """

    seconds: float = 5.0
    memory_bytes: int = 256 << 20
    output_bytes: int = 64 << 10
    file_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a program.

    Example:
        >>> from examples.coding_env.verdict import Verdict
        >>> Verdict(compiled=True, passed=6, total=8).fraction
        0.75

    Args:
        compiled: Whether it is a Python program at all.
        passed: How many tests it passed.
        total: How many there are.
        ended: How it ended; ``"ok"`` where it came to its end, whether or not tests failed.
        compile_error: Why it doesn't compile.
        failure: What was wrong first, in a line.
        seconds: How long it took.
        output: What it printed, as far as the limit.
    """

    compiled: bool
    passed: int
    total: int
    ended: Ended = "ok"
    compile_error: str | None = None
    failure: str | None = None
    seconds: float = 0.0
    output: str = ""

    @property
    def fraction(self) -> float:
        """The share of tests that it passed."""
        return self.passed / self.total
