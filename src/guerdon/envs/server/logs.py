"""What a server logs: an event and its fields, as a line for people or as JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonFormatter", "TextFormatter", "log"]

logger = logging.getLogger("guerdon.server")


def log(
    event: str, *, level: str = "info", trace: BaseException | None = None, **fields: Any
) -> None:
    """Log an event, with the fields that tell more of it.

    Args:
        event: What happened.
        level: ``debug``, ``info``, ``warning`` or ``error``.
        trace: An exception whose traceback belongs to it.
        **fields: What else there is to tell.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    if logger.isEnabledFor(number):
        logger.log(number, event, exc_info=trace, extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """A log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            **getattr(record, "fields", {}),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except ValueError:  # a number that JSON doesn't have
            return json.dumps({name: str(value) for name, value in line.items()})


class TextFormatter(logging.Formatter):
    """A log record as a line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback below it where there is one."""
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = getattr(record, "fields", {})
        told = "".join(f"  {name}={_line(value)}" for name, value in fields.items())
        text = f"{time} {record.levelname.lower():7} {record.getMessage()}{told}"
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            text += "".join(f"\n  | {_printable(line)}" for line in lines)
        return text


def _line(value: object) -> str:
    """A field's text, in which nobody can write a line of his own."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _printable(line: str) -> str:
    return line if line.isprintable() else repr(line)[1:-1]
