"""A curriculum: stages with weights of their own, and conditions to move on to the next."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from guerdon.config.documents import Document, Problem
from guerdon.config.schedules.validation import validation_error
from guerdon.config.schedules.values import is_finite, told
from guerdon.errors import InvalidArgumentError, StateError

__all__ = ["Curriculum", "CurriculumSpec", "Stage", "Until"]

MAX_STAGES = 1_000
MAX_WINDOW = 10_000

Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class Until(BaseModel):
    """When a stage has done its work: everything that is said must hold.

    Example:
        >>> from guerdon.config import Until
        >>> Until(episodes=100, component="format", mean_above=0.9, over=50).over
        50

    Attributes:
        episodes: How many episodes ended in the stage, at least.
        component: A component whose mean counts.
        mean_above: What its mean must exceed.
        over: Over how many episodes: the last ones in the stage that have the component, from 1 to
            10,000. Before there are that many, the condition doesn't hold.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    episodes: Annotated[StrictInt, Field(ge=1)] | None = None
    component: Name | None = None
    mean_above: Finite | None = None
    over: Annotated[StrictInt, Field(ge=1, le=MAX_WINDOW)] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        three = {"component": self.component, "mean_above": self.mean_above, "over": self.over}
        lacking = [name for name, value in three.items() if value is None]
        if len(lacking) == 3 and self.episodes is None:
            raise PydanticCustomError(
                "until",
                "it says no condition; it takes episodes, or component, mean_above and over",
            )
        if 0 < len(lacking) < 3:
            raise PydanticCustomError(
                "until",
                "it lacks {lacking}; component, mean_above and over go together",
                {"lacking": " and ".join(lacking)},
            )
        return self


class Stage(BaseModel):
    """One stage of a curriculum.

    Example:
        >>> from guerdon.config import Stage
        >>> Stage(name="format first", weights={"task": 0.0}, until={"episodes": 500}).weights
        {'task': 0.0}

    Attributes:
        name: Its name.
        weights: Weights by the name of the entry, in place of those that are configured. An entry
            that isn't named has the weight it is configured with, whatever an earlier stage said.
        until: When to move on; None for the last stage alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    weights: dict[Name, Finite] = Field(default_factory=dict)
    until: Until | None = None


def _in_order(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Whether each stage can be reached, and told from the others."""
    wrong: list[Problem] = []
    if not 1 <= len(stages) <= MAX_STAGES:
        said = f"there are {len(stages):,} stages; it takes from 1 to {MAX_STAGES:,}"
        wrong.append(Problem((), said))
    names: dict[str, int] = {}
    for number, stage in enumerate(stages):
        first = names.setdefault(stage.name, number)
        if first != number:
            said = f"stage {first} is named {stage.name!r} already; each needs a name of its own"
            wrong.append(Problem((number, "name"), said))
        is_last = number == len(stages) - 1
        if is_last and stage.until is not None:
            said = "nothing comes after the last stage; leave it out"
            wrong.append(Problem((number, "until"), said))
        elif not is_last and stage.until is None:
            said = "it is missing, so the next stage is never reached; only the last goes without"
            wrong.append(Problem((number, "until"), said))
    if wrong:
        raise validation_error("curriculum", wrong, given=stages)
    return stages


#: A field of a pydantic model that holds the stages of a curriculum, as in files.
CurriculumSpec = Annotated[
    tuple[Stage, ...],
    AfterValidator(_in_order),  # the number too: pydantic counts those only that are valid
    Field(json_schema_extra={"minItems": 1, "maxItems": MAX_STAGES}),
]
_STAGES: TypeAdapter[tuple[Stage, ...]] = TypeAdapter(CurriculumSpec)


class Curriculum:
    """Where training is in a list of stages.

    It is told the components of each episode that ended, moves on by at most one stage each time,
    and never goes back. Several threads may tell it. What it keeps is bounded: of each component
    that a stage waits for, the values of the last ``over`` episodes.

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
        stages: Each a `Stage`, or a mapping of what it is made of.

    Raises:
        InvalidArgumentError: A stage can't be one, two have one name, there is none, or one but the
            last has no `Stage.until`.
    """

    def __init__(self, stages: Sequence[Stage | Mapping[str, Any]]) -> None:
        try:
            self.stages = _STAGES.validate_python(stages)
        except ValidationError as error:
            problems = (Problem(each["loc"], each["msg"]) for each in error.errors())
            raise InvalidArgumentError(
                "the stages of a curriculum can't be meant: "
                + "; ".join(map(Document(None).told, problems))
            ) from error
        self._lock = threading.Lock()
        self._enter(0)

    def _enter(self, number: int) -> None:
        self._number = number
        self._episodes = 0
        until = self.stages[number].until
        self._recent: deque[float] = deque(maxlen=until.over or 0 if until else 0)

    @property
    def stage(self) -> Stage:
        """The present stage."""
        return self.stages[self._number]

    @property
    def episodes(self) -> int:
        """How many episodes ended in the present stage."""
        return self._episodes

    def observe(self, components: Mapping[str, float | None]) -> bool:
        """Take note of an episode that ended.

        Args:
            components: Its components by name. A component that isn't there, or is None, was not
                due or failed: the episode counts, and no mean takes it in.

        Returns:
            Whether the next stage began.

        Raises:
            InvalidArgumentError: A component is no finite number; the episode isn't counted.
        """
        for name, value in components.items():
            if value is not None and not is_finite(value):
                raise InvalidArgumentError(
                    f"the component {name!r} is {told(value)}; a finite number or None is accepted"
                )
        with self._lock:
            self._episodes += 1
            until = self.stage.until
            if until is None:
                return False
            if until.component is not None:
                value = components.get(until.component)
                if value is not None:
                    self._recent.append(float(value))
            if not self._is_done(until):
                return False
            self._enter(self._number + 1)
            return True

    def _is_done(self, until: Until) -> bool:
        if until.episodes is not None and self._episodes < until.episodes:
            return False
        if until.over is None or until.mean_above is None:
            return True
        if len(self._recent) < until.over:
            return False
        # The sign of this sum is exact, as that of a rounded mean isn't; scaled, it can't overflow.
        above = chain(self._recent, repeat(-until.mean_above, until.over))
        return math.fsum(value * 2.0**-16 for value in above) > 0

    def state_dict(self) -> dict[str, Any]:
        """Where it is, as JSON can hold it: the stage's name, its episodes, the last values."""
        with self._lock:
            return {
                "stage": self.stage.name,
                "episodes": self._episodes,
                "recent": list(self._recent),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where another was.

        The stages themselves are no part of a state: those may have been edited. The stage is found
        by its name, and of more values than the stage now looks at, the last are taken.

        Args:
            state: What `state_dict` gave.

        Raises:
            StateError: It doesn't fit; nothing was loaded.
        """
        keys = ("stage", "episodes", "recent")
        given = set(state) if isinstance(state, Mapping) else set()
        if given != set(keys):
            raise StateError(
                f"the state doesn't fit a curriculum; it holds {', '.join(keys)}",
                missing=[key for key in keys if key not in given],
                unexpected=sorted(str(key) for key in given - set(keys)),
            )
        names = [stage.name for stage in self.stages]
        name, episodes, recent = (state[key] for key in keys)
        if name not in names:
            raise StateError(f"the state is at stage {told(name)}; there are {names}")
        if not isinstance(episodes, int) or isinstance(episodes, bool) or episodes < 0:
            raise StateError(f"episodes is {told(episodes)}; a whole number from 0 is needed")
        if not isinstance(recent, list) or not all(map(is_finite, recent)):
            raise StateError(f"recent is {told(recent)}; a list of finite numbers is needed")
        with self._lock:
            self._enter(names.index(name))
            self._episodes = episodes
            self._recent.extend(map(float, recent))

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            kept = dict(self.__dict__, _recent=self._recent.copy())
        del kept["_lock"]
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"Curriculum(stage {self._number + 1} of {len(self.stages)}, {self.stage.name!r}, "
            f"after {self._episodes} of its episodes)"
        )
