"""What an evaluation records: a `Frame` for each rubric, and the `Score` and components of them.

The frame that is being filled is in a context variable, so that threads and tasks that evaluate
one tree at the same time never mix their numbers, and a parent's `forward` needs to know nothing
of it. Where nothing is recorded there is no frame, and a call costs next to nothing.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Coroutine, Generator, Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from guerdon._logging import step_logger
from guerdon._thresholds import is_zero
from guerdon.errors import AsyncRubricError
from guerdon.rubrics.failure import describe_error, finite, path_of, trace
from guerdon.types.score import Score

if TYPE_CHECKING:
    import anyio

__all__ = ["is_pending"]

logger = step_logger("guerdon.rubrics")

# The most characters of each text in `Score.details`.
MAX_DETAIL = 20_000


def is_done(observation: Any) -> bool:
    """Whether an observation ends its episode; without a `done` it doesn't.

    Example:
        >>> is_done({"done": True}), is_done("anything")
        (True, False)
    """
    if isinstance(observation, Mapping):
        return bool(observation.get("done", False))
    return bool(getattr(observation, "done", False))


class Step:
    """A step of an environment, as the outermost rubric that contains trajectory rubrics sees it.

    Attributes:
        stamp: Grows from step to step, so that steps that siblings saw separately can be ordered.
    """

    __slots__ = ("action", "observation", "root", "stamp")

    _stamps = itertools.count()

    def __init__(self, root: Any, action: Any, observation: Any, stamp: int | None = None) -> None:
        self.root = root
        self.action = action
        self.observation = observation
        self.stamp = next(Step._stamps) if stamp is None else stamp


class AwaitableScore(float):
    """A score that may be awaited, as in code that was written for OpenEnv."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, float]:
        """Return the score at once, as an ordinary number."""
        yield from ()
        return self if isinstance(self, StepScore) else float(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)  # a copy is an ordinary number


def awaitable(score: float) -> float:
    """Return a score; in an asyncio event loop, one that may be awaited."""
    events = sys.modules.get("asyncio.events")
    inside = events is not None and events._get_running_loop() is not None
    return AwaitableScore(score) if inside and type(score) is float else score


class StepScore(AwaitableScore):
    """A score at a step of an episode, which knows the rubric that it is credited to.

    In a tree that contains trajectory rubrics, calling a child returns one. A `forward` that
    returns it unchanged credits the step to that child; arithmetic makes an ordinary float of it.

    Attributes:
        rubric: The rubric whose score it is.
        stamp: The step.
        pending: Whether it is 0.0 only because the episode isn't over.
    """

    __slots__ = ("pending", "rubric", "stamp")

    rubric: Any | None
    stamp: int | None
    pending: bool

    def __new__(
        cls, value: float, rubric: Any | None = None, stamp: int | None = -1, pending: bool = False
    ) -> StepScore:
        """Create the score of a rubric at the step with a stamp.

        Without them it is credited to no rubric, as the result of `statistics.mean`, which is of
        the class of the scores.
        """
        score = super().__new__(cls, value)
        score.rubric, score.stamp, score.pending = rubric, stamp, pending
        return score


def is_pending(score: float) -> bool:
    """Whether a child's score is 0.0 only because the episode isn't over.

    Example:
        >>> is_pending(0.0)
        False
    """
    return isinstance(score, StepScore) and score.pending


class Frame:
    """The record of one evaluation of one rubric, filled inside its ``with`` block.

    Most fields keep their defaults.
    """

    rubric: Any = None
    observation: Any = None
    value: float | None = None
    error: Exception | None = None
    reason: str | None = None
    seconds: float = 0.0
    hook_errors: tuple[tuple[str, Exception], ...] = ()  # with the names of the hooks
    details: Mapping[str, str] = MappingProxyType({})
    step: Step | None = None
    pending: bool = False
    credited: Any | None = None  # the child whose score of this step was returned
    limiter: anyio.CapacityLimiter | None = None  # of the threads that sync leaves run in
    awaits: bool = False  # `forward` runs in the event loop and may return an awaitable
    unawaited: list[tuple[Any, Coroutine[Any, Any, float]]] | None = None
    frames: list[Frame]
    _token: Token[Frame | None]

    def __init__(self, rubric: Any, parent: Frame | None, observation: Any) -> None:
        self.rubric = rubric
        self.observation = observation
        self.frames = []
        self._parent = parent

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        self._start = perf_counter()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.seconds = perf_counter() - self._start
        raised = error
        try:
            if isinstance(error, Exception):
                raised = self._fail(error)
            if self.step is not None and self.step.root is self.rubric:
                _log(self, self.step)
        except Exception as refused:  # a rubric that wasn't called refused to record the step
            raised = self._fail(refused)
        finally:
            _current.reset(self._token)
            if self._parent is not None:
                self._parent.frames.append(self)
        if raised is not error and raised is not None:
            raise raised from error

    def begin(self, action: Any) -> None:
        """Take part in the step of the environment, or start one as its outermost rubric."""
        rubric, parent = self.rubric, self._parent
        if not rubric._find_traits().has_trajectory:
            return
        if parent is None:
            self.step = Step(rubric, action, self.observation)
        else:
            self.step = parent.step_below(rubric, action, self.observation)
        if rubric._is_trajectory:
            rubric._see(self.step)

    def step_below(self, rubric: Any, action: Any, observation: Any) -> Step:
        """Return the step that a rubric which is called here takes part in."""
        step = self.step
        if step is None or (
            step.root is not rubric and id(rubric) not in step.root._find_traits().paths
        ):
            return Step(rubric, action, observation)
        return step

    def finish(self, value: Any) -> None:
        """Take the result of `forward`."""
        if self.unawaited and (forgotten := self._close_unawaited()) is not None:
            raise forgotten
        number = value
        # x - x is 0.0 for every float but NaN and the infinities
        if value.__class__ is not float or value - value != 0.0:
            number = float(value) if isinstance(value, StepScore) else finite(self.rubric, value)
        self.value = self.rubric.__dict__["last_score"] = number
        if self.step is not None and self.error is None:
            self.pending = self._credit(self.step, value)

    def _credit(self, step: Step, value: Any) -> bool:
        """Note the child that the step is credited to; returns whether the score is pending."""
        if self.rubric._is_trajectory:
            is_waiting = not is_done(step.observation)
            if is_waiting:
                self.explain("due at the end of the episode")
            return is_waiting
        if isinstance(value, StepScore) and value.stamp in (None, step.stamp):
            self.credited = value.rubric
            return self.value == 0.0 and value.pending
        return self.value == 0.0 and any(below.pending for below in self.frames)

    def result(self) -> float:
        """The score; for a parent that takes part in a step, it is credited to this rubric."""
        assert self.value is not None
        if self._parent is None or self._parent.step is None:
            return self.value
        return StepScore(self.value, self.rubric, self._parent.step.stamp, self.pending)

    def explain(self, text: str) -> None:
        """Add a reason for the score."""
        self.reason = f"{self.reason}; {text}" if self.reason else text

    def detail(self, name: str, text: str) -> None:
        """Add a further text that explains the value, up to `MAX_DETAIL` characters."""
        if len(text) > MAX_DETAIL:
            text = f"{text[:MAX_DETAIL]}… ({len(text):,} characters)"
        self.details = {**self.details, name: text}

    def report_hook(self, name: str, error: Exception) -> None:
        """Log and record the exception of a forward hook; the score stays."""
        self.hook_errors = (*self.hook_errors, (name, error))
        logger.error(
            "a forward hook of %s raised; the score is kept: %s: %s: %s",
            type(self.rubric).__name__, name, type(error).__name__, error, exc_info=error,
        )  # fmt: skip

    def _fail(self, error: Exception) -> Exception:
        """Record a failure; returns the exception to raise."""
        forgotten = self._close_unawaited()
        # `0.5 * self.judge(a, o)` fails because of the coroutine; another error is the author's.
        if forgotten is not None and isinstance(error, TypeError) and "coroutine" in str(error):
            error = forgotten
        trace(self.rubric, error)
        self.error, self.value, self.pending = error, None, False
        return error

    def _close_unawaited(self) -> AsyncRubricError | None:
        """Close the coroutines of children that weren't awaited; the error that names the first."""
        forgotten = None
        kind = type(self.rubric).__name__
        for child, coroutine in self.unawaited or ():
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
                path = self.rubric._find_traits().paths.get(id(child), type(child).__name__)
                forgotten = forgotten or AsyncRubricError(
                    f"{kind} called {path!r} ({type(child).__name__}), which is async, and did "
                    f"not await it; write {kind}.forward as `async def` and `await self.{path}(…)`"
                )
        return forgotten


_current: ContextVar[Frame | None] = ContextVar("guerdon_frame", default=None)

current = _current.get
enter = _current.set
leave = _current.reset


# Episodes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rubric did at one step of the episode; kept in its log under the step's stamp.

    Attributes:
        called: Whether it was evaluated.
        value: Its score; None if it was not called or failed.
        error: The exception that it raised.
        credited: The child whose score it returned.
        used: Whether it called a child that contains a trajectory rubric.
    """

    called: bool = False
    value: float | None = None
    error: Exception | None = None
    credited: Any | None = None
    used: bool = False


NOT_CALLED = Outcome()


def _log(frame: Frame, step: Step) -> None:
    """Log what every rubric of the tree did at a step; trajectory rubrics see it if not called.

    Raises:
        TrajectoryError: A rubric that was not called refused to record the step.
    """
    outcomes: dict[int, Outcome] = {}
    _collect(frame, outcomes)
    concerned: dict[int, Any] = {}
    _concern(step.root, outcomes, concerned)
    refused: Exception | None = None
    for rubric in concerned.values():
        outcome = outcomes.get(id(rubric), NOT_CALLED)
        if rubric._is_trajectory and not outcome.called:
            try:
                rubric._see(step)
            except Exception as error:
                trace(rubric, error)
                refused = refused or error
                outcome = Outcome(error=error)
        rubric._log[step.stamp] = outcome
    if refused is not None:
        step.root._log[step.stamp] = Outcome(True, error=refused)
        raise refused


def _collect(frame: Frame, outcomes: dict[int, Outcome]) -> None:
    used = any(below.rubric._find_traits().has_trajectory for below in frame.frames)
    outcomes[id(frame.rubric)] = Outcome(True, frame.value, frame.error, frame.credited, used)
    for below in frame.frames:
        _collect(below, outcomes)


def _concern(rubric: Any, outcomes: Mapping[int, Outcome], concerned: dict[int, Any]) -> None:
    """Collect the rubrics that a step concerns: all but those that a dispatcher didn't call."""
    if id(rubric) in concerned:
        return
    concerned[id(rubric)] = rubric
    for child in rubric._children.values():
        if not rubric._dispatches or any(
            id(each) in outcomes for each in (child, *child.rubrics())
        ):
            _concern(child, outcomes, concerned)


# Components --------------------------------------------------------------------------------------


def add_components(
    named: dict[str, float], handled: dict[str, Exception], frame: Frame, prefix: str = ""
) -> None:
    """Add the scores below a rubric by dotted name; a second call of a rubric is ``name#2``.

    Args:
        named: The scores.
        handled: The exceptions that were raised, by dotted name.
        frame: The frame of the rubric.
        prefix: Put before each name: the rubric's own path with a dot, ``""`` for the root.
    """
    if frame.error is not None:
        handled[prefix.removesuffix(".")] = frame.error
    for hook, error in frame.hook_errors:
        handled[f"{prefix.removesuffix('.')} (hook {hook})".lstrip()] = error
    traits = frame.rubric._find_traits()
    used: set[str] = set()  # also by those that failed
    # In the order of the tree: children that wait end in any order.
    places = {id(child): place for place, child in enumerate(frame.rubric._children.values())}
    for below in sorted(frame.frames, key=lambda each: places.get(id(each.rubric), len(places))):
        path = traits.paths.get(id(below.rubric))
        if path is None:
            continue  # it isn't in this tree
        name = prefix + path
        if name in named or name in used:
            name = _next_name(frame.rubric, below.rubric, prefix, named.keys() | used)
        used.add(name)
        if below.value is not None:
            named[name] = below.value
        if below.frames or below.error is not None or below.hook_errors:
            add_components(named, handled, below, f"{name}.")


def _next_name(rubric: Any, child: Any, prefix: str, taken: AbstractSet[str]) -> str:
    """The name of a child's second score: that of its second place in the parent, or a number."""
    places = [prefix + name for name, other in rubric._children.items() if other is child]
    if len(places) < 2:
        path = f"{prefix}{rubric._find_traits().paths[id(child)]}"
        places = [path, *(f"{path}#{number}" for number in range(2, len(taken) + 3))]
    return str(next((name for name in places if name not in taken), places[-1]))


@dataclass(slots=True)
class Evaluation:
    """The evaluation of a tree of rubrics at one step of an environment.

    Attributes:
        observation: The observation that was evaluated.
        value: The score; None if the evaluation failed.
        components: The scores of the rubrics below the root, by dotted name.
        handled: Exceptions that were raised in the tree and handled there, by dotted name.
        error: The exception that the evaluation raised; None if it didn't fail.
        metadata: What an environment has reported of it; None if it hasn't.
        tree: The score of every rubric; None if the recorder doesn't keep trees.
    """

    observation: Any
    value: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    handled: dict[str, Exception] = field(default_factory=dict)
    error: Exception | None = None
    metadata: dict[str, Any] | None = None
    tree: Score | None = None

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
        parent: The frame or recorder that records the evaluations, too.
        keeps_trees: Whether evaluations have a `tree`, for which every rubric is recorded.

    Attributes:
        root: A rubric that isn't called itself, as a `RubricDict`: the members that are called
            take part in one step of it.
    """

    root: Any = None

    def __init__(
        self,
        limiter: anyio.CapacityLimiter | None = None,
        *,
        parent: Frame | None = None,
        keeps_trees: bool = False,
    ) -> None:
        self.frames = []
        self.limiter = limiter
        self.keeps_trees = keeps_trees
        self._parent = parent
        if parent is not None:
            self.step, self.limiter = parent.step, parent.limiter
        # By the `id` of the root, which is kept as well: another rubric can't get its `id`.
        self._kept: dict[int, tuple[Any, Evaluation]] = {}

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)
        if self._parent is not None:
            self._parent.frames.extend(self.frames)
        called = self._called_members() if self.frames else []
        if called and self.root._find_traits().has_trajectory:
            _log(self, self.step or Step(self.root, None, called[-1].observation))

    def step_below(self, rubric: Any, action: Any, observation: Any) -> Step:
        """Return the step that a rubric which is called here takes part in."""
        if self._parent is not None:
            self.step = self._parent.step_below(rubric, action, observation)
        elif self.root is None or id(rubric) not in self.root._find_traits().paths:
            return super().step_below(rubric, action, observation)
        else:
            stamp = self.step.stamp if self.step is not None else None
            self.step = Step(self.root, action, observation, stamp)
        return self.step

    def last(self, rubric: Any) -> Evaluation | None:
        """Return the latest evaluation of a rubric as the root; None if there was none."""
        if rubric is self.root:
            return self._of_members()
        for frame in reversed(self.frames):
            if frame.rubric is rubric:
                # A `Guarded` with a policy has both a value and the error that it handled.
                error = frame.error if frame.value is None else None
                evaluation = Evaluation(frame.observation, frame.value, error=error)
                add_components(evaluation.components, evaluation.handled, frame)
                evaluation.tree = score_of(frame) if self.keeps_trees else None
                return evaluation
        return self._kept.get(id(rubric), (None, None))[1]

    def _of_members(self) -> Evaluation | None:
        """The evaluation of `root` by those of its members that were called."""
        whole = Frame(self.root, None, None)
        whole.frames = self._called_members()
        if not whole.frames:
            return self._kept.get(id(self.root), (None, None))[1]
        last = whole.frames[-1]
        error = last.error if last.value is None else None
        if error is not None:
            trace(self.root, error)
        evaluation = Evaluation(last.observation, last.value, error=error)
        add_components(evaluation.components, evaluation.handled, whole)
        if self.keeps_trees:
            whole.value, whole.error = last.value, error
            evaluation.tree = score_of(whole)
        return evaluation

    def _called_members(self) -> list[Frame]:
        paths = self.root._find_traits().paths if self.root is not None else {}
        return [frame for frame in self.frames if id(frame.rubric) in paths]

    def keep(self, rubric: Any, evaluation: Evaluation) -> None:
        """Take an evaluation that was made elsewhere as the last one of a rubric."""
        if self.frames:
            self.frames = [frame for frame in self.frames if frame.rubric is not rubric]
        self._kept[id(rubric)] = (rubric, evaluation)


def of_step() -> Recorder | None:
    """The recorder of the step that calls a rubric; None outside, and in another rubric."""
    outer = current()
    return outer if isinstance(outer, Recorder) else None


# Scores ------------------------------------------------------------------------------------------

_NOT_CALLED = "not called"


def score_of(frame: Frame, name: str = "", path: str = "", weight: float | None = None) -> Score:
    """Return the `Score` of a frame, with those of the rubric's children.

    Args:
        frame: The frame.
        name: The rubric's name in its parent.
        path: Its path from the root.
        weight: The weight that its parent gives it.
    """
    error = frame.error
    cancelled = frame.value is None and error is None
    return Score(
        name=name,
        value=frame.value,
        status="failed" if error is not None else "skipped" if cancelled else "scored",
        weight=weight,
        seconds=frame.seconds,
        reason="cancelled" if cancelled else frame.reason,
        error=describe_error(error, with_path=True) if error is not None else None,
        exception=error,
        hook_errors=tuple(f"{hook}: {describe_error(each)}" for hook, each in frame.hook_errors),
        details=dict(frame.details),
        children=_children(frame.rubric, frame, path, _why_skipped(frame, path)),
        rubric=frame.rubric._title(),
    )


def _children(rubric: Any, frame: Frame, path: str, why: str) -> tuple[Score, ...]:
    """The scores of a rubric's children.

    Args:
        rubric: The rubric.
        frame: Its frame; if it was not called itself, that of the nearest ancestor that was: a
            parent may call its grandchildren.
        path: The path of `rubric` from the root.
        why: Why children were skipped.
    """
    scores: list[Score] = []
    called: dict[int, list[Frame]] = {}
    for below in frame.frames:
        called.setdefault(id(below.rubric), []).append(below)
    children = list(rubric._children.values())
    for name, child in rubric._children.items():
        weight = rubric._weight_of(name)
        here = f"{path}.{name}" if path else name
        mine = called.get(id(child), [])
        if not mine:
            is_due_later = why == _NOT_CALLED and name in rubric._at_end
            reason = rubric._needs(name) if is_due_later else why
            below_it = _children(child, frame, here, reason)
            skipped = Score(
                name, None, "skipped", weight, reason=reason, children=below_it,
                rubric=child._title(),
            )  # fmt: skip
            scores.append(skipped)
            continue
        if children.count(child) > 1:  # the first name of a shared child has the first call
            mine, called[id(child)] = mine[:1], mine[1:]
        for number, below in enumerate(mine, start=1):
            label = name if number == 1 else f"{name}#{number}"
            scores.append(score_of(below, label, here, weight))
    return tuple(scores)


def _why_skipped(frame: Frame, path: str) -> str:
    if not frame.frames:
        return _NOT_CALLED
    last = frame.frames[-1]
    name = frame.rubric._find_traits().paths.get(id(last.rubric), type(last.rubric).__name__)
    where = f"{path}.{name}" if path else name
    if last.value is None:
        return f"{where} failed"
    stops = frame.rubric._is_container and frame.rubric._stops_at_zero
    return f"{where} scored 0" if stops and is_zero(last.value) else _NOT_CALLED
