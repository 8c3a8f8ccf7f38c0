"""A sandbox that all environments of a process share, because its workers are processes."""

from __future__ import annotations

import threading

from guerdon import Sandbox, open_sandbox

__all__ = ["SharedSandbox"]


class SharedSandbox:
    """A sandbox that the first `acquire` opens and the last `release` closes.

    Example:
        >>> from examples.coding_env.shared_sandbox import SharedSandbox
        >>> shared = SharedSandbox("process")
        >>> one, other = shared.acquire(), shared.acquire()
        >>> one is other
        True
        >>> shared.release(), shared.release()
        (None, None)

    Args:
        level: The level to open, see `open_sandbox`.
    """

    def __init__(self, level: str) -> None:
        self._level, self._users = level, 0
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()

    def acquire(self) -> Sandbox:
        """Return the sandbox, and count one more user.

        Raises:
            SandboxUnavailableError: The level doesn't work on this machine.
        """
        with self._lock:
            if self._sandbox is None:
                self._sandbox = open_sandbox(self._level)
            self._users += 1
            return self._sandbox

    def release(self) -> None:
        """Count one user less, and close the sandbox after the last one."""
        with self._lock:
            self._users -= 1
            if not self._users and self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None
