"""The fast path: evaluating a plain tree that nothing records.

A tree is plain if it is sync, contains no trajectory rubric, and its root has no hooks. Everything
else is evaluated in `guerdon.rubrics.evaluation`. ``python -m benchmarks --only calls --only
composer --only rollouts`` measures this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from guerdon._thresholds import TOLERANCE
from guerdon.rubrics.evaluation import evaluate_call, run
from guerdon.rubrics.failure import finite, trace
from guerdon.rubrics.recording import (
    Evaluation,
    Recorder,
    add_components,
    awaitable,
    current,
    enter,
    is_done,
    leave,
)

# The values of `Rubric._mode`: how a call evaluates the rubric. The higher ones are for trees that
# are sync, have no hooks at the root and contain no trajectory rubric.
SLOW = 0  # by the evaluator that records; also if the traits aren't known yet
PLAIN = 1  # by calling `forward`
CONTAINER = 2  # a built-in container: by evaluating its children in one loop
LEAF = 3  # without children: by calling `forward`, which its parent may do itself


def call(self: Any, action: Any, observation: Any) -> Any:
    """Evaluate this rubric: ``rubric(action, observation)``.

    Args:
        action: The action of the agent.
        observation: The observation that it led to.

    Returns:
        A finite float; for a tree with an async member, an awaitable of one.

    Raises:
        Exception: The exception of a `forward`, with the rubric's path added.
        InvalidScoreError: A `forward` returned something that is not a finite float.
    """
    mode = self._mode
    if not mode:
        return evaluate_call(self, action, observation)
    parent = current()
    if parent is not None:
        return run(self, parent, action, observation)
    if mode == CONTAINER:
        score = _evaluate_container(self, action, observation)
        return awaitable(score) if self._may_be_awaited else score
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


def evaluate_named(
    rubric: Any,
    action: Any,
    observation: Any,
    named: dict[str, float],
    handled: dict[str, Exception],
    prefix: str = "",
) -> float:
    """Evaluate a sync tree, with the score of everything below the root by its dotted name.

    Args:
        rubric: The root.
        action: The action of the agent.
        observation: The observation that it led to.
        named: Takes the scores, a parent's before its children's.
        handled: Takes the exceptions that were raised in the tree and handled there.
        prefix: Put before each name.
    """
    if current() is None:
        if rubric._mode == CONTAINER:
            return _evaluate_container(rubric, action, observation, named, handled, prefix)
        if rubric._mode == LEAF:
            return call(rubric, action, observation)  # type: ignore[no-any-return]
    with Recorder(parent=current()) as recorder:
        try:
            score: float = rubric(action, observation)
            return score
        finally:
            if recorder.frames:
                add_components(named, handled, recorder.frames[-1], prefix)


def due(container: Any, observation: Any) -> Sequence[tuple[str, Any, dict[str, Any]]]:
    """The children that a container evaluates: their names, themselves, their attributes."""
    at_end = container._kids_at_end
    return at_end if at_end and is_done(observation) else container._kids  # type: ignore[no-any-return]


# A container doesn't call its leaves: what a call would do is in the loop, since a function for it
# would cost what that saves.


def _evaluate_container(
    container: Any,
    action: Any,
    observation: Any,
    named: dict[str, float] | None = None,
    handled: dict[str, Exception] | None = None,
    prefix: str = "",
) -> float:
    """Do what `Container.forward` does, in one loop; `named` and `handled` may be left out."""
    scores: list[float] = []
    stops = container._stops_at_zero
    leaf = None
    try:
        for name, child, attributes in due(container, observation):
            if child._mode == LEAF:
                leaf = child
                score = child.forward(action, observation)
                if score.__class__ is not float or score - score != 0.0:
                    score = finite(child, score)
                attributes["last_score"] = score
                if named is not None:
                    named[prefix + name] = score
            else:
                leaf = None
                if named is None:
                    score = child(action, observation)
                else:
                    path = prefix + name
                    score = _evaluate_named_child(child, action, observation, named, handled, path)
            scores.append(score)
            if stops and score <= TOLERANCE and score >= -TOLERANCE:  # is_zero, without the call
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


def _evaluate_named_child(
    child: Any,
    action: Any,
    observation: Any,
    named: dict[str, float],
    handled: Any,
    path: str,
) -> float:
    below: dict[str, float] = {}
    try:
        score = named[path] = evaluate_named(child, action, observation, below, handled, f"{path}.")
    finally:
        named.update(below)
    return score


# One step of an environment ----------------------------------------------------------------------


def evaluate_step(rubric: Any, action: Any, observation: Any) -> Evaluation:
    """Evaluate a sync tree at one step; an exception becomes `Evaluation.error`.

    An active `Recorder` returns this evaluation as its last one.

    Example:
        >>> from guerdon import Gate, RegexMatch
        >>> evaluation = evaluate_step(Gate(RegexMatch("please")), "please come", None)
        >>> evaluation.value, evaluation.components
        (1.0, {'rubric': 1.0})
    """
    outer = current()
    if isinstance(outer, Recorder) and outer.keeps_trees:
        with Recorder(keeps_trees=True) as recorder, contextlib.suppress(Exception):
            rubric(action, observation)
        return _kept(recorder, rubric, outer)
    evaluation = Evaluation(observation)
    named, handled = evaluation.components, evaluation.handled
    token = enter(None) if outer is not None else None
    try:
        evaluation.value = evaluate_named(rubric, action, observation, named, handled)
    except Exception as error:
        evaluation.error = error
    finally:
        if token is not None:
            leave(token)
    if isinstance(outer, Recorder):
        outer.keep(rubric, evaluation)
    return evaluation


async def evaluate_step_async(rubric: Any, action: Any, observation: Any) -> Evaluation:
    """Like `evaluate_step`, for any tree: members that wait do so concurrently."""
    outer = current()
    keeps_trees = isinstance(outer, Recorder) and outer.keeps_trees
    with Recorder(keeps_trees=keeps_trees) as recorder, contextlib.suppress(Exception):
        await rubric.evaluate(action, observation)
    return _kept(recorder, rubric, outer)


def _kept(recorder: Recorder, rubric: Any, outer: Any) -> Evaluation:
    """The evaluation that a recorder has recorded, which an outer recorder takes as its own."""
    evaluation = recorder.last(rubric)
    assert evaluation is not None
    if isinstance(outer, Recorder):
        outer.keep(rubric, evaluation)
    return evaluation
