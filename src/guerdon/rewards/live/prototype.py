"""`Prototype`: a tree of one's own, on which configurations are tried and fingerprinted."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from guerdon.errors import ConfigError, ConfigUpdateError, GuerdonError
from guerdon.rewards.composer import RubricComposer
from guerdon.rewards.live.tunables import tunables
from guerdon.rewards.schedules.schedules import Schedule
from guerdon.rubrics.description import describe
from guerdon.rubrics.rubric import Rubric

__all__ = ["Prototype", "Settings", "arrange"]

# How many fingerprints are kept: schedules come back to few of them.
KEPT = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be changed while training runs, as it is at one time.

    Attributes:
        weights: Weights by the names of entries.
        schedules: Schedules by the names of entries.
        tuned: The fields that were changed, by their dotted names in the tree.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    tuned: Mapping[str, Any] = field(default_factory=dict)


def arrange(
    rubric: Rubric,
    weights: Mapping[str, float],
    factors: Mapping[str, float],
    tuned: Mapping[str, Any],
) -> None:
    """Have a tree score by a configuration.

    Raises:
        ConfigUpdateError: A field isn't there, or refuses its value; `problems` name it.
    """
    fields = tunables(rubric) if tuned else {}
    problems = []
    for path, value in tuned.items():
        if path not in fields:
            problems.append(f"{path}: {type(rubric).__name__} has no such field to be tuned")
            continue
        try:
            if fields[path].get() != value:
                fields[path].set(value)
        except GuerdonError as error:
            problems.append(f"{path}: {error}")
    if problems:
        raise ConfigUpdateError("; ".join(problems), problems=problems)
    if isinstance(rubric, RubricComposer) and weights:
        if rubric._weights != weights:
            rubric.weights = dict(weights)
        if rubric._factors != factors:
            rubric.factors = dict(factors)


class Prototype:
    """A tree of one's own, on which configurations are tried and fingerprinted.

    Args:
        rubric: The tree. Nobody else may use it.

    Attributes:
        fields: Its tunable fields by dotted name.
        base: The values that these had at first.
    """

    def __init__(self, rubric: Rubric) -> None:
        self._rubric = rubric
        self._lock = threading.RLock()
        self._prints: dict[Any, str] = {}
        self.fields = tunables(rubric)
        try:
            self.base = {path: each.get() for path, each in self.fields.items()}
        except GuerdonError as error:
            raise ConfigError(f"the reward can't be configured: {error}") from error

    @property
    def rubric(self) -> Rubric:
        """The tree, to be looked at."""
        return self._rubric

    def check(self, tuned: Mapping[str, Any]) -> list[str]:
        """What is wrong with values of tunable fields, a line each."""
        with self._lock:
            try:
                arrange(self._rubric, {}, {}, {**self.base, **tuned})
            except ConfigUpdateError as error:
                return list(error.problems)
            finally:
                arrange(self._rubric, {}, {}, self.base)
        return []

    def fingerprint(
        self, weights: Mapping[str, float], factors: Mapping[str, float], tuned: Mapping[str, Any]
    ) -> str:
        """The fingerprint of the tree as configured so."""
        key = (repr(sorted(weights.items())), repr(sorted(factors.items())), repr(tuned))
        with self._lock:
            if key not in self._prints:
                if len(self._prints) >= KEPT:
                    self._prints.pop(next(iter(self._prints)))
                arrange(self._rubric, weights, factors, {**self.base, **tuned})
                self._prints[key] = self._rubric.fingerprint()
            return self._prints[key]

    def tree(
        self, weights: Mapping[str, float], factors: Mapping[str, float], tuned: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """What there is to say of the tree as configured so; see `describe`."""
        with self._lock:
            arrange(self._rubric, weights, factors, {**self.base, **tuned})
            return list(describe(self._rubric))
