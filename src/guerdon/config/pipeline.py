"""`RewardPipeline`: builds the rubrics of a configuration; `open_reward` opens any reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from guerdon._background import run
from guerdon._problems import Problem
from guerdon._validation import shown
from guerdon.config.builder import build_rubrics
from guerdon.config.loader import read_document
from guerdon.config.runtime import RewardRuntime
from guerdon.config.schema import RewardConfig
from guerdon.errors import InvalidArgumentError, RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.functions.loading import load_reward
from guerdon.rubrics.judge.connecting import connect_services
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import MADE_WITH

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["RewardPipeline", "is_pipeline_file", "open_reward"]

SUFFIXES = (".yaml", ".yml", ".json")


class RewardPipeline:
    """A configuration with the services that its rubrics share.

    A process that unpickles it connects to the services itself.

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
        mcp: The services, in place of those of the configuration.

    Attributes:
        config: The configuration.
        mcp: The services by name; None if there are none. A service that isn't called is not
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
    def of(
        cls,
        reward: RewardPipeline | RewardConfig | Mapping[str, Any] | str | Path,
        *,
        mcp: MCPClient | None = None,
    ) -> Self:
        """Return a pipeline unchanged, or that of a configuration, its content or its file.

        Raises:
            RewardConfigError: The configuration is invalid.
            InvalidArgumentError: The argument is none of these.
        """
        if isinstance(reward, cls):
            return reward
        if isinstance(reward, RewardConfig):
            return cls(reward, mcp=mcp)
        if isinstance(reward, Mapping):
            return cls(RewardConfig.from_dict(reward), mcp=mcp)
        if isinstance(reward, (str, Path)):
            return cls(RewardConfig.from_file(reward), mcp=mcp)
        raise InvalidArgumentError(
            f"`reward` must be a RewardConfig, a dict or the path of a file, got {shown(reward)}"
        )

    def make(self) -> RubricComposer:
        """Build the rubric of one environment.

        Raises:
            RewardConfigError: The rubric of an entry is unknown, or can't be built from its config;
                ``problems`` lists everything that is wrong, with its line.
        """
        composer = RubricComposer(
            build_rubrics(self.config, mcp=self.mcp),
            {entry.name: entry.weight for entry in self.config.entries},
            self.config.normalize,
            episode_end=[entry.name for entry in self.config.episode_end],
        )
        if self.mcp is not None:  # the fingerprint includes the services
            mcp = self.mcp
            digests = tuple(f"{name}={mcp.fingerprint(name)}" for name in sorted(mcp.services))
            composer.__dict__[MADE_WITH] = digests
            connect_services(composer, mcp)
        return composer

    def check_services(self) -> None:
        """Check that every service is available.

        Raises:
            ServiceUnavailableError: One is not; the message names it.
        """
        run(self.check_services_async())

    async def check_services_async(self) -> None:
        """Like `check_services`, without blocking the event loop."""
        if self.mcp is not None:
            await self.mcp.check_async()

    def close(self) -> None:
        """Disconnect the services, unless they were passed as `mcp`."""
        run(self.close_async())

    async def close_async(self) -> None:
        """Like `close`, without blocking the event loop."""
        if self.mcp is not None and self._owns_mcp:
            await self.mcp.close_async()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def is_pipeline_file(spec: object) -> bool:
    """Return whether a spec names the file of a pipeline, rather than code.

    Example:
        >>> is_pipeline_file("reward.yaml"), is_pipeline_file("reward.py:reward")
        (True, False)
    """
    return isinstance(spec, str) and Path(spec).suffix.lower() in SUFFIXES


@contextmanager
def open_services(path: str | None) -> Iterator[MCPClient | None]:
    """Open a file of services by name, as under ``mcp_services`` in a reward file.

    Args:
        path: The file; None for no services.

    Raises:
        RewardConfigError: The file is invalid.
    """
    if path is None:
        yield None
        return
    from guerdon.services.client import MCPClient

    document = read_document(path)
    problems = document.problems
    if not isinstance(document.data, dict):
        problems = (Problem((), "must contain services by name, as mcp_services of a reward file"),)
    if problems:
        raise document.error(problems)
    try:
        client = MCPClient(document.data)
    except RewardConfigError as error:
        found = [f"{path}: {each.removeprefix('mcp_services.')}" for each in error.problems]
        raise RewardConfigError("\n".join(found), problems=found) from error
    with client:
        yield client


@contextmanager
def open_reward(
    spec: str | Rubric | RewardFunction | RewardPipeline,
    *,
    at: int | None = None,
    check: bool = True,
    services: str | None = None,
) -> Iterator[Rubric | RewardFunction]:
    """Load a reward by name; its services are connected as long as the context lasts.

    Example:
        >>> from guerdon import open_reward
        >>> with open_reward("guerdon:NumericAnswer") as reward:
        ...     reward
        NumericAnswer(tolerance=0.0, field='content', expected=None)

    Args:
        spec: ``reward.yaml``, or what `load_reward` accepts; or a reward, which is used itself,
            or a pipeline, which is closed at the end.
        at: The episode and training step, from 0, at which the schedules of a file are evaluated.
        check: Check that the services of a file are available.
        services: A file of services by name, as under ``mcp_services``, in place of those of a
            reward file.

    Raises:
        ServiceUnavailableError: A service is not available.
        RewardConfigError: A file is invalid.
        LoadError: The code can't be loaded.
        InvalidArgumentError: `at` is given for a reward in code, which has no schedules.
    """
    if not isinstance(spec, RewardPipeline) and not is_pipeline_file(spec):
        if at is not None:
            raise InvalidArgumentError(f"`at` requires a reward file with schedules, got {spec}")
        reward = load_reward(spec) if isinstance(spec, str) else spec
        with open_services(services) as mcp:
            if isinstance(reward, Rubric):
                connect_services(reward, mcp)
                if mcp is not None and check:
                    mcp.check()
            elif mcp is not None:
                raise InvalidArgumentError(
                    f"`services` requires a rubric or a reward file, {spec} is a reward function"
                )
            yield reward
        return
    assert isinstance(spec, str | RewardPipeline)
    with open_services(services) as mcp, RewardPipeline.of(spec, mcp=mcp) as pipeline:
        rubric = pipeline.make()
        if check:
            pipeline.check_services()
        live = RewardRuntime(pipeline.make(), config=pipeline.config)
        live.progress.report(training_step=at or 0, episode=at or 0)
        live.apply(rubric)
        yield rubric
