"""How a normaliser was told to work, and reading back what another knew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from guerdon._validation import is_finite
from guerdon._validation import shown as told
from guerdon.errors import InvalidArgumentError, StateError
from guerdon.tracking.normalizer.extremes import Extremes
from guerdon.tracking.normalizer.moments import Moments
from guerdon.tracking.normalizer.percentiles import Percentiles
from guerdon.tracking.normalizer.rows import EnvId, read_id
from guerdon.tracking.normalizer.statistics import Statistics

__all__ = ["Known", "Method", "Range", "Settings"]

Method = Literal["running_mean_std", "min_max", "percentile", "population"]
Range: TypeAlias = tuple[float, float]

# By environment; None stands for all of them together.
Known: TypeAlias = dict[EnvId | None, Statistics]

KEPT: dict[str, type[Statistics]] = {
    "running_mean_std": Moments,
    "min_max": Extremes,
    "percentile": Percentiles,
    "population": Moments,
}
_STATE = ("method", "per_environment", "percentiles", "frozen", "environments")


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of a `RewardNormalizer`."""

    method: Method
    per_environment: bool
    clip_range: Range | None
    percentiles: Range
    max_environments: int

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or self.method not in KEPT:
            among = ", ".join(map(repr, get_args(Method)))
            raise InvalidArgumentError(f"method is {told(self.method)}; it must be one of {among}")
        if not isinstance(self.per_environment, bool):
            raise InvalidArgumentError(
                f"per_environment is {told(self.per_environment)}; it must be True or False"
            )
        if type(self.max_environments) is not int or self.max_environments < 1:
            raise InvalidArgumentError(
                f"max_environments is {told(self.max_environments)}; a whole number from 1 is "
                "needed"
            )
        if self.clip_range is not None:
            object.__setattr__(self, "clip_range", _range(self.clip_range, "clip_range"))
        percentiles = _range(self.percentiles, "percentiles", within=(0.0, 100.0))
        object.__setattr__(self, "percentiles", percentiles)

    def new(self) -> Statistics:
        """What is known of an environment before its first reward."""
        return (
            Percentiles(*self.percentiles) if self.method == "percentile" else KEPT[self.method]()
        )

    def state(self, known: Known, *, frozen: bool) -> dict[str, Any]:
        """What is known, as JSON can hold it without loss."""
        return {
            "method": self.method,
            "per_environment": self.per_environment,
            "percentiles": list(self.percentiles),
            "frozen": frozen,
            "environments": [[env_id, each.state()] for env_id, each in known.items()],
        }

    def read(self, state: Mapping[str, Any]) -> Known:
        """What a state knows; a StateError where it can't be meant, or is of another method."""
        given = set(state) if isinstance(state, Mapping) else set()
        if given != set(_STATE):
            raise StateError(
                f"the state doesn't fit a normaliser; it holds {', '.join(_STATE)}",
                missing=[key for key in _STATE if key not in given],
                unexpected=sorted(str(key) for key in given - set(_STATE)),
            )
        compared = ["method", "per_environment"]
        compared += ["percentiles"] if self.method == "percentile" else []
        for name in compared:
            here = self.state({}, frozen=False)[name]
            if state[name] != here:
                raise StateError(f"the state has {name} {told(state[name])}; here it is {here!r}")
        if not isinstance(state["frozen"], bool):
            raise StateError(f"frozen is {told(state['frozen'])}; it must be True or False")
        return self._read_environments(state["environments"])

    def _read_environments(self, environments: Any) -> Known:
        if not isinstance(environments, list) or len(environments) > self.max_environments:
            raise StateError(
                f"environments is {told(environments)}; a list of up to "
                f"{self.max_environments:,} pairs of an id and its state is needed"
            )
        known: Known = {}
        for number, pair in enumerate(environments):
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise StateError(f"environments[{number}] is {told(pair)}; a pair is needed")
            statistics = self.new()
            try:
                env_id = read_id(pair[0]) if self.per_environment else None
                statistics.load(pair[1])
            except (InvalidArgumentError, StateError) as error:
                raise StateError(f"environments[{number}]: {error}") from error
            if env_id in known:
                raise StateError(f"environments[{number}]: {told(env_id)} is there already")
            known[env_id] = statistics
        return known


def _range(value: Any, name: str, *, within: Range | None = None) -> Range:
    between = f", within {within[0]:g} and {within[1]:g}," if within else ""
    refused = InvalidArgumentError(
        f"{name} is {told(value)}; two finite numbers{between} that rise are needed"
    )
    if not isinstance(value, tuple | list) or len(value) != 2 or not all(map(is_finite, value)):
        raise refused
    low, high = map(float, value)
    if low >= high or (within is not None and not within[0] <= low < high <= within[1]):
        raise refused
    return low, high
