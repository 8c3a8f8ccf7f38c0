"""`Finding`: what came of one attack on a sandbox."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one attack.

    Example:
        >>> from guerdon.sandbox import Finding
        >>> Finding("read /etc/passwd", held=True, said="Permission denied").held
        True

    Attributes:
        name: What was tried.
        held: Whether it was held.
        said: What came of it.
    """

    name: str
    held: bool
    said: str
