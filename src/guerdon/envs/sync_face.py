"""`SyncFace`: what the sync faces of clients and pools have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from guerdon._background import run

__all__ = ["SyncFace"]


class SyncFace:
    """Something async, for code that awaits nothing; all of them share one event loop."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def close(self) -> None:
        """Close it."""
        run(self._inner.close())

    def __enter__(self) -> Self:
        run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
