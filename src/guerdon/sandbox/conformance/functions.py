"""Loading the function of a case, inside of the sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["CaseFunction", "load"]


class CaseFunction:
    """The ``call(task)`` of a case, as a `FunctionPool` calls it."""

    description = b"the function of a case"

    def __init__(self, call: Callable[[object], object]) -> None:
        self._call = call

    def answer(self, job: bytes) -> bytes:
        """Call it with a task, given as JSON."""
        return str(self._call(json.loads(job))).encode()

    def warm_up(self) -> None:
        """Nothing is made on the way."""


def load(config: bytes) -> CaseFunction:
    """Run the case's program, and return its function."""
    names: dict[str, Any] = {}
    exec(compile(config, "<function>", "exec"), names)
    return CaseFunction(names["call"])
