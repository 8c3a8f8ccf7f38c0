"""The progress of training: episodes, the trainer's step, and the stages of a curriculum."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    model_validator,
)

from guerdon._problems import Problem, validated_state, validation_error
from guerdon._thresholds import TOLERANCE
from guerdon._validation import is_finite, shown
from guerdon.config.annotations import convert
from guerdon.config.schedules import Schedule
from guerdon.errors import InvalidArgumentError, StateError

__all__ = ["Curriculum", "CurriculumStage", "EpisodeMeans", "Progress", "StageCondition"]

MAX_STAGES = 1_000
MAX_WINDOW = 10_000

_Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]
_Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class StageCondition(BaseModel):
    """When a stage ends: all that is given must be true.

    Example:
        >>> from guerdon.config import StageCondition
        >>> StageCondition(episodes=100, component="format", mean_above=0.9, over=50).over
        50

    Attributes:
        episodes: How many episodes ended in the stage, at least.
        component: A component whose mean counts.
        mean_above: What its mean must exceed, by more than 1e-9.
        over: Over how many episodes: the last ones in the stage that have the component, from 1 to
            10,000. Before there are that many, the condition is false.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    episodes: Annotated[StrictInt, Field(ge=1)] | None = None
    component: _Name | None = None
    mean_above: _Finite | None = None
    over: Annotated[StrictInt, Field(ge=1, le=MAX_WINDOW)] | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        three = {"component": self.component, "mean_above": self.mean_above, "over": self.over}
        missing = [name for name, value in three.items() if value is None]
        if len(missing) == 3 and self.episodes is None:
            raise ValueError("must have episodes, or component, mean_above and over")
        if 0 < len(missing) < 3:
            raise ValueError(
                f"must have component, mean_above and over together; it lacks "
                f"{' and '.join(missing)}"
            )
        return self


class CurriculumStage(BaseModel):
    """One stage of a curriculum.

    Example:
        >>> from guerdon.config import CurriculumStage
        >>> stage = CurriculumStage(name="format", weights={"task": 0.0}, until={"episodes": 500})
        >>> stage.weights
        {'task': 0.0}

    Attributes:
        name: Its name.
        weights: Weights by the names of entries, in place of the configured ones. An entry that
            isn't named has its configured weight, whatever an earlier stage had.
        until: When to move on; None for the last stage only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    weights: dict[_Name, _Finite] = Field(default_factory=dict)
    until: StageCondition | None = None


def _check_order(stages: tuple[CurriculumStage, ...]) -> tuple[CurriculumStage, ...]:
    """Check that each stage can be reached and that names are unique."""
    problems: list[Problem] = []
    if not 1 <= len(stages) <= MAX_STAGES:
        message = f"must have from 1 to {MAX_STAGES:,} stages, got {len(stages):,}"
        problems.append(Problem((), message))
    names: dict[str, int] = {}
    for number, stage in enumerate(stages):
        first = names.setdefault(stage.name, number)
        if first != number:
            message = f"must be unique; stage {first} is also named {stage.name!r}"
            problems.append(Problem((number, "name"), message))
        is_last = number == len(stages) - 1
        if is_last and stage.until is not None:
            message = "must be absent, as no stage follows the last one"
            problems.append(Problem((number, "until"), message))
        elif not is_last and stage.until is None:
            message = "is required, as the next stage is never reached otherwise"
            problems.append(Problem((number, "until"), message))
    if problems:
        raise validation_error("curriculum", problems, stages)
    return stages


#: The type of a field of a pydantic model with the stages of a curriculum, as in files.
Stages = Annotated[
    tuple[CurriculumStage, ...],
    AfterValidator(_check_order),  # of the number too: pydantic counts only valid stages
    Field(json_schema_extra={"minItems": 1, "maxItems": MAX_STAGES}),
]


class _State(BaseModel):
    """The state of a curriculum."""

    model_config = ConfigDict(extra="forbid")

    stage: StrictStr
    episodes: Annotated[StrictInt, Field(ge=0)]
    recent: list[_Finite]


# One lock for all curricula, so that they can be copied and pickled.
_observing = threading.Lock()


class Curriculum:
    """The progress of training through a list of stages.

    It observes the components of each episode that ended, moves on by at most one stage each time,
    and never goes back. It is thread-safe. Of each component that a stage waits for, it keeps the
    values of the last ``over`` episodes.

    Example:
        >>> from guerdon.config import Curriculum
        >>> curriculum = Curriculum([
        ...     {"name": "format", "weights": {"task": 0.0},
        ...      "until": {"component": "format", "mean_above": 0.8, "over": 2}},
        ...     {"name": "task"},
        ... ])
        >>> [curriculum.observe({"format": value}) for value in (0.0, 1.0, 1.0)]
        [False, False, True]
        >>> curriculum.stage.name, dict(curriculum.stage.weights)
        ('task', {})

    Args:
        stages: Each a `CurriculumStage`, or a mapping of its attributes.

    Raises:
        InvalidArgumentError: A stage is invalid, two have the same name, there are no stages, or
            one before the last has no `CurriculumStage.until`.
    """

    stages: tuple[CurriculumStage, ...]

    def __init__(self, stages: Sequence[CurriculumStage | Mapping[str, Any]]) -> None:
        self.stages, problems = convert(Stages, stages)
        if problems:
            raise InvalidArgumentError(f"`stages` is invalid: {'; '.join(map(str, problems))}")
        self._enter(0)

    def _enter(self, number: int) -> None:
        self._number = number
        self._episodes = 0
        until = self.stages[number].until
        self._recent: deque[float] = deque(maxlen=until.over or 0 if until else 0)

    @property
    def stage(self) -> CurriculumStage:
        """The current stage."""
        return self.stages[self._number]

    @property
    def episodes(self) -> int:
        """How many episodes ended in the current stage."""
        return self._episodes

    def observe(self, components: Mapping[str, float | None]) -> bool:
        """Take the result of an episode that ended.

        Args:
            components: Its components by name. One that is absent or None was not due, or failed:
                the episode counts, but not in a mean.

        Returns:
            Whether the next stage began.

        Raises:
            InvalidArgumentError: A component is not a finite number; the episode isn't counted.
        """
        for name, value in components.items():
            if value is not None and not is_finite(value):
                raise InvalidArgumentError(
                    f"component {name!r} must be a finite number or None, got {shown(value)}"
                )
        with _observing:
            self._episodes += 1
            until = self.stage.until
            if until is None:
                return False
            value = components.get(until.component) if until.component is not None else None
            if value is not None:
                self._recent.append(float(value))
            if not self._is_done(until):
                return False
            self._enter(self._number + 1)
            return True

    def _is_done(self, until: StageCondition) -> bool:
        if until.episodes is not None and self._episodes < until.episodes:
            return False
        if until.over is None or until.mean_above is None:
            return True
        if len(self._recent) < until.over:
            return False
        # The sign of this sum is exact, unlike that of a rounded mean; scaling prevents overflow.
        bar = (-until.mean_above, -TOLERANCE)
        above = chain(self._recent, *(repeat(part, until.over) for part in bar))
        return math.fsum(value * 2.0**-16 for value in above) > 0

    def state_dict(self) -> dict[str, Any]:
        """Return the progress, as JSON can represent it: the stage, its episodes, their values."""
        with _observing:
            return {
                "stage": self.stage.name,
                "episodes": self._episodes,
                "recent": list(self._recent),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the progress of another curriculum.

        The stages are not part of a state, so that they may have been edited. The stage is found by
        its name; of more values than the stage now looks at, the last are taken.

        Args:
            state: The result of `state_dict`.

        Raises:
            StateError: The state doesn't match; nothing was loaded.
        """
        found = validated_state(_State, state)
        names = [stage.name for stage in self.stages]
        if found.stage not in names:
            raise StateError(f"`stage` must be one of {names}, got {shown(found.stage)}")
        with _observing:
            self._enter(names.index(found.stage))
            self._episodes = found.episodes
            self._recent.extend(found.recent)

    def __repr__(self) -> str:
        return (
            f"Curriculum(stage {self._number + 1} of {len(self.stages)}, {self.stage.name!r}, "
            f"{self._episodes} episodes)"
        )


class Progress:
    """How far training is: episodes that began, the trainer's step, the stage of a curriculum.

    Example:
        >>> progress = Progress()
        >>> progress.begin(), progress.begin(), progress.report(training_step=500)
        (0, 1, None)
        >>> progress.to_dict()
        {'episode': 2, 'training_step': 500, 'stage': None}

    Args:
        curriculum: The curriculum, if there is one.
        parent: The progress that this one follows, until something is reported to this one alone.
    """

    def __init__(
        self, curriculum: Curriculum | None = None, *, parent: Progress | None = None
    ) -> None:
        self.curriculum = curriculum
        self._parent = parent
        self._episode = 0 if parent is None else None
        self._training_step = 0 if parent is None else None
        self._lock = threading.Lock()

    def fork(self) -> Progress:
        """Return one that follows this one."""
        return Progress(self.curriculum, parent=self)

    @property
    def episode(self) -> int:
        """How many episodes began; those that run at the same time each count."""
        if self._episode is None and self._parent is not None:
            return self._parent.episode
        return self._episode or 0

    @property
    def training_step(self) -> int:
        """The step that the trainer reported last, 0 before that."""
        if self._training_step is None and self._parent is not None:
            return self._parent.training_step
        return self._training_step or 0

    def begin(self) -> int:
        """Count an episode that begins; return its number, from 0."""
        begun = self._parent.begin() if self._parent is not None else 0  # for all sessions
        with self._lock:
            if self._episode is None:
                return begun
            self._episode += 1
            return self._episode - 1

    def report(self, *, training_step: int | None = None, episode: int | None = None) -> None:
        """Set what the trainer reports."""
        with self._lock:
            self._training_step = self._training_step if training_step is None else training_step
            self._episode = self._episode if episode is None else episode

    def factors(self, schedules: Mapping[str, Schedule | None], episode: int) -> dict[str, float]:
        """Return the factors of weights in an episode, by the names of entries."""
        at = {"episode": episode, "training_step": self.training_step}
        return {name: each(at[each.by]) for name, each in schedules.items() if each is not None}

    def stage_weights(self) -> Mapping[str, float]:
        """Return the weights of the current stage, in place of the configured ones."""
        return self.curriculum.stage.weights if self.curriculum is not None else {}

    def to_dict(self) -> dict[str, Any]:
        """Return the progress as JSON can represent it."""
        stage = self.curriculum.stage.name if self.curriculum is not None else None
        return {"episode": self.episode, "training_step": self.training_step, "stage": stage}


class EpisodeMeans:
    """Computes the mean of each component over an episode, and passes them on at its end.

    Example:
        >>> means = EpisodeMeans(print)
        >>> means({"brief": 1.0}, False), means({"brief": 0.0, "solved": 1.0}, True)
        {'brief': 0.5, 'solved': 1.0}
        (None, None)

    Args:
        receive: Called once with the means by name.
    """

    def __init__(self, receive: Callable[[dict[str, float]], Any]) -> None:
        self._receive = receive
        self._sums: dict[str, tuple[float, int]] = {}
        self._is_over = False

    def __call__(self, components: Mapping[str, float], done: bool) -> None:
        """Add the components of a step."""
        for name, value in components.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + value, count + 1
        if done and not self._is_over:
            self._is_over = True
            means = {name: total / count for name, (total, count) in self._sums.items()}
            # A sum that is too large for a float has no mean.
            self._receive({name: each for name, each in means.items() if math.isfinite(each)})
