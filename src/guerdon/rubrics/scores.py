"""From what an evaluation recorded to the `Score` that a person reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon.errors import AsyncRubricError
from guerdon.rubrics import frames
from guerdon.rubrics.frames import Frame
from guerdon.types.score import Score

if TYPE_CHECKING:
    from typing import Any

    from guerdon.rubrics.rubric import Rubric

__all__ = ["score", "score_async"]


NOT_CALLED = "not called"


def score(rubric: Rubric, action: Any, observation: Any) -> Score:
    """See `Rubric.score`."""
    if rubric._look().is_async:
        raise AsyncRubricError(
            f"{type(rubric).__name__} has an async member: use `await rubric.score_async(…)`"
        )
    recorder = Frame(None)
    token = frames.enter(recorder)
    try:
        rubric(action, observation)
    except Exception as error:
        return _of_recorder(rubric, recorder, error)
    finally:
        frames.leave(token)
    return _of_recorder(rubric, recorder)


async def score_async(rubric: Rubric, action: Any, observation: Any) -> Score:
    """See `Rubric.score_async`."""
    from guerdon.rubrics.concurrency import evaluate

    recorder = Frame(None)
    token = frames.enter(recorder)
    try:
        await evaluate(rubric, action, observation)
    except Exception as error:
        return _of_recorder(rubric, recorder, error)
    finally:
        frames.leave(token)
    return _of_recorder(rubric, recorder)


def _of_recorder(rubric: Rubric, recorder: Frame, error: Exception | None = None) -> Score:
    if not recorder.entries:  # it was refused before it ran
        assert error is not None
        return Score(status="failed", error=_said(error), exception=error)
    return _of_entry(rubric, "", "", recorder, -1)


def _of_entry(
    rubric: Rubric, name: str, path: str, parent: Frame, place: int, weight: float | None = None
) -> Score:
    """The score of the entry at `place` of `parent`, which is one of `rubric` at `path`."""
    _, value, seconds, frame = parent.entries[place]
    error = frame.error
    cancelled = value is None and error is None
    return Score(
        name=name,
        value=value,
        status="failed" if error is not None else "skipped" if cancelled else "scored",
        weight=weight,
        seconds=seconds,
        reason="cancelled" if cancelled else frame.reason,
        error=_said(error) if error is not None else None,
        exception=error,
        hook_errors=tuple(f"{hook}: {_said(raised)}" for hook, raised in frame.hook_errors),
        children=_children(rubric, frame, path, _why_skipped(rubric, frame, path)),
    )


def _children(rubric: Rubric, frame: Frame, path: str, why: str) -> tuple[Score, ...]:
    """The scores of a rubric's children, of which `frame` knows some.

    Args:
        rubric: The rubric.
        frame: Its own frame, or, where it was not called itself, that of the nearest ancestor
            that was: a parent may call its grandchildren.
        path: The path of `rubric` from the root.
        why: Why children that nobody called were skipped.
    """
    out: list[Score] = []
    places = _places(frame)
    for name, child in rubric._children.items():
        weight = rubric._weight_of(name)
        here = _join(path, name)
        called = places.get(id(child), [])
        if called:
            # The same rubric under two names: the first name takes the first call.
            shared = sum(other is child for other in rubric._children.values()) > 1
            mine, rest = (called[:1], called[1:]) if shared else (called, [])
            places[id(child)] = rest
            for number, place in enumerate(mine):
                label = name if number == 0 else f"{name}#{number + 1}"
                out.append(_of_entry(child, label, here, frame, place, weight))
            continue
        reason = (why == NOT_CALLED and rubric._why_absent(name)) or why
        below = _children(child, frame, here, reason) if child._children else ()
        out.append(Score(name=name, status="skipped", weight=weight, reason=reason, children=below))
    return tuple(out)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _places(frame: Frame) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for place, entry in enumerate(frame.entries):
        places.setdefault(id(entry[0]), []).append(place)
    return places


def _why_skipped(rubric: Rubric, frame: Frame, path: str) -> str:
    if not frame.entries:
        return NOT_CALLED
    last, value, _, _ = frame.entries[-1]
    name = rubric._look().paths.get(id(last), type(last).__name__)
    if value is None:
        return f"{_join(path, name)} failed"
    stopped = value == 0.0 and rubric._is_container
    return f"{_join(path, name)} scored 0" if stopped else NOT_CALLED


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
