"""One sandbox for all environments of a process: they are many, and its workers are processes."""

from __future__ import annotations

import threading

from guerdon import Sandbox, open_sandbox

__all__ = ["SharedSandbox"]


class SharedSandbox:
    """Opened when the first of its users takes it, and closed when the last one gives it back.

    Example:
        >>> from examples.coding_env.shared_sandbox import SharedSandbox
        >>> shared = SharedSandbox("process")
        >>> one, other = shared.take(), shared.take()
        >>> one is other
        True
        >>> shared.give_back(), shared.give_back()
        (None, None)

    Args:
        level: As `open_sandbox` takes it.
    """

    def __init__(self, level: str) -> None:
        self._level, self._users = level, 0
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()

    def take(self) -> Sandbox:
        """Become a user of it.

        Raises:
            SandboxUnavailableError: The level doesn't work on this machine.
        """
        with self._lock:
            if self._sandbox is None:
                self._sandbox = open_sandbox(self._level)
            self._users += 1
            return self._sandbox

    def give_back(self) -> None:
        """Be no longer a user of it."""
        with self._lock:
            self._users -= 1
            if not self._users and self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None
