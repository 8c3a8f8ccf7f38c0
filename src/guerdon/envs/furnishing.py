"""What an environment is given from outside: its reward, its services, its configuration."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from guerdon.errors import EnvDefinitionError, RewardConfigError
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.threads import in_thread

if TYPE_CHECKING:
    from guerdon.config.live.live import Applied, LiveReward
    from guerdon.config.pipeline import RewardPipeline
    from guerdon.envs.environment import Environment
    from guerdon.services.client import MCPClient

__all__ = [
    "begins_episode",
    "configuration_of",
    "configure",
    "furnished",
    "given_services",
    "is_furnished",
]

# Marks a reset that takes the configuration over.
BEGINS = "_guerdon_begins_episode"

_pipeline: ContextVar[RewardPipeline | None] = ContextVar("guerdon_pipeline", default=None)


def is_furnished() -> bool:
    """Whether the environment that is being made gets its reward from a pipeline."""
    return _pipeline.get() is not None


def given_services() -> MCPClient | None:
    """The services of the pipeline for which an environment is being made."""
    pipeline = _pipeline.get()
    return pipeline.mcp if pipeline is not None else None


def furnished(factory: Callable[[], Any], pipeline: RewardPipeline) -> Callable[[], Any]:
    """A factory of environments whose reward and services come from a pipeline.

    Args:
        factory: Makes the environment; it needs no rubric of its own.
        pipeline: Makes a rubric for each.
    """

    def make() -> Any:
        with _giving(pipeline):
            environment = factory()
            if hasattr(environment, "rubric"):
                environment.rubric = pipeline.make()
            return environment

    return make


@contextmanager
def _giving(pipeline: RewardPipeline) -> Iterator[None]:
    token = _pipeline.set(pipeline)
    try:
        yield
    finally:
        _pipeline.reset(token)


def configuration_of(environment: Environment[Any, Any, Any]) -> LiveReward:
    """What an environment's reward is configured with; made where it is first asked for.

    Raises:
        RewardConfigError: Its rubric can't be copied, so that no change could be tried.
    """
    if environment._live is None:
        from guerdon.config.live.live import LiveReward

        try:
            prototype = copy.deepcopy(environment.rubric)
        except Exception as error:
            raise RewardConfigError(
                f"the rubric of {type(environment).__name__} can't be copied ({error}), so that "
                "no change could be tried before it is made"
            ) from error
        # Whoever else asks for the first time meanwhile gets the same.
        environment.__dict__.setdefault("_live", LiveReward(prototype))
    return cast("LiveReward", environment._live)


def configure(live: LiveReward, environment: Environment[Any, Any, Any]) -> None:
    """Have an environment that is stepped without a reset score as it would after one."""
    environment._live = live
    if isinstance(environment.rubric, Rubric):
        live.apply(environment.rubric, episode=live.progress.episode)


def begins_episode(reset: Any) -> Any:
    """An author's reset, before which the configuration of the episode is taken over."""
    if not callable(reset):
        raise EnvDefinitionError(f"reset is {reset!r:.60}; it is a function")
    if getattr(reset, BEGINS, False):
        return reset

    if inspect.iscoroutinefunction(reset):

        @functools.wraps(reset)
        async def begin_async(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_resetting:  # a reset that calls its parent's
                return await reset(self, *args, **kwargs)
            # A rubric may take its time to be configured.
            begun = await in_thread(None, _begin, self) if self._live is not None else _begin(self)
            with _beginning(self, begun):
                return await reset(self, *args, **kwargs)

        setattr(begin_async, BEGINS, True)
        return begin_async

    @functools.wraps(reset)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_resetting:
            return reset(self, *args, **kwargs)
        with _beginning(self, _begin(self)):
            return reset(self, *args, **kwargs)

    setattr(begin, BEGINS, True)
    return begin


def _begin(environment: Environment[Any, Any, Any]) -> Applied | None:
    """Take over the configuration of the episode that begins."""
    rubric = environment.rubric
    if not isinstance(rubric, Rubric):
        return None
    if environment._live is not None:
        return environment._live.apply(rubric)
    rubric.__dict__["_scored_by"] = None  # it is taken anew where it is first told
    return None


@contextmanager
def _beginning(environment: Environment[Any, Any, Any], begun: Applied | None) -> Iterator[None]:
    rubric = environment.rubric
    environment._is_resetting = True
    try:
        yield
        live = environment._live
        if environment.rubric is not rubric and live is not None:  # one for each episode
            live.apply(environment.rubric, episode=begun.episode if begun is not None else None)
    except BaseException:
        if begun is not None:
            begun.undo()  # the episode before goes on, for all that is known
        raise
    finally:
        environment._is_resetting = False
