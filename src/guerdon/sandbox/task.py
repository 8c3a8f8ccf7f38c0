"""`Task`: the host's side of one call: its limits, its output, and how it ended."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.sandbox.protocol import Ending, Execution, Limits
from guerdon.sandbox.supervisor.channels import write_all

_CHUNK = 1 << 16


def sealed_file(content: bytes) -> int:
    """Return a descriptor of a file without a name that contains `content`.

    On Linux it can't be changed. The caller closes it. No other process copies the content.
    """
    if sys.platform != "linux":
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            return os.dup(file.fileno())
    import fcntl

    fd = os.memfd_create("guerdon", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        write_all(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Capture:
    """A pipe, and what has been read from it, up to a limit.

    Args:
        piped: Whether there is a pipe.

    Attributes:
        reading: The end that is read here; -1 if there is none.
        writing: The end that the call has; None once it is closed here.
        content: What has been read.
        ended: Whether nothing more is read: all writers have closed it, or it is too much.
    """

    def __init__(self, *, piped: bool = True) -> None:
        self.content = bytearray()
        self.ended = not piped
        self.reading = -1
        self.writing: int | None = None
        if piped:
            self.reading, self.writing = self._open()
            os.set_blocking(self.reading, False)

    def _open(self) -> tuple[int, int]:
        return os.pipe()

    def close_writing(self) -> None:
        """Close the end for writing, which the call has its own copy of."""
        if self.writing is not None:
            os.close(self.writing)
            self.writing = None

    def read(self, most: int) -> None:
        """Read what is available, up to `most` bytes in all and one more."""
        while not self.ended:
            wanted = min(_CHUNK, most + 1 - len(self.content))
            try:
                part = os.read(self.reading, wanted)
            except BlockingIOError:
                return
            self.content += part
            self.ended = not part or len(self.content) > most
            if len(part) < wanted:  # the pipe is empty now
                return

    def close(self) -> None:
        """Close both ends."""
        self.close_writing()
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def text(self, most: int) -> str:
        """Return what has been read, as text of at most `most` bytes."""
        return self.content[:most].decode("utf-8", "replace")


class Stream(Capture):
    """A stream to a call, which receives jobs on it and answers them.

    Attributes:
        unsent: What is still to be written of a job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unsent = memoryview(b"")

    def _open(self) -> tuple[int, int]:
        own, theirs = socket.socketpair()
        return own.detach(), theirs.detach()

    def send(self, job: bytes) -> None:
        """Begin to write a job."""
        self.unsent = memoryview(job)
        self.flush()

    def flush(self) -> None:
        """Write as much as the stream accepts."""
        try:
            self.unsent = self.unsent[os.write(self.reading, self.unsent) :]
        except BlockingIOError:
            return
        except OSError:  # the call has ended, which is reported
            self.unsent = self.unsent[:0]


@dataclass(slots=True)
class Task:
    """One call that a worker runs, and its output.

    Attributes:
        limits: What it may use.
        before: Its descriptors that come before its outputs.
        after: Its descriptors that come after them.
        answer_bytes: How long its answer may be.
        link: Its end of a stream to another call; it is closed here once the call has it.
        answer: What it answers; of a call that receives jobs, their stream.
        out: What it prints.
        err: What it prints as errors.
        cause: Why the host ended it; None if it didn't.
    """

    limits: Limits
    before: Sequence[int] = ()
    after: Sequence[int] = ()
    answer_bytes: int = 0
    link: socket.socket | None = None
    answer: Capture = field(default_factory=lambda: Capture(piped=False))
    out: Capture = field(default_factory=Capture)
    err: Capture = field(default_factory=Capture)
    cause: str | None = None

    @property
    def captures(self) -> list[Capture]:
        """Return its outputs that are read."""
        return [each for each in (self.out, self.err, self.answer) if each.reading >= 0]

    @property
    def descriptors(self) -> list[int]:
        """Return all its descriptors, in order."""
        outputs = [each.writing for each in self.captures if each.writing is not None]
        link = [] if self.link is None else [self.link.fileno()]
        return [*self.before, *outputs, *link, *self.after]

    def close_sent(self) -> None:
        """Close the descriptors that only the call needs now."""
        for each in self.captures:
            each.close_writing()
        if self.link is not None:
            self.link.close()

    def read(self) -> bool:
        """Read its outputs, and return whether one has just exceeded its limit."""
        most = self.limits.output_bytes
        self.answer.read(self.answer_bytes)
        self.out.read(most - min(most, len(self.err.content)))
        self.err.read(most - min(most, len(self.out.content)))
        if self.cause is None and len(self.answer.content) > self.answer_bytes:
            self.cause = "answer"
        elif self.cause is None and len(self.out.content) + len(self.err.content) > most:
            self.cause = "output"
        else:
            return False
        return True

    def close(self) -> None:
        """Close those of its outputs that are still open."""
        for each in self.captures:
            each.close()

    def execution(self, report: dict[str, Any]) -> Execution:
        """Return how the call ended.

        Args:
            report: The report of the supervisor; only ``problem`` if there is none.
        """
        status, cpu = report.get("status"), report.get("cpu", 0.0)
        cause = self.cause or report.get("cause")
        most = self.limits.output_bytes
        stdout, stderr = self.out.text(most), self.err.text(most - min(most, len(self.out.content)))
        ending: Ending
        if cause is not None:
            ending, detail = self._ending_of_cause(cause)
        elif report.get("problem"):
            ending, detail = "sandbox_error", report["problem"]
        else:
            ending, detail = _ending_of_status(status, self.limits, cpu, stderr)
        return Execution(
            ending,
            # If it was killed here, its signal is not the code's doing.
            exit_code=None if cause in ("over", "output") else status,
            stdout=stdout,
            stderr=stderr,
            seconds=report.get("seconds", 0.0),
            cpu_seconds=cpu,
            peak_memory_bytes=report.get("peak", 0),
            detail=detail,
        )

    def _ending_of_cause(self, cause: str) -> tuple[Ending, str | None]:
        """Return the ending of a call that the supervisor or the host has ended."""
        limits = self.limits
        printed, written = _size(limits.output_bytes), _size(limits.file_bytes)
        endings: dict[str, tuple[Ending, str]] = {
            "timeout": ("timeout", f"it was not done within {limits.seconds:g} s"),
            "cpu": ("timeout", f"it used more than {_cpu(limits):g} s of processor time"),
            "memory": ("memory", f"it used more than {_size(limits.memory_bytes)} of memory"),
            "processes": ("signal", f"it had more than {limits.processes} processes and threads"),
            "files": ("output_limit", f"it made more than {limits.files} files"),
            "file_bytes": ("output_limit", f"it wrote more than {written} into files"),
            "output": ("output_limit", f"it printed more than {printed}"),
            "answer": ("output_limit", f"its answer has more than {_size(self.answer_bytes)}"),
            "over": ("ok", "it was ended when its checker had ended"),
            "meddled": ("nonzero", "it wrote to descriptors that aren't its own"),
            "left_running": ("nonzero", "it left processes or threads running"),
        }
        return endings.get(cause, ("sandbox_error", f"it was ended: {cause}"))


@functools.lru_cache(maxsize=64)
def limits_message(limits: Limits) -> dict[str, Any]:
    """Return the limits as the supervisor receives them; callers don't change the result."""
    return {
        # JSON can't represent the numbers of numpy.
        "seconds": float(limits.seconds),
        "cpu": float(_cpu(limits)),
        "memory": int(limits.memory_bytes),
        "processes": int(limits.processes),
        "file_bytes": int(limits.file_bytes),
        "files": int(limits.files),
    }


def _cpu(limits: Limits) -> float:
    if limits.cpu_seconds is not None:
        return limits.cpu_seconds
    return limits.seconds * min(limits.processes, os.cpu_count() or 1)


def _ending_of_status(
    status: int | None, limits: Limits, cpu: float, stderr: str
) -> tuple[Ending, str | None]:
    """Return the ending of a call that ended by itself."""
    if status is None:
        return "sandbox_error", "how it ended is unknown"
    if status == 0:
        return "ok", None
    if status > 0:
        last = stderr.rstrip().rpartition("\n")[2]
        if status == 1 and last.startswith("MemoryError"):
            return "memory", f"it ran out of memory; it may use {_size(limits.memory_bytes)}"
        return "nonzero", f"it exited with code {status}"
    if status in (-signal.SIGKILL, -signal.SIGXCPU) and cpu >= 0.9 * _cpu(limits):
        return "timeout", f"it used more than {_cpu(limits):g} s of processor time"
    if status == -signal.SIGKILL:
        # Code in a sandbox can't send itself this signal.
        return "sandbox_error", "it was killed from outside, or the machine was out of memory"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return "signal", f"it was killed by signal {-status} ({name})"


def _size(count: int) -> str:
    """Return a number of bytes with a unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
