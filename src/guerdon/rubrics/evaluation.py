"""Calling a rubric whose tree has hooks, something async, or a trajectory.

One generator, `_steps`, says what happens in which order; it yields whatever may have to be
awaited. Two small drivers run it, one for sync trees and one for async ones, so that nothing of
the order is written twice.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator
from contextvars import Token
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from guerdon.errors import AsyncRubricError, RubricDefinitionError
from guerdon.rubrics import frames, step_rewards
from guerdon.rubrics.call import SLOW, finite, namer, path_of, trace
from guerdon.rubrics.call import call as call_plain
from guerdon.rubrics.components import add_components
from guerdon.rubrics.frames import Frame, Step, current
from guerdon.rubrics.hooks import is_async_callable

if TYPE_CHECKING:
    import anyio

    from guerdon.rubrics.rubric import Rubric

__all__ = [
    "Evaluation",
    "Recorder",
    "call",
    "evaluate_step",
    "evaluate_step_async",
    "forward_by_call",
    "run_async",
]

logger = logging.getLogger("guerdon.rubrics")

Forward = Callable[[Frame, Any, Any], Any]


def call(rubric: Rubric, action: Any, observation: Any) -> Any:
    """Evaluate a rubric that the hot path has handed over."""
    traits = rubric._look()
    if rubric._mode != SLOW:
        return call_plain(rubric, action, observation)
    parent = current()
    if parent is not None and parent.rubric is rubric and rubric._written_calls:
        return _super_call(rubric, parent, action, observation)
    if traits.is_async:
        limiter = parent.limiter if parent is not None else None
        coroutine = run_async(rubric, parent, action, observation, limiter)
        if parent is not None:
            parent.unawaited = [*(parent.unawaited or ()), (rubric, coroutine)]
        return coroutine
    return _run_sync(rubric, parent, action, observation)


def _run_sync(rubric: Rubric, parent: Frame | None, action: Any, observation: Any) -> float:
    steps = _steps(Frame(rubric), parent, action, observation, _forward_sync)
    try:
        result = next(steps)
        while True:
            while hasattr(result, "__await__"):
                result = steps.throw(_unexpected(rubric, result))
            result = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def _unexpected(rubric: Rubric, awaitable: Any) -> AsyncRubricError:
    if hasattr(awaitable, "close"):
        awaitable.close()
    return AsyncRubricError(
        f"something awaitable came out of {type(rubric).__name__}.forward or one of its hooks, "
        "but nothing in its tree is declared async; write `async def`"
    )


def _forward_sync(frame: Frame, action: Any, observation: Any) -> Any:
    assert frame.rubric is not None
    return _evaluate_written(frame.rubric, action, observation)


def _refuse_async_hooks(rubric: Rubric) -> None:
    for hook in (*rubric._pre_hooks.values(), *rubric._hooks.values()):
        if is_async_callable(hook):
            raise AsyncRubricError(
                f"{_name(hook)} is an async hook on {type(rubric).__name__}, whose tree is sync; "
                "write a plain function, or use `await rubric.evaluate(…)`"
            )


async def run_async(
    rubric: Rubric,
    parent: Frame | None,
    action: Any,
    observation: Any,
    limiter: anyio.CapacityLimiter | None,
) -> float:
    """Evaluate a rubric in async code.

    Args:
        rubric: Any rubric, sync or async.
        parent: The frame that its entry goes to, if any.
        action: What the agent did.
        observation: What came of it.
        limiter: How many worker threads sync leaves may take; None runs them inline.
    """
    frame = Frame(rubric)
    frame.limiter = limiter
    steps = _steps(frame, parent, action, observation, _forward_async)
    try:
        result = next(steps)
        while True:
            if hasattr(result, "__await__"):
                try:
                    result = await result
                except BaseException as error:
                    result = steps.throw(error)
                    continue
            result = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _forward_async(frame: Frame, action: Any, observation: Any) -> Any:
    """Start what a rubric computes, in async code; the result may be awaitable."""
    from guerdon.rubrics.threads import in_thread

    rubric = frame.rubric
    assert rubric is not None
    if rubric._is_container:
        return rubric._evaluate_async(frame, action, observation)  # type: ignore[attr-defined]
    if rubric._waits:
        return rubric.forward_async(action, observation)  # type: ignore[attr-defined]
    if frame.limiter is not None and not rubric._look().is_async:
        return in_thread(frame.limiter, _evaluate_written, rubric, action, observation)
    return _evaluate_written(rubric, action, observation)


def _steps(
    frame: Frame, parent: Frame | None, action: Any, observation: Any, forward: Forward
) -> Generator[Any, Any, float]:
    """One evaluation, in order; yields what a driver for async trees has to await."""
    rubric = frame.rubric
    assert rubric is not None
    start = perf_counter()
    token = frames.enter(frame)
    try:
        _enter_step(frame, parent, action, observation)
        try:
            value = yield from _evaluate(frame, action, observation, forward)
        finally:
            if frame.step is not None:
                _leave_step(frame, frame.step)
        return value
    except Exception as error:
        trace(rubric, error)
        frame.error, frame.value = error, None
        raise
    finally:
        frames.leave(token)
        if parent is not None:
            if parent.rubric is None:
                parent.observed = observation
            parent.entries.append((rubric, frame.value, perf_counter() - start, frame))


def _evaluate(
    frame: Frame, action: Any, observation: Any, forward: Forward
) -> Generator[Any, Any, float]:
    """Pre-hooks, `forward`, hooks."""
    rubric = frame.rubric
    assert rubric is not None
    if forward is _forward_sync:
        _refuse_async_hooks(rubric)
    for pre_hook in list(rubric._pre_hooks.values()):
        yield pre_hook(rubric, action, observation)
    value = finite(rubric, (yield from _forward(frame, action, observation, forward)))
    if frame.step is not None:
        if not rubric._is_container:
            frame.handed_on = step_rewards.handed_on(frame, value)
        value += 0.0  # an object of its own, see handed_on
    frame.value = rubric.__dict__["last_score"] = value
    for hook in list(rubric._hooks.values()):
        try:
            yield hook(rubric, action, observation, value)
        except Exception as error:
            _report(frame, hook, error)
    return value


def _forward(
    frame: Frame, action: Any, observation: Any, forward: Forward
) -> Generator[Any, Any, Any]:
    """Run `forward`, and see to it that it awaited every async child that it called."""
    try:
        result = yield forward(frame, action, observation)
    except Exception as error:
        forgotten = _close_unawaited(frame)
        # `0.5 * self.judge(a, o)` fails because of the coroutine; another error is the author's.
        if forgotten is None or not (isinstance(error, TypeError) and "coroutine" in str(error)):
            raise
        raise forgotten from error
    forgotten = _close_unawaited(frame)
    if forgotten is not None:
        raise forgotten
    return result


def _close_unawaited(frame: Frame) -> AsyncRubricError | None:
    """Close the calls to async children that nobody awaited; the error that names the first."""
    rubric = frame.rubric
    forgotten = None
    for child, coroutine in frame.unawaited or ():
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()
            assert rubric is not None
            path = rubric._look().paths.get(id(child), type(child).__name__)
            forgotten = forgotten or AsyncRubricError(
                f"{type(rubric).__name__} called {path!r} ({type(child).__name__}), which is "
                f"async, and did not await it; write {type(rubric).__name__}.forward as "
                f"`async def` and `await self.{path}(…)`"
            )
    return forgotten


def _report(frame: Frame, hook: Any, error: Exception) -> None:
    """Tell of a forward hook that raised; the score stands."""
    frame.hook_errors = (*frame.hook_errors, (_name(hook), error))
    said = f"{_name(hook)}: {type(error).__name__}: {error}"
    kind = type(frame.rubric).__name__
    logger.error("a forward hook of %s raised; its score stands: %s", kind, said, exc_info=error)


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


# One step of an environment -----------------------------------------------------------------------


@dataclass(slots=True)
class Evaluation:
    """The evaluation of a tree of rubrics at one step of an environment.

    Attributes:
        observation: The observation that was evaluated.
        value: The score; None if the evaluation failed.
        components: The scores of the rubrics below the root, by dotted name.
        handled: Exceptions that were raised in the tree and handled there, by dotted name.
        error: The exception that the evaluation raised; None if it didn't fail.
    """

    observation: Any
    value: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    handled: dict[str, Exception] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def failed_path(self) -> str | None:
        """The dotted path of the rubric that raised `error`; ``""`` is the root."""
        return None if self.error is None else path_of(self.error) or ""


class Recorder(Frame):
    """Records the evaluations made in its ``with`` block, by whatever calls the rubrics.

    Example:
        >>> from guerdon import Gate, RegexMatch
        >>> rubric = Gate(RegexMatch("please"))
        >>> with Recorder() as recorder:
        ...     reward = rubric("please come", None)
        >>> recorder.last(rubric).components
        {'rubric': 1.0}

    Args:
        limiter: Limits the worker threads in which sync members of async trees run; None runs
            them in the event loop.
    """

    _scored: tuple[Rubric, Evaluation] | None = None
    _token: Token[Frame | None] | None = None

    def __init__(self, limiter: anyio.CapacityLimiter | None = None) -> None:
        super().__init__(None)
        self.limiter = limiter

    def __enter__(self) -> Recorder:
        self._token = frames.enter(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            frames.leave(self._token)

    def last(self, rubric: Rubric) -> Evaluation | None:
        """Return the latest evaluation of a rubric as the root; None if there was none."""
        for root, value, _, frame in reversed(self.entries):
            if root is rubric:
                evaluation = Evaluation(self.observed, value, error=frame.error)
                add_components(evaluation.components, rubric, frame, "", evaluation.handled)
                return evaluation
        return self._scored[1] if self._scored and self._scored[0] is rubric else None

    def _keep(self, rubric: Rubric, evaluation: Evaluation) -> Evaluation:
        self.entries.clear()
        self._scored = rubric, evaluation
        return evaluation


def evaluate_step(rubric: Rubric, action: Any, observation: Any) -> Evaluation:
    """Evaluate a sync tree at one step; what it raises becomes `Evaluation.error`.

    A `Recorder` that is active returns this evaluation as its last one.

    Example:
        >>> from guerdon import Gate, RegexMatch
        >>> evaluation = evaluate_step(Gate(RegexMatch("please")), "please come", None)
        >>> evaluation.value, evaluation.components
        (1.0, {'rubric': 1.0})
    """
    recorder = current()
    evaluation = Evaluation(observation)
    token = frames.enter(None)
    try:
        evaluation.value = namer(rubric)(
            rubric, action, observation, evaluation.components, evaluation.handled
        )
    except Exception as error:
        evaluation.error = error
    finally:
        frames.leave(token)
    return recorder._keep(rubric, evaluation) if isinstance(recorder, Recorder) else evaluation


async def evaluate_step_async(rubric: Rubric, action: Any, observation: Any) -> Evaluation:
    """Like `evaluate_step`, for any tree: its members that wait do so concurrently."""
    recorder = current()
    evaluation = Evaluation(observation)
    with Recorder() as own:
        try:
            evaluation.value = await rubric.evaluate(action, observation)
        except Exception as error:
            evaluation.error = error
    if own.entries:
        frame = own.entries[-1][3]
        add_components(evaluation.components, rubric, frame, "", evaluation.handled)
    return recorder._keep(rubric, evaluation) if isinstance(recorder, Recorder) else evaluation


# Authors who write __call__ ----------------------------------------------------------------------


def _evaluate_written(rubric: Rubric, action: Any, observation: Any) -> Any:
    """Run what the author wrote, which may be a chain of ``__call__``."""
    if not rubric._written_calls:
        return rubric.forward(action, observation)
    return rubric._written_calls[0](rubric, action, observation)


def forward_by_call(self: Rubric, action: Any, observation: Any) -> Any:
    """`forward` of a rubric whose author wrote ``__call__`` alone."""
    return self._written_calls[0](self, action, observation)


def _super_call(rubric: Rubric, frame: Frame, action: Any, observation: Any) -> Any:
    """Serve ``super().__call__(…)`` inside an author's ``__call__``: the next one, raw."""
    level = frame.super_calls + 1
    if level < len(rubric._written_calls):
        above = rubric._written_calls[level].__get__(rubric)
    elif type(rubric).forward is forward_by_call:
        raise RubricDefinitionError(
            f"{type(rubric).__name__}.__call__ calls super().__call__(), "
            "but nothing above it writes forward"
        )
    else:
        above = rubric.forward

    async def run_async() -> Any:
        frame.super_calls = level
        try:
            return await above(action, observation)
        finally:
            frame.super_calls = level - 1

    if is_async_callable(above):
        return run_async()
    frame.super_calls = level
    try:
        return above(action, observation)
    finally:
        frame.super_calls = level - 1


# Trajectories ----------------------------------------------------------------------------------


def _enter_step(frame: Frame, parent: Frame | None, action: Any, observation: Any) -> None:
    """Take part in the environment step that is under way, or open one as its outermost rubric."""
    rubric = frame.rubric
    assert rubric is not None
    if not rubric._look().holds_trajectory:
        return
    step = parent.step if parent is not None else None
    if step is None or (step.root is not rubric and id(rubric) not in step.root._look().paths):
        step = Step(rubric, action, observation)
    frame.step = step
    if rubric._is_trajectory:
        rubric._see(step.stamp, action, observation)  # type: ignore[attr-defined]


def _leave_step(frame: Frame, step: Step) -> None:
    rubric = frame.rubric
    assert rubric is not None
    frame.not_yet = frame.error is None and rubric._is_not_yet(frame, step.observation)
    if step.root is rubric:
        step_rewards.record(frame, step)
