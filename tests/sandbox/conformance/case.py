"""`Case`: one thing that code in a sandbox may try, and the evidence that it was stopped."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

from guerdon.sandbox.protocol import Ending, Execution, Limits

Way = Literal["alone", "after", "beside", "checked", "right", "function"]

#: What precedes each program.
_PREAMBLE = Path(__file__).with_name("preamble.py").read_text(encoding="utf-8") + "\nstart()\n"

#: For programs that make one attempt and report its result.
_LIMITS = Limits(seconds=4, memory_bytes=128 << 20, processes=8, files=20)


@dataclass(frozen=True, slots=True)
class Case:
    """An attack in its harmless form.

    A program prints one line: ``passed: …`` with what stopped it, ``FAILED: …`` with what it got,
    or ``skipped: …``. One that may be ended prints ``trying`` first. A program that does neither
    has shown nothing, so the case fails.

    Example:
        >>> from guerdon.sandbox import Execution
        >>> case = Case("shadow", "files", "passwords stay unread", "refused(open='/etc/shadow')")
        >>> case.failure(Execution("ok", exit_code=0, stdout="passed: open EACCES"))
        >>> case.failure(Execution("ok", exit_code=0, stdout="FAILED: open gave 1200 bytes"))
        'FAILED: open gave 1200 bytes'

    Attributes:
        name: The attack, in a few words.
        group: The group of cases that it belongs to.
        proves: What is true of a sandbox that passes.
        program: Python source; the names of the module ``preamble`` are defined for it.
        limits: What it may use.
        ends: How it may end without a result.
        exit_code: The exit code of that ending; None accepts any.
        way: ``alone``; ``after`` the companion has ended, in the same sandbox; ``beside`` the
            companion, which runs at the same time and is connected to descriptor 3; ``checked``,
            the program is a candidate for `check_program` that must not pass; ``right``, one that
            must; ``function``, it defines ``call(task)``, which is called twice: with ``"leave"``,
            then with a list of a secret file, a port and a process of the host.
        companion: The other program.
    """

    name: str
    group: str
    proves: str
    program: str
    limits: Limits = _LIMITS
    ends: tuple[Ending, ...] = ()
    exit_code: int | None = None
    way: Way = "alone"
    companion: str = ""

    @property
    def source(self) -> str:
        """The program as it runs: after the preamble, unless guerdon calls it itself."""
        return self._whole(self.program)

    @property
    def companion_source(self) -> str:
        """The companion as it runs."""
        return self._whole(self.companion)

    def _whole(self, program: str) -> str:
        program = dedent(program).strip() + "\n"
        return program if self.way in ("checked", "right", "function") else _PREAMBLE + program

    def failure(self, execution: Execution) -> str | None:
        """Return what is wrong with a run of the program; None if the attack was stopped."""
        lines = execution.stdout[:4096].splitlines()
        if broken := next((line for line in lines if line.startswith("FAILED")), None):
            return broken
        if execution.ending == "sandbox_error":
            return f"the sandbox failed: {execution.detail or execution.stderr[-200:]}"
        tried = lines[:1] == ["trying"]
        if execution.ending == "ok" and [line[:8] for line in lines[tried:]] == ["passed: "]:
            return None
        right_code = self.exit_code is None or execution.exit_code == self.exit_code
        if tried and execution.ending in self.ends and right_code:
            return None
        text = execution.stderr.strip() or execution.stdout.strip() or "(it printed nothing)"
        return f"it showed nothing: {summary(execution)}, {' / '.join(text[-160:].splitlines())}"

    def skip_reason(self, execution: Execution) -> str | None:
        """Return why the program couldn't make its attempt; None if it could."""
        line = execution.stdout.rstrip("\n")
        if execution.ending != "ok" or not line.startswith("skipped: ") or "\n" in line:
            return None
        return line.removeprefix("skipped: ")


def summary(execution: Execution) -> str:
    """Return how a program ended, with its exit code and detail."""
    code = "" if execution.exit_code is None else f" {execution.exit_code}"
    detail = f", {execution.detail}" if execution.detail else ""
    return f"{execution.ending}{code}{detail}"


class CaseGroup:
    """Collects the cases of one group from functions.

    The body of a decorated function is the program, and its docstring states what the case proves.
    The function itself is never called: its source runs in the sandbox, where the names of the
    module ``preamble`` are defined.

    Args:
        group: The name of the group.
        **defaults: Fields of `Case` that all cases of the group share.
    """

    def __init__(self, group: str, **defaults: Any) -> None:
        self.group, self.defaults = group, defaults
        self.cases: list[Case] = []

    def __call__(
        self, name: str, *, before: str = "", **fields: Any
    ) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Add a decorated function as a case, with `before` in front of its program."""

        def add(function: Callable[[], None]) -> Callable[[], None]:
            proves = (function.__doc__ or "").removesuffix(".")
            values = {"proves": proves, **self.defaults, **fields}
            program = before + source(function)
            self.cases.append(Case(name=name, group=self.group, program=program, **values))
            return function

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
