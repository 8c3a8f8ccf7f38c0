"""`SyncEnvPool`: a pool for code that awaits nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon._background import run
from guerdon.envs.sync_face import SyncFace
from guerdon.types.action import Action
from guerdon.types.observation import Observation

if TYPE_CHECKING:
    from guerdon.envs.pool.pool import EnvPool

__all__ = ["SyncEnvPool"]


class SyncEnvPool(SyncFace):
    """An `EnvPool` for code that awaits nothing; made by `EnvPool.sync`.

    Example:
        >>> from guerdon import EnvPool
        >>> def main():
        ...     with EnvPool("http://localhost:8000", n=16).sync() as pool:
        ...         pool.reset_batch(seeds=0)
        ...         return pool.step_batch([{"message": "hi"}] * 16)
    """

    def __init__(self, pool: EnvPool) -> None:
        super().__init__(pool)
        self.async_pool = pool

    def __len__(self) -> int:
        return self.async_pool.n

    def reset_batch(
        self,
        seeds: int | Sequence[int | None] | None = None,
        slots: Sequence[int] | None = None,
        *,
        options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> list[Observation]:
        """See `EnvPool.reset_batch`."""
        return run(self.async_pool.reset_batch(seeds, slots, options=options, **kwargs))

    def step_batch(
        self,
        actions: Sequence[Action | Mapping[str, Any] | None],
        *,
        timeout_s: float | None = None,
    ) -> list[Observation | None]:
        """See `EnvPool.step_batch`."""
        return run(self.async_pool.step_batch(actions, timeout_s=timeout_s))

    def as_completed(
        self,
        actions: Sequence[Action | Mapping[str, Any] | None],
        *,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[int, Observation]]:
        """See `EnvPool.as_completed`."""
        stream = self.async_pool.as_completed(actions, timeout_s=timeout_s)

        async def following() -> tuple[int, Observation] | None:
            return await anext(stream, None)

        try:
            while (found := run(following())) is not None:
                yield found
        finally:
            run(_end(stream))

    def send(self, slot: int, action: Action | Mapping[str, Any]) -> None:
        """See `EnvPool.send`."""

        async def sending() -> None:
            self.async_pool.send(slot, action)

        run(sending())


async def _end(stream: Any) -> None:
    await stream.aclose()
