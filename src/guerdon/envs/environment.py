"""`Environment`: the class that environment authors subclass."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from abc import ABCMeta, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import isfinite
from types import FrameType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ValidationError

from guerdon._background import run
from guerdon._validation import shown, summarize
from guerdon.errors import (
    EnvDefinitionError,
    InvalidActionError,
    InvalidObservationError,
    RewardConfigError,
    ServiceError,
)
from guerdon.rubrics.calling import evaluate_step, evaluate_step_async
from guerdon.rubrics.evaluation import in_thread
from guerdon.rubrics.failure import describe_failure, describe_handled
from guerdon.rubrics.judge.connecting import connect_services
from guerdon.rubrics.recording import Evaluation, Recorder
from guerdon.rubrics.rubric import Rubric, reset_async
from guerdon.types.action import Action
from guerdon.types.agents import AGENT, AGENT_REWARDS, check_agent_rewards
from guerdon.types.observation import Observation, set_score
from guerdon.types.state import EnvironmentMetadata, State

if TYPE_CHECKING:
    from guerdon.config.pipeline import RewardPipeline
    from guerdon.config.runtime import Applied, RewardRuntime
    from guerdon.services.client import MCPClient

__all__ = ["Environment"]

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)

# The keys of an observation's metadata.
COMPONENTS = "reward_components"
ERROR = "reward_error"
FAILED = "reward_failed"
HANDLED = "reward_dealt_with"
FINGERPRINT = "reward_fingerprint"
WEIGHTS = "reward_weights"
TREE = "reward_tree"
STEP_REWARDS = "step_rewards"
STEP_REWARDS_ERROR = "step_rewards_error"

# Marks a reset that applies the configuration, and a step that reads its action.
WRAPPED = "_guerdon_wrapped"

# The pipeline that supplies the reward of the environments that are being created.
current_pipeline: ContextVar[RewardPipeline | None] = ContextVar("guerdon_pipeline", default=None)


# The types that the caller has passed for them.
current_types: ContextVar[Mapping[str, type] | None] = ContextVar("guerdon_types", default=None)

# Their services.
current_services: ContextVar[MCPClient | None] = ContextVar("guerdon_services", default=None)


class _EnvironmentMeta(ABCMeta):
    """Checks an environment once it is created: an author's ``__init__`` sets the rubric."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        missing = [
            f"{name} or {name}_async"
            for name in ("reset", "step")
            if not (_overrides(cls, name) or _overrides(cls, f"{name}_async"))
        ]
        missing += sorted(cls.__abstractmethods__)
        if missing:
            raise EnvDefinitionError(f"{cls.__name__} must define {', '.join(missing)}")
        if not (_declares(cls, "action_type") or current_types.get()):
            kind = cast("type[Environment[Any, Any, Any]]", cls)
            problem = _set_annotated_types(kind)  # a name may have been defined since
            if not _declares(cls, "action_type"):
                raise EnvDefinitionError(
                    f"{cls.__name__} must declare the type of its actions: annotate the action of "
                    "step with a class derived from Action, derive it from "
                    "Environment[MyAction, MyObservation, MyState], or pass the types to "
                    f"create_app{problem}"
                )
        environment = super().__call__(*args, **kwargs)
        environment.__dict__.setdefault("_mcp", current_services.get())
        rubric = environment.rubric
        if rubric is None and current_pipeline.get() is not None:
            return environment  # the pipeline supplies it
        if not isinstance(rubric, Rubric):
            found = "no rubric" if rubric is None else f"{rubric!r:.60} as its rubric"
            raise EnvDefinitionError(
                f"{cls.__name__} has {found}; set one in __init__: "
                "super().__init__(rubric=…), or self.rubric = …"
            )
        if current_pipeline.get() is None:  # else another rubric takes its place
            connect_services(rubric, environment.__dict__["_mcp"])
        return environment


class Environment(Generic[ActT, ObsT, StateT], metaclass=_EnvironmentMeta):
    """An environment in which an agent acts, one episode at a time.

    Subclasses define `reset`, `step` and `state`; an environment that waits for something defines
    `reset_async` and `step_async` instead, or in addition. A rubric is required.

    Example:
        >>> from guerdon import Action, Environment, Observation, Rubric, State
        >>> class Guess(Action):
        ...     number: int
        >>> class Hint(Observation):
        ...     text: str
        >>> class Close(Rubric):
        ...     '''1 for the right number, less the farther the guess is from it.'''
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
        rubric: Computes the reward.
        transform: Called with each observation by `_apply_transform`, if the author uses that.
        mcp: The services that its code calls by name.

    Attributes:
        rubric: Computes the reward.
        action_type: The class of actions: of the class's parameters, else of the annotations of
            `step`.
        observation_type: The class of observations, likewise; by default `Observation`.
        state_type: The class of states.
        agents: The names of the agents, in an environment with several of them. Each observation
            names the agent that acts next in ``metadata["agent"]``. If they are the names of
            children of the rubric, ``metadata["agent_rewards"]`` contains their scores; otherwise
            the author sets it.
        own_thread: Whether all calls of an environment, from its constructor to `close`, run in one
            thread that no other environment has: for objects that belong to the thread that made
            them, such as those of sqlite3, Playwright and OpenGL. Async methods run in an event
            loop of that thread.
        after_done: Documents what a step after the episode's end does, in environments that allow
            one; the others raise `EpisodeError`.
        public_tasks: The tasks that clients of a server may read, so without their answers: a
            sequence of what JSON can represent, or one for each split by name. A sequence alone is
            the split ``train``. By OpenEnv's convention a client begins a task with
            ``reset(split="train", index=3)``, so that `reset` should accept both.

    Raises:
        EnvDefinitionError: When it is created, if it has no rubric, lacks a required method, or
            declares no type of its actions.
    """

    action_type: ClassVar[type[Action]] = Action
    observation_type: ClassVar[type[Observation]] = Observation
    state_type: ClassVar[type[State]] = State
    after_done: ClassVar[str] = ""
    own_thread: bool = False

    agents: Sequence[str] = ()
    public_tasks: Mapping[str, Sequence[Any]] | Sequence[Any] = ()
    rubric: Any = None
    transform: Callable[[Any], Any] | None = None

    _runtime: RewardRuntime | None = None  # the configuration of its reward, if it can change
    _own_changes: Mapping[str, Any] = {}  # of its own configuration, as far as it has them
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
            self.mcp = mcp

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_types(cls, Environment)
        _set_annotated_types(cls)
        for name in ("reset", "reset_async"):
            reset = getattr(cls, name)  # the class's own, or that of a mixin
            if _overrides(cls, name) and not getattr(reset, WRAPPED, False):
                setattr(cls, name, _applying(reset))
        for name in ("step", "step_async"):
            step = getattr(cls, name)
            if _overrides(cls, name) and not getattr(step, WRAPPED, False):
                setattr(cls, name, _reading(step))
        for name in ("reset", "step", "close"):
            if inspect.iscoroutinefunction(getattr(cls, name)):
                raise EnvDefinitionError(
                    f"{cls.__name__}.{name} is async; "
                    + ("close is a plain function" if name == "close" else f"call it {name}_async")
                )

    # For authors to override -------------------------------------------------------------------

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> ObsT:
        """Begin an episode.

        Args:
            seed: Makes the episode repeatable; at least 0.
            episode_id: The episode's name; by default the environment chooses one.
            **kwargs: Further arguments of the environment, such as a task's number.

        Returns:
            The first observation, without a reward.
        """
        return run(self.reset_async(**_given(kwargs, seed=seed, episode_id=episode_id)))

    def step(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Take the agent's action.

        Args:
            action: The action.
            timeout_s: How long the caller will wait, in seconds.
            **kwargs: Further arguments of the environment.

        Returns:
            An observation with its reward.

        Raises:
            EpisodeError: No episode is running, in environments that refuse such a step.
        """
        return run(self.step_async(action, **_given(kwargs, timeout_s=timeout_s)))

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ObsT:
        """Like `reset`, without blocking the event loop."""
        given = _given(kwargs, seed=seed, episode_id=episode_id)
        return await self._beside_loop(lambda: self.reset(**given))

    async def step_async(self, action: ActT, timeout_s: float | None = None, **kwargs: Any) -> ObsT:
        """Like `step`, without blocking the event loop."""
        given = _given(kwargs, timeout_s=timeout_s)
        return await self._beside_loop(lambda: self.step(action, **given))

    async def _beside_loop(self, call: Callable[[], ObsT]) -> ObsT:
        return call() if self.own_thread else await in_thread(None, call)

    @property
    @abstractmethod
    def state(self) -> StateT:
        """The state of the episode."""

    def close(self) -> None:
        """Release the environment's resources. Called once; by default it does nothing."""

    @functools.cached_property
    def environment_id(self) -> str:
        """The environment's name, which clients of its server have, too."""
        return self.get_metadata().name

    def _splits(self) -> dict[str, Sequence[Any]]:
        """Return the public tasks by split.

        Raises:
            EnvDefinitionError: They are something else.
        """
        tasks = self.public_tasks
        splits = dict(tasks) if isinstance(tasks, Mapping) else {"train": tasks} if tasks else {}
        for name, each in splits.items():
            is_sequence = hasattr(each, "__getitem__") and hasattr(each, "__len__")
            if not (isinstance(name, str) and is_sequence) or isinstance(each, (str, Mapping)):
                raise EnvDefinitionError(
                    f"{type(self).__name__}.public_tasks must be a sequence, or a dict of sequences"
                    f" by the name of the split, got {shown(tasks)}"
                )
        return splits

    def get_metadata(self) -> EnvironmentMetadata:
        """Return a description of the environment; by default its name and its docstring."""
        doc = inspect.getdoc(type(self)) if type(self).__doc__ else None
        name = type(self).__name__
        about = (doc or f"The environment {name}.").partition("\n")[0]
        return EnvironmentMetadata(name=name, description=about)

    # For authors to call -----------------------------------------------------------------------

    def score(self, action: ActT, observation: ObsT) -> ObsT:
        """Run the rubric and write the reward into the observation.

        It works with any tree, sync or async. ``metadata["reward_components"]`` contains the score
        of every rubric by dotted name. If the rubric fails, the reward is None and
        ``metadata["reward_error"]`` contains the error. An observation that ends its episode also
        has ``metadata["step_rewards"]``, one for each step, if the tree has a trajectory rubric.

        Args:
            action: The agent's action.
            observation: The step's observation; its `done` is already set.

        Returns:
            The same observation.
        """
        rubric = self.rubric
        traits = rubric._traits or rubric._find_traits()
        if traits.is_async or traits.waits:  # members that wait do so concurrently
            return run(self.score_async(action, observation))
        return _scored(self, evaluate_step(rubric, action, observation), observation)

    async def score_async(self, action: ActT, observation: ObsT) -> ObsT:
        """Like `score`, without blocking the event loop."""
        evaluation = await evaluate_step_async(self.rubric, action, observation)
        return _scored(self, evaluation, observation)

    def _apply_rubric(self, action: ActT, observation: ObsT) -> float:
        """Return the reward of a step; raises what the rubric raises."""
        if self.rubric._find_traits().is_async:
            return run(self._apply_rubric_async(action, observation))
        reward: float = self.rubric(action, observation)
        return reward

    async def _apply_rubric_async(self, action: ActT, observation: ObsT) -> float:
        """Like `_apply_rubric`, without blocking the event loop."""
        reward: float = await self.rubric.evaluate(action, observation)
        return reward

    def _reset_rubric(self) -> None:
        """Reset the rubric's episode state; to be called in `reset`."""
        self.rubric.reset()

    async def _reset_rubric_async(self) -> None:
        """Reset the rubric's episode state; to be called in `reset_async`."""
        await reset_async(self.rubric)

    def _apply_transform(self, observation: ObsT) -> ObsT:
        """Return the transformed observation; without a transform, the observation itself."""
        return self.transform(observation) if self.transform is not None else observation

    @property
    def mcp(self) -> MCPClient:
        """The services by name, as in ``self.mcp.call_tool("judge", code=…)``.

        An assigned client takes the place of the services of the reward file.

        Raises:
            ServiceError: No services are configured.
        """
        found = self.__dict__.get("_mcp") or current_services.get()
        if found is None:
            raise ServiceError(
                f"{type(self).__name__} has no services: set self.mcp = MCPClient(…) in __init__, "
                "or serve it with --services, or a reward file that has mcp_services"
            )
        return found

    @mcp.setter
    def mcp(self, services: MCPClient) -> None:
        self.__dict__["_mcp"] = services

    # The configuration of its reward -----------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the reward, in the shape of a reward file.

        An environment that overrides this, to return a dict, and `update_config` has a
        configuration of its own: the server's ``/config`` includes the keys that aren't the
        reward's, and calls `update_config` of each environment with those that were changed, at
        its next reset.

        Returns:
            ``per_turn``, ``episode_end``, ``tree``, ``fingerprint``, ``version`` and more; see
            `RewardRuntime.to_dict`.
        """
        return self._configuration().to_dict()

    def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None, by: str = ""
    ) -> dict[str, Any]:
        """Change weights, schedules and tunable fields, from the next `reset` on.

        Args:
            change: What to change, by name; see `RewardRuntime.update`.
            version: The version that the change is based on; if it isn't the present one, nothing
                is changed.
            by: The author of the change, for the log.

        Returns:
            ``{"status": "ok", "config": …, "change": …}``.

        Raises:
            RewardConfigError: A part of the change is invalid; then nothing was changed.
            ConfigConflictError: The configuration has another version.
        """
        return self._configuration().update(change, version=version, by=by)

    def _configuration(self) -> RewardRuntime:
        """The configuration of the reward, created on first use."""
        if self._runtime is None:
            from guerdon.config.runtime import RewardRuntime

            try:
                prototype = copy.deepcopy(self.rubric)
            except Exception as error:
                raise RewardConfigError(
                    f"the rubric of {type(self).__name__} can't be copied ({error}), so that no "
                    "change can be tried before it is made"
                ) from error
            # Concurrent threads get the same one.
            self.__dict__.setdefault("_runtime", RewardRuntime(prototype))
        return cast("RewardRuntime", self._runtime)

    def _apply_configuration(self, episode: int | None = None) -> Applied | None:
        """Apply the configuration of an episode, by default of one that begins."""
        rubric = self.rubric
        if not isinstance(rubric, Rubric):
            return None
        if self._runtime is not None:
            configuration = self._runtime.begin(episode)
            self._apply_own(configuration.own)
            return configuration.apply(rubric, self._runtime.observe)
        rubric.__dict__["_scored_by"] = None  # the fingerprint is computed again when needed
        return None

    def _own_config(self) -> dict[str, Any]:
        """What an author's `get_config` returns beside the configuration of the reward."""
        if not (_overrides(type(self), "get_config") and _overrides(type(self), "update_config")):
            return {}
        from guerdon.config.patch import Change

        config: Any = self.get_config()
        if not isinstance(config, Mapping):  # methods of that name with another meaning
            return {}
        return {key: value for key, value in config.items() if key not in Change.model_fields}

    def _apply_own(self, own: Mapping[str, Any]) -> None:
        """Make the changes of the author's own configuration that this environment doesn't have."""
        had = self._own_changes
        changed = {key: value for key, value in own.items() if key not in had or had[key] != value}
        if changed:
            self.update_config(copy.deepcopy(changed))
            self._own_changes = {**had, **changed}

    # As a context ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _overrides(cls: type, name: str) -> bool:
    """Whether an environment class overrides a method."""
    return getattr(cls, name) is not getattr(Environment, name)


def _given(kwargs: dict[str, Any], **named: Any) -> dict[str, Any]:
    """The arguments that the caller passed: a method need not accept the others."""
    return {**{name: value for name, value in named.items() if value is not None}, **kwargs}


# The configuration of an episode ---------------------------------------------------------------


def _applying(reset: Any) -> Any:
    """Return a reset that applies the configuration of the episode before the author's code."""

    @functools.wraps(reset)
    async def reset_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_resetting:  # a reset that calls its parent's
            return await reset(self, *args, **kwargs)
        if self._runtime is None:
            applied = self._apply_configuration()
        else:  # a rubric may be slow to configure
            applied = await in_thread(None, self._apply_configuration)
        with _resetting(self, applied):
            return await reset(self, *args, **kwargs)

    @functools.wraps(reset)
    def reset_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_resetting:
            return reset(self, *args, **kwargs)
        with _resetting(self, self._apply_configuration()):
            return reset(self, *args, **kwargs)

    wrapped = reset_async if inspect.iscoroutinefunction(reset) else reset_sync
    setattr(wrapped, WRAPPED, True)
    return wrapped


@contextmanager
def _resetting(environment: Environment[Any, Any, Any], applied: Applied | None) -> Iterator[None]:
    rubric = environment.rubric
    environment._is_resetting = True
    try:
        yield
        runtime = environment._runtime
        if environment.rubric is not rubric and runtime is not None:  # a new one for each episode
            episode = applied.episode if applied is not None else None
            runtime.begin(episode).apply(environment.rubric, runtime.observe)
    except BaseException:
        if applied is not None:
            applied.undo()  # the previous episode continues
        raise
    finally:
        environment._is_resetting = False


# Actions -----------------------------------------------------------------------------------------


# Stands for an action that is passed by the name that the author has given it.
_BY_NAME: Any = object()


def _reading(step: Any) -> Any:
    """Return a step that reads its action, unless it is called by that of a subclass."""

    def read(self: Any, action: Any, name: str) -> Any:
        is_outer = action is not _BY_NAME and getattr(type(self), name) is wrapped
        return read_action(self.action_type, action) if is_outer else action

    @functools.wraps(step)
    async def step_async(self: Any, action: Any = _BY_NAME, *args: Any, **kwargs: Any) -> Any:
        given = () if action is _BY_NAME else (read(self, action, "step_async"), *args)
        return await step(self, *given, **kwargs)

    @functools.wraps(step)
    def step_any(self: Any, action: Any = _BY_NAME, *args: Any, **kwargs: Any) -> Any:
        if action.__class__ is not self.action_type:
            action = read(self, action, "step")
        if args or kwargs:
            return step(self, *(() if action is _BY_NAME else (action, *args)), **kwargs)
        return step(self, action)

    @functools.wraps(step)
    def step_fast(self: Any, action: Any) -> Any:
        if action.__class__ is not self.action_type:
            action = read(self, action, "step")
        return step(self, action)

    wrapped: Any = step_async if inspect.iscoroutinefunction(step) else step_any
    if wrapped is step_any and [*inspect.signature(step).parameters] == ["self", "action"]:
        wrapped = step_fast  # the most usual one, in half the time
    setattr(wrapped, WRAPPED, True)
    return wrapped


def unwrapped_step(environment: Environment[Any, Any, Any], name: str) -> Any:
    """Return the author's method of an environment, for a caller that reads the action itself."""
    method = getattr(environment, name)
    function: Any = getattr(method, "__func__", None)
    return MethodType(function.__wrapped__, environment) if hasattr(function, WRAPPED) else method


def read_action(action_type: Any, action: Any) -> Any:
    """Return an action of the environment's type: the action itself, or one made of a dict.

    One of another class of that name, such as that of a module that was loaded again, is read as
    its fields.

    Raises:
        InvalidActionError: It is of another type, or its fields are not valid.
    """
    if isinstance(action, action_type):
        return action
    kind, fields = type(action), action
    if isinstance(action, BaseModel) and kind.__qualname__ == action_type.__qualname__:
        fields = action.model_dump()
    if not isinstance(fields, Mapping):
        raise InvalidActionError(
            f"the action must be a {action_type.__name__} or a dict of its fields, got "
            f"{kind.__name__}: {shown(action)}"
        )
    try:
        return action_type.model_validate(fields)
    except ValidationError as error:
        raise InvalidActionError(
            f"the action is not a valid {action_type.__name__}: {summarize(error)}"
        ) from error


# The type parameters ---------------------------------------------------------------------------


def set_types(cls: type[Any], base: type[Any]) -> None:
    """Set a class's `action_type`, `observation_type` and `state_type` from its type parameters.

    Args:
        cls: A class that was just created, such as ``Maze(Environment[Move, Board, State])``.
        base: The generic class whose parameters are read.
    """
    names = ("action_type", "observation_type", "state_type")
    for name, given in zip(names, _type_arguments(cls, base), strict=False):
        if isinstance(given, type):
            setattr(cls, name, given)


def _type_arguments(cls: type[Any], base: type[Any]) -> tuple[Any, ...]:
    """A class's arguments for the parameters of a base; a TypeVar for those left open."""
    for each in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(each)
        if origin is base:
            return get_args(each)
        if isinstance(origin, type) and issubclass(origin, base):
            given = dict(zip(origin.__parameters__, get_args(each), strict=False))  # type: ignore[attr-defined]
            return tuple(given.get(inner, inner) for inner in _type_arguments(origin, base))
    return ()


def _set_annotated_types(cls: type[Environment[Any, Any, Any]]) -> str:
    """Set the types that a class and its parents don't declare from the annotations of `step`.

    Returns:
        What is wrong with the annotation of the action, as the end of an error.
    """
    step = cls.step if _overrides(cls, "step") else cls.step_async
    signature = inspect.signature(step)
    found = [each.annotation for each in signature.parameters.values()][1:2]
    annotations = (signature.return_annotation, *found)
    problem = ""
    for name, annotation in zip(("observation_type", "action_type"), annotations, strict=False):
        try:
            given = _resolved(step, annotation) if isinstance(annotation, str) else annotation
        except Exception as error:
            problem = f"{annotation!r} can't be resolved ({error}): define it before, or import it"
            continue
        fits = isinstance(given, type) and issubclass(given, getattr(Environment, name))
        if fits and not _declares(cls, name):
            setattr(cls, name, given)
        problem = f"{shown(given)} is no class derived from Action"
    is_annotated = found and found[0] is not inspect.Parameter.empty
    return f"; in the annotation, {problem}" if is_annotated else ""


def _resolved(step: Any, annotation: str) -> Any:
    """Return what an annotation means where `step` is defined, perhaps in a function."""
    names = inspect.unwrap(step).__globals__
    local: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is names:
            local.append(frame.f_locals)
        frame = frame.f_back
    return eval(annotation, names, ChainMap({}, *local))


def narrowed(cls: type, name: str, given: type) -> type:
    """Return the type of a name for which a caller has passed another than the class declares.

    Raises:
        EnvDefinitionError: They contradict each other.
    """
    declared: type = getattr(cls, name)
    if not _declares(cls, name) or issubclass(given, declared):
        return given
    if name == "action_type" or not issubclass(declared, given):
        raise EnvDefinitionError(
            f"`{name}` is {given.__name__}, but {cls.__name__} declares {declared.__name__}"
        )
    return declared  # what it returns is also of the type that was passed


def _declares(cls: type, name: str) -> bool:
    """Whether an environment class or one of its parents declares a type."""
    return next(kind for kind in cls.__mro__ if name in vars(kind)) is not Environment


# From an evaluation to the observation's metadata ----------------------------------------------


class StepRecorder(Recorder):
    """Records one step of an environment, and writes what its rubric did into the observation.

    Attributes:
        environment: The environment whose step it records.
    """

    environment: Environment[Any, Any, Any]

    def finish(self, observation: ObsT) -> ObsT:
        """Write the last evaluation into the observation that the step returned."""
        environment = self.environment
        rubric, agents = environment.rubric, environment.agents
        evaluation = self.last(rubric)
        if evaluation is None:
            pass
        elif evaluation.metadata is None:  # the author has called the rubric
            if observation.reward is not None:
                evaluation.error = None  # the author has handled it
            _write(observation, _details(rubric, evaluation, observation.done, agents))
        elif observation.metadata.get(COMPONENTS) is not evaluation.components:
            _write(observation, evaluation.metadata)  # it is another than the scored one
            if evaluation.error is not None:
                observation.reward = None
        if agents:
            _check_agents(agents, observation)
        return observation

    def failed(self, error: Exception) -> Observation:
        """Return the observation of a step that failed because its rubric did.

        Raises:
            Exception: The error, if it isn't the rubric's.
        """
        rubric = self.environment.rubric
        evaluation = self.last(rubric)
        if (
            evaluation is None
            or evaluation.metadata is not None
            or not isinstance(evaluation.observation, Observation)
            or not _is_caused_by(error, evaluation.error)
        ):
            raise error
        return _scored(self.environment, evaluation, evaluation.observation)


def _is_caused_by(error: Exception, failure: Exception | None) -> bool:
    """Whether an exception is the rubric's, perhaps wrapped as a reward was set to an awaitable."""
    if error is failure:
        return True
    if failure is None or not isinstance(error, ValidationError):
        return False
    return any(each.get("ctx", {}).get("error") is failure for each in error.errors())


def _scored(
    environment: Environment[Any, Any, Any], evaluation: Evaluation, observation: ObsT
) -> ObsT:
    """Write an evaluation and its reward into an observation."""
    rubric, agents = environment.rubric, environment.agents
    details = evaluation.metadata = _details(rubric, evaluation, observation.done, agents)
    set_score(observation, evaluation.value)
    _write(observation, details)
    return observation


def _details(
    rubric: Any, evaluation: Evaluation, is_done: bool, agents: Sequence[str]
) -> dict[str, Any]:
    """The metadata that report an evaluation."""
    fingerprint = rubric._scored_by
    if fingerprint is None:
        fingerprint = rubric.__dict__["_scored_by"] = _fingerprint(rubric)  # past __setattr__
    if rubric._watch is not None:
        rubric._watch(evaluation.components, is_done)
    details: dict[str, Any] = {COMPONENTS: evaluation.components, FINGERPRINT: fingerprint}
    if rubric._is_composer:
        # They may change: the reward is explained by them. One times its factor may overflow.
        weights = details[WEIGHTS] = rubric.effective_weights
        if not all(map(isfinite, weights.values())):
            details[WEIGHTS] = {
                key: each if isfinite(each) else None for key, each in weights.items()
            }
    if evaluation.tree is not None:
        details[TREE] = evaluation.tree.to_dict()
    if evaluation.error is not None:
        details[ERROR] = describe_failure(evaluation.error)
        details[FAILED] = evaluation.failed_path or ""
    elif evaluation.handled:
        details[HANDLED] = describe_handled(evaluation.handled)
    if agents and rubric._children.keys() >= set(agents):
        details[AGENT_REWARDS] = _agent_rewards(evaluation, agents)
    if is_done and rubric._find_traits().has_trajectory:
        details.update(_step_rewards(rubric))
    return details


def _agent_rewards(evaluation: Evaluation, agents: Sequence[str]) -> dict[str, float | None]:
    """The scores of the agents' rubrics; if the rubric failed, all are unknown."""
    if evaluation.error is not None:
        return dict.fromkeys(agents)
    scores = evaluation.components
    # A failure that the author has handled leaves no score; that isn't a mistake.
    return {each: scores.get(each) for each in agents if each in scores or evaluation.handled}


def _check_agents(agents: Sequence[str], observation: Observation) -> None:
    """Check what an observation says about the agents, whoever wrote it."""
    metadata = observation.metadata
    if AGENT_REWARDS not in metadata:
        raise InvalidObservationError(
            f"there is no `metadata[{AGENT_REWARDS!r}]`: name a child of the rubric after each of "
            f"the agents {list(agents)}, or set it in step"
        )
    check_agent_rewards(metadata[AGENT_REWARDS], agents, error=InvalidObservationError)
    if metadata.get(AGENT) not in agents and not observation.done:
        raise InvalidObservationError(
            f"`metadata[{AGENT!r}]` must name the agent that acts next, one of {list(agents)}, got "
            f"{metadata.get(AGENT)!r:.60}"
        )


def _step_rewards(rubric: Rubric) -> dict[str, Any]:
    try:
        rewards = rubric.compute_step_rewards()
    except Exception as error:
        return {STEP_REWARDS: None, STEP_REWARDS_ERROR: describe_failure(error)}
    return {STEP_REWARDS: rewards}


def _fingerprint(rubric: Rubric) -> str:
    try:
        return rubric.fingerprint()
    except Exception as error:  # the score is valid, though it can't be distinguished
        return f"unknown: {error}"


def _write(observation: Observation, details: dict[str, Any]) -> None:
    metadata = observation.metadata
    if metadata:  # of an observation that is returned again
        for key in (ERROR, FAILED, WEIGHTS, TREE, HANDLED, STEP_REWARDS, STEP_REWARDS_ERROR):
            metadata.pop(key, None)
    metadata.update(details)
