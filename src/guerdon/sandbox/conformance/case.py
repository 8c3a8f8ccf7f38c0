"""`Case`: one thing that code in a sandbox may try, and what should come of it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any, Literal

from guerdon.sandbox.conformance.preamble import PREAMBLE
from guerdon.sandbox.protocol import Ending, Execution, Limits

__all__ = ["Case", "CaseGroup", "Way", "source"]

Way = Literal["alone", "after", "beside", "checked", "right", "function"]

#: For programs that try one thing and say what came of it.
_LIMITS = Limits(seconds=4, memory_bytes=128 << 20, processes=8, files=20)


def _nothing() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Case:
    """An attack in its harmless form, with the evidence that it was held.

    A program prints one line: ``held: …`` with what refused it, ``BROKEN: …`` with what it got, or
    ``not tried: …``. One that is to be ended prints ``trying`` first. A program that comes to
    neither has shown nothing, and so the case isn't held.

    Example:
        >>> from guerdon.sandbox import Execution
        >>> case = Case("shadow", "files", "passwords stay unread", "refused(open='/etc/shadow')")
        >>> case.held(Execution("ok", exit_code=0, stdout="held: open EACCES"))
        >>> case.held(Execution("ok", exit_code=0, stdout="BROKEN: open gave 1200 bytes"))
        'BROKEN: open gave 1200 bytes'

    Attributes:
        name: What is tried, in a few words.
        group: Where it stands in the table.
        proves: What is true of a sandbox that holds it.
        program: Python source; the names of `PREAMBLE` stand before it.
        limits: What it may use.
        ends: How it may end where it says nothing.
        exit_code: Which exit code that has; None takes any.
        unless: Why it can't be tried on this machine; None where it can.
        way: ``alone``; ``after`` the companion has ended, in the same sandbox; ``beside`` the
            companion, which runs at the same time and is on descriptor 3; ``checked``, the program
            is a candidate for `check_program` that must not pass; ``right``, one that must;
            ``function``, it defines ``call(task)``, which is called twice: with ``"leave"``, then
            with a list of a secret file, a port and a process of the host.
        companion: The other program.
    """

    name: str
    group: str
    proves: str
    program: str
    limits: Limits = _LIMITS
    ends: tuple[Ending, ...] = ()
    exit_code: int | None = None
    unless: Callable[[], str | None] = field(default=_nothing, repr=False)
    way: Way = "alone"
    companion: str = ""

    @property
    def source(self) -> str:
        """What runs: the program, after the preamble where it is ours to write."""
        return self._whole(self.program)

    @property
    def companion_source(self) -> str:
        """What runs before or beside it."""
        return self._whole(self.companion)

    def _whole(self, program: str) -> str:
        program = dedent(program).strip() + "\n"
        return program if self.way in ("checked", "right", "function") else PREAMBLE + program

    def held(self, execution: Execution) -> str | None:
        """What went wrong; None where the attack was held.

        Args:
            execution: How the program ended.
        """
        lines = execution.stdout[:4096].splitlines()
        if broken := next((line for line in lines if line.startswith("BROKEN")), None):
            return broken
        if execution.ending == "sandbox_error":
            return f"the sandbox failed: {execution.detail or execution.stderr[-200:]}"
        tried = lines[:1] == ["trying"]
        if execution.ending == "ok" and [line[:6] for line in lines[tried:]] == ["held: "]:
            return None
        right_code = self.exit_code is None or execution.exit_code == self.exit_code
        if tried and execution.ending in self.ends and right_code:
            return None
        return f"it showed nothing: {_told(execution)}"

    def not_tried(self, execution: Execution) -> str | None:
        """Why the program couldn't try; None where it could."""
        first, *rest = execution.stdout.splitlines() or [""]
        tried = execution.ending != "ok" or rest or not first.startswith("not tried: ")
        return None if tried else first.removeprefix("not tried: ")


def _told(execution: Execution) -> str:
    """The end of a run in a line."""
    words = execution.detail, execution.stderr.strip(), execution.stdout.strip()
    text = next((each for each in words if each), "(it printed nothing)")[-160:]
    code = "" if execution.exit_code is None else f" {execution.exit_code}"
    return f"{execution.ending}{code}, {' / '.join(text.splitlines())}"


class CaseGroup:
    """Collects the cases of one group from functions.

    The body of a decorated function is the program, and its docstring states what the case proves.
    The function itself is never called: its source runs in the sandbox, where the names of
    `PREAMBLE` are defined.

    Args:
        group: The name of the group.
        **defaults: Fields of `Case` that all cases of the group share.
    """

    def __init__(self, group: str, **defaults: Any) -> None:
        self.group, self.defaults = group, defaults
        self.cases: list[Case] = []

    def __call__(
        self, name: str, *, before: str = "", **fields: Any
    ) -> Callable[[Callable[[], None]], None]:
        """Add a decorated function as a case, with `before` in front of its program."""

        def add(function: Callable[[], None]) -> None:
            proves = (function.__doc__ or "").removesuffix(".")
            values = {"proves": proves, **self.defaults, **fields}
            program = before + source(function)
            self.cases.append(Case(name=name, group=self.group, program=program, **values))

        return add


def source(function: Callable[[], None]) -> str:
    """Return the body of a function as a program, without its docstring."""
    text = dedent(inspect.getsource(function))
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.FunctionDef)
    first = definition.body[0]
    is_docstring = function.__doc__ is not None
    # From the line after the signature or docstring: comments before the first statement stay.
    start = first.end_lineno if is_docstring else definition.lineno
    return dedent("\n".join(text.splitlines()[start or 0 :])) + "\n"
