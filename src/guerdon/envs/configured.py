"""`ConfiguredEnv`: environments whose reward comes from a pipeline, without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from guerdon.config.pipeline import RewardPipeline
from guerdon.config.runtime import RewardRuntime
from guerdon.config.schema import RewardConfig
from guerdon.envs.environment import (
    Environment,
    current_pipeline,
    current_services,
    current_types,
    narrowed,
)
from guerdon.errors import RewardConfigError
from guerdon.rubrics.failure import describe_failure

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["ConfiguredEnv"]


def with_pipeline(factory: Callable[[], Any], pipeline: RewardPipeline) -> Callable[[], Any]:
    """Return a factory of environments whose reward and services come from a pipeline.

    Args:
        factory: Makes the environment; it needs no rubric of its own.
        pipeline: Makes a rubric for each.
    """

    def make() -> Any:
        token = current_pipeline.set(pipeline)
        try:
            environment = factory()
            if hasattr(environment, "rubric"):
                environment.rubric = pipeline.make()
            return environment
        finally:
            current_pipeline.reset(token)

    return ServicesFactory(make, pipeline.mcp)


class TypedFactory:
    """A factory of environments whose types the caller has passed.

    Args:
        factory: Makes the environment, whose class need not declare them.
        types: The types by name, such as ``action_type``.
    """

    def __init__(self, factory: Callable[[], Any], types: Mapping[str, type]) -> None:
        self._factory = factory
        self._types = types

    def __call__(self) -> Any:
        """Make an environment.

        Raises:
            EnvDefinitionError: Its class declares other types.
        """
        token = current_types.set(self._types)
        try:
            environment = self._factory()
        finally:
            current_types.reset(token)
        if isinstance(environment, Environment):  # else the caller reports it
            for name, given in self._types.items():
                setattr(environment, name, narrowed(type(environment), name, given))
        return environment


class ServicesFactory:
    """A factory of environments that have services, unless they set their own.

    Args:
        factory: Makes the environment.
        services: The services; None if there are none.
    """

    def __init__(self, factory: Callable[[], Any], services: MCPClient | None) -> None:
        self._factory = factory
        self._services = services

    def __call__(self) -> Any:
        """Make an environment."""
        token = current_services.set(self._services)
        try:
            return self._factory()
        finally:
            current_services.reset(token)


def refused_by_environment(error: Exception) -> RewardConfigError:
    """Return the error for a change of its own configuration that an environment refuses."""
    problem = f"the environment refused it: {describe_failure(error)}"
    return RewardConfigError(f"nothing was changed: {problem}", problems=[problem])


class PipelineFactory:
    """A factory of environments in a worker, which receives the configuration of each episode.

    Args:
        factory: Makes an environment.
        pipeline: Makes its reward, and connects to the services for this worker.
    """

    def __init__(self, factory: Callable[[], Any], pipeline: RewardPipeline) -> None:
        self._factory = factory
        self._pipeline = pipeline

    def __call__(self) -> Any:
        """Make an environment."""
        return with_pipeline(self._factory, self._pipeline)()

    def close(self) -> None:
        """Close the services."""
        self._pipeline.close()


class ConfiguredEnv:
    """A factory of environments whose reward and services come from one pipeline.

    One configuration scores all of them. It may change while they are stepped, as that of a
    server: schedules and curricula count the episodes of all. The first environment that the
    factory makes is only asked for a configuration of its own.

    Example:
        >>> from guerdon import EnvPool
        >>> from guerdon.envs import ConfiguredEnv
        >>> def main():
        ...     with ConfiguredEnv(MyEnvironment, "reward.yaml") as configured:
        ...         with EnvPool(configured, n=64).sync() as pool:
        ...             pool.reset_batch(seeds=0)
        ...             configured.update_config({"weights": {"style": 0.5}})

    Args:
        factory: An environment class, or a function that returns an environment. It needs no
            rubric.
        reward: The pipeline, its configuration, or the file of the configuration.

    Attributes:
        pipeline: The pipeline.
        runtime: The configuration that scores all of them.

    Raises:
        RewardConfigError: The configuration is invalid.
        ServiceUnavailableError: A service of the configuration is not available.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        reward: RewardPipeline | RewardConfig | Mapping[str, Any] | str | Path,
    ) -> None:
        self.pipeline = RewardPipeline.of(reward)
        self._owns = self.pipeline is not reward
        self._factory = factory
        self._make = with_pipeline(factory, self.pipeline)
        try:
            # First report what is wrong in the file, then what is not available.
            prototype = self.pipeline.make()
            own = self._own_config()
            self.runtime = RewardRuntime(prototype, config=self.pipeline.config, own=own)
            self.pipeline.check_services()
        except BaseException:
            self.close()
            raise

    def __call__(self) -> Any:
        """Make an environment."""
        environment = self._make()
        if isinstance(environment, Environment):  # else the caller reports it
            environment._runtime = self.runtime
        return environment

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a worker needs: it receives the configuration of each episode."""
        return PipelineFactory, (self._factory, self.pipeline)

    def get_config(self) -> dict[str, Any]:
        """Return the configuration, in the shape of the file; see `RewardRuntime.to_dict`."""
        return self.runtime.to_dict()

    def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None, by: str = ""
    ) -> dict[str, Any]:
        """Change the configuration from the next resets on; see `RewardRuntime.update`.

        Keys of the environment's own configuration are tried on a new environment first.
        """
        own = self.runtime.own(change)
        if own != self.runtime.own():
            with self._make() as environment:
                try:
                    environment._apply_own(own)
                except Exception as error:
                    raise refused_by_environment(error) from error
        return self.runtime.update(change, version=version, by=by)

    def _own_config(self) -> dict[str, Any]:
        environment = self._make()
        if not isinstance(environment, Environment):  # the caller reports it
            return {}
        with environment:
            return environment._own_config()

    def close(self) -> None:
        """Close the services, unless the pipeline was passed in."""
        if self._owns:
            self.pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
