"""`Prototype`: a tree of one's own, on which configurations are tried and fingerprinted."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from guerdon.config.live.arranging import arrange
from guerdon.config.live.tunables import tunables
from guerdon.config.schedules import Schedule
from guerdon.errors import GuerdonError, RewardConfigError
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import describe

__all__ = ["Prototype", "Settings"]

# How many configurations are remembered: schedules come back to few of them.
KEPT = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be changed while training runs, as it is at one time, or as it was changed.

    Attributes:
        weights: Weights by the names of entries.
        schedules: Schedules by the names of entries; None where one was taken away.
        tuned: The fields that were changed, by their dotted names in the tree.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    schedules: Mapping[str, Schedule | None] = field(default_factory=dict)
    tuned: Mapping[str, Any] = field(default_factory=dict)

    def __or__(self, newer: Settings) -> Settings:
        """What the newer say, and what only these do."""
        return Settings(
            {**self.weights, **newer.weights},
            {**self.schedules, **newer.schedules},
            {**self.tuned, **newer.tuned},
        )


class Look(NamedTuple):
    """What there is to say of a tree.

    Attributes:
        fingerprint: Its fingerprint.
        tree: Its rubrics; see `describe`.
    """

    fingerprint: str
    tree: list[dict[str, Any]]


class Prototype:
    """A tree of one's own, on which configurations are tried and fingerprinted.

    Args:
        rubric: The tree. Nobody else may use it.

    Attributes:
        rubric: The same, to be looked at.
        fields: Its tunable fields by dotted name, but for the weights of entries.
        base: The values that these had at first.
    """

    def __init__(self, rubric: Rubric) -> None:
        self.rubric = rubric
        self._lock = threading.RLock()
        self._looks: dict[bytes, Look] = {}
        self.fields = tunables(rubric)
        if isinstance(rubric, RubricComposer):
            self.fields.pop("weights", None)
        try:
            self.base = {path: each.get() for path, each in self.fields.items()}
        except GuerdonError as error:
            raise RewardConfigError(f"the reward can't be configured: {error}") from error
        self._tuned: Mapping[str, Any] = {}  # as it is arranged now

    def check(self, tuned: Mapping[str, Any]) -> None:
        """Try values of tunable fields.

        Raises:
            RewardConfigError: The tree refuses them; `problems` has a line each.
        """
        with self._lock:
            self._tune(tuned)

    def look(
        self, weights: Mapping[str, float], factors: Mapping[str, float], tuned: Mapping[str, Any]
    ) -> Look:
        """What there is to say of the tree as configured so.

        One that was looked at before is told at once, even while another is tried.
        """
        said = repr((sorted(weights.items()), sorted(factors.items()), sorted(tuned.items())))
        key = hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        found = self._looks.get(key)
        if found is None:
            with self._lock:
                self._tune(tuned)
                arrange(self.rubric, weights, factors, {})
                found = Look(self.rubric.fingerprint(), list(describe(self.rubric)))
                if len(self._looks) >= KEPT:
                    self._looks.pop(next(iter(self._looks)))
                self._looks[key] = found
        return found

    def _tune(self, tuned: Mapping[str, Any]) -> None:
        if tuned != self._tuned:
            arrange(self.rubric, {}, None, {**self.base, **tuned})
            self._tuned = dict(tuned)
