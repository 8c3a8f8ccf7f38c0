"""`LocalSandbox`: programs in workers of this machine."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Self

from guerdon._validation import check_type, shown
from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox.levels import LocalLevel
from guerdon.sandbox.packages import find_packages
from guerdon.sandbox.pool import Pool
from guerdon.sandbox.protocol import Execution, Limits, Program
from guerdon.sandbox.task import Task, sealed_file
from guerdon.sandbox.testing.inside import INSIDE
from guerdon.sandbox.worker import Worker

# Bytes of a name, and of a path; the folder's own path comes before it.
LONGEST_NAME, LONGEST_PATH = 255, 2000


class LocalSandbox:
    """A `Sandbox` made of workers of this machine; `open_sandbox` opens one.

    Args:
        level: The level.
        workers: How many calls, or pairs of them, run at the same time.
        limits: What a call may use by default.
        packages: Installed packages that programs may import.
        allow_read: Files and folders that programs may read beside Python's own.

    Attributes:
        preloaded: Modules that are already imported in programs.
        findings: The results of the attacks on its lock.
        facts: What it consists of here.
    """

    def __init__(
        self,
        level: LocalLevel,
        *,
        workers: int,
        limits: Limits,
        packages: Sequence[str] = (),
        allow_read: Sequence[str] = (),
    ) -> None:
        self.level: str = level.name
        self.promise = level.promise
        self.limits = limits
        self.preloaded = frozenset(INSIDE)
        preload = {name: str(path) for name, path in INSIDE.items()}
        found, paths = find_packages(packages)
        config = level.config(read=[*paths, *allow_read])
        config |= {"kind": "programs", "preload": preload, "packages": found}
        self._pool = Pool(lambda: Worker(config), workers)
        with self._pool.worker() as worker:
            self.findings, self.facts = worker.findings, worker.facts

    def run(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run a program as a script, in an empty folder of its own; see `Sandbox.run`."""
        with _tasks([_program(program, stdin, files)], limits or self.limits) as tasks:
            [execution] = self._pool.run(tasks)
        return _known(execution)

    async def run_async(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Like `run`. If it is cancelled, the program is ended."""
        with _tasks([_program(program, stdin, files)], limits or self.limits) as tasks:
            [execution] = await self._pool.run_async(tasks)
        return _known(execution)

    def run_pair(
        self, program: Program, checker: Program, *, limits: Limits | None = None
    ) -> tuple[Execution, Execution]:
        """Run two programs that are connected by a stream; see `Sandbox.run_pair`."""
        with _tasks([program, checker], limits or self.limits) as tasks:
            one, other = self._pool.run(tasks)
        return _known(one), _known(other)

    async def run_pair_async(
        self, program: Program, checker: Program, *, limits: Limits | None = None
    ) -> tuple[Execution, Execution]:
        """Like `run_pair`. If it is cancelled, both are ended."""
        with _tasks([program, checker], limits or self.limits) as tasks:
            one, other = await self._pool.run_async(tasks)
        return _known(one), _known(other)

    def close(self) -> None:
        """End all calls and workers."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()


def _program(source: str, stdin: bytes | str, files: Mapping[str, bytes | str] | None) -> Program:
    given = {name: _bytes(text, f"files[{name!r:.80}]") for name, text in (files or {}).items()}
    return Program(source, _bytes(stdin, "stdin"), given)


def _bytes(content: bytes | str, what: str) -> bytes:
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"`{what}` can't be encoded as UTF-8: {error}") from None
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError(f"`{what}` must be bytes or a string, got {shown(content)}")
    return bytes(content)


@contextlib.contextmanager
def _tasks(programs: Sequence[Program], limits: Limits) -> Iterator[list[Task]]:
    """Make the tasks of a worker, and close their descriptors at the end."""
    with contextlib.ExitStack() as stack:
        ends: list[Any] = [None] * len(programs)
        if len(programs) > 1:
            ends = [stack.enter_context(end) for end in socket.socketpair()]
        tasks = []
        try:
            for program, end in zip(programs, ends, strict=True):
                _check(program, limits)
                files = _plain_names(program.files)
                before = sealed_file(program.stdin)
                stack.callback(os.close, before)
                after = sealed_file(marshal.dumps((program.source, files)))
                stack.callback(os.close, after)
                task = Task(_with(limits, files), before=[before], after=[after], link=end)
                stack.callback(task.close)
                tasks.append(task)
        except OSError as error:
            raise SandboxError(f"a program can't be sent to its worker: {error}") from error
        yield tasks


def _check(program: Program, limits: Limits) -> None:
    check_type("limits", limits, Limits)
    check_type("program", program.source, str)
    if program.files and not limits.files:
        raise InvalidArgumentError("`files` is given, but limits.files is 0")


def _plain_names(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files by normalized names.

    Raises:
        InvalidArgumentError: A name leads out of the folder, or is that of a file and of a folder.
    """
    found: dict[PurePosixPath, bytes] = {}
    for name, content in files.items():
        path = PurePosixPath(name)
        outside = path.is_absolute() or ".." in path.parts or not path.parts
        if outside or "\0" in name or not _writable(path):
            raise InvalidArgumentError(
                f"`files` must have relative names that stay in the folder, got {name!r:.80}"
            )
        found[path] = content
    for path in found:
        if both := [parent for parent in path.parents if parent in found]:
            raise InvalidArgumentError(f"`files`: {str(both[0])!r:.80} is a file and a folder")
    return {str(path): content for path, content in found.items()}


def _writable(path: PurePosixPath) -> bool:
    """Return whether a file system accepts the name."""
    try:
        parts = [len(part.encode()) for part in path.parts]
    except UnicodeEncodeError:
        return False
    return max(parts) <= LONGEST_NAME and sum(parts) <= LONGEST_PATH


def _with(limits: Limits, files: Mapping[str, bytes]) -> Limits:
    """Return limits that don't count the given files."""
    if not files:
        return limits
    folders = {parent for name in files for parent in PurePosixPath(name).parents}
    return replace(
        limits,
        files=limits.files + len(files) + len(folders) - 1,
        file_bytes=limits.file_bytes + sum(map(len, files.values())),
    )


def _known(execution: Execution) -> Execution:
    """Return the execution, or raise `SandboxError` if nothing is known about the program."""
    if execution.ending == "sandbox_error":
        raise SandboxError(
            f"the sandbox failed, so that nothing is known about the program: {execution.detail}",
            execution=execution,
        )
    return execution
