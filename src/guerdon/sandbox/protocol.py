"""`Sandbox`: what runs programs, whatever it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from guerdon.sandbox.execution import Execution
from guerdon.sandbox.limits import Limits

__all__ = ["Program", "Sandbox"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program, with what it finds when it starts.

    Example:
        >>> from guerdon.sandbox import Program
        >>> Program("print(open('name').read())", files={"name": b"Ada"}).stdin
        b''

    Args:
        source: Python, which may be anything.
        stdin: What stands on its standard input.
        files: What stands in its folder, by relative name.
    """

    source: str
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)


@runtime_checkable
class Sandbox(Protocol):
    r"""Runs programs; `open_sandbox` opens one.

    A package offers its own under the entry point ``guerdon.sandboxes``: a callable that takes
    ``workers``, ``limits`` and ``allow_read``. `guerdon.sandbox.conformance` tells whether it
    holds.

    Example:
        >>> from guerdon import open_sandbox
        >>> with open_sandbox("process") as sandbox:
        ...     execution = sandbox.run("print(6 * 7)")
        >>> execution.ending, execution.stdout
        ('ok', '42\n')

    Attributes:
        name: The level, such as ``strict``.
        promise: What is in force, in a line.
    """

    name: str
    promise: str

    def run(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run a program as a script, in an empty folder of its own.

        Args:
            program: Python source.
            stdin: What stands on its standard input.
            files: What stands in its folder, by relative name.
            limits: What it may use; None takes the sandbox's own.

        Raises:
            SandboxError: The sandbox failed; all other endings are told in what is returned.
            InvalidArgumentError: A file's name leads out of the folder.
        """
        ...

    async def run_async(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """The same; cancelled, it ends the program."""
        ...

    def run_pair(
        self, program: Program, checker: Program, *, limits: Limits | None = None
    ) -> tuple[Execution, Execution]:
        """Run two programs, each shut off from the other but for a stream.

        Descriptor 3 of each is its end of the stream. When the checker has ended, so is the
        program.

        Args:
            program: The one that is checked.
            checker: The one that checks.
            limits: What each may use; the time is for both.

        Raises:
            SandboxError: The sandbox failed.
        """
        ...

    async def run_pair_async(
        self, program: Program, checker: Program, *, limits: Limits | None = None
    ) -> tuple[Execution, Execution]:
        """The same; cancelled, it ends both."""
        ...

    def close(self) -> None:
        """End all that runs."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
