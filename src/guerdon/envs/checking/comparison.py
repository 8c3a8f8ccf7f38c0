"""Where two nested values differ."""

from __future__ import annotations

from typing import Any

__all__ = ["difference"]


def difference(expected: Any, seen: Any, path: str = "") -> str:
    """Where two nested values differ first, in words; ``""`` where they don't."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key in [*expected, *(key for key in seen if key not in expected)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in expected or key not in seen:
                return f"{inner} is there only once"
            found = difference(expected[key], seen[key], inner)
            if found:
                return found
        return ""
    if isinstance(expected, (list, tuple)) and isinstance(seen, (list, tuple)):
        if type(expected) is not type(seen) or len(expected) != len(seen):
            return f"{path} is {seen!r:.60}, not {expected!r:.60}"
        pairs = enumerate(zip(expected, seen, strict=True))
        return next((f for n, (a, b) in pairs if (f := difference(a, b, f"{path}[{n}]"))), "")
    both_nan = expected != expected and seen != seen
    same = type(expected) is type(seen) and (expected == seen or both_nan)
    return "" if same else f"{path} is {seen!r:.60}, not {expected!r:.60}"
