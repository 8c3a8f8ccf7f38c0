"""`Rubric`: the one class that authors subclass: a tree, its evaluation, hooks and resets."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from abc import ABCMeta, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

from guerdon._validation import as_finite
from guerdon.errors import AsyncRubricError, RubricDefinitionError, RubricError, RubricPathError
from guerdon.rubrics import evaluation, step_rewards
from guerdon.rubrics.calling import CONTAINER, LEAF, PLAIN, SLOW, call
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.pickling import PickledState, files_of, made_after
from guerdon.rubrics.recording import Recorder, current, of_step, score_of
from guerdon.rubrics.state import (
    configuring_names,
    fingerprint,
    first_values,
    is_evaluated,
    kept,
    load_state_dict,
    own_state,
)
from guerdon.types.score import Score

__all__ = ["HookHandle", "Rubric"]

# Called with the rubric, the action, the observation and, after `forward`, the score; may be async
# on an async rubric.
ForwardPreHook: TypeAlias = Callable[[Any, Any, Any], Any]
ForwardHook: TypeAlias = Callable[[Any, Any, Any, float], Any]

# What a change of the configuration, or of the tree, makes invalid.
_RECONFIGURED: dict[str, Any] = {"_scored_by": None, "_is_alike": None}
_CHANGED: dict[str, Any] = {**_RECONFIGURED, "_traits": None, "_mode": SLOW}


_PLAIN = (list, tuple, dict, set, frozenset, deque)

# What a rubric keeps in attributes of these names.
_OWN_NAMES = frozenset(
    ("_children", "_parents", "_traits", "_mode", "_pre_hooks", "_hooks", "_log")
)


class HookHandle:
    """Removes a hook; also a context manager that removes it at its end.

    Example:
        >>> from guerdon import Rubric
        >>> class Polite(Rubric):
        ...     '''The text says please.'''
        ...     def forward(self, action, observation):
        ...         return float("please" in action)
        >>> polite, seen = Polite(), []
        >>> with polite.register_forward_hook(lambda rubric, a, o, result: seen.append(result)):
        ...     polite("please", None)
        1.0
        >>> polite("now!", None), seen
        (0.0, [1.0])
    """

    _numbers = itertools.count()

    def __init__(self, rubric: Rubric, hooks: dict[int, Callable[..., Any]]) -> None:
        self._rubric = rubric
        self._hooks = hooks
        self._number = next(HookHandle._numbers)

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        self._hooks.pop(self._number, None)
        self._rubric._refresh()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class RubricMeta(ABCMeta):
    """Rejects a rubric without `forward`, and one whose ``__init__`` doesn't call its parent's."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create a rubric and check that it is complete."""
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            raise RubricDefinitionError(
                f"{cls.__name__} can't be instantiated: implement {' and '.join(missing)}"
            )
        rubric = super().__call__(*args, **kwargs)
        if "_children" not in rubric.__dict__:
            raise not_initialized(cls)
        _refuse_hidden_rubrics(rubric, rubric.__dict__)
        rubric.__dict__["_first"] = None
        rubric._changed()  # if it was evaluated, or described, in its own __init__
        return rubric

    def __setattr__(cls, name: str, value: Any) -> None:
        begun = vars(cls).get("_begun")  # None while the class is made
        if begun is not None and name not in begun and is_evaluated(cls):
            begun[name] = vars(cls).get(name, ...)
        super().__setattr__(name, value)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of ``__init__``, for `help` and editors."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def not_initialized(kind: type) -> RubricDefinitionError:
    """Return the error for a class whose ``__init__`` doesn't call ``super().__init__()``."""
    return RubricDefinitionError(f"{kind.__name__}.__init__ must call super().__init__() first")


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a rubric and everything below it.

    Attributes:
        is_async: The tree has an async member, so that calling it returns an awaitable.
        waits: The tree has a sync member with an async twin, ``forward_async``.
        has_trajectory: The tree has a trajectory rubric.
        stateful: The tree has a member with state that `reset` clears.
        paths: The dotted path of each descendant, by the descendant's `id`.
    """

    is_async: bool
    waits: bool
    has_trajectory: bool
    stateful: bool
    paths: dict[int, str]


# The resets that have run in the current pass: authors call super().reset(), child.reset(), both
# or neither.
_done: ContextVar[set[tuple[int, object]] | None] = ContextVar("guerdon_resets", default=None)


def _once_per_pass(reset: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make a `reset` run once per pass, and then reset the children."""

    @functools.wraps(reset)
    def once(self: Rubric) -> None:
        done = _done.get()
        if done is None:  # the outermost reset
            if "_first" in self.__dict__:  # else its own __init__ calls this
                self._find_traits()  # which keeps the configuration, before `reset` changes it
            token = _done.set(set())
            try:
                once(self)
            finally:
                _done.reset(token)
        elif (id(self), reset) not in done:
            done.add((id(self), reset))
            reset(self)
            if reset is not _reset_own_and_children:
                _reset_tree(self)

    return once


def _reset_own_and_children(self: Rubric) -> None:
    self._log.clear()
    self._reset_own()
    for child in list(self._children.values()):
        child.reset()


_reset_tree = _once_per_pass(_reset_own_and_children)


# The async resets that the current pass leaves to its caller to await.
_Resets: TypeAlias = "list[Callable[[], Coroutine[Any, Any, None]]]"
_awaited: ContextVar[_Resets | None] = ContextVar("guerdon_async_resets", default=None)


def _written_reset(cls: type) -> Callable[[Any], None] | None:
    """The reset of a class: its ``reset_async`` where it is awaited, or if there is no other.

    Raises:
        RubricDefinitionError: Its `reset` is async.
    """
    plain, twin = cls.__dict__.get("reset"), cls.__dict__.get("reset_async")
    if inspect.iscoroutinefunction(plain):
        raise RubricDefinitionError(f"{cls.__name__}.reset is async; call it reset_async")
    if twin is None:
        return plain

    @functools.wraps(plain or twin)
    def reset(self: Rubric) -> None:
        awaited = _awaited.get()
        if awaited is not None:
            awaited.append(functools.partial(twin, self))
        elif plain is not None:
            plain(self)
        else:
            from guerdon._background import run

            run(twin(self))

    return reset


async def reset_async(rubric: Rubric) -> None:
    """Reset a tree, and await the ``reset_async`` of the rubrics that have one."""
    awaited: _Resets = []
    token = _awaited.set(awaited)
    try:
        rubric.reset()
    finally:
        _awaited.reset(token)
    for each in awaited:
        await each()


class Rubric(metaclass=RubricMeta):
    """Computes a reward from an action and an observation.

    Implement ``__init__`` (with ``super().__init__()`` first) and `forward`, plain or async.
    Rubrics assigned as attributes become children, as in ``torch.nn.Module``. Calling the rubric
    evaluates it and returns a float; `score` returns the scores of the whole tree.

    Example:
        >>> from guerdon import Rubric
        >>> class Polite(Rubric):
        ...     '''The answer says please.'''
        ...     def forward(self, action, observation):
        ...         return 1.0 if "please" in action else 0.0
        >>> class Letter(Rubric):
        ...     '''A polite letter, the shorter the better.'''
        ...     def __init__(self, longest=100):
        ...         super().__init__()
        ...         self.longest = longest
        ...         self.polite = Polite()
        ...     def forward(self, action, observation):
        ...         return self.polite(action, observation) * (1 - len(action) / self.longest)
        >>> letter = Letter()
        >>> letter("please come", None)
        0.89
        >>> letter.score("please come", None).components()
        {'polite': 1.0}
        >>> letter
        Letter(longest=100)
          polite: Polite()

    A parent is a rubric whose `forward` calls its children. Its components, errors, step rewards
    and concurrency come from the same evaluator as those of the built-in containers. An attribute
    ``weights``, by the children's names or in their order, is reported in scores. A parent that
    awaits its children has an ``async def forward``.

    A rubric that keeps the state of an episode itself may override ``__call__`` instead; hooks,
    checks and recording work the same.

    A rubric that does I/O, such as a judge, may have two versions: `forward` blocks, and an
    ``async def forward_async(action, observation)`` is awaited by `evaluate` and the other async
    methods. Its tree is still sync: calling it returns a float.

    Attributes:
        last_score: The score of the latest call, for debugging; None before the first.
        score_range: The lowest and highest score, if the class declares it.
        reads: What the rubric needs besides the action, such as ``("ground_truth",)``.
        state_names: Further attributes (properties) that belong to `state_dict`.
        tunable: Attributes, or fields of its ``config``, that may be changed while training runs,
            as by ``POST /config``.
    """

    score_range: tuple[float, float] | None = None
    reads: tuple[str, ...] = ()
    state_names: ClassVar[tuple[str, ...]] = ()
    tunable: ClassVar[tuple[str, ...]] = ()

    last_score: float | None

    # Of the class itself; `Traits` combines them over the tree.
    _is_async: bool = False
    _waits: bool = False
    _is_trajectory: bool = False
    _is_stateful: bool = False
    _may_be_awaited: bool = False  # in an event loop, its score is awaitable though it is sync
    _is_container: bool = False  # its `forward` is the framework's own, see `adaptive`
    _is_composer: bool = False  # its weights may change from step to step, and explain the reward
    _runs_inline: bool = False  # its `forward` is that of `Container`
    _at_end: frozenset[str] = frozenset()  # children that are due only at the end of an episode
    _dispatches: bool = False  # children that it doesn't call do not see the step
    _overrides_step_rewards: bool = False
    _overrides_loading: bool = False
    _configures: frozenset[str] = frozenset()  # attributes that are declared as configuration
    _of_episodes: frozenset[str] = frozenset()  # attributes that were assigned in an evaluation
    _begun: ClassVar[dict[str, Any]]  # those of the class, with their values before
    _measured: ClassVar[tuple[str, ...]] = ()  # of the state: observed values, not configuration
    _written_calls: ClassVar[tuple[Callable[..., Any], ...]] = ()  # authors' __call__, in MRO order

    # The children are kept in a registry, in the order of their registration, and as attributes.
    _children: dict[str, Rubric]
    _parents: WeakValueDictionary[int, Rubric]  # by their `id`
    _traits: Traits | None
    _mode: int
    _pre_hooks: dict[int, ForwardPreHook]
    _hooks: dict[int, ForwardHook]
    _log: dict[int, Any]  # the outcome of each step of the episode, see `recording`

    # Set where an episode begins, on the root of a tree that has one.
    _scored_by: str | None = None  # the fingerprint of the configuration of the episode
    _is_alike: bool | None = None  # whether it equals the prototype of that; None: not known
    _watch: Callable[[Mapping[str, float], bool], None] | None = None  # gets the components

    def __init__(self) -> None:
        self.__dict__.update(
            **_CHANGED, _children={}, _parents=WeakValueDictionary(), _pre_hooks={}, _hooks={},
            _log={}, last_score=None,
        )  # fmt: skip

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            _refuse_hiding(cls, name, value)
        written = cls.__dict__.get("__call__")
        if written is not None:
            cls._written_calls = (written, *cls._written_calls)
            cls.__call__ = evaluation.evaluating(written)  # type: ignore[method-assign]
            if getattr(cls.forward, "__isabstractmethod__", False):
                cls.forward = evaluation.call_written  # type: ignore[method-assign]
        reset = _written_reset(cls)
        if reset is not None:
            cls.reset = _once_per_pass(reset)  # type: ignore[assignment, method-assign]
            cls._is_stateful = True
        written = cls.__dict__.get("compute_step_rewards")
        if written is not None and not hasattr(written, "__isabstractmethod__"):
            cls.compute_step_rewards = step_rewards.checked(written)  # type: ignore[assignment, method-assign]
        cls._configures = configuring_names(cls)
        cls._overrides_step_rewards = cls.compute_step_rewards is not Rubric.compute_step_rewards
        cls._overrides_loading = cls.load_state_dict is not Rubric.load_state_dict
        cls._is_async = any(map(is_async_callable, (*cls._written_calls, cls.forward)))
        twin = getattr(cls, "forward_async", None)
        cls._waits = is_async_callable(twin) and not (cls._is_async or cls._written_calls)
        adaptive = getattr(cls.forward, "_is_adaptive", False)
        cls._is_container = adaptive and not cls._written_calls
        cls._begun = {}

    @abstractmethod
    def forward(self, action: Any, observation: Any) -> Any:
        """Compute the score of one step; the one method that a subclass must implement.

        Args:
            action: The action of the agent.
            observation: The observation that it led to.

        Returns:
            A finite float, by convention in [0, 1] or [-1, 1]; a bool counts as 0 or 1.
        """

    __call__ = call

    # Evaluating ------------------------------------------------------------------------------

    async def evaluate(self, action: Any, observation: Any) -> float:
        """Evaluate the tree, sync or async, without blocking the event loop.

        Sync leaves run in worker threads; independent children of a container run concurrently,
        and one that fails cancels the others.

        Example:
            >>> import anyio
            >>> from guerdon import RegexMatch
            >>> anyio.run(RegexMatch("please").evaluate, "please come", None)
            1.0

        Args:
            action: The action of the agent.
            observation: The observation that it led to.

        Returns:
            A finite float.

        Raises:
            Exception: The exception of a `forward`, with the rubric's path added.
        """
        import anyio

        parent = current()
        limiter = (parent and parent.limiter) or anyio.CapacityLimiter(evaluation.THREADS)
        return await evaluation.run_async(self, parent, action, observation, limiter)

    async def evaluate_batch(
        self,
        pairs: Iterable[tuple[Any, Any]],
        max_workers: int = 32,
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Evaluate many pairs concurrently.

        For a tree with trajectory rubrics, they are the steps of one episode, in order.

        Example:
            >>> import anyio
            >>> from guerdon import RegexMatch
            >>> anyio.run(RegexMatch("please").evaluate_batch, [("please", None), ("now", None)])
            [1.0, 0.0]

        Args:
            pairs: Pairs of an action and an observation.
            max_workers: The number of pairs to evaluate at the same time, at least 1.
            return_exceptions: Return the exception of a pair in its place, instead of raising it.

        Returns:
            One finite float per pair, in the order of the pairs.

        Raises:
            InvalidArgumentError: `max_workers` is below 1, or an item is not a pair.
            Exception: The exception of the first pair to fail, with the pair's index as a note;
                the others are cancelled.
        """
        return await evaluation.evaluate_batch(self, pairs, max_workers, return_exceptions)

    def score(self, action: Any, observation: Any) -> Score:
        """Evaluate a sync tree and return the score of every rubric in it.

        An exception of a rubric is reported as a failure, not raised.

        Example:
            >>> from guerdon import RegexMatch, WeightedSum
            >>> score = WeightedSum([RegexMatch("please"), RegexMatch("!")], [1, -0.5]).score(
            ...     "please!", None)
            >>> score.value, score.components()
            (0.5, {'rubric_0': 1.0, 'rubric_1': 1.0})

        Args:
            action: The action of the agent.
            observation: The observation that it led to.

        Returns:
            The `Score` of this evaluation alone.

        Raises:
            AsyncRubricError: The tree has an async member; use ``await score_async()``.
        """
        if self._find_traits().is_async:
            raise AsyncRubricError(
                f"{type(self).__name__} has an async member: use `await rubric.score_async(…)`"
            )
        with Recorder(parent=of_step()) as recorder, contextlib.suppress(Exception):
            self(action, observation)
        return score_of(recorder.frames[-1])

    async def score_async(self, action: Any, observation: Any) -> Score:
        """Like `score`, for any tree, evaluated as by `evaluate`."""
        with Recorder(parent=of_step()) as recorder, contextlib.suppress(Exception):
            await self.evaluate(action, observation)
        return score_of(recorder.frames[-1])

    def explain(self, reason: str, *args: Any) -> None:
        """Add a reason to the score that `forward` is about to return, for `Score.reason`.

        Costs next to nothing if the evaluation isn't recorded.

        Args:
            reason: The reason, or a %-format for `args`.
            *args: The values for the format, which is applied only if the evaluation is recorded.
        """
        frame = current()
        if frame is not None and frame.rubric is self:
            frame.explain(reason % args if args else reason)

    def compute_step_rewards(self) -> list[float]:
        """Return one reward per environment step of the episode so far.

        Trajectory rubrics spread their final score over the steps. A `WeightedSum` returns the
        weighted sum of its children's step rewards, a `Sequential` those of its last child and 0.0
        at a step at which an earlier child scored 0, a
        `Gate` those of its child if the child's final score reaches the threshold and zeros
        otherwise, a `Guarded` those of its child with its substitute at a step that failed, a
        `RubricDict` at each step those of the child that was called. A rubric without trajectory
        rubrics returns its score at that step, 0.0 if it was not called.

        In an episode, calling a child returns a score that knows which child it belongs to. A
        hand-written parent that returns this score unchanged, at every step at which it calls a
        child that contains a trajectory rubric, returns that child's step rewards; any other
        returns its own scores. Override this method to credit the steps in another way.

        Returns:
            Finite floats, one per step, in the order of the steps.

        Raises:
            TrajectoryError: The whole tree has no trajectory rubric; a step failed, so that its
                reward isn't known; or several children of a `RubricDict` were called at a step.
        """
        return step_rewards.compute(self)

    def reset(self) -> None:
        """Clear the state of the episode in the whole tree. Override it to clear your own.

        An override needs no ``super().reset()``: each child is reset once in any case. Instead of
        it, or in addition, a class may have an ``async def reset_async(self)``: an environment's
        ``_reset_rubric_async`` awaits it, and `reset` waits for it if there is no other.
        """
        if self._log or self._find_traits().stateful:
            _reset_tree(self)

    # Hooks -----------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: ForwardPreHook) -> HookHandle:
        """Call ``hook(rubric, action, observation)`` before each evaluation.

        Its exceptions are raised to the caller.

        Returns:
            A handle that removes the hook.
        """
        return self._register("_pre_hooks", hook)

    def register_forward_hook(self, hook: ForwardHook) -> HookHandle:
        """Call ``hook(rubric, action, observation, result)`` after each evaluation.

        Its exceptions are logged and reported in `Score.hook_errors`; the score is kept.

        Returns:
            A handle that removes the hook.
        """
        return self._register("_hooks", hook)

    def _register(self, registry: str, hook: Any) -> HookHandle:
        if not callable(hook):
            raise RubricError(f"a hook must be a function, got {type(hook).__name__}")
        hooks = self.__dict__.get(registry)
        if hooks is None:
            raise not_initialized(type(self))
        handle = HookHandle(self, hooks)
        hooks[handle._number] = hook
        self._refresh()
        return handle

    # State -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the configuration of the whole tree: its public attributes that fit JSON.

        Example:
            >>> from guerdon import Gate, RegexMatch
            >>> Gate(RegexMatch("please"), threshold=0.5).state_dict()["threshold"]
            0.5

        Returns:
            Values by dotted name, such as ``{"threshold": 0.5, "rubric.pattern": "please"}``.
        """
        state = own_state(self)
        for name, child in self._children.items():
            state |= {f"{name}.{key}": value for key, value in child.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load the result of `state_dict`: all of it, or, if something doesn't fit, nothing.

        Args:
            state: Values by dotted name.
            strict: Reject a state with missing or unexpected keys; otherwise load those that fit.

        Raises:
            StateError: Keys are missing or unexpected, or a value is rejected.
        """
        load_state_dict(self, state, strict)

    def fingerprint(self) -> str:
        """Return a stable digest of the tree's structure, configuration and source.

        It is the same in every process and on every machine with the same code. It changes with
        a class or a function and what these use in their file, a public attribute, a weight, the
        order of children, and the values in a function. Comments and the code of other modules that
        is called are not part of it; neither are private attributes and what changes while a rubric
        is evaluated or reset, which count as state.

        Returns:
            16 hexadecimal digits.
        """
        return fingerprint(self)

    # Traversal -------------------------------------------------------------------------------

    def children(self) -> Iterator[Rubric]:
        """Iterate over the immediate children."""
        yield from list(self._children.values())

    def named_children(self) -> Iterator[tuple[str, Rubric]]:
        """Iterate over the immediate children with their names."""
        yield from list(self._children.items())

    def rubrics(self) -> Iterator[Rubric]:
        """Iterate over all descendants, depth first; a shared one comes once."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
        """Iterate over all descendants with their dotted names, depth first; a shared one once.

        Args:
            prefix: Put before each name, with a dot.
        """
        yield from _walk(self, prefix, set())

    def get_rubric(self, path: str) -> Rubric:
        """Return the descendant at a dotted path, such as ``"code.syntax"``; ``""`` is the root.

        Raises:
            RubricPathError: There is no rubric at that path; the message lists the paths. It is
                a `KeyError`.
        """
        here = self
        for name in path.split(".") if path else ():
            child = here._child(name)
            if child is None:
                known = [name for name, _ in self.named_rubrics()]
                raise RubricPathError(f"no rubric at {path!r}; there are {known}", path=path)
            here = child
        return here

    def __repr__(self) -> str:
        settings = ", ".join(
            f"{name}={value!r:.60}"
            for name, value in own_state(self).items()
            if name not in ("weights", "factors") and name not in self._measured
        )
        lines = [f"{self._title()}({settings})"]
        for name, child in self._children.items():
            weight = self._weight_of(name)
            lines.append(f"{name}: " + ("" if weight is None else f"{weight:g} × ") + repr(child))
        return "\n".join(lines).replace("\n", "\n  ")

    # Registration ----------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        children = self.__dict__.get("_children")
        if isinstance(value, Rubric):
            if children is None:
                raise not_initialized(type(self))
            self._adopt(name, value)
        elif isinstance(value, type) and issubclass(value, Rubric):
            raise RubricDefinitionError(
                f"{type(self).__name__}.{name} must be a rubric, got the class {value.__name__}; "
                f"instantiate it: {value.__name__}(…)"
            )
        elif children and name in children:
            if value is not None:
                raise RubricDefinitionError(
                    f"{type(self).__name__}.{name} is a child: assign a rubric, or None to "
                    f"remove it, not {type(value).__name__}"
                )
            self._release(name)
        elif name in self._of_episodes:  # in the hot path of an author's `forward`
            object.__setattr__(self, name, value)
            return
        elif hasattr(Rubric, name) or name in _OWN_NAMES:
            _refuse_hiding(type(self), name, value)
        object.__setattr__(self, name, value)
        if children is not None and name in self._configures:
            self._reconfigured()
        elif "_first" in self.__dict__ and name not in self._children:
            self._assigned(name, value)

    def _assigned(self, name: str, value: Any) -> None:
        """Note whether an attribute that was assigned is configuration or the state of an episode.

        Raises:
            RubricDefinitionError: It contains rubrics.
        """
        _refuse_hidden_rubrics(self, {name: value})
        if _done.get() is not None or is_evaluated(self):
            self.__dict__["_of_episodes"] = self._of_episodes | {name}
            return
        values = self.__dict__["_first"]
        if values is not None and name[:1] != "_":
            self.__dict__["_first"] = {**values, name: kept(value)}

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__.get("_children", ()):
            self._release(name)
        else:
            object.__delattr__(self, name)

    def _adopt(self, name: str, child: Rubric) -> None:
        """Register `child`, replacing the one of that name."""
        self._check_child(name, child)
        replaced = self._children.get(name)
        self._children[name] = child
        child._parents[id(self)] = self
        if replaced is not None:
            self._disown(replaced)
        self._changed()

    def _check_child(self, name: str, child: Rubric) -> None:
        """Reject a rubric that can't become a child under this name.

        Raises:
            RubricDefinitionError: The name is invalid or would hide an attribute, or this rubric
                is `child` or below it.
        """
        where = f"{type(child).__name__} can't become {name!r} of {type(self).__name__}"
        if not isinstance(name, str) or not name or "." in name:
            raise RubricDefinitionError(f"{where}: a name must be a non-empty string without dots")
        if self._is_reserved(name):
            raise RubricDefinitionError(f"{where}: it would hide an attribute of that name")
        if any(each is self for each in (child, *child.rubrics())):
            raise RubricDefinitionError(f"{where}: it is that very rubric, or contains it")

    @classmethod
    def _is_reserved(cls, name: str) -> bool:
        """Whether a child of this name would hide an attribute of the framework's classes."""
        own = ("guerdon.rubrics.", "collections.abc")
        kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith(own)]
        return any(name in vars(kind) or name in inspect.get_annotations(kind) for kind in kinds)

    def _release(self, name: str) -> Rubric:
        """Remove a child from the registry."""
        child = self._children.pop(name)
        self.__dict__.pop(name, None)
        self._disown(child)
        self._changed()
        return child

    def _disown(self, child: Rubric) -> None:
        if all(other is not child for other in self._children.values()):
            del child._parents[id(self)]

    # Traits ------------------------------------------------------------------------------------

    def _find_traits(self) -> Traits:
        """The traits of this rubric and everything below it."""
        traits = self._traits
        if traits is None:
            below = [child._find_traits() for child in self._children.values()]
            if self.__dict__.get("_first", ()) is None:  # it is used for the first time
                _refuse_hidden_rubrics(self, self.__dict__)
                self.__dict__["_first"] = first_values(self)
            traits = self.__dict__["_traits"] = Traits(
                is_async=self._is_async or any(each.is_async for each in below),
                waits=self._waits or any(each.waits for each in below),
                has_trajectory=self._is_trajectory or any(each.has_trajectory for each in below),
                stateful=self._is_stateful or any(each.stateful for each in below),
                # An immediate child has its own name, even if it is also further down.
                paths={id(child): path for path, child in self.named_rubrics()}
                | {id(child): name for name, child in reversed(self._children.items())},
            )
            self._refresh()
        return traits

    def _changed(self) -> None:
        """Invalidate the traits of this rubric and its ancestors."""
        if self._traits is not None:  # else those of the ancestors are invalid, too
            self.__dict__.update(_CHANGED)
            for parent in list(self._parents.values()):
                parent._changed()

    def _refresh(self) -> None:
        """Derive the mode from the traits and hooks."""
        traits = self._find_traits()
        if (
            traits.is_async
            or traits.has_trajectory
            or self._written_calls
            or self._hooks
            or self._pre_hooks
        ):
            mode = SLOW
        elif self._runs_inline:
            mode = CONTAINER
        else:
            mode = PLAIN if self._children else LEAF
        self.__dict__["_mode"] = mode

    def _reconfigured(self) -> None:
        """Invalidate what was derived from the configuration, here and in the ancestors."""
        self.__dict__.update(_RECONFIGURED)
        for parent in list(self._parents.values()):
            parent._reconfigured()

    # What subclasses of the framework override ---------------------------------------------------

    def _child(self, name: str) -> Rubric | None:
        return self._children.get(name)

    def _title(self) -> str:
        """The name in `repr` and ``guerdon tree``."""
        return type(self).__name__

    def _described(self) -> object:
        """The object whose docstring and source describe what is measured."""
        return type(self)

    def _weight_of(self, name: str) -> float | None:
        """The weight of a child: by its name or its place in the attribute ``weights``, if any."""
        weights = getattr(self, "weights", None)
        if isinstance(weights, (list, tuple)) and len(weights) == len(self._children):
            weights = dict(zip(self._children, weights, strict=True))
        return as_finite(weights.get(name)) if isinstance(weights, Mapping) else None

    def _range(self) -> tuple[float, float] | None:
        """The lowest and highest score: declared, or, of a container, derived."""
        return self.score_range

    def _needs(self, name: str) -> str | None:
        """The condition under which the child `name` is evaluated, in words."""
        return None

    def _rewards_by_step(self) -> dict[int, float]:
        """The step rewards by stamp; see `step_rewards`."""
        return step_rewards.of_hand_written(self)

    def _reset_own(self) -> None:
        """Clear the state of the episode that the framework keeps in this rubric."""

    # Copies ------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(protocol)
        if isinstance(made, str) or len(made) < 3 or type(made[2]) is not dict:
            return made  # an author's own
        make, args, state, *rest = made
        if files := files_of(type(self)):
            make, args = made_after, (files, make, *args)
        return make, args, PickledState(self, state), *rest

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, **_CHANGED, "_watch": None}
        del state["_parents"]  # they find their children again when they are restored
        return {
            name: value.copy() if name.startswith("_") and type(value) is dict else value
            for name, value in state.items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A child that refers to its parent, as by a hook, may be restored only in part.
        for rubric in (self, *state["_children"].values()):
            rubric.__dict__.setdefault("_parents", WeakValueDictionary())
        self.__dict__.update(state)
        for child in self._children.values():
            child._parents[id(self)] = self


def _refuse_hiding(kind: type, name: str, value: Any) -> None:
    """Reject an attribute that would replace a method of `Rubric`, or what it keeps.

    Raises:
        RubricDefinitionError: It would.
    """
    is_method = callable(getattr(Rubric, name, None)) and name[:2] != "__"
    is_replaced = callable(value) or isinstance(value, classmethod)
    if name in _OWN_NAMES or (is_method and not is_replaced):
        raise RubricDefinitionError(
            f"{kind.__name__}.{name} would hide an attribute of Rubric, which needs it; choose "
            f"another name, such as `{name.strip('_')}_value`"
        )


def _refuse_hidden_rubrics(rubric: Rubric, attributes: Mapping[str, Any]) -> None:
    """Reject plain containers with rubrics that are no children: no score would show them.

    Raises:
        RubricDefinitionError: There are some.
    """
    plain = {name: value for name, value in attributes.items() if isinstance(value, _PLAIN)}
    for name in plain.keys() - _OWN_NAMES:
        for item in _rubrics_in(plain[name]):
            if all(item is not other for other in (rubric, *rubric.rubrics())):
                raise RubricDefinitionError(
                    f"{type(rubric).__name__}.{name} contains {type(item).__name__}, which is no "
                    "child of it, in a plain container; assign RubricList([…]) or RubricDict({…}), "
                    "or assign each rubric to an attribute first"
                )


def _rubrics_in(value: Any, depth: int = 4) -> Iterator[Rubric]:
    if isinstance(value, Rubric):
        yield value
    elif isinstance(value, _PLAIN) and depth:
        items = itertools.chain(value.values(), value) if isinstance(value, dict) else value
        for item in islice(items, 64):  # there may be many words
            yield from _rubrics_in(item, depth - 1)


def _walk(node: Rubric, prefix: str, seen: set[int]) -> Iterator[tuple[str, Rubric]]:
    for name, child in list(node._children.items()):
        if id(child) not in seen:
            seen.add(id(child))
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from _walk(child, path, seen)
