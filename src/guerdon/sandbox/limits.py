"""`Limits`: what code in a sandbox may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from guerdon.errors import InvalidArgumentError

__all__ = ["Limits"]

# What the kernel can count to, with room to add.
MOST, MOST_SECONDS = 2**60, 1e6


@dataclass(frozen=True, slots=True)
class Limits:
    """What code in a sandbox may use, in one call.

    Example:
        >>> from guerdon import Limits
        >>> Limits(seconds=1.5).memory_bytes == 256 * 2**20
        True
        >>> Limits(seconds=0)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: seconds is 0; it takes a number above 0

    Args:
        seconds: Wall-clock time.
        cpu_seconds: Processor time of all its processes together; None is `seconds` times the
            processes that it may have, as far as the machine has processors.
        memory_bytes: Memory of all its processes together, beside what Python itself, and what
            was imported before the call, take up.
        processes: How many processes and threads it may have, its first one included.
        output_bytes: What it may print, both streams together.
        file_bytes: What it may write into files, together.
        files: How many files and folders it may make; with 0 it can't write at all.

    Raises:
        InvalidArgumentError: A limit is 0 or less, or no number.
    """

    seconds: float = 5.0
    cpu_seconds: float | None = None
    memory_bytes: int = 256 << 20
    processes: int = 16
    output_bytes: int = 64 << 10
    file_bytes: int = 1 << 20
    files: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if name == "cpu_seconds" and value is None:
                continue
            timed = name.endswith("seconds")
            kinds = (int, float) if timed else (int,)
            least = 0 if name == "files" else 1
            most = MOST_SECONDS if timed else MOST
            fits = isinstance(value, kinds) and type(value) is not bool and value <= most
            if not fits or not (value > 0 if timed else value >= least):
                takes = "a number above 0" if timed else f"a whole number of at least {least}"
                if type(value) in kinds and value > most:
                    takes += f", and at most {most:.0e}"
                raise InvalidArgumentError(f"{name} is {value!r:.60}; it takes {takes}")
