"""Checks and their results, for both interpreters, with the standard library only.

A script registers its checks with `check` and ends with `main`, which prints a line of JSON for
each: ``{"check": …, "problem": …}``, with an empty problem if it passed; and a last line that marks
the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_checks: list[tuple[str, Callable[..., Any]]] = []


def check(title: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a sync or async function as a check, which raises if it fails."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _checks.append((title, function))
        return function

    return register


def same(name: str, got: Any, expected: Any) -> None:
    """Raise unless two values and their types are equal.

    Raises:
        AssertionError: They differ.
    """
    if got != expected or type(got) is not type(expected):
        raise AssertionError(f"{name}: got {got!r}, expected {expected!r}")


def true(name: str, got: Any, condition: Any) -> None:
    """Raise unless a condition is true.

    Raises:
        AssertionError: It is false; the message contains `got`.
    """
    if not condition:
        raise AssertionError(f"{name}: got {got!r}")


@contextlib.contextmanager
def raises(name: str, error: type[BaseException], *texts: str) -> Any:
    """Raise unless the block raises an error of this type whose message contains these texts.

    Raises:
        AssertionError: It raises nothing, or another message.
    """
    try:
        yield
    except error as raised:
        for text in texts:
            true(f"{name}: no {text!r} in the message", str(raised), text in str(raised))
    else:
        raise AssertionError(f"{name}: raised nothing, expected {error.__name__}")


def _is_a_check(at: traceback.FrameSummary) -> bool:
    path = Path(at.filename)
    return "interop" in path.parts and path.name != Path(__file__).name


def main(*arguments: Any) -> None:
    """Run the checks of the current script in order, and print the results."""
    # Importing other scripts has registered their checks too.
    own = [each for each in _checks if each[1].__module__ == "__main__"]
    for title, function in own:
        problem = ""
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(asyncio.wait_for(function(*arguments), 20))
            else:
                function(*arguments)
        except Exception as error:
            where = [at for at in traceback.extract_tb(error.__traceback__) if _is_a_check(at)]
            line = f" (line {where[-1].lineno})" if where else ""
            message = str(error) if isinstance(error, AssertionError) else repr(error)
            problem = f"{message}{line}"
        print(json.dumps({"check": title, "problem": problem}), flush=True)
    print(json.dumps({"finished": len(own)}), flush=True)
