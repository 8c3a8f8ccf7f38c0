"""Loggers of what happens at every step: their messages are short, and repeated ones are counted.

An agent decides what the exceptions of its steps quote, and how often its steps fail.
"""

from __future__ import annotations

import logging
import time
from typing import Any

MESSAGE, TRACEBACK = 2_000, 8_000  # the largest number of characters
REPEATS, INTERVAL_S = 5, 60.0  # how often a message is logged in that time
MOST_KEYS = 1_000

_formatter = logging.Formatter()
# When each kind of message was first logged, and how often it occurred since.
_seen: dict[Any, tuple[float, int]] = {}


def plain(text: str) -> str:
    r"""Return text on one line, with control characters escaped: it can't steer a terminal.

    Example:
        >>> plain("q7\x1b[2J")
        'q7\\x1b[2J'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )


def shortened(text: str, longest: int = MESSAGE) -> str:
    """Return a text without its middle if it is long.

    Example:
        >>> shortened("a" * 500 + "b" * 500, 10)
        'aaaaa… (990 characters left out) …bbbbb'

    Args:
        text: The text.
        longest: The number of characters above which it is shortened.
    """
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}… ({len(text) - 2 * half} characters left out) …{text[-half:]}"


def step_logger(name: str) -> logging.Logger:
    """Return the logger of that name; what it logs is limited in size and number.

    Of the messages of one kind (their text, its first argument, and the classes of all arguments
    and of the exception) five are logged in a minute. The next one says how many were left out.

    Args:
        name: The name.
    """
    logger = logging.getLogger(name)
    if _limit not in logger.filters:
        logger.addFilter(_limit)
    return logger


def _limit(record: logging.LogRecord) -> bool:
    """Shorten a record, and return whether it is logged."""
    try:
        note = _note(record) if record.levelno >= logging.INFO else ""
        message = record.getMessage()
    except Exception:  # of an argument's own __str__: handlers report it, and raise nothing
        return True
    if note is None:
        return False
    record.msg, record.args = shortened(message), ()
    fields = getattr(record, "fields", None)
    if fields is None:
        record.msg += note and f" ({note})"
    else:
        shown = {name: _field(value) for name, value in fields.items()}
        record.fields = shown | ({"note": note} if note else {})
    if record.exc_info:
        record.exc_text = shortened(_formatter.formatException(record.exc_info), TRACEBACK)
    return True


def _note(record: logging.LogRecord) -> str | None:
    """Return a note about other records of this kind; None if this one is not logged."""
    args = record.args if isinstance(record.args, tuple) else ()
    classes = [type(each) for each in (*args, record.exc_info and record.exc_info[1])]
    kind = (record.name, record.msg, str(args[0])[:100] if args else "", *classes)
    now = time.monotonic()
    since, count = _seen.get(kind, (now, 0))
    note = ""
    if now - since >= INTERVAL_S:
        if count > REPEATS:
            note = f"and {count - REPEATS} more like the last ones in {now - since:.0f} s"
        since, count = now, 0
    if kind not in _seen and len(_seen) >= MOST_KEYS:
        _seen.clear()
    _seen[kind] = since, count + 1
    if count >= REPEATS:
        return None
    if count == REPEATS - 1:
        note = f"further ones like it are only counted for {INTERVAL_S:.0f} s"
    return note


def _field(value: Any) -> Any:
    return value if isinstance(value, (int, float, type(None))) else shortened(str(value))
