"""`Verdict`: what came of a program that was tested."""

from __future__ import annotations

from dataclasses import dataclass

from guerdon.sandbox.protocol import Ending

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a program.

    Example:
        >>> from guerdon.sandbox import Verdict
        >>> Verdict(compiled=True, passed=6, total=8).fraction
        0.75

    Attributes:
        compiled: Whether it is a Python program at all.
        passed: How many tests it passed.
        total: How many there are.
        ended: How its process ended; ``ok`` where it was there to the last test, whether or not
            tests failed, or where it left with exit code 0 before, which passes nothing.
        compile_error: Why it doesn't compile.
        failure: What was wrong first, in a line.
        seconds: How long it took.
        output: What it printed, as far as the limit.
        tests: Of each test, whether it was passed.
    """

    compiled: bool
    passed: int
    total: int
    ended: Ending = "ok"
    compile_error: str | None = None
    failure: str | None = None
    seconds: float = 0.0
    output: str = ""
    tests: tuple[bool, ...] = ()

    @property
    def fraction(self) -> float:
        """The share of tests that it passed; 0 of none."""
        return self.passed / self.total if self.total else 0.0
