"""What pydantic found wrong, in a line and as JSON can hold it."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

__all__ = ["field_errors", "say_invalid"]


def field_errors(error: ValidationError) -> list[dict[str, Any]]:
    """What is wrong with each field, as JSON can hold it: ``type``, ``loc`` and ``msg``."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [dict(each) for each in found]


def say_invalid(error: ValidationError) -> str:
    """What is wrong, in a line: each field with what is wrong with it, three of them at most."""
    errors = field_errors(error)
    said = []
    for each in errors[:3]:
        where = ".".join(map(str, each["loc"]))
        said.append(f"{where}: {each['msg']}" if where else each["msg"])
    if len(errors) > 3:
        said.append(f"and {len(errors) - 3} more")
    return "; ".join(said)
