"""No process ends itself by SIGKILL: its death would look like the fault of the sandbox."""

from __future__ import annotations

from typing import Any

import pytest

# How a process might send itself SIGKILL, so that its death looked like the sandbox's fault. Each
# sets `result`; what it forks reports by its exit status.
SUICIDES = {
    "kill": "os.kill(os.getpid(), 9)",
    "kill-high-bits": "make(number('kill'), os.getpid(), (1 << 32) | 9)",
    "tkill": "make(number('tkill'), threading.get_native_id(), 9)",
    "tgkill": "make(number('tgkill'), os.getpid(), threading.get_native_id(), 9)",
    "pthread-kill": "signal.pthread_kill(threading.get_ident(), 9)",
    "raise": "signal.raise_signal(9)",
    "queue": """
information = (ctypes.c_int * 32)(9, 0, -1)
make(number('rt_sigqueueinfo'), os.getpid(), 9, ctypes.byref(information))
""",
    "pidfd": "make(number('pidfd_open'), os.getpid(), 0)",
    "death-of-parent": "syscalls.prctl(1, 9)",
    "strict-mode": "syscalls.prctl(22, 1)",
    "seccomp-strict": "make(number('seccomp'), 0, 0, 0)",
    "timer": """
event = (ctypes.c_int * 16)(0, 0, 9, 0)
timer = ctypes.c_int()
make(number('timer_create'), 1, ctypes.byref(event), ctypes.byref(timer))
""",
    "message-queue": "make(number('mq_notify'), 0, 0)",
    "signal-of-descriptor": """
import fcntl
fcntl.fcntl(os.pipe()[0], 10, 9)
""",
    "owner-of-descriptor": """
import fcntl
fcntl.fcntl(os.pipe()[0], 8, os.getpid())
""",
    "asynchronous-descriptor": """
import fcntl
fcntl.ioctl(os.pipe()[0], 0x5452, b"\\1\\0\\0\\0")
""",
    "folder-notice": """
import fcntl
fcntl.fcntl(0, 1026, 1)
""",
    "processor-time": """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (0, 0))
""",
    "realtime": """
import resource
resource.setrlimit(resource.RLIMIT_RTTIME, (0, 0))
""",
    "end-of-a-child": "make(number('clone'), 9, 0, 0, 0, 0)",
    "end-of-a-brother": "make(number('clone'), 0x8000 | 9, 0, 0, 0, 0)",
    "clone3": "make(number('clone3'), 0, 88)",
    "perf": "make(number('perf_event_open'), 0, 0, -1, -1, 0)",
    "trace": "make(number('ptrace'), 0, 0, 0, 0)",
    "exec": "os.execv('/bin/true', ['true'])",
}


@pytest.mark.parametrize("way", SUICIDES)
@pytest.mark.parametrize("profile", ["program", "function_call"])
def test_strict_lock_refuses_sigkill_to_itself(supervisor: Any, profile: Any, way: str) -> None:
    outcome = supervisor.tries(SUICIDES[way], profile=profile)
    assert (outcome.signal, outcome.result) == (0, None)
    assert outcome.refused or outcome.error in ("ValueError", "PermissionError"), outcome


@pytest.mark.parametrize("way", sorted(SUICIDES.keys() - {"death-of-parent"}))
def test_lock_template_refuses_sigkill_to_itself(supervisor: Any, way: str) -> None:
    outcome = supervisor.tries(SUICIDES[way], profile="template")
    assert outcome.signal == 0
    assert outcome.refused or outcome.error in ("ValueError", "PermissionError"), outcome
