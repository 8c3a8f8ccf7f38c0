"""`Rubric`: the one class that authors subclass, with its hooks and resets."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol

from guerdon.errors import RubricError
from guerdon.rubrics import evaluation, step_rewards
from guerdon.rubrics.calling import call
from guerdon.rubrics.node import Node, is_async_callable, not_initialized
from guerdon.rubrics.recording import Frame, current
from guerdon.rubrics.state import (
    configuring_names,
    fingerprint,
    load_state_dict,
    own_state,
    state_dict,
)
from guerdon.types.score import Score

__all__ = ["ForwardHook", "ForwardPreHook", "HookHandle", "Rubric"]


class ForwardPreHook(Protocol):
    """Called before `forward`; may be async on an async rubric."""

    def __call__(self, rubric: Any, action: Any, observation: Any, /) -> Any:
        """Run before the evaluation of `rubric`."""


class ForwardHook(Protocol):
    """Called after `forward` with its result; may be async on an async rubric."""

    def __call__(self, rubric: Any, action: Any, observation: Any, result: float, /) -> Any:
        """Run after the evaluation of `rubric`."""


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


# The resets that have run in the current pass: authors call super().reset(), child.reset(), both
# or neither.
_done: ContextVar[set[tuple[int, object]] | None] = ContextVar("guerdon_resets", default=None)


def _once_per_pass(reset: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make a `reset` run once per pass, and then reset the children."""

    @functools.wraps(reset)
    def once(self: Rubric) -> None:
        done = _done.get()
        token = None
        if done is None:
            token = _done.set(done := set())
        try:
            if (id(self), reset) not in done:
                done.add((id(self), reset))
                reset(self)
                if reset is not _reset_own_and_children:
                    _reset_tree(self)
        finally:
            if token is not None:
                _done.reset(token)

    return once


def _reset_own_and_children(self: Rubric) -> None:
    self._log.clear()
    self._reset_own()
    for child in list(self._children.values()):
        child.reset()


_reset_tree = _once_per_pass(_reset_own_and_children)


class Rubric(Node["Rubric"]):
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

    # Set where an episode begins, on the root of a tree that has one.
    _scored_by: str | None = None  # the fingerprint of the configuration of the episode
    _is_alike: bool | None = None  # whether it equals the prototype of that; None: not known
    _watch: Callable[[Mapping[str, float], bool], None] | None = None  # gets the components

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["last_score"] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        written = cls.__dict__.get("__call__")
        if written is not None:
            # An author's __call__ becomes what is evaluated; the call itself stays ours.
            del cls.__call__
            cls._written_calls = (written, *cls._written_calls)
            if getattr(cls.forward, "__isabstractmethod__", False):
                cls.forward = evaluation.call_written  # type: ignore[method-assign]
        if "reset" in cls.__dict__:
            cls.reset = _once_per_pass(cls.__dict__["reset"])  # type: ignore[assignment, method-assign]
            cls._is_stateful = True
        cls._configures = configuring_names(cls)
        cls._overrides_step_rewards = cls.compute_step_rewards is not Rubric.compute_step_rewards
        cls._overrides_loading = cls.load_state_dict is not Rubric.load_state_dict
        cls._is_async = any(map(is_async_callable, (*cls._written_calls, cls.forward)))
        twin = getattr(cls, "forward_async", None)
        cls._waits = is_async_callable(twin) and not (cls._is_async or cls._written_calls)
        adaptive = getattr(cls.forward, "_is_adaptive", False)
        cls._is_container = adaptive and not cls._written_calls

    @abstractmethod
    def forward(self, action: Any, observation: Any) -> Any:
        """Compute the score of one step; the one method that a subclass must implement.

        Args:
            action: The action of the agent.
            observation: The observation that it led to.

        Returns:
            A finite float, by convention in [0, 1] or [-1, 1].
        """

    __call__ = call
    _call_slow = evaluation.evaluate_call
    _call_recorded = evaluation.run

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
        return await evaluation.evaluate(self, action, observation)

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
        return evaluation.score(self, action, observation)

    async def score_async(self, action: Any, observation: Any) -> Score:
        """Like `score`, for any tree, evaluated as by `evaluate`."""
        return await evaluation.score_async(self, action, observation)

    def explain(self, reason: str, *args: Any) -> None:
        """Add a reason to the score that `forward` is about to return, for `Score.reason`.

        Costs next to nothing if the evaluation isn't recorded.

        Args:
            reason: The reason, or a %-format for `args`.
            *args: The values for the format, which is applied only if the evaluation is recorded.
        """
        frame = current()
        if isinstance(frame, Frame) and frame.rubric is self:
            frame.explain(reason % args if args else reason)

    def compute_step_rewards(self) -> list[float]:
        """Return one reward per environment step of the episode so far.

        Trajectory rubrics spread their final score over the steps. A `WeightedSum` returns the
        weighted sum of its children's step rewards, a `Sequential` those of its last child, a
        `Gate` those of its child if the child's final score reaches the threshold and zeros
        otherwise, a `RubricDict` at each step those of the child that was called. A rubric
        without trajectory rubrics returns its score at that step, 0.0 if it was not called.

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

        An override needs no ``super().reset()``: each child is reset once in any case.
        """
        if self._log or self._look().stateful:
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
        return state_dict(self)

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
        the file that defines a class or a function, a public attribute, a weight, the order of
        children, and the values in a function. Private attributes count as state, and the code of
        other modules that is called is not part of it.

        Returns:
            16 hexadecimal digits.
        """
        return fingerprint(self)

    # What subclasses of the framework override ------------------------------------------------

    def _forget(self) -> None:
        super()._forget()
        self.__dict__.update(_scored_by=None, _is_alike=None)

    def _reconfigured(self) -> None:
        self.__dict__.update(_scored_by=None, _is_alike=None)
        for reference in self._parents:
            if (parent := reference()) is not None:
                parent._reconfigured()

    def _range(self) -> tuple[float, float] | None:
        return self.score_range

    def _rewards_by_step(self) -> dict[int, float]:
        """The step rewards by stamp; see `step_rewards`."""
        return step_rewards.of_hand_written(self)

    def _reset_own(self) -> None:
        """Clear the state of the episode that the framework keeps in this rubric."""

    def _own_state(self) -> dict[str, Any]:
        return own_state(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_scored_by": None, "_is_alike": None, "_watch": None}
