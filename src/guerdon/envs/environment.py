"""`Environment`: the class that environment authors subclass."""

from __future__ import annotations

import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from guerdon._background import run
from guerdon.envs.furnishing import (
    begins_episode,
    configuration_of,
    given_services,
    is_furnished,
)
from guerdon.envs.scoring import score_step, score_step_async
from guerdon.envs.type_parameters import set_types
from guerdon.errors import EnvDefinitionError, ServiceError
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.threads import in_thread
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import EnvironmentMetadata, State

if TYPE_CHECKING:
    from guerdon.config.live.live import LiveReward
    from guerdon.services.client import MCPClient

__all__ = ["Environment"]

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)


class _EnvironmentMeta(ABCMeta):
    """Looks at an environment when it has been made: an author's ``__init__`` sets the rubric."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        for name in ("reset", "step"):
            if not (_writes(cls, name) or _writes(cls, f"{name}_async")):
                raise EnvDefinitionError(
                    f"{cls.__name__} has no {name}; write {name} or {name}_async"
                )
        missing = sorted(cls.__abstractmethods__)
        if missing:
            raise EnvDefinitionError(f"{cls.__name__} has no {', '.join(missing)}; write it")
        environment = super().__call__(*args, **kwargs)
        environment.__dict__.setdefault("_mcp", given_services())
        rubric = environment.rubric
        if rubric is None and is_furnished():
            return environment  # the reward comes from a file
        if not isinstance(rubric, Rubric):
            gave = "no rubric" if rubric is None else f"{rubric!r:.60} as its rubric"
            raise EnvDefinitionError(
                f"{cls.__name__} has {gave}; give it one in __init__: "
                "super().__init__(rubric=…), or self.rubric = …"
            )
        return environment


class Environment(Generic[ActT, ObsT, StateT], metaclass=_EnvironmentMeta):
    """What an agent acts in: one environment plays one episode at a time.

    Write `reset`, `step` and `state`; write `step_async` and `reset_async` instead (or beside
    them) where the environment waits for something. Its `rubric` is required.

    Example:
        >>> from guerdon import Action, Environment, Observation, Rubric, State
        >>> class Guess(Action):
        ...     number: int
        >>> class Hint(Observation):
        ...     text: str
        >>> class Close(Rubric):
        ...     '''1 for the number itself, less the farther away.'''
        ...     def forward(self, action, observation):
        ...         return 1 / (1 + abs(action.number - 7))
        >>> class Guessing(Environment[Guess, Hint, State]):
        ...     '''Guess the number.'''
        ...     def __init__(self):
        ...         super().__init__(rubric=Close())
        ...         self.episode = State()
        ...     def reset(self, seed=None, episode_id=None, **kwargs):
        ...         self._reset_rubric()
        ...         self.episode = State(episode_id=episode_id)
        ...         return Hint(text="Which number?")
        ...     def step(self, action, timeout_s=None, **kwargs):
        ...         self.episode.step_count += 1
        ...         text = "lower" if action.number > 7 else "no lower"
        ...         return self.score(action, Hint(text=text, done=action.number == 7))
        ...     @property
        ...     def state(self):
        ...         return self.episode
        >>> with Guessing() as environment:
        ...     first = environment.reset()
        ...     observation = environment.step(Guess(number=8))
        >>> observation.text, observation.reward
        ('lower', 0.5)

    Args:
        rubric: What computes the reward.
        transform: Called with each observation by `_apply_transform`, where the author uses that.
        mcp: The services that its code calls by name.

    Attributes:
        rubric: What computes the reward.
        action_type: The class of actions, from the class's parameters.
        observation_type: The class of observations.
        state_type: The class of states.
        after_done: What a step after the episode's end does, in words, for environments that
            allow one; the others raise `EpisodeError`.

    Raises:
        EnvDefinitionError: When it is made: it has no rubric, or lacks a method that it must have.
    """

    action_type: ClassVar[type[Action]] = Action
    observation_type: ClassVar[type[Observation]] = Observation
    state_type: ClassVar[type[State]] = State
    after_done: ClassVar[str] = ""

    rubric: Any = None
    transform: Callable[[Any], Any] | None = None

    _live: LiveReward | None = None  # what its reward is configured with, where that can change
    _is_resetting: bool = False

    def __init__(
        self,
        rubric: Rubric | None = None,
        *,
        transform: Callable[[Any], Any] | None = None,
        mcp: MCPClient | None = None,
    ) -> None:
        self.rubric = rubric
        self.transform = transform
        if mcp is not None:
            self.__dict__["_mcp"] = mcp

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_types(cls, Environment)
        for name in ("reset", "reset_async"):
            written = getattr(cls, name)  # by itself, or by what it is mixed with
            if _writes(cls, name) and begins_episode(written) is not written:
                setattr(cls, name, begins_episode(written))
        for name in ("reset", "step", "close"):
            if inspect.iscoroutinefunction(getattr(cls, name)):
                raise EnvDefinitionError(
                    f"{cls.__name__}.{name} is async; "
                    + ("close is a plain function" if name == "close" else f"call it {name}_async")
                )

    # What an author writes ---------------------------------------------------------------------

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ObsT:
        """Begin an episode.

        Args:
            seed: Makes the episode repeatable; at least 0.
            episode_id: What to call the episode; the environment makes one up otherwise.
            **kwargs: What else the environment takes, such as a task's number.

        Returns:
            The first observation, without a reward.
        """
        return run(self.reset_async(**_given(kwargs, seed=seed, episode_id=episode_id)))

    def step(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Do what the agent decided, and tell what came of it.

        Args:
            action: What the agent does.
            timeout_s: How long the caller will wait, in seconds.
            **kwargs: What else the environment takes.

        Returns:
            An observation with its reward.

        Raises:
            EpisodeError: No episode is running, for environments that say so.
        """
        return run(self.step_async(action, **_given(kwargs, timeout_s=timeout_s)))

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ObsT:
        """Like `reset`, without blocking the event loop."""
        given = _given(kwargs, seed=seed, episode_id=episode_id)
        return await in_thread(None, lambda: self.reset(**given))

    async def step_async(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Like `step`, without blocking the event loop."""
        given = _given(kwargs, timeout_s=timeout_s)
        return await in_thread(None, lambda: self.step(action, **given))

    @property
    @abstractmethod
    def state(self) -> StateT:
        """Where the episode stands."""

    def close(self) -> None:
        """Let go of what the environment holds. Called once; by default there is nothing."""

    def get_metadata(self) -> EnvironmentMetadata:
        """What the environment says about itself; by default its name and its docstring."""
        doc = inspect.getdoc(type(self)) if type(self).__doc__ else None
        name = type(self).__name__
        about = (doc or f"The environment {name}.").partition("\n")[0]
        return EnvironmentMetadata(name=name, description=about)

    # What an author uses -----------------------------------------------------------------------

    def score(self, action: ActT, observation: ObsT) -> ObsT:
        """Run the rubric and write the reward into the observation.

        It works whatever is in the tree. ``metadata["reward_components"]`` holds every rubric's
        score by dotted name. Where the rubric fails, the reward is None and
        ``metadata["reward_error"]`` says what failed. An observation that ends its episode also
        has ``metadata["step_rewards"]``, one a step, where the tree holds a trajectory rubric.

        Args:
            action: What the agent did.
            observation: What came of it; its `done` is set already.

        Returns:
            That very observation.
        """
        traits = self.rubric._look()
        if traits.is_async or traits.waits:  # those that wait do so at the same time
            return run(score_step_async(self.rubric, action, observation))
        return score_step(self.rubric, action, observation)

    async def score_async(self, action: ActT, observation: ObsT) -> ObsT:
        """Like `score`, without blocking the event loop."""
        return await score_step_async(self.rubric, action, observation)

    def _apply_rubric(self, action: ActT, observation: ObsT) -> float:
        """The reward of a step; what the rubric raises is raised."""
        if self.rubric._look().is_async:
            return run(self._apply_rubric_async(action, observation))
        reward: float = self.rubric(action, observation)
        return reward

    async def _apply_rubric_async(self, action: ActT, observation: ObsT) -> float:
        """Like `_apply_rubric`, without blocking the event loop."""
        reward: float = await self.rubric.evaluate(action, observation)
        return reward

    def _reset_rubric(self) -> None:
        """Have the rubric forget the episode. To be called by `reset`."""
        self.rubric.reset()

    async def _reset_rubric_async(self) -> None:
        """Have the rubric forget the episode. To be called by `reset_async`."""
        self.rubric.reset()

    def _apply_transform(self, observation: ObsT) -> ObsT:
        """What the transform makes of an observation; without one, the observation itself."""
        return self.transform(observation) if self.transform is not None else observation

    @property
    def mcp(self) -> MCPClient:
        """The services that are configured, by name: ``self.mcp.call_tool("judge", code=…)``.

        Raises:
            ServiceError: There are none.
        """
        found = self.__dict__.get("_mcp") or given_services()
        if found is None:
            raise ServiceError(
                f"{type(self).__name__} has no services: make it with mcp=MCPClient(…), or serve "
                "it with a reward file that has mcp_services"
            )
        return found

    # What its reward is configured with --------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """What the reward is configured with, in the shape of a reward file.

        Returns:
            ``per_turn``, ``episode_end``, ``tree``, ``fingerprint``, ``version`` and more; see
            `LiveReward.told`.
        """
        return configuration_of(self).told()

    def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None, by: str = ""
    ) -> dict[str, Any]:
        """Change weights, schedules and tunable fields, from the next `reset` on.

        Args:
            change: What to change, by name; see `LiveReward.update`.
            version: The version that the change was made to; where it isn't the present one,
                nothing is changed.
            by: Who asks, for the log.

        Returns:
            ``{"status": "ok", "config": …, "change": …}``.

        Raises:
            RewardConfigError: Something in it can't be done, so that nothing was.
            ConfigConflictError: Somebody else has changed it since.
        """
        return configuration_of(self).update(change, version=version, by=by)

    # As a context ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _writes(cls: type, name: str) -> bool:
    """Whether an environment class has a method of its own by that name."""
    return getattr(cls, name) is not getattr(Environment, name)


def _given(kwargs: dict[str, Any], **named: Any) -> dict[str, Any]:
    """The arguments that somebody gave: a method need not take those that nobody does."""
    return {**{name: value for name, value in named.items() if value is not None}, **kwargs}
