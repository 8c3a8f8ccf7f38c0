"""Having a tree score by a configuration, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guerdon.config.live.tunables import Tunable, set_config, tunables
from guerdon.errors import GuerdonError, RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric

__all__ = ["arrange"]


def arrange(
    rubric: Rubric,
    weights: Mapping[str, float],
    factors: Mapping[str, float] | None,
    tuned: Mapping[str, Any],
) -> Callable[[], None]:
    """Have a tree score by a configuration; what it doesn't name stays as it is.

    Args:
        rubric: The tree.
        weights: Weights by the names of a composer's components.
        factors: All the factors that aren't 1; None leaves them.
        tuned: Values of tunable fields by dotted name.

    Returns:
        A function that has it score again as before.

    Raises:
        RewardConfigError: A field isn't there, or refuses its value; `problems` name it. The tree
            is as it was.
    """
    undo = _Undo()
    try:
        if tuned:
            _tune(rubric, tuned, undo)
        if weights or factors or (factors is not None and isinstance(rubric, RubricComposer)):
            _weigh(rubric, weights, factors, undo)
    except BaseException:
        undo()
        raise
    return undo


class _Undo:
    """Takes back what was done, the latest first."""

    def __init__(self) -> None:
        self._back: list[Callable[[], Any]] = []

    def add(self, back: Callable[[], Any]) -> None:
        self._back.append(back)

    def __call__(self) -> None:
        while self._back:
            self._back.pop()()


def _tune(rubric: Rubric, tuned: Mapping[str, Any], undo: _Undo) -> None:
    fields = tunables(rubric)
    problems = [
        f"{path}: {type(rubric).__name__} has no such field to be tuned"
        for path in tuned
        if path not in fields
    ]
    waiting: dict[str, Any] = {}
    if not problems:
        waiting = {path: each for path, each in tuned.items() if not fields[path].holds(each)}
    refused: dict[str, str] = {}
    while waiting:  # one may be refused until another is set: a lower bound before the upper one
        refused = _each_alone(fields, waiting, undo)
        if len(refused) == len(waiting):
            refused = _together(fields, refused, waiting, undo)
            break
        waiting = {path: waiting[path] for path in refused}
    problems += [f"{path}: {said}" for path, said in refused.items()]
    if problems:
        raise RewardConfigError("; ".join(problems), problems=problems)


def _each_alone(
    fields: Mapping[str, Tunable], waiting: Mapping[str, Any], undo: _Undo
) -> dict[str, str]:
    """Set what can be set by itself; what was refused, with why."""
    refused = {}
    for path, value in waiting.items():
        try:
            undo.add(fields[path].set(value))
        except GuerdonError as error:
            refused[path] = str(error)
    return refused


def _together(
    fields: Mapping[str, Tunable],
    refused: Mapping[str, str],
    waiting: Mapping[str, Any],
    undo: _Undo,
) -> dict[str, str]:
    """Set at once the fields of one config, of which none can be set by itself."""
    left = dict(refused)
    rubrics = {id(fields[path].rubric): fields[path].rubric for path in refused}
    for rubric in rubrics.values():
        values = {
            fields[path].field: waiting[path] for path in left if fields[path].rubric is rubric
        }
        if len(values) < 2:
            continue
        try:
            undo.add(set_config(rubric, values))
        except GuerdonError:
            continue  # why each of them was refused is known
        left = {path: said for path, said in left.items() if fields[path].rubric is not rubric}
    return left


def _weigh(
    rubric: Rubric,
    weights: Mapping[str, float],
    factors: Mapping[str, float] | None,
    undo: _Undo,
) -> None:
    if not isinstance(rubric, RubricComposer):
        name = type(rubric).__name__
        said = f"weights: {name} has none; the reward that was configured is a RubricComposer"
        raise RewardConfigError(said, problems=[said])
    old_weights, old_factors = rubric._weights, rubric._factors
    try:
        if any(old_weights.get(name) != weight for name, weight in weights.items()):
            rubric.update_weights(weights)
            undo.add(lambda: rubric.update_weights(old_weights))
        moved = {name: each for name, each in (factors or {}).items() if each != 1.0}
        if factors is not None and old_factors != moved:
            rubric.factors = moved
            undo.add(lambda: setattr(rubric, "factors", old_factors))
    except GuerdonError as error:
        raise RewardConfigError(f"weights: {error}", problems=[f"weights: {error}"]) from error
