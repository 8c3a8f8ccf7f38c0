"""The interface of all sandboxes: `Sandbox`, `Program`, `Limits` and `Execution`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, runtime_checkable

from guerdon._validation import check_integer, check_number

__all__ = ["Ending", "Execution", "Limits", "Program", "Sandbox"]

# Below the largest numbers of the kernel.
MOST, MOST_SECONDS = 2**60, 1e6

Ending = Literal["ok", "nonzero", "signal", "timeout", "memory", "output_limit", "sandbox_error"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What code in a sandbox may use, in one call.

    Example:
        >>> from guerdon import Limits
        >>> Limits(seconds=1.5).memory_bytes == 256 * 2**20
        True
        >>> Limits(seconds=0)
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: `seconds` must be in (0, 1e+06], got 0

    Args:
        seconds: Wall-clock time.
        cpu_seconds: Processor time of all its processes together; None is `seconds` times the
            number of its processes, but at most of the machine's processors.
        memory_bytes: Memory of all its processes together, beside the memory of Python itself and
            of what was imported before the call.
        processes: How many processes and threads it may have, including its first one. Each process
            may have 64 descriptors open, with more than 16 of them 1,024 / `processes`, but at
            least 16.
        output_bytes: How much it may print, to both streams together.
        file_bytes: How much it may write into files, together.
        files: How many files and folders it may make; with 0 it can't write at all.

    Raises:
        InvalidArgumentError: A limit is not a number in its range.
    """

    seconds: float = 5.0
    cpu_seconds: float | None = None
    memory_bytes: int = 256 << 20
    processes: int = 16
    output_bytes: int = 64 << 10
    file_bytes: int = 1 << 20
    files: int = 100

    def __post_init__(self) -> None:
        for name in Limits.__slots__:
            value = getattr(self, name)
            if name == "cpu_seconds" and value is None:
                continue
            if name.endswith("seconds"):
                check_number(name, value, low=0, high=MOST_SECONDS, low_open=True)
            else:
                check_integer(name, value, low=0 if name == "files" else 1, high=MOST)


@dataclass(frozen=True, slots=True)
class Execution:
    """How a run ended, and what it used.

    An ending of ``ok`` means exit code 0, which a program that calls ``exit(0)`` has too.
    `check_program` checks whether a program is right.

    Example:
        >>> from guerdon.sandbox import Execution
        >>> Execution("nonzero", exit_code=1, stderr="ValueError: no digits").ending
        'nonzero'

    Attributes:
        ending: ``ok``; ``nonzero``, it exited with another code; ``signal``, a signal killed it;
            ``timeout``, wall-clock or processor time was used up; ``memory``; ``output_limit``, it
            printed or wrote too much. All these are due to the code. ``sandbox_error``: the sandbox
            failed, and nothing is known about the code.
        exit_code: As in `subprocess`, negative for a signal; None if it is unknown.
        stdout: Its standard output, up to the limit.
        stderr: Its standard error, up to the limit.
        seconds: Wall-clock time.
        cpu_seconds: Processor time of all its processes.
        peak_memory_bytes: The most memory that was seen in use at a time, including Python's own,
            which doesn't count for the limit.
        detail: Why it ended; None if it ended normally.
    """

    ending: Ending
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A program, with its input.

    Example:
        >>> from guerdon.sandbox import Program
        >>> Program("print(open('name').read())", files={"name": b"Ada"}).stdin
        b''

    Args:
        source: Python, trusted or not.
        stdin: Its standard input.
        files: The files in its folder, by relative name.
    """

    source: str
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)


@runtime_checkable
class Sandbox(Protocol):
    r"""Runs programs; `open_sandbox` opens one.

    A package offers its own under the entry point ``guerdon.sandboxes``: a callable that takes
    ``workers``, ``limits``, ``packages`` and ``allow_read``.

    Example:
        >>> from guerdon import open_sandbox
        >>> with open_sandbox("process") as sandbox:
        ...     execution = sandbox.run("print(6 * 7)")
        >>> execution.ending, execution.stdout
        ('ok', '42\n')

    Attributes:
        level: The level in force, such as ``strict``; never ``auto``.
        promise: What it isolates, in a line.
    """

    level: str
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
            stdin: Its standard input.
            files: The files in its folder, by relative name.
            limits: What it may use. The default is that of the sandbox.

        Raises:
            SandboxError: The sandbox failed. The `Execution` reports all other endings.
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
        """Like `run`. If it is cancelled, the program is ended."""
        ...

    def run_pair(
        self, program: Program, checker: Program, *, limits: Limits | None = None
    ) -> tuple[Execution, Execution]:
        """Run two programs that are isolated from each other, except for a stream and a folder.

        Descriptor 3 of each is its end of the stream. They run in one folder, and can't import
        each other's code from memory or change it. When the checker ends, the program is ended as
        well.

        Args:
            program: The program that is checked.
            checker: The program that checks it.
            limits: What each may use; the time is for both.

        Raises:
            SandboxError: The sandbox failed.
        """
        ...

    async def run_pair_async(
        self, program: Program, checker: Program, *, limits: Limits | None = None
    ) -> tuple[Execution, Execution]:
        """Like `run_pair`. If it is cancelled, both are ended."""
        ...

    def close(self) -> None:
        """End all calls and workers."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...
