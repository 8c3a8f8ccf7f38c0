"""A server in another process, and measurements of that process."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


class ServerProcess:
    """A server in another process.

    Args:
        python: An interpreter with the server's library.
        module: The module to run, which prints its address.
        *arguments: The arguments of the module.

    Attributes:
        url: The address.
    """

    def __init__(self, python: str, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", module, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"{module} did not start: exit {self._process.wait()}")
        _wait_until(lambda: self.get("/health", timeout_s=1) is not None, 30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, timeout_s: float = 10) -> str | None:
        """Return the body of the response, or None without a response."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout_s) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return None

    def metric(self, name: str) -> float:
        """Return a metric of guerdon's server by its full name; 0 if it is missing."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics") or "", re.MULTILINE)
        return float(found[1]) if found else 0.0

    # Measurements on Linux

    @property
    def process(self) -> int:
        return self._process.pid

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/task"))

    @property
    def descriptors(self) -> int:
        """The smallest of several counts, because the last request may still be closing."""
        folder, counts = f"/proc/{self._process.pid}/fd", []
        for _ in range(5):
            counts.append(len(os.listdir(folder)))
            time.sleep(0.02)
        return min(counts)

    @property
    def resident(self) -> int:
        """The resident memory in bytes."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def settled(self, sessions: float, descriptors: int, limit_s: float = 30) -> float:
        """Wait until at most so many sessions and descriptors are open, or for a timeout.

        Returns:
            The seconds waited.
        """
        start = time.monotonic()
        _wait_until(
            lambda: self.metric("guerdon_sessions") <= sessions and self.descriptors <= descriptors,
            limit_s,
        )
        return time.monotonic() - start


def missing() -> str:
    """Return why processes can't be measured on this system; ``""`` if they can."""
    return "" if os.path.exists("/proc/self/statm") else "this system has no /proc"


def ours(**limits: Any) -> ServerProcess:
    """Start guerdon's echo server."""
    import json

    return ServerProcess(sys.executable, "benchmarks.echo_guerdon", json.dumps(limits))


def _wait_until(condition: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.05)
