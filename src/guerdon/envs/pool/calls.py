"""`PoolCall` and `PoolBackend`: what a pool asks for, and the seam behind which it is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon.types.observation import Observation

__all__ = ["PoolBackend", "PoolCall"]


class PoolCall:
    """One reset or one step of one slot.

    Example:
        >>> from guerdon import Observation
        >>> from guerdon.envs import PoolCall
        >>> ended = []
        >>> call = PoolCall(3, ended.append, action={"column": 2})
        >>> call.is_reset
        False
        >>> call.finish(Observation(done=True))
        >>> ended[0].slot, ended[0].observation.done
        (3, True)

    Attributes:
        slot: Which slot.
        action: What the agent does; None of a reset.
        seed: Of a reset.
        extra: Further arguments of a reset; None of a step.
        observation: What came of it.
        error: What was raised instead.
        running: What the backend needs to give it up.
        over: Whether it has ended, or was given up.
    """

    __slots__ = (
        "_finished",
        "action",
        "error",
        "extra",
        "observation",
        "over",
        "running",
        "seed",
        "slot",
    )

    def __init__(
        self,
        slot: int,
        finished: Callable[[PoolCall], None],
        *,
        action: Any = None,
        seed: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.slot = slot
        self.action = action
        self.seed = seed
        self.extra = extra
        self.observation: Observation | None = None
        self.error: BaseException | None = None
        self.running: Any = None
        self.over = False
        self._finished = finished

    @property
    def is_reset(self) -> bool:
        """Whether it begins an episode."""
        return self.extra is not None

    def finish(self, observation: Observation | None, error: BaseException | None = None) -> None:
        """Say how it ended, in the event loop; what comes after it was given up is dropped."""
        if not self.over:
            self.over = True
            self.observation, self.error = observation, error
            self._finished(self)


class PoolBackend(ABC):
    """Where a pool's environments are: in threads here, on a server, and elsewhere to come.

    It is used in one event loop. A slot has one call at a time.

    Example:
        >>> from guerdon import EnvPool, Observation
        >>> from guerdon.envs import PoolBackend
        >>> class Nowhere(PoolBackend):
        ...     async def open(self): ...
        ...     def submit(self, calls):
        ...         for call in calls:
        ...             call.finish(Observation(done=True))
        ...     def give_up(self, call): ...
        ...     async def close(self): ...
        >>> with EnvPool(backend=Nowhere(), n=2).sync() as pool:
        ...     [observation.done for observation in pool.reset_batch()]
        [True, True]
    """

    @abstractmethod
    async def open(self) -> None:
        """Get ready; what can be found wrong before the first reset is raised."""

    @abstractmethod
    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Begin calls, of different slots; each ends with its `finish`, in the event loop."""

    @abstractmethod
    def give_up(self, call: PoolCall) -> None:
        """Leave a call that takes too long; the slot's next reset begins with a new environment."""

    @abstractmethod
    async def close(self) -> None:
        """Close every environment, and whatever runs them."""
