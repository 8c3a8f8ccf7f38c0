"""Why a call returned no result, in words."""

import pytest

from guerdon.rubrics.sandboxed.engines import failure_of, printed
from guerdon.sandbox.protocol import Execution


@pytest.mark.parametrize(
    ("execution", "expected"),
    [
        (Execution("timeout"), "timeout: it reached a limit"),
        (Execution("timeout", detail="it slept"), "timeout: it slept"),
        (
            Execution("sandbox_error", detail="no fork"),
            "sandbox_error: the sandbox failed: no fork",
        ),
        (Execution("sandbox_error"), "sandbox_error: the sandbox failed: no reason is known"),
        (
            Execution("nonzero", exit_code=3, detail="it exited with code 3"),
            "exited: it ended its process (exit code 3) before it had returned a result",
        ),
        (Execution("nonzero", detail="it left processes"), "exited: it left processes"),
        (
            Execution("signal", exit_code=-6),
            "signal: SIGABRT (6), it ended before it had returned a result",
        ),
        (
            Execution("signal", exit_code=-63),
            "signal: a signal without a name (63), it ended before it had returned a result",
        ),
        (Execution("ok"), "exited: it ended its process before it had returned a result"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_failure_of_explains_each_ending(execution, expected):
    assert failure_of(execution) == expected


@pytest.mark.parametrize(
    ("out", "err", "log"),
    [("", "", None), ("a", "", "a"), ("", "b", "b"), ("a", "b", "a\nb"), ("a\n", "b\n", "a\nb\n")],
    ids=["nothing", "out", "err", "both", "lines"],
)
def test_printed_joins_both_streams(out, err, log):
    assert printed(Execution("ok", stdout=out, stderr=err)) == log
