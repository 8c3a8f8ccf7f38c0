"""What runs the calls of a reward function: the seam between `EvalSandbox` and the levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from guerdon.sandbox.execution import Execution

__all__ = ["Answer", "CallAnswer", "CallPool"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call.

    Attributes:
        result: What the worker answered; None where it ended without an answer.
        execution: How it ended, and what it printed.
    """

    result: bytes | None
    execution: Execution


class CallAnswer(Protocol):
    """What an `Answer` has, whoever made it."""

    @property
    def result(self) -> bytes | None:
        """What the worker answered."""
        ...

    @property
    def execution(self) -> Execution:
        """How it ended."""
        ...


class CallPool(Protocol):
    """Workers that have loaded one function.

    Attributes:
        described: What the function's own side told of it: `Described` as JSON.
    """

    described: bytes

    def call(self, job: bytes) -> CallAnswer:
        """Run a call; any number of threads may, and wait for a free worker."""
        ...

    async def call_async(self, job: bytes) -> CallAnswer:
        """The same; cancelled, it ends the call."""
        ...

    def close(self) -> None:
        """End all that runs; who waits in `call` comes back at once."""
        ...
