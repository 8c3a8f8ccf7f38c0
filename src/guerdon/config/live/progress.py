"""`Progress`: how far training is, as schedules and curricula ask it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from guerdon.config.curriculum import Curriculum
from guerdon.config.schedules import Schedule

__all__ = ["EpisodeMeans", "Progress"]


class Progress:
    """How far training is: episodes that began, the trainer's step, the stage of a curriculum.

    Example:
        >>> progress = Progress()
        >>> progress.begin(), progress.begin(), progress.report(training_step=500)
        (0, 1, None)
        >>> progress.told()
        {'episode': 2, 'training_step': 500, 'stage': None}

    Attributes:
        episode: How many episodes began; those that run at the same time each count.
        training_step: The step that the trainer reported last, 0 before that.
        curriculum: The curriculum, if there is one.
    """

    def __init__(self, curriculum: Curriculum | None = None) -> None:
        self.episode = 0
        self.training_step = 0
        self.curriculum = curriculum
        self._lock = threading.Lock()

    def fork(self) -> Progress:
        """That of a session: the same, until something is reported for the session alone."""
        return _Own(self)

    def begin(self) -> int:
        """Count an episode that begins; its number, from 0."""
        with self._lock:
            self.episode += 1
            return self.episode - 1

    def report(self, *, training_step: int | None = None, episode: int | None = None) -> None:
        """Take what the trainer reports."""
        with self._lock:
            if training_step is not None:
                self.training_step = training_step
            if episode is not None:
                self.episode = episode

    def factors(self, schedules: Mapping[str, Schedule | None], episode: int) -> dict[str, float]:
        """What schedules multiply weights by, in an episode."""
        at = {"episode": episode, "training_step": self.training_step}
        return {
            name: schedule(at[schedule.by])
            for name, schedule in schedules.items()
            if schedule is not None
        }

    def staged(self) -> frozenset[str]:
        """The names whose weights some stage of the curriculum sets."""
        stages = self.curriculum.stages if self.curriculum is not None else ()
        return frozenset(name for stage in stages for name in stage.weights)

    def weights(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Weights, with those that the present stage sets in their place."""
        stage = self.curriculum.stage.weights if self.curriculum is not None else {}
        return {name: stage.get(name, weight) for name, weight in weights.items()}

    def told(self) -> dict[str, Any]:
        """Where it is, as JSON can hold it."""
        stage = self.curriculum.stage.name if self.curriculum is not None else None
        return {"episode": self.episode, "training_step": self.training_step, "stage": stage}


class _Own(Progress):
    """The progress of a session, which goes by that of all until something is reported to it."""

    def __init__(self, common: Progress) -> None:
        self._common = common
        self._own_step: int | None = None
        self._own_episode: int | None = None
        self._lock = threading.Lock()

    @property
    def curriculum(self) -> Curriculum | None:  # type: ignore[override]
        return self._common.curriculum

    @property
    def training_step(self) -> int:  # type: ignore[override]
        return self._common.training_step if self._own_step is None else self._own_step

    @property
    def episode(self) -> int:  # type: ignore[override]
        return self._common.episode if self._own_episode is None else self._own_episode

    def begin(self) -> int:
        episode = self._common.begin()  # it counts for all
        with self._lock:
            if self._own_episode is None:
                return episode
            self._own_episode += 1
            return self._own_episode - 1

    def report(self, *, training_step: int | None = None, episode: int | None = None) -> None:
        with self._lock:
            if training_step is not None:
                self._own_step = training_step
            if episode is not None:
                self._own_episode = episode


class EpisodeMeans:
    """Keeps an episode's mean of each component, and tells them at its end.

    Example:
        >>> means = EpisodeMeans(print)
        >>> means({"brief": 1.0}, False), means({"brief": 0.0, "solved": 1.0}, True)
        {'brief': 0.5, 'solved': 1.0}
        (None, None)

    Args:
        tell: Takes the means by name, once.
    """

    def __init__(self, tell: Callable[[dict[str, float]], Any]) -> None:
        self._tell = tell
        self._sums: dict[str, tuple[float, int]] = {}
        self._told = False

    def __call__(self, components: Mapping[str, float], done: bool) -> None:
        """Take the components of a step."""
        for name, value in components.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + value, count + 1
        if done and not self._told:
            self._told = True
            means = {name: total / count for name, (total, count) in self._sums.items()}
            # What is too large to be summed has no mean.
            self._tell({name: each for name, each in means.items() if math.isfinite(each)})
