"""How a run ended, made of what the keeper tells and of what was read."""

from __future__ import annotations

import functools
import os
import signal
from typing import TYPE_CHECKING, Any

from guerdon.sandbox.execution import Ending, Execution
from guerdon.sandbox.limits import Limits

if TYPE_CHECKING:
    from guerdon.sandbox.local.task import Task

__all__ = ["execution_of", "terms_of"]


@functools.lru_cache(maxsize=64)
def terms_of(limits: Limits) -> dict[str, Any]:
    """The limits as the keeper is told them; nobody changes what is given."""
    return {
        "seconds": limits.seconds,
        "cpu": _cpu(limits),
        "memory": limits.memory_bytes,
        "processes": limits.processes,
        "file_bytes": limits.file_bytes,
        "files": limits.files,
    }


def _cpu(limits: Limits) -> float:
    if limits.cpu_seconds is not None:
        return limits.cpu_seconds
    return limits.seconds * min(limits.processes, os.cpu_count() or 1)


def execution_of(report: dict[str, Any], task: Task) -> Execution:
    """How a call ended.

    Args:
        report: What the keeper tells of it; only ``problem`` where it tells nothing.
        task: The call, with what it has written.
    """
    limits = task.limits
    status = report.get("status")
    cause = task.cause or report.get("cause")
    cpu = report.get("cpu", 0.0)
    most = limits.output_bytes
    stdout, stderr = task.out.text(most), task.err.text(most - min(most, len(task.out.content)))
    ending: Ending
    if report.get("problem") and not cause:
        ending, detail = "sandbox_error", report["problem"]
    elif cause is not None:
        ending, detail = _for_cause(cause, task)
    else:
        ending, detail = _for_status(status, limits, cpu, stderr)
    return Execution(
        ending,
        # Of what was killed here, the signal says nothing about the code.
        exit_code=None if cause in ("over", "output") else status,
        stdout=stdout,
        stderr=stderr,
        seconds=report.get("seconds", 0.0),
        cpu_seconds=cpu,
        peak_memory_bytes=report.get("peak", 0),
        detail=detail,
    )


def _for_cause(cause: str, task: Task) -> tuple[Ending, str | None]:
    """The ending of what the keeper or the host has ended."""
    limits = task.limits
    told: dict[str, tuple[Ending, str]] = {
        "timeout": ("timeout", f"it was not done within {limits.seconds:g} s"),
        "cpu": ("timeout", f"it used more than {_cpu(limits):g} s of processor time"),
        "memory": ("memory", f"it used more than {_size(limits.memory_bytes)} of memory"),
        "processes": ("signal", f"it had more than {limits.processes} processes and threads"),
        "files": ("output_limit", f"it made more than {limits.files} files"),
        "file_bytes": (
            "output_limit",
            f"it wrote more than {_size(limits.file_bytes)} into files",
        ),
        "output": ("output_limit", f"it printed more than {_size(limits.output_bytes)}"),
        "answer": ("output_limit", f"its answer has more than {_size(task.answer_bytes or 0)}"),
        "over": ("ok", "it was ended when its checker had ended"),
        "meddled": ("nonzero", "it wrote to descriptors that aren't its own"),
        "left_running": ("nonzero", "it left processes or threads running"),
    }
    return told.get(cause, ("sandbox_error", f"it was ended: {cause}"))


def _for_status(
    status: int | None, limits: Limits, cpu: float, stderr: str
) -> tuple[Ending, str | None]:
    """The ending of what ended by itself."""
    if status is None:
        return "sandbox_error", "nobody knows how it ended"
    if status == 0:
        return "ok", None
    if status > 0:
        last = stderr.rstrip().rpartition("\n")[2]
        if status == 1 and last.startswith("MemoryError"):
            return "memory", f"it ran out of memory; it may use {_size(limits.memory_bytes)}"
        return "nonzero", f"it left with exit code {status}"
    if status in (-signal.SIGKILL, -signal.SIGXCPU) and cpu >= 0.9 * _cpu(limits):
        return _cpu_used_up(limits)
    if status == -signal.SIGKILL:
        # Code in a sandbox can't do that to itself.
        return "sandbox_error", "it was killed from outside, or the machine was out of memory"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return "signal", f"it died of signal {-status} ({name})"


def _cpu_used_up(limits: Limits) -> tuple[Ending, str]:
    return "timeout", f"it used more than {_cpu(limits):g} s of processor time"


def _size(count: int) -> str:
    """A number of bytes, for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
