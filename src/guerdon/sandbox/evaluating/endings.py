"""What a call that gave no answer is called, in words."""

from __future__ import annotations

import signal

from guerdon.sandbox.execution import Execution
from guerdon.sandbox.limits import Limits

__all__ = ["printed", "say_ending"]


def say_ending(execution: Execution, limits: Limits) -> str:
    """How a call ended that gave no result, in a line; its first word is for counting.

    Example:
        >>> from guerdon import Limits
        >>> from guerdon.sandbox import Execution
        >>> say_ending(Execution("timeout"), Limits(seconds=5))
        'timeout: it was not done within 5 s'
        >>> say_ending(Execution("ok", exit_code=0), Limits())
        'exited: it ended its process (exit code 0) before it had given a result'
        >>> say_ending(Execution("signal", exit_code=-11), Limits())
        'signal: SIGSEGV (11), it ended before it had given a result'

    Args:
        execution: How it ended.
        limits: What it could use.
    """
    code, detail = execution.exit_code, execution.detail
    match execution.ending:
        case "sandbox_error":
            return f"sandbox_error: the sandbox failed: {detail or 'it did not say why'}"
        case "timeout":
            return f"timeout: {detail or f'it was not done within {limits.seconds:g} s'}"
        case "memory":
            mib = limits.memory_bytes / (1 << 20)
            return f"memory: {detail or f'it used more than {mib:g} MiB'}"
        case "output_limit":
            most = f"it printed more than {limits.output_bytes:,} bytes"
            return f"output_limit: {detail or most}"
        case "signal" if code is not None:
            return f"signal: {_name(-code)} ({-code}), it ended before it had given a result"
        case _ if code is None or code < 0:
            return f"exited: {detail or 'it ended its process before it had given a result'}"
        case _:
            return f"exited: it ended its process (exit code {code}) before it had given a result"


def printed(execution: Execution) -> str | None:
    """What was printed, both streams; None where nothing was."""
    out, err = execution.stdout, execution.stderr
    if out and err and not out.endswith("\n"):
        out += "\n"
    return out + err or None


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a signal of no name"
