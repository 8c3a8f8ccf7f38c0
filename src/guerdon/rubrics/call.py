"""The hot path: calling a rubric whose tree is sync, has no hooks and holds no trajectory.

Everything else (`Rubric._mode` is 0) goes to `guerdon.rubrics.evaluation`.
`benchmarks/rubric_calls.py` measures this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from guerdon.errors import AsyncRubricError, InvalidScoreError, RubricError
from guerdon.rubrics import frames
from guerdon.rubrics.components import add_components
from guerdon.rubrics.endings import is_done
from guerdon.rubrics.frames import Frame, current

if TYPE_CHECKING:
    from guerdon.rubrics.containers import Container
    from guerdon.rubrics.rubric import Rubric

__all__ = [
    "LEAF",
    "PARENT",
    "SLOW",
    "call",
    "call_children",
    "call_named",
    "call_recorded",
    "due",
    "exact_sum",
    "finite",
    "namer",
    "path_of",
    "replace_note",
    "trace",
]

# The values of `Rubric._mode`.
SLOW = 0  # look closer: hooks, something async, a trajectory, or not known yet
PARENT = 1  # plain, with children
LEAF = 2  # plain, without children


def call(self: Rubric, action: Any, observation: Any) -> Any:
    """Evaluate this rubric: ``rubric(action, observation)``.

    Args:
        action: What the agent did.
        observation: What came of it.

    Returns:
        A finite float; on a tree with an async member, an awaitable of one.

    Raises:
        Exception: What `forward` raised, with the rubric's path added.
        InvalidScoreError: `forward` gave something that is no finite float.
    """
    if not self._mode:  # SLOW
        return self._call_slow(action, observation)
    parent = current()
    if parent is not None:
        return _record(self, parent, action, observation)
    try:
        value = self.forward(action, observation)
        # x - x is 0.0 for every float but NaN and the infinities
        if value.__class__ is not float or value - value != 0.0:
            value = finite(self, value)
    except Exception as error:
        trace(self, error)
        raise
    self.__dict__["last_score"] = value  # past __setattr__, which looks for children
    return value


def _record(rubric: Rubric, parent: Frame, action: Any, observation: Any) -> float:
    """The same, adding an entry to the parent's frame."""
    start = perf_counter()
    frame = Frame(rubric)
    token = frames.enter(frame)
    try:
        value = rubric.forward(action, observation)
        if value.__class__ is not float or value - value != 0.0:
            value = finite(rubric, value)
        frame.value = rubric.__dict__["last_score"] = value
        return value
    except Exception as error:
        trace(rubric, error)
        frame.error = error
        raise
    finally:
        frames.leave(token)
        if parent.rubric is None:
            parent.observed = observation
        parent.entries.append((rubric, frame.value, perf_counter() - start, frame))


# A container doesn't call its plain leaves: what a call would do stands in its loop, twice, since
# a function for it would cost what that saves.


def call_children(container: Container, action: Any, observation: Any, scores: list[float]) -> None:
    """Evaluate the children of a container, in order, where nobody records.

    Args:
        container: Says whether a score of 0 leaves out the rest.
        action: What the agent did.
        observation: What came of it.
        scores: Takes the score of each child that was evaluated.
    """
    for child in due(container, observation) if container._kids_at_end else container._kids:
        if child._mode == LEAF:
            try:
                score = child.forward(action, observation)
                if score.__class__ is not float or score - score != 0.0:
                    score = finite(child, score)
            except Exception as error:
                trace(child, error)
                raise
            child.__dict__["last_score"] = score
        else:
            score = child(action, observation)
        scores.append(score)
        if score == 0.0 and container._stops_at_zero:
            return


def due(container: Container, observation: Any) -> tuple[Rubric, ...]:
    """The children that a container evaluates on an observation, in order."""
    at_end = container._kids_at_end
    return at_end if at_end and is_done(observation) else container._kids


def call_named(
    container: Container,
    action: Any,
    observation: Any,
    named: dict[str, float],
    caught: dict[str, Exception],
    prefix: str = "",
) -> float:
    """Evaluate a container, writing down the score of everything below it by its dotted name.

    Containers and plain leaves, of which most rewards are made, need no frames for that.

    Args:
        container: One whose `_is_plain_container` is true.
        action: What the agent did.
        observation: What came of it.
        named: Takes the scores, a parent's before its children's.
        caught: Takes what something below raised and something else dealt with.
        prefix: Put before each name.
    """
    scores: list[float] = []
    leaf = None
    stops = container._stops_at_zero
    kids = container._named_kids
    if container._kids_at_end and is_done(observation):
        kids = container._named_kids_at_end
    try:
        for name, child, state in kids:
            path = prefix + name if prefix else name
            if child._mode == LEAF:
                leaf = child
                score = child.forward(action, observation)
                if score.__class__ is not float or score - score != 0.0:
                    score = finite(child, score)
                state["last_score"] = named[path] = score
            else:
                leaf = None
                score = _call_named_child(child, action, observation, named, caught, path)
            scores.append(score)
            if stops and score == 0.0:
                break
        leaf = None
        score = container._combine(scores)
        if score.__class__ is not float or score - score != 0.0:
            score = finite(container, score)
    except Exception as error:
        if leaf is not None:
            trace(leaf, error)
        trace(container, error)
        raise
    container.__dict__["last_score"] = score
    return score


def _call_named_child(
    child: Any,
    action: Any,
    observation: Any,
    named: dict[str, float],
    caught: dict[str, Exception],
    path: str,
) -> float:
    named[path] = 0.0  # keeps its place in front of its children
    score = None
    try:
        if child._mode == PARENT and child._is_plain_container:
            score = call_named(child, action, observation, named, caught, f"{path}.")
        else:
            score = call_recorded(child, action, observation, named, caught, f"{path}.")
    finally:
        if score is None:
            del named[path]
    named[path] = score
    return score


def call_recorded(
    rubric: Rubric,
    action: Any,
    observation: Any,
    named: dict[str, float],
    caught: dict[str, Exception],
    prefix: str = "",
) -> float:
    """The same for any rubric of a sync tree, by way of frames."""
    recorder = Frame(None)
    token = frames.enter(recorder)
    try:
        score: float = rubric(action, observation)
        return score
    finally:
        frames.leave(token)
        if recorder.entries:
            add_components(named, rubric, recorder.entries[-1][3], prefix, caught)


def namer(rubric: Rubric) -> Callable[..., float]:
    """What evaluates a sync tree and names its scores the fastest: `call_named` or `call_recorded`.

    Both take ``(rubric, action, observation, named, caught)``.
    """
    plain = rubric._mode == PARENT and rubric._is_plain_container and not current()
    return call_named if plain else call_recorded


def exact_sum(values: Iterable[float]) -> float:
    """The sum, rounded once: the same whatever the order and the Python; infinite if too large.

    Example:
        >>> exact_sum([0.7, 0.2, 0.1])
        1.0
    """
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def finite(rubric: Rubric, value: Any) -> float:
    """Check a score, and turn other real numbers into the float that they are.

    Args:
        rubric: Whose score it is, for the message.
        value: What its `forward` gave.

    Raises:
        InvalidScoreError: It is a bool, None, a string, NaN, infinite, or no number at all.
        AsyncRubricError: It is an awaitable, from a `forward` that isn't declared async.
    """
    kind = type(value)
    if kind is float and math.isfinite(value):
        return value  # type: ignore[no-any-return]
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise AsyncRubricError(
            f"{_name(rubric)} gave an awaitable, but nothing in its tree is declared async; "
            "write `async def forward`"
        )
    if hasattr(value, "_rewards_by_step"):
        raise InvalidScoreError(
            f"{_name(rubric)} gave a rubric; a factory of rubrics takes no arguments",
            value=value,
        )
    if kind is not bool and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    what = repr(value) if kind in (float, bool, type(None)) else f"{value!r:.80} ({kind.__name__})"
    raise InvalidScoreError(f"{_name(rubric)} gave {what}; a score is a finite float", value=value)


def _name(rubric: Rubric) -> str:
    kind, title = type(rubric).__name__, rubric._title()
    return f"{kind}.forward" if title == kind else title  # of a function, its name


class _PathNote(str):
    """The note on an author's exception that says which rubric raised it."""

    rubric: Rubric
    path: str

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # the rubric stays where it is


def trace(rubric: Rubric, error: Exception) -> None:
    """Add `rubric` to the path that `error` carries, as the error passes through it.

    An author's exception gets one note; a `RubricError` says the path itself.
    """
    old = replace_note(error, _PathNote, None)
    path = ""
    if old is not None:
        path = old.path
        if old.rubric is not rubric:
            name = rubric._look().paths.get(id(old.rubric))
            # An unknown name: the error was raised before, somewhere else.
            path = f"{name}.{path}".rstrip(".") if name is not None else ""
    where = f"{path!r} of {type(rubric).__name__}" if path else type(rubric).__name__
    note = _PathNote(f"raised in rubric {where}")
    note.rubric, note.path = rubric, path
    replace_note(error, _PathNote, note)
    if isinstance(error, RubricError):
        error.rubric_path = path


Note = TypeVar("Note", bound=str)


def replace_note(error: Exception, kind: type[Note], note: Note | None) -> Note | None:
    """Put a note of a kind on an exception, which may have been raised before.

    Returns:
        The note of that kind that it had.
    """
    notes: list[str] = error.__dict__.setdefault("__notes__", [])
    old = next((each for each in notes if isinstance(each, kind)), None)
    if old is not None:
        notes.remove(old)
    if note is not None:
        notes.append(note)
    return old


def path_of(error: BaseException) -> str | None:
    """The path that `trace` has added; ``""`` for the root, None where the error has none."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, _PathNote):
            return note.path
    return None
