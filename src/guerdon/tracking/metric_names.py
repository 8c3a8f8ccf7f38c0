"""Names of metrics that every tracker takes, and under which no two things meet."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

__all__ = ["metric_name"]

# What all trackers take in one part of a name; a slash would begin another part.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MADE = re.compile(r".*-[0-9a-f]{8}", re.DOTALL)
# Parts that are taken: reward/total, reward/weights/…, reward/invalid/….
_TAKEN = frozenset({"total", "weights", "invalid"})
_LONGEST = 80  # MLflow takes 250 characters for all parts together


@lru_cache(maxsize=4096)
def metric_name(name: str) -> str:
    """One part of a metric's name: as it is where every tracker takes it.

    Trackers differ in what they take (MLflow is the strictest), and a name that each changes in its
    own way could meet another. So a name with other characters than letters, digits, ``_``, ``.``
    and ``-``, one of over 80, or one that is taken (``total``, ``weights``, ``invalid``) is written
    with ``_`` for what doesn't fit and 8 digits of the name's SHA-256, by which it stays itself. A
    name that looks as if it had been made so is treated in the same way.

    Example:
        >>> metric_name("style.brevity")
        'style.brevity'
        >>> metric_name("style/brevity"), metric_name("style brevity")
        ('style_brevity-7a964932', 'style_brevity-bc42d04b')

    Args:
        name: Any text, such as a component's or an environment's.
    """
    fits = _PLAIN.fullmatch(name) is not None and len(name) <= _LONGEST
    if fits and name not in _TAKEN and _MADE.fullmatch(name) is None:
        return name
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[: _LONGEST - 9]
    stem = stem if stem[:1].isalnum() else f"_{stem}"[: _LONGEST - 9]
    return f"{stem}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
