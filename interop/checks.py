"""Checks and their findings: for both interpreters, with nothing but the standard library.

A script registers its checks with `check` and ends with `main`, which prints a line of JSON for
each: ``{"check": …, "problem": …}``, where no problem is ``""``; and a last one that
marks the end.
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


def check(words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function, plain or async, as a check; it raises where something is wrong."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _checks.append((words, function))
        return function

    return register


def same(what: str, got: Any, wanted: Any) -> None:
    """Raise unless two things are equal, and of equal type.

    Raises:
        AssertionError: They aren't; the message contains the value.
    """
    if got != wanted or type(got) is not type(wanted):
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def holds(what: str, got: Any, found: Any) -> None:
    """Raise unless something is found.

    Raises:
        AssertionError: It isn't; the message contains the value.
    """
    if not found:
        raise AssertionError(f"{what}: got {got!r}")


@contextlib.contextmanager
def raises(what: str, error: type[BaseException], *texts: str) -> Any:
    """Raise unless the block raises that very kind of error, whose message contains those texts.

    Raises:
        AssertionError: It raises nothing, or another message.
    """
    try:
        yield
    except error as raised:
        for text in texts:
            holds(f"{what}: no {text!r} in what it says", str(raised), text in str(raised))
    else:
        raise AssertionError(f"{what}: raised nothing, wanted {error.__name__}")


def _is_a_check(at: traceback.FrameSummary) -> bool:
    path = Path(at.filename)
    return "interop" in path.parts and path.name != Path(__file__).name


def main(*arguments: Any) -> None:
    """Run the checks of the script that runs, in order, and print what is found."""
    # What it imports from other scripts has brought their checks along.
    own = [each for each in _checks if each[1].__module__ == "__main__"]
    for words, function in own:
        problem = ""
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(asyncio.wait_for(function(*arguments), 20))
            else:
                function(*arguments)
        except Exception as error:
            where = [at for at in traceback.extract_tb(error.__traceback__) if _is_a_check(at)]
            line = f" (line {where[-1].lineno})" if where else ""
            told = str(error) if isinstance(error, AssertionError) else repr(error)
            problem = f"{told}{line}"
        print(json.dumps({"check": words, "problem": problem}), flush=True)
    print(json.dumps({"finished": len(own)}), flush=True)
