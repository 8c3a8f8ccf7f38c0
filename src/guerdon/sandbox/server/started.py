"""How a call tells the keeper that it was set up, before it runs anything that isn't ours."""

from __future__ import annotations

import contextlib
import os

__all__ = ["Started", "say_started"]

_YES = b"\0"
_LONGEST = 2000


class Started:
    """A pipe on which a call says once that it is locked and ready, or why not.

    Attributes:
        writing: The end that the call has.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)

    def heard(self) -> str | None:
        """When the call has ended: what went wrong, None where nothing did."""
        try:
            said = os.read(self._reading, _LONGEST)
        except BlockingIOError:
            said = b""
        self.close()
        if said == _YES:
            return None
        return said.decode("utf-8", "replace") or "it ended before it was set up"

    def close(self) -> None:
        """Close both ends."""
        for fd in (self._reading, self.writing):
            with contextlib.suppress(OSError):
                os.close(fd)


def say_started(fd: int, problem: BaseException | None = None) -> None:
    """In the call: say that it is ready, or what went wrong; nothing can be said after.

    Args:
        fd: The end of the pipe; it is closed.
        problem: What went wrong.
    """
    text = _YES
    if problem is not None:
        text = f"{type(problem).__name__}: {problem}".encode("utf-8", "replace")[:_LONGEST]
    os.write(fd, text)
    os.close(fd)
