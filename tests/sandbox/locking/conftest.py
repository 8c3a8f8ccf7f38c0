"""A supervisor that forks locked children and runs in them what a test wants to try."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("forking_supervisor.py")
Profile = Literal["program", "template", "function_call"]

# Who is locked: root, an ordinary user, root of a container as Docker makes one, and whoever this
# is on a kernel with the first Landlock.
WHO = ("root", "user", "container", "old")


@dataclass
class Outcome:
    """The outcome of a try: its ``result``, or the error, or the signal that ended it."""

    result: Any = None
    error: str = ""
    errno: str = ""
    signal: int = 0
    traceback: str = ""
    files: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        # EXDEV is Landlock's word for a file that may not be moved or linked to where it goes.
        return self.errno in ("EPERM", "EACCES", "ENOSYS", "EXDEV")


class Supervisor:
    """The process that forks; one for each kind of user."""

    def __init__(self, who: str) -> None:
        site = next(path for path in sys.path if path.endswith("site-packages"))
        self.who = who
        self.is_root = who != "user" and os.geteuid() == 0
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(SCRIPT), who, str(ROOT / "src"), site],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,
        )

    def tries(
        self,
        code: str,
        *,
        profile: Profile = "program",
        folder: bool = False,
        before: str = "",
    ) -> Outcome:
        """Run code in a locked child: ``result`` in it comes back."""
        return self._ask(code=code, profile=profile, folder=folder, before=before)

    def here(self, code: str) -> Any:
        """Run code in the supervisor itself, which is not locked."""
        outcome = self._ask(here=code)
        assert not outcome.error, outcome
        return outcome.result

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def _ask(self, **job: object) -> Outcome:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return Outcome(**json.loads(self.process.stdout.readline()))


def _supervisors() -> tuple[str, ...]:
    if sys.platform != "linux":
        return ()
    return WHO if os.geteuid() == 0 else ("user", "old")


@pytest.fixture(scope="session", params=WHO)
def supervisor(request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    if request.param not in _supervisors():
        pytest.skip(f"{request.param} isn't available here")
    supervisor = Supervisor(request.param)
    try:
        # The attacks of the tests follow only if the harmless ones were refused.
        for profile in ("program", "template", "function_call"):
            broken = supervisor.here(
                f"result = [c.name for c in canaries.release(plan, {profile!r}) if not c.blocked]"
            )
            assert broken == []
        yield supervisor
    finally:
        supervisor.close()
