"""`Execution`: how a run in a sandbox ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Ending", "Execution"]

Ending = Literal["ok", "nonzero", "signal", "timeout", "memory", "output_limit", "sandbox_error"]


@dataclass(frozen=True, slots=True)
class Execution:
    """How a run ended, and what it used.

    An ending of ``ok`` means exit code 0 and no more: a program that calls ``exit(0)`` has it too.
    Whether a program is right, `check_program` tells.

    Example:
        >>> from guerdon.sandbox import Execution
        >>> Execution("nonzero", exit_code=1, stderr="ValueError: no digits").ending
        'nonzero'

    Attributes:
        ending: ``ok``; ``nonzero``, it left with another exit code; ``signal``, it died of one;
            ``timeout``, wall-clock or processor time was used up; ``memory``; ``output_limit``, it
            printed or wrote too much. All these are what the code deserves. ``sandbox_error``: the
            sandbox failed, and nothing is known about the code.
        exit_code: As `subprocess` has it, negative for a signal; None where it isn't known.
        stdout: What it printed, as far as its limit.
        stderr: The same of the other stream.
        seconds: Wall-clock time.
        cpu_seconds: Processor time of all its processes.
        peak_memory_bytes: The most memory that was seen in use at a time, Python's own included,
            which doesn't count for the limit.
        detail: What ended it, in words; None where it came to its own end.
    """

    ending: Ending
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    detail: str | None = None
