"""`RewardPipeline`: a configuration that makes rubrics, and holds their services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from guerdon._background import run
from guerdon.config.config import RewardConfig
from guerdon.config.making.making import make_rubrics
from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.fingerprint import (
    MADE_WITH,
)

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["RewardPipeline"]


class RewardPipeline:
    """A configuration that makes rubrics, and holds the services that they share.

    Example:
        >>> from guerdon import RewardConfig, RewardPipeline
        >>> config = RewardConfig.from_yaml('''
        ... schema_version: "1.0"
        ... per_turn:
        ...   - {name: polite, rubric: RegexMatch, weight: 0.5, config: {pattern: please}}
        ... ''')
        >>> with RewardPipeline(config) as pipeline:
        ...     pipeline.make()("please come", None)
        0.5

    Args:
        config: The configuration.
        mcp: The services, in place of those that the configuration names.

    Attributes:
        config: The configuration.
        mcp: The services by name; None where there are none. One that nobody calls is never
            connected.
    """

    def __init__(self, config: RewardConfig, *, mcp: MCPClient | None = None) -> None:
        self.config = config
        self.mcp = mcp
        self._owns_mcp = mcp is None
        if mcp is None and config.mcp_services:
            from guerdon.services.client import MCPClient

            self.mcp = MCPClient(dict(config.mcp_services))

    @classmethod
    def of(cls, given: RewardPipeline | RewardConfig | Mapping[str, Any] | str | Path) -> Self:
        """A pipeline as it is; or one of a configuration, of a dict like that, or of its file.

        Raises:
            RewardConfigError: The configuration can't be meant.
            InvalidArgumentError: It is nothing of these.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, RewardConfig):
            return cls(given)
        if isinstance(given, Mapping):
            return cls(RewardConfig.from_dict(given))
        if isinstance(given, (str, Path)):
            return cls(RewardConfig.from_file(given))
        raise InvalidArgumentError(
            f"{given!r:.60} is no reward pipeline; give a RewardConfig, or the path of its file"
        )

    def make(self) -> RubricComposer:
        """Make the rubric of one environment.

        Raises:
            RewardConfigError: An entry names no rubric, or one that can't be made of its config;
                `problems` lists everything that is wrong, with its line.
        """
        rubrics = make_rubrics(self.config, mcp=self.mcp)
        entries = (*self.config.per_turn, *self.config.episode_end)
        composer = RubricComposer(
            rubrics,
            {entry.name: entry.weight for entry in entries},
            self.config.normalize,
            episode_end=[entry.name for entry in self.config.episode_end],
        )
        if self.mcp is not None:  # another model behind a name is another reward
            mcp = self.mcp
            digests = tuple(f"{name}={mcp.fingerprint(name)}" for name in sorted(mcp.services))
            composer.__dict__[MADE_WITH] = digests
        return composer

    # Services ----------------------------------------------------------------------------------

    def check_services(self) -> None:
        """See that every service is there.

        Raises:
            ServiceUnavailableError: One isn't; it is named.
        """
        run(self.check_services_async())

    async def check_services_async(self) -> None:
        """Like `check_services`, without blocking the event loop."""
        if self.mcp is not None:
            await self.mcp.check_async()

    def close(self) -> None:
        """Let go of the services."""
        run(self.close_async())

    async def close_async(self) -> None:
        """Like `close`, without blocking the event loop."""
        if self.mcp is not None and self._owns_mcp:
            await self.mcp.close_async()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
