"""`EnvRunner`: calls one environment with time limits.

The server, the pool, the rollout worker and the checker all call environments through it. Sync
code runs in the threads of an `EnvThreads`, async code as tasks of the event loop. A call that
exceeds its time limit, or whose caller is cancelled, is abandoned: its late result is dropped, its
environment is closed once its code has ended, and the next reset makes a new environment.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Never
from weakref import WeakSet, WeakValueDictionary

import anyio

from guerdon._background import no_waiting, wait_for
from guerdon._logging import step_logger
from guerdon._validation import as_score, did_you_mean
from guerdon.envs.environment import (
    Environment,
    StepRecorder,
    read_action,
    unwrapped_step,
)
from guerdon.envs.tools import ToolEnvironment
from guerdon.errors import (
    EnvDefinitionError,
    EnvError,
    EnvTimeoutError,
    EpisodeError,
    InvalidActionError,
    InvalidArgumentError,
    InvalidObservationError,
)
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.rubric import Rubric
from guerdon.types.observation import Observation, agree_on_truncation, has_flag
from guerdon.types.state import State
from guerdon.types.tool_calls import CallToolAction, Tool, ToolOutcome

if TYPE_CHECKING:
    from guerdon.config.runtime import RewardRuntime

__all__ = ["reset_arguments"]

logger = step_logger("guerdon.envs")

# Seconds between two looks at the alarms: the precision of time limits.
TICK_S = 0.05
# Seconds by which an event loop that is late counts as blocked.
BLOCKED_S = 0.5
# Seconds after which an idle thread ends.
IDLE_S = 10.0
# Seconds that a call may wait for a free thread, at least.
QUEUE_S = 60.0
# Threads for the sync leaves of one environment's async tree.
LEAF_THREADS = 8

# What libraries say about an object that is used in another thread than the one that made it.
_OF_A_THREAD = re.compile(
    r"(same|different|another|other|wrong|owner|creating|calling|current) (OS )?thread\b"
    r"|\b(event )?loop\b.*\bthread|different (event )?loop|Sync API inside the asyncio loop"
    r"|not current (in|on) th|no (GL|OpenGL) context|current.* context",
    re.IGNORECASE,
)
OWN_THREAD = (
    "if its objects belong to the thread that made them, set `own_thread = True` in the class of "
    "the environment"
)


# Calling one environment ---------------------------------------------------------------------


class ResetArgumentError(InvalidArgumentError):
    """The reset of an environment doesn't accept an argument; no episode was begun."""


@dataclass(frozen=True, slots=True)
class Keywords:
    """The keyword arguments that a method accepts.

    Example:
        >>> def reset(seed=None, *, level=1): ...
        >>> Keywords.of(reset).accepted({"seed": 3, "level": 2, "color": "red"})
        {'seed': 3, 'level': 2}

    Attributes:
        names: Their names.
        accepts_any: Whether the method accepts any other, too.
        positional: Names that are passed by position, which no keyword may use.
    """

    names: frozenset[str]
    accepts_any: bool = False
    positional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, method: Callable[..., Any], positional: int = 0) -> Keywords:
        """Inspect a method whose first `positional` parameters are passed by position."""
        try:
            parameters = list(inspect.signature(method).parameters.values())
        except (TypeError, ValueError):  # compiled code without a signature
            return cls(frozenset())
        by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        return cls(
            frozenset(each.name for each in parameters[positional:] if each.kind in by_name),
            any(each.kind is each.VAR_KEYWORD for each in parameters),
            frozenset(each.name for each in parameters[:positional]),
        )

    def accepted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return those of some arguments that the method accepts."""
        return {name: value for name, value in arguments.items() if self.accepts(name)}

    def check(self, arguments: Iterable[str]) -> None:
        """Check the names of arguments of a reset.

        Raises:
            ResetArgumentError: The method doesn't accept one; a seed and the ID of the episode are
                left out instead.
        """
        known = {"seed", "episode_id", *self.names}
        unknown = sorted(name for name in arguments if not self.accepts(name) and name not in known)
        if unknown:
            raise ResetArgumentError(
                f"the environment's reset takes no {', '.join(map(repr, unknown))}; "
                f"{did_you_mean(unknown[0], known)}"
            )

    def accepts(self, name: str) -> bool:
        """Whether the method accepts a keyword."""
        return name in self.names or (self.accepts_any and name not in self.positional)


_keywords = functools.lru_cache(maxsize=512)(Keywords.of)


def _is_async(cls: type[Environment[Any, Any, Any]], name: str) -> bool:
    """Whether the author of an environment class wrote the async method of that name."""
    overridden = getattr(cls, f"{name}_async") is not getattr(Environment, f"{name}_async")
    return overridden or getattr(cls, name) is getattr(Environment, name)


def _reset_keywords(cls: type) -> Keywords:
    """The keyword arguments that the reset of an environment class accepts."""
    is_async = issubclass(cls, Environment) and _is_async(cls, "reset")
    return _keywords(getattr(cls, "reset_async" if is_async else "reset"), 1)


def reset_arguments(environment: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some arguments, such as the columns of a row, that `reset` accepts.

    A server does this with the arguments of a request.

    Example:
        >>> from guerdon.envs import reset_arguments
        >>> class Maze:
        ...     def reset(self, seed=None, *, level=1): ...
        ...     def step(self, action): ...
        >>> reset_arguments(Maze, {"level": 2, "prompt": "Find the exit."})
        {'level': 2}

    Args:
        environment: An environment or its class; guerdon's, or any other with a `reset`.
        arguments: Arguments by name. All are returned if `reset` accepts any keyword.
    """
    cls = environment if isinstance(environment, type) else type(environment)
    return _reset_keywords(cls).accepted(dict(arguments))


class EnvAdapter:
    """Calls one environment: passes the arguments that it accepts and checks what it returns.

    `reset` and `step` return an awaitable if the author wrote the async method.

    Args:
        environment: The environment. No other code may call it.

    Raises:
        EnvDefinitionError: It is not an `Environment`, or shares a trajectory rubric with another
            that is still open.

    Attributes:
        reset_is_async: Whether `reset` returns an awaitable.
        step_is_async: Whether `step` returns an awaitable.
        close_is_async: Whether `close` returns an awaitable.
        action_type: The class of actions.
        keeps_trees: Whether observations have the score of every rubric in their metadata.
        own_calls: The calls of its own thread, if it has one.
    """

    close_is_async = False
    keeps_trees = False
    own_calls: OwnCalls | None = None

    def __init__(self, environment: Environment[Any, Any, Any]) -> None:
        if not isinstance(environment, Environment):
            raise EnvDefinitionError(
                f"the factory must return an Environment with a rubric, got {environment!r:.60}"
            )
        self.environment = environment
        self._trajectories = _claim_trajectories(environment)
        self.action_type = environment.action_type
        self._limiter: anyio.CapacityLimiter | None = None
        self._returned: type[Observation] = Observation  # the class of the last observation
        cls = type(environment)
        self.reset_is_async, self.step_is_async = _is_async(cls, "reset"), _is_async(cls, "step")
        self._reset_takes = _reset_keywords(cls)
        self._step_takes = _keywords(cls.step_async if self.step_is_async else cls.step, 2)
        self._passes_timeout = self._step_takes.accepts("timeout_s")
        self._step = unwrapped_step(environment, "step_async" if self.step_is_async else "step")

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Any:
        """Begin an episode.

        Args:
            seed: Makes the episode repeatable.
            episode_id: The episode's name.
            extra: Further arguments.

        Raises:
            ResetArgumentError: The environment doesn't accept one of `extra`.
            InvalidObservationError: The environment returned no observation.
            Exception: What the environment raised.
        """
        if extra:
            self._reset_takes.check(extra)
        arguments = {**(extra or {}), "seed": seed, "episode_id": episode_id}
        arguments = self._reset_takes.accepted(arguments)
        if self.reset_is_async:
            return self._reset_async(arguments)
        return self._checked(self.environment.reset(**arguments), "reset")

    async def _reset_async(self, arguments: dict[str, Any]) -> Observation:
        with no_waiting("reset_async"):
            observation = await self.environment.reset_async(**arguments)
        return self._checked(observation, "reset_async")

    def step(
        self, action: Any, timeout_s: float | None = None, extra: Mapping[str, Any] | None = None
    ) -> Any:
        """Take a step.

        Args:
            action: The agent's action, a model or a dict.
            timeout_s: How long the caller will wait, in seconds.
            extra: Further arguments; the environment gets those that it accepts.

        Returns:
            An observation; if the rubric failed, one without a reward that contains the error.

        Raises:
            InvalidActionError: It is not an action of the environment's type.
            InvalidObservationError: The environment returned no observation.
            Exception: What the environment raised.
        """
        if action.__class__ is not self.action_type:
            action = read_action(self.action_type, action)
        arguments = {"timeout_s": timeout_s} if self._passes_timeout else {}
        if extra:
            arguments = {**self._step_takes.accepted(dict(extra)), **arguments}
        if self.step_is_async:
            return self._step_async(action, arguments)
        recorder = self._recorder()
        try:
            with recorder:
                observation = self._step(action, **arguments)
        except Exception as error:
            return recorder.failed(error)
        return recorder.finish(self._checked(observation, "step"))

    async def _step_async(self, action: Any, arguments: dict[str, Any]) -> Observation:
        recorder = self._recorder()
        try:
            with recorder, no_waiting("step_async"):
                observation = await self._step(action, **arguments)
        except Exception as error:
            return recorder.failed(error)
        return recorder.finish(self._checked(observation, "step_async"))

    def state(self) -> State:
        """Return the state of the episode.

        Raises:
            InvalidObservationError: The environment returned something else.
        """
        state = self.environment.state
        if not isinstance(state, State):
            raise InvalidObservationError(
                f"{self._name}.state must return a State, got {type(state).__name__}"
            )
        return state

    def list_tools(self) -> list[Tool]:
        """Return the tools that the agent may call now; none of other environments."""
        environment = self.environment
        return environment.list_tools() if isinstance(environment, ToolEnvironment) else []

    def call_tool(self, call: CallToolAction) -> Any:
        """Call a tool outside of a step, without a reward.

        Args:
            call: The call.

        Returns:
            The `ToolOutcome`.

        Raises:
            InvalidArgumentError: The environment is no `ToolEnvironment`.
            EnvError: The environment has failed.
        """
        environment = self.environment
        if not isinstance(environment, ToolEnvironment):
            raise InvalidArgumentError(f"{self._name} has no tools")
        return environment._call(call, 0)

    def close(self) -> Any:
        """Close the environment."""
        try:
            self.environment.close()
        finally:
            _release_trajectories(self.environment, self._trajectories)

    @property
    def _name(self) -> str:
        return type(self.environment).__name__

    def _checked(self, observation: Observation, method: str) -> Observation:
        kind = observation.__class__
        if kind is not self._returned and not isinstance(observation, Observation):
            raise InvalidObservationError(
                f"{self._name}.{method} must return an Observation, got {observation!r:.60} "
                f"({type(observation).__name__})"
            )
        self._returned = kind
        reward: Any = observation.reward
        if reward is not None and (reward.__class__ is not float or reward - reward != 0.0):
            observation.reward = self._finite(reward, method)
        if observation.metadata.__class__ is not dict or observation.done.__class__ is not bool:
            raise InvalidObservationError(
                f"{self._name}.{method} returned an observation whose metadata is not a dict, or "
                "whose done is not a bool"
            )
        if observation.done:
            agree_on_truncation(observation)
        elif observation.truncated is True and has_flag(observation):
            raise InvalidObservationError(
                f"{self._name}.{method} returned an observation that is truncated, but not done; "
                "set `done=True`, too: `truncated` says why the episode has ended"
            )
        return observation

    def _finite(self, reward: Any, method: str) -> float:
        number = as_score(reward)
        if number is not None:
            return number
        raise InvalidObservationError(
            f"the reward of {self._name}.{method} must be a finite float or None, got "
            f"{reward!r:.60}"
        )

    def _recorder(self) -> StepRecorder:
        rubric = self.environment.rubric
        if (rubric._traits or rubric._find_traits()).is_async and self._limiter is None:
            # If the author calls an async tree, its sync leaves run in threads.
            self._limiter = anyio.CapacityLimiter(LEAF_THREADS)
        recorder = StepRecorder(self._limiter, keeps_trees=self.keeps_trees)
        recorder.environment = self.environment
        if rubric._dispatches:
            recorder.root = rubric
        return recorder


# The open environment for which each trajectory rubric records, by the rubric's id: an author's
# rubrics may be equal, or not hashable. All servers and pools of one process share this.
_owners: WeakValueDictionary[int, Environment[Any, Any, Any]] = WeakValueDictionary()
_owners_lock = threading.Lock()


def _claim_trajectories(environment: Environment[Any, Any, Any]) -> list[Rubric]:
    """Reserve the trajectory rubrics of an environment for it, and return them."""
    rubric = environment.rubric
    if not isinstance(rubric, Rubric) or not rubric._find_traits().has_trajectory:
        return []
    nodes = [("", rubric), *rubric.named_rubrics()]
    mine = [(path, each) for path, each in nodes if each._is_trajectory]
    with _owners_lock:
        for path, each in mine:
            if _owners.get(id(each), environment) is not environment:
                what = f"the trajectory rubric {path!r}" if path else "the trajectory rubric"
                raise EnvDefinitionError(
                    f"{what} of {type(environment).__name__} already records for another "
                    "environment, and would mix their episodes; create one for each environment, "
                    "in __init__ or in the factory"
                )
        _owners.update((id(each), environment) for _, each in mine)
    return [each for _, each in mine]


def _release_trajectories(environment: Environment[Any, Any, Any], claimed: list[Rubric]) -> None:
    with _owners_lock:
        for rubric in claimed:
            if _owners.get(id(rubric)) is environment:
                del _owners[id(rubric)]


# Threads and tasks ---------------------------------------------------------------------------


class OwnCalls(SimpleQueue["EnvCall | None"]):
    """The calls of an environment that has a thread of its own; None ends the thread."""

    def __init__(self) -> None:
        super().__init__()
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None  # the one that runs in its event loop

    def completed(self, function: Callable[[], Any]) -> Any:
        """Call a function in the thread; what it awaits runs in an event loop of the thread."""
        result = function()
        if not _is_awaitable(result.__class__) or hasattr(result, "step"):
            return result
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(self._await(result))

    async def _await(self, awaitable: Any) -> Any:
        self._task = asyncio.current_task()
        try:
            return await awaitable
        finally:
            self._task = None

    def cancel(self) -> None:
        """Cancel, from another thread, what is awaited."""
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Close the event loop, at the end of the thread."""
        if self._runner is not None:
            self._runner.close()


@dataclass(eq=False)
class EnvCall:
    """One call of an environment's code, in a worker thread or as a task of the event loop.

    Attributes:
        function: What to call, without arguments; of a task, it returns an awaitable.
        what: What the call does, for error messages.
        finish: Called with the call in the event loop once it has ended or its time is over,
            unless it was abandoned; None after that.
        runner: Runs the environment; None of a call that cleans up.
        limit_s: Seconds that the call may take from its start.
        makes: Whether the result is an adapter, which is closed if the call is abandoned.
        is_step: Whether it is a step for which no task waits.
        own: The calls of the environment's own thread, which it joins; None if it has none.
        submitted_at: When it was submitted, on the monotonic clock.
        added_s: Seconds that it may take in addition.
        result: What the function returned; None once it was handed over.
        error: What it raised, or that its time is over.
        started_at: When it started; 0.0 before that.
        has_ended: Whether the event loop knows that it has ended.
        is_abandoned: Whether its result is dropped.
        closes: Closed when the call has ended, if it was abandoned.
        task: Its task, if it is one.
    """

    function: Callable[[], Any]
    what: str
    finish: Callable[[EnvCall], None] | None = None
    runner: EnvRunner | None = None
    limit_s: float = math.inf
    makes: bool = False
    is_step: bool = False
    own: OwnCalls | None = None
    submitted_at: float = field(default_factory=monotonic)
    # Those of the class, until they change: a step costs less so.
    added_s: float = field(default=0.0, init=False)
    result: Any = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)
    started_at: float = field(default=0.0, init=False)
    has_ended: bool = field(default=False, init=False)
    is_abandoned: bool = field(default=False, init=False)
    closes: Any = field(default=None, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def owner(self) -> str:
        """The name of the environment that it calls, for error messages."""
        return "" if self.runner is None else self.runner.owner

    def run(self) -> None:
        """Make the call in this thread, and record what it raises."""
        self.started_at = monotonic()
        try:
            if not self.is_abandoned:  # else it was abandoned before it started
                own, function = self.own, self.function
                self.result = function() if own is None else own.completed(function)
        except BaseException as error:  # sys.exit() too: it ends a call, not the thread
            self.error = error
        if self.is_abandoned:
            self.clean_up()

    def clean_up(self) -> None:
        """Close, in this thread, what an abandoned call has left."""
        closes, self.closes, self.makes = self._leftover(), None, False
        try:
            closed = closes.close() if closes is not None else None
            if inspect.isawaitable(closed):
                wait_for(closed)
        except BaseException as error:
            logger.error("%s", describe_failure(error, "closing an abandoned environment failed"))
        _end_thread(closes)

    async def clean_up_async(self, threads: EnvThreads) -> None:
        """Do the same in the event loop, if the environment's `close` is async."""
        if not getattr(self._leftover(), "close_is_async", False):
            await threads.clean_up(self)
            return
        try:
            await self._leftover().close()
        except Exception as error:
            logger.error("%s", describe_failure(error, "closing an abandoned environment failed"))

    def _leftover(self) -> Any:
        return self.result if self.makes else self.closes

    def deliver(self) -> None:
        """Hand over the result in the event loop."""
        self.has_ended = True
        self.end(self.error)

    def end(self, error: BaseException | None) -> None:
        """Call `finish`, with an error that ends no event loop."""
        if error is not None:
            self.error = failure_of(self.what, error)
            if self.runner is not None and self.own is None:
                self.error = _with_hint(self.error)
            if self.is_step and self.runner is not None:
                self.runner.step_failed(error)
        finish, self.finish = self.finish, None
        if finish is not None:
            finish(self)
            if not self.makes:
                self.result = None  # an idle environment keeps no observation in memory

    def late(self, now: float, blocked_s: float) -> EnvTimeoutError | None:
        """Return the error of a call whose time is over.

        Args:
            now: The time on the monotonic clock.
            blocked_s: Seconds for which the event loop just couldn't run. The call has that time
                in addition, up to its limit again: it may have been blocked, too.
        """
        started, waited = self.started_at, now - self.submitted_at
        self.added_s = min(self.added_s + blocked_s, self.limit_s)
        if started and now - started > self.limit_s + self.added_s:
            text = f"{self.what} took longer than {self.limit_s:g} s; its environment is abandoned"
            return EnvTimeoutError(text, seconds=self.limit_s)
        if not started and waited > max(QUEUE_S, 10 * self.limit_s):
            text = f"{self.what} got no thread for {waited:.0f} s: all environments are busy"
            return EnvTimeoutError(text, seconds=waited)
        return None


class EnvThreads:
    """Threads and tasks in which environments run, for one event loop.

    Threads share a queue and are started when they are needed; the event loop is woken once for
    all calls that have ended. A thread whose call was abandoned is replaced. It is created, used
    and closed in the event loop.

    Args:
        size: How many calls run in threads at the same time.
        max_stuck: How many threads may hang in abandoned calls before `check` refuses more.
        name: The threads' name.
        reuses: Whether a thread makes several calls.

    Attributes:
        alarms: Called every `TICK_S` with the time on the monotonic clock, and the seconds for
            which the event loop was blocked before: one timer for all costs less than one for each.
        loop: The event loop.
        threads: How many threads there are.
    """

    def __init__(
        self, size: int, *, max_stuck: int = 256, name: str = "guerdon-env", reuses: bool = True
    ) -> None:
        self.size = size
        self.max_stuck = max_stuck
        self.threads = 0
        self.alarms: set[Callable[[float, float], None]] = set()
        self.loop = asyncio.get_running_loop()
        self._name = name
        self._reuses = reuses
        # Events that end waiting threads: of those that made an environment, and of the last one.
        self._makers: list[threading.Event] = []
        self._last = threading.Event()
        self._own: WeakSet[OwnCalls] = WeakSet()
        self._queue: SimpleQueue[EnvCall | None] = SimpleQueue()
        self._ended: deque[EnvCall] = deque()
        self._limited: set[EnvCall] = set()  # those that run and have a time limit
        self._hanging: dict[EnvCall, None] = {}  # abandoned calls that still run, the oldest first
        self._outstanding = 0
        self._is_woken = False  # whether the loop knows that calls have ended
        self._is_closed = False
        self._ticker: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def stuck(self) -> int:
        """How many threads hang in abandoned calls."""
        return len(self._hanging)

    @property
    def has_tasks(self) -> bool:
        """Whether an async call runs."""
        return bool(self._tasks)

    def start(self, call: EnvCall, *, is_async: bool = False) -> None:
        """Start a call, in a thread or as a task; it ends with an error once its time is over."""
        if call.limit_s < math.inf:
            self._limited.add(call)
            self._set_ticker(call.submitted_at)
        if call.own is not None:
            call.own.put(call)
            return
        if is_async:
            _wrap_tasks(self.loop)
            coroutine = _EnvCoroutine(self._run_task(call), call.what)
            call.task = task = self.loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._outstanding += 1
        if self._is_closed or not self._reuses:  # its threads are ending
            has_thread = self._start_thread(call)
        else:
            self._recruit()
            has_thread = self.threads > len(self._hanging)
            if has_thread:
                self._queue.put(call)
        if not has_thread:
            call.error = EnvError(
                "can't start new thread for the environment; raise the limit on processes and "
                "threads (`ulimit -u`), or run fewer environments"
            )
            self._ended.append(call)
            self.loop.call_soon(self._collect)

    def abandon(self, call: EnvCall, closes: Any) -> bool:
        """Leave a call to itself, and drop its result.

        Args:
            call: A call that was started.
            closes: Its `close` is called when the call has ended, if its code was called.

        Returns:
            Whether the environment's code was called; if not, it will not be.
        """
        self._limited.discard(call)
        call.closes = closes
        call.is_abandoned = True
        if call.has_ended:
            self.clean_up(call)
        elif call.task is not None:
            call.task.cancel()
        elif call.started_at:
            if call.own is not None:
                call.own.cancel()
            self._hangs(call)
        else:
            call.closes, call.makes = None, False
            return False
        return True

    def clean_up(self, call: EnvCall) -> asyncio.Future[Any]:
        """Close in a thread what an abandoned call has left."""
        closed = self.loop.create_future()
        closing = EnvCall(call.clean_up, "close", partial(settle, closed), call.runner)
        closing.own = getattr(call._leftover(), "own_calls", None)
        self.start(closing)
        self._hangs(closing)  # perhaps, too: another thread takes its place
        return closed

    def _hangs(self, call: EnvCall) -> None:
        """Count a call whose thread is replaced; that of its own counts until it has ended."""
        self._hanging[call] = None
        if call.own is not None:
            self.threads += 1
            self._outstanding += 1
        self._recruit()

    def check(self) -> None:
        """Refuse more environments if too many threads hang.

        Raises:
            EnvTimeoutError: They do.
        """
        if len(self._hanging) > self.max_stuck:
            first = next(iter(self._hanging))
            raise EnvTimeoutError(
                f"{self.stuck} environments hang in their own code, more than {self.max_stuck}, "
                f"the first for {monotonic() - first.submitted_at:.0f} s in {first.what} of "
                f"{first.owner}; a thread can't be stopped: give that code a time limit of its "
                "own, and restart this process"
            )

    def watch(self, alarm: Callable[[float, float], None]) -> None:
        """Call a function regularly, until it is removed from `alarms`."""
        self.alarms.add(alarm)
        self._set_ticker(monotonic())

    def close(self) -> None:
        """End the threads, each when its call has ended."""
        self._is_closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for _ in range(self.threads):
            self._queue.put(None)
        for end in (*self._makers, self._last):
            end.set()
        for own in self._own:
            own.put(None)

    def _tick(self, last: float) -> None:
        self._ticker = None
        now = monotonic()
        late = now - last - TICK_S
        blocked_s = late if late > BLOCKED_S else 0.0
        for alarm in list(self.alarms):
            alarm(now, blocked_s)
        for call in list(self._limited):
            error = call.late(now, blocked_s)
            if error is not None and call.runner is not None:
                call.runner._abandon(call)
                call.end(error)
        self._set_ticker(now)

    def _set_ticker(self, now: float) -> None:
        if self._ticker is None and (self.alarms or self._limited):
            self._ticker = self.loop.call_later(TICK_S, self._tick, now)

    def _recruit(self) -> None:
        """Start the threads that are missing."""
        while self.threads < min(self._outstanding, self.size + len(self._hanging)):
            if not self._start_thread():
                return
            self.threads += 1

    def _start_thread(self, *only: EnvCall) -> bool:
        try:
            threading.Thread(target=self._work, args=only, name=self._name, daemon=True).start()
        except RuntimeError:  # a limit of the system is reached
            return False
        return True

    def _work(self, only: EnvCall | None = None) -> None:
        take = self._queue.get
        while True:
            try:
                # Before Python 3.13, `get` ignores its timeout if it expires while another thread
                # takes the call that woke this one: the thread stays, and takes a later call.
                call = only or take(timeout=IDLE_S)
            except Empty:
                self._call_soon(self._retire)
                return
            if call is None:
                return
            own = self._make_call(call)
            if own is not None:
                if only is None:
                    self._call_soon(self._retire)
                self._work_own(own)
                return
            if only is not None:
                if not self._reuses:
                    self._keep_thread(makes=call.makes)
                return
            del call

    def _make_call(self, call: EnvCall) -> OwnCalls | None:
        """Make a call; return the calls that are only for this thread from now on, if any."""
        own, makes = None, call.makes
        call.run()
        if makes and (own := getattr(call.result, "own_calls", None)) is not None:
            self._own.add(own)
        self._ended.append(call)
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._collect)
        return own

    def _keep_thread(self, *, makes: bool) -> None:
        """Keep this thread until the next has made its call; one that made something, to the end.

        The identity of a thread that has ended is used again, so that the next call would seem to
        run in the same one.
        """
        end = threading.Event()
        if makes:
            self._makers.append(end)
        else:
            last, self._last = self._last, end
            last.set()
        if not self._is_closed:
            end.wait()

    def _work_own(self, own: OwnCalls) -> None:
        """Make the calls of one environment, in the thread that made it."""
        while (call := own.get()) is not None:
            self._make_call(call)
            del call
        own.close()

    def _retire(self) -> None:
        """Count a thread that takes no more calls from the queue; some may have come since."""
        self.threads -= 1
        if not self._is_closed:
            self._recruit()

    def _call_soon(self, function: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            logger.debug("the event loop is closed, and no caller waits")

    def _collect(self) -> None:
        """Finish, in the event loop, the calls of threads that have ended."""
        self._is_woken = False
        while self._ended:
            call = self._ended.popleft()
            if call.own is None:
                self._outstanding -= 1
            if call in self._hanging:
                del self._hanging[call]
                if call.own is not None:
                    self.threads -= 1
                    self._outstanding -= 1
                elif not self._is_closed and self.threads > self.size + self.stuck:
                    self.threads -= 1
                    self._queue.put(None)
            if not call.is_abandoned:
                self.deliver(call)
            elif call.closes is not None or call.makes:
                self.clean_up(call)  # it ended just before it was abandoned

    def deliver(self, call: EnvCall) -> None:
        """Hand over the result of sync code; an awaitable that it returned goes on as a task."""
        if _is_awaitable(call.result.__class__) and not hasattr(call.result, "step"):
            awaitable, call.result = call.result, None
            call.function = lambda: awaitable
            self.start(call, is_async=True)
        else:
            self._limited.discard(call)
            call.deliver()

    async def _run_task(self, call: EnvCall) -> None:
        call.started_at = monotonic()
        _running.set(call.what)  # in this task, and in those that it starts
        try:
            call.result = await call.function()
        except BaseException as error:  # sys.exit() too: it ends a call, not the event loop
            call.error = error
        if not call.is_abandoned:
            self._limited.discard(call)
            call.deliver()
        else:
            await call.clean_up_async(self)


def settle(waiting: asyncio.Future[Any], call: EnvCall) -> None:
    """Set how a call has ended, unless the one who waits for it was cancelled."""
    if waiting.done():
        return
    if call.error is None:
        waiting.set_result(call.result)
    else:
        waiting.set_exception(call.error)


@functools.lru_cache(maxsize=512)
def _is_awaitable(kind: type) -> bool:
    return hasattr(kind, "__await__")


# The call of an environment for which this task runs, such as "step".
_running: ContextVar[str | None] = ContextVar("guerdon_running", default=None)


def _wrap_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Wrap the coroutines of the tasks that environments start in this loop."""
    factory: Any = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(_TaskFactory(factory or _new_task))


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


class _TaskFactory:
    """The event loop's task factory, which changes nothing for tasks of others."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        running = _running.get()
        if running is not None:
            coroutine = _EnvCoroutine(coroutine, running)
        return self._make(loop, coroutine, **options)


class _EnvCoroutine(Coroutine[Any, Any, Any]):
    """The coroutine of a task of an environment.

    Raises `EnvError` instead of KeyboardInterrupt and SystemExit: asyncio ends its loop if a task
    raises them, for `asyncio.run` and Ctrl-C.
    """

    def __init__(self, coroutine: Any, what: str) -> None:
        self._coroutine = coroutine
        self._what = what

    def send(self, value: Any) -> Any:
        return self._resume(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._resume(self._coroutine.throw, *error)

    def _resume(self, resume: Callable[..., Any], *value: Any) -> Any:
        try:
            return resume(*value)
        except (KeyboardInterrupt, SystemExit) as error:
            raise EnvError(_raised(self._what, error), exception=error) from error

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:  # cr_frame and others, for tracebacks and anyio
        return getattr(self._coroutine, name)


def _end_thread(adapter: Any) -> None:
    """End the thread of an environment that was closed, if it has one of its own."""
    own = getattr(adapter, "own_calls", None)
    if own is not None:
        own.put(None)


def _with_hint(error: BaseException) -> BaseException:
    """Return an error with the remedy, if it says that an object belongs to another thread."""
    seen: BaseException | None = error
    for _ in range(10):  # of a chain, which may be a circle
        if seen is None:
            break
        if _OF_A_THREAD.search(describe_failure(seen)):
            hinted = EnvError(f"{describe_failure(error)}; {OWN_THREAD}", exception=error)
            hinted.__cause__ = error
            return hinted
        seen = seen.__cause__ or seen.__context__
    return error


def failure_of(what: str, error: BaseException) -> Exception:
    """Return what a call raised, as an exception that ends no event loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return EnvError(_raised(what, error), exception=error)


def _raised(what: str, error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"{what} called sys.exit({error.code!r})"
    return f"{what} raised {error!r:.200}"


# One environment -----------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class EnvRunner:
    """Runs one environment at a time in an event loop, one call at a time.

    Example:
        >>> async def play(environment_class):
        ...     threads = EnvThreads(1)
        ...     runner = EnvRunner(environment_class, threads, timeout_s=5.0)
        ...     try:
        ...         await runner.reset(seed=3)
        ...         return await runner.step({"column": 2})
        ...     finally:
        ...         await runner.close(1.0)
        ...         threads.close()

    Args:
        factory: Returns an environment; called in a thread.
        threads: Where it runs.
        timeout_s: Seconds that each call may take.
        adapt: Returns the adapter of what the factory made, an object with the members of
            `EnvAdapter`, or an awaitable of it.
        replaces_failed: Whether an environment that raised is unusable until the next reset, which
            then makes a new one.
        configuration: Returns the configuration that scores the episodes, if it can change.
        name: Where it is used, such as ``slot 3``, for error messages.

    Attributes:
        adapter: That of the environment; None before it is made and after it was abandoned.
        owner: The environment and the name, once it is made.
        timeout_s: Seconds that each call may take.
    """

    factory: Callable[[], Any]
    threads: EnvThreads
    _: KW_ONLY
    timeout_s: float = 300.0
    adapt: Callable[[Any], Any] = EnvAdapter
    replaces_failed: bool = False
    configuration: Callable[[], RewardRuntime | None] = lambda: None
    name: str = ""
    adapter: Any = field(default=None, init=False)
    owner: str = field(default="", init=False)
    _keeps_trees: bool = field(default=False, init=False)
    _failure: str = field(default="", init=False)  # why the environment has to be reset first
    _call: EnvCall | None = field(default=None, init=False)  # the latest

    async def open(self, keeps_trees: bool = False) -> None:
        """Make the environment.

        Args:
            keeps_trees: Whether observations have the score of every rubric in their metadata.

        Raises:
            EnvTimeoutError: It took too long, or too many environments hang already.
            Exception: What the factory raised.
        """
        self.threads.check()
        self._keeps_trees |= keeps_trees
        self.owner = self.owner or self.name
        what = "making the environment"
        self.adapter = await self._run(self._make, what, self.timeout_s, makes=True)
        self.adapter.keeps_trees = self._keeps_trees
        kind = type(self.adapter.environment).__name__
        self.owner = f"{kind} in {self.name}" if self.name else kind

    def _make(self) -> Any:
        made = self.factory()
        try:
            adapter = self.adapt(made)
            if getattr(made, "own_thread", False) is True:
                adapter.own_calls = OwnCalls()
            return adapter
        except BaseException:
            close = getattr(made, "close", None)
            if callable(close) and not isinstance(made, type):
                close()
            raise

    async def configure(self) -> None:
        """Apply the configuration to a new environment that is stepped without a reset."""
        runtime = self.configuration()
        if runtime is not None:
            environment, episode = self.adapter.environment, runtime.progress.episode
            environment._runtime = runtime
            apply = partial(environment._apply_configuration, episode)
            await self.call(lambda adapter: apply(), "configuring the environment")

    async def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
        is_lenient: bool = False,
    ) -> Any:
        """Begin an episode, in a new environment if the last one was abandoned.

        Args:
            seed: Makes the episode repeatable.
            episode_id: The episode's name.
            extra: Further arguments of the environment's reset.
            is_lenient: Whether it gets only those that it accepts, instead of refusing others.

        Raises:
            EnvTimeoutError: It took too long; the environment is abandoned.
            Exception: What the environment raised.
        """
        if self._failure and self.replaces_failed:
            await self._close(self.timeout_s, log=True)  # abandoned if this reset is cancelled
        if self.adapter is None:
            await self.open()
        adapter = self.adapter
        if is_lenient and extra:
            extra = reset_arguments(adapter.environment, extra)
        configuration = self.configuration()
        if configuration is not None:
            adapter.environment._runtime = configuration
        self._failure = "the last reset failed; reset again"
        observation = await self._run(
            partial(adapter.reset, seed, episode_id, extra),
            "reset",
            self.timeout_s,
            is_async=adapter.reset_is_async,
        )
        self._failure = ""
        return observation

    async def step(
        self, action: Any, timeout_s: float | None = None, extra: Mapping[str, Any] | None = None
    ) -> Any:
        """Take a step.

        Args:
            action: The agent's action.
            timeout_s: Seconds that the step may take; not more than the runner's own.
            extra: Further arguments of the environment's step.

        Raises:
            EpisodeError: There is no environment, or its last reset failed.
            EnvTimeoutError: It took too long; the environment is abandoned.
            Exception: What the environment raised.
        """
        adapter = self.adapter
        if adapter is None or self._failure:
            self._refuse()
        limit = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        function = partial(adapter.step, action, timeout_s, extra)
        try:
            return await self._run(function, "step", limit, is_async=adapter.step_is_async)
        except Exception as error:
            self.step_failed(error)
            raise

    def start_step(self, action: Any, finish: Callable[[EnvCall], None]) -> None:
        """Start a step without the cost of a task that waits for it.

        Args:
            action: The agent's action.
            finish: Called with the call in the event loop once it has ended or its time is over;
                not if the environment is closed meanwhile.
        """
        adapter = self.adapter
        is_usable = adapter is not None and not self._failure
        function = partial(adapter.step, action) if is_usable else self._refuse
        call = EnvCall(function, "step", finish, self, self.timeout_s, is_step=True)
        if is_usable:
            call.own = adapter.own_calls
            self._call = call
            self.threads.start(call, is_async=adapter.step_is_async)
        else:
            call.run()
            call.deliver()

    def step_here(self, action: Any) -> Any:
        """Take a step of a sync environment in this thread, without the cost of an `EnvCall`.

        Args:
            action: The agent's action.

        Raises:
            EpisodeError: There is no environment, or its last reset failed.
            Exception: What the environment raised.
        """
        adapter = self.adapter
        if adapter is None or self._failure:
            self._refuse()
        try:
            return adapter.step(action)
        except BaseException as error:
            self.step_failed(error)
            raise failure_of("step", error) from None

    def step_failed(self, error: BaseException) -> None:
        """Mark the environment as unusable, if this error requires a new one."""
        # One that refuses an action, or a step after its episode's end, still works.
        if self.replaces_failed and not isinstance(error, (EpisodeError, InvalidActionError)):
            self._failure = "the last step failed; reset it to make a new environment"

    def abandon(self) -> None:
        """Abandon the step that was started, if it is running.

        Its environment is closed once it has ended.
        """
        call = self._call
        if call is not None and call.is_step and not call.has_ended:
            self._abandon(call)

    async def state(self) -> State:
        """Return the state of the episode.

        Raises:
            EpisodeError: There is no environment.
            Exception: What the environment raised.
        """
        state: State = await self.call(lambda adapter: adapter.state(), "state")
        return state

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the agent may call now; raise as `state` does."""
        tools: list[Tool] = await self.call(lambda adapter: adapter.list_tools(), "list_tools")
        return tools

    async def call_tool(self, call: CallToolAction) -> ToolOutcome:
        """Call a tool outside of a step, with the time limit of a step; raise as `step` does."""
        adapter = self.adapter
        if adapter is None or self._failure:
            self._refuse()
        function = partial(adapter.call_tool, call)
        outcome: ToolOutcome = await self._run(function, "call_tool", self.timeout_s)
        return outcome

    async def call(self, function: Callable[[Any], Any], what: str) -> Any:
        """Call a function with the adapter in a thread.

        Args:
            function: The function.
            what: What it does, for error messages.

        Raises:
            EpisodeError: There is no environment.
            EnvTimeoutError: It took too long; the environment is abandoned.
            Exception: What it raised.
        """
        adapter = self.adapter or self._refuse()
        return await self._run(partial(function, adapter), what, self.timeout_s)

    async def close(self, timeout_s: float, *, log: bool = True) -> Exception | None:
        """Close the environment, even if the caller is cancelled.

        A step that was started is abandoned. If an abandoned async call is still being cancelled,
        wait for its end.

        Args:
            timeout_s: Seconds that it may take; then the environment is left behind.
            log: Whether to log what closing raised.

        Returns:
            What closing raised.
        """
        closing = asyncio.ensure_future(self._close(timeout_s, log))
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait((closing,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return closing.result()

    async def _close(self, timeout_s: float, log: bool) -> Exception | None:
        call = self._call
        if call is not None:
            self.abandon()
            if call.task is not None and not call.task.done():
                await asyncio.wait((call.task,), timeout=timeout_s)
        adapter, self.adapter = self.adapter, None
        if adapter is None:
            return None
        own = adapter.own_calls
        try:
            await self._run(
                adapter.close, "close", timeout_s, is_async=adapter.close_is_async, own=own
            )
        except Exception as error:
            if log:
                name = type(adapter.environment).__name__
                logger.error("%s", describe_failure(error, f"closing {name} failed"))
            return error
        finally:
            _end_thread(adapter)
        return None

    def _refuse(self) -> Never:
        if self._failure and self.adapter is not None:
            raise EpisodeError(self._failure)
        raise EpisodeError(
            "there is no environment: it was never made, or exceeded a time limit; reset it to "
            "make a new one"
        )

    async def _run(
        self,
        function: Callable[[], Any],
        what: str,
        limit_s: float,
        *,
        is_async: bool = False,
        makes: bool = False,
        own: OwnCalls | None = None,
    ) -> Any:
        waiting = self.threads.loop.create_future()
        finish = partial(settle, waiting)
        self._call = call = EnvCall(function, what, finish, self, limit_s, makes)
        call.own = own if self.adapter is None else self.adapter.own_calls
        self.threads.start(call, is_async=is_async)
        try:
            return await waiting
        finally:
            if waiting.cancelled() or not waiting.done():
                self._abandon(call)

    def _abandon(self, call: EnvCall) -> None:
        if not call.is_abandoned and self.threads.abandon(call, self.adapter):
            self.adapter = None
