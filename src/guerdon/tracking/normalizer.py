"""`RewardNormalizer`: rewards of several environments on one scale, updated as they arrive."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from guerdon._problems import validated_state
from guerdon._validation import (
    check_choice,
    check_integer,
    check_range,
    check_type,
    is_finite,
    shown,
)
from guerdon.credit.columns import Floats, Integers, listed, number
from guerdon.errors import InvalidArgumentError, StateError
from guerdon.tracking.statistics import (
    LARGEST,
    ROUNDING,
    SMALLEST_SPREAD,
    Extremes,
    Moments,
    Percentiles,
    Scale,
    Statistics,
    population_scale,
)

__all__ = ["RewardNormalizer"]

EnvId: TypeAlias = str | int
Method = Literal["running_mean_std", "min_max", "percentile", "population"]
Range: TypeAlias = tuple[float, float]
# By environment; None is the key of all of them pooled.
Known: TypeAlias = dict[EnvId | None, Statistics]

STATISTICS: dict[str, type[Statistics]] = {
    "running_mean_std": Moments,
    "min_max": Extremes,
    "percentile": Percentiles,
    "population": Moments,
}
MAX_CHARACTERS = 1_000  # of an environment's id

StatisticsT = TypeVar("StatisticsT")


class _State(BaseModel, Generic[StatisticsT]):
    """The state of a normalizer."""

    model_config = ConfigDict(extra="forbid")

    method: str
    per_environment: StrictBool
    percentiles: tuple[float, float]
    frozen: StrictBool
    environments: list[
        tuple[
            Annotated[StrictStr, Field(max_length=MAX_CHARACTERS)] | StrictInt | None, StatisticsT
        ]
    ]


STATES: dict[str, type[_State[Any]]] = {
    method: _State[Annotated[kind, AfterValidator(kind.check)]]  # type: ignore[valid-type]
    for method, kind in STATISTICS.items()
}


class RewardNormalizer:
    """Puts rewards of several environments on one scale.

    A call first adds its rewards to the statistics, all of an array at once, and then normalizes
    them: (r − center) / spread, clipped to `clip_range`.

    ====================  ==============================  ===========================
    method                center                          spread
    ====================  ==============================  ===========================
    ``running_mean_std``  the mean μ                      the standard deviation σ
    ``min_max``           the lowest                      the highest − the lowest
    ``percentile``        the 5th percentile              the 95th − the 5th
    ``population``        the mean M of the environments  their common deviation S
    ====================  ==============================  ===========================

    - ``running_mean_std``: σ² = Σ (r − μ)² / n, by Welford (1962) and, for arrays and merges, Chan,
      Golub and LeVeque (1979), which stay exact for large rewards that differ little.
    - ``min_max``: returns 0 to 1.
    - ``percentile``: like ``min_max``, but robust against rare extremes; the range from the 5th to
      the 95th percentile is that of DreamerV3 (arXiv 2301.04104). A sketch of bounded memory
      computes percentiles that are exact below 2,048 rewards; of n rewards, their ranks are off by
      at most (1 + log₂(n / 2048)) / 2048 of all, 0.65 % of 10⁷ (see `Scale.rank_error`).
    - ``population``: environments are members of a population with equal weights, however many
      rewards each has. By the moments of their mixture, M = Σ μ_e / E and
      S² = Σ (σ_e² + (μ_e − M)²) / E. All share one scale, so an environment with higher rewards
      keeps them; with ``running_mean_std`` each has mean 0. Pooled, it equals
      ``running_mean_std``.

    A spread of 0, or of at most 2⁻⁴⁶ (1.4e-14) of the center, which is rounding, is replaced by 1.
    So the first reward returns 0.0, and so do rewards that are all equal; the first two that differ
    return −1.0 and 1.0 by mean and deviation if they arrive in one array.

    Threads may share a normalizer. Rewards up to 1e100 are accepted; NaN and infinity are rejected,
    with everything else in the same call.

    Example:
        >>> from guerdon import RewardNormalizer
        >>> normalizer = RewardNormalizer()
        >>> normalizer(reward=10.0, env_id="chess")
        0.0
        >>> normalizer([0.0, 200.0, 20.0], env_id=["go", "go", "chess"]).tolist()
        [-1.0, 1.0, 1.0]
        >>> normalizer.scale("chess")
        Scale(count=2, center=15.0, spread=5.0, rank_error=0.0)

    Args:
        method: One of the methods in the table.
        per_environment: Whether each environment is normalized by its own statistics; otherwise
            all are pooled, and `env_id` is ignored.
        clip_range: The lowest and the highest value to return; None doesn't clip.
        percentiles: The percentiles of the method ``percentile``, in [0, 100].
        max_environments: The largest number of environments; a further one is rejected.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """

    def __init__(
        self,
        method: Method = "running_mean_std",
        per_environment: bool = True,
        *,
        clip_range: Range | None = (-10.0, 10.0),
        percentiles: Range = (5.0, 95.0),
        max_environments: int = 1_000,
    ) -> None:
        self.method = check_choice("method", method, STATISTICS)
        self.per_environment = check_type("per_environment", per_environment, bool)
        self.clip_range = None if clip_range is None else check_range("clip_range", clip_range)
        self.percentiles = check_range("percentiles", percentiles, low=0, high=100)
        self.max_environments = check_integer("max_environments", max_environments, low=1)
        self._frozen = False
        self._known: Known = {}
        self._lock = threading.Lock()

    # Calling --------------------------------------------------------------------------------------

    @overload
    def __call__(self, reward: float, env_id: EnvId | None = None) -> float: ...
    @overload
    def __call__(self, reward: ArrayLike, env_id: Any = None) -> Floats: ...
    def __call__(self, reward: Any, env_id: Any = None) -> float | Floats:
        """Add rewards to the statistics, unless they are frozen, and normalize them.

        Args:
            reward: A number, or a list or array of numbers in any shape.
            env_id: The environment of the reward, an integer or a string; for several rewards, an
                array of ids in the same shape, or one for all.

        Returns:
            A float for a number; otherwise an array in the shape of the rewards.

        Raises:
            InvalidArgumentError: A reward is not a finite number up to 1e100, an id is invalid,
                there are too many environments, or the normalizer is frozen and an environment is
                unknown. No reward of the call is added.
        """
        if env_id is None and self.per_environment:
            raise InvalidArgumentError(
                "`env_id` is required; pass the environment of each reward, or create the "
                "normalizer with per_environment=False"
            )
        if reward is None:
            raise InvalidArgumentError(
                "`reward` must be a number, got None, which is a failed score; leave it out"
            )
        if getattr(reward, "shape", None) == ():
            reward = reward.item()
        if getattr(env_id, "shape", None) == ():
            env_id = env_id.item()
        return self._one(reward, env_id) if isinstance(reward, Real) else self._many(reward, env_id)

    def _one(self, reward: Any, env_id: Any) -> float:
        if not is_finite(reward) or abs(reward) > LARGEST:
            raise InvalidArgumentError(f"`reward` must be {_ACCEPTED}, got {shown(reward)}")
        reward = float(reward)
        key = _check_id(env_id) if self.per_environment else None
        with self._lock:
            if not self._frozen:
                known = self._known.get(key)
                if known is None:
                    self._check_room([key])
                    known = self._known[key] = STATISTICS[self.method].empty()
                known.add(reward)
            scale = self._scale(key)
        normal: float = (reward - scale.center) / _divisor(scale)
        if self.clip_range is None:
            return normal
        lowest, highest = self.clip_range
        return min(max(normal, lowest), highest)

    def _many(self, reward: ArrayLike, env_id: Any) -> Floats:
        rows = _read_rows(reward, env_id if self.per_environment else None)
        added: Known = {}
        if rows.ids and not self._frozen:
            statistics = STATISTICS[self.method].of_rows(rows.rewards, rows.codes, len(rows.ids))
            added.update(zip(rows.ids, statistics, strict=True))
        with self._lock:
            if not self._frozen:
                self._add(added)
            scales = [self._scale(each) for each in rows.ids]
        center = np.array([scale.center for scale in scales])
        divisor = np.array([_divisor(scale) for scale in scales])
        normal: Floats = rows.rewards - center[rows.codes]
        normal /= divisor[rows.codes]
        if self.clip_range is not None:
            np.clip(normal, *self.clip_range, out=normal)
        return normal.reshape(rows.shape)

    # Statistics -----------------------------------------------------------------------------------

    def _check_room(self, env_ids: Iterable[EnvId | None]) -> None:
        new = [each for each in env_ids if each not in self._known]
        if len(self._known) + len(new) > self.max_environments:
            more = f" and {len(new) - 1:,} more" if len(new) > 1 else ""
            raise InvalidArgumentError(
                f"can't add environment {shown(new[0])}{more}: {len(self._known):,} are known, and "
                f"`max_environments` is {self.max_environments:,}"
            )

    def _add(self, added: Known) -> None:
        self._check_room(added)
        for env_id, statistics in added.items():
            self._known.setdefault(env_id, STATISTICS[self.method].empty()).merge(statistics)

    def _scale(self, env_id: EnvId | None) -> Scale:
        if self.method == "population" and self._known:
            return population_scale(cast(list[Moments], list(self._known.values())))
        if env_id not in self._known:
            frozen = "the normalizer is frozen; " if self._frozen else ""
            raise InvalidArgumentError(
                f"environment {shown(env_id)} has no rewards yet; {frozen}known: "
                f"{shown(list(self._known))}"
            )
        return self._known[env_id].scale(*self.percentiles)

    def scale(self, env_id: EnvId | None = None) -> Scale:
        """Return the scale that the next rewards of an environment are normalized by when frozen.

        Args:
            env_id: The environment; None if they are pooled.

        Raises:
            InvalidArgumentError: The environment has no rewards yet.
        """
        with self._lock:
            return self._scale(env_id if env_id is None else _check_id(env_id))

    @property
    def environments(self) -> list[EnvId]:
        """The known environments, in the order of their first reward."""
        with self._lock:
            return [each for each in self._known if each is not None]

    # Freezing -------------------------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """Whether the statistics are frozen."""
        return self._frozen

    def freeze(self) -> None:
        """Stop updating the statistics, as for evaluation; rewards are still normalized."""
        with self._lock:
            self._frozen = True

    def unfreeze(self) -> None:
        """Update the statistics again."""
        with self._lock:
            self._frozen = False

    # State ----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics in a form that JSON represents without loss."""
        with self._lock:
            return {
                "method": self.method,
                "per_environment": self.per_environment,
                "percentiles": list(self.percentiles),
                "frozen": self._frozen,
                "environments": [[env_id, each.state()] for env_id, each in self._known.items()],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the statistics by those of another normalizer.

        Args:
            state: The result of `state_dict`.

        Raises:
            StateError: The state is invalid, or of another method; nothing was loaded.
        """
        known = self._read(state)
        with self._lock:
            self._known, self._frozen = known, state["frozen"]

    def merge(self, *others: RewardNormalizer | Mapping[str, Any]) -> None:
        """Add the statistics of other normalizers, as if their rewards had been added here.

        The result is that of one normalizer with all rewards: exact up to rounding for mean,
        deviation, minimum and maximum, within the same error bound for percentiles. Rewards that
        two normalizers share, such as a state that both loaded, count twice.

        Example:
            >>> from guerdon import RewardNormalizer
            >>> workers = [RewardNormalizer(), RewardNormalizer()]
            >>> for worker, reward in zip(workers, [1.0, 3.0]):
            ...     _ = worker(reward, env_id="chess")
            >>> merged = RewardNormalizer()
            >>> merged.merge(*workers)
            >>> merged.scale("chess")
            Scale(count=2, center=2.0, spread=1.0, rank_error=0.0)

        Args:
            *others: Other normalizers, or results of their `state_dict`.

        Raises:
            StateError: One is of another method; nothing was added.
            InvalidArgumentError: The normalizer is frozen, or there are too many environments.
        """
        merged = copy.copy(self)
        merged._known = {}
        for other in others:
            state = other.state_dict() if isinstance(other, RewardNormalizer) else other
            merged._add(self._read(state))
        with self._lock:
            if self._frozen:
                raise InvalidArgumentError("the normalizer is frozen; call unfreeze() to merge")
            self._add(merged._known)

    def _read(self, state: Mapping[str, Any]) -> Known:
        """Return the statistics of a state, all of them validated."""
        found: _State[Any] = validated_state(_State[Any], state)
        compared = ["method", "per_environment"]
        compared += ["percentiles"] if self.method == "percentile" else []
        for name in compared:
            if getattr(found, name) != getattr(self, name):
                raise StateError(
                    f"`{name}` of the state must be {getattr(self, name)!r}, got "
                    f"{shown(getattr(found, name))}"
                )
        # Only now: statistics of another method would be reported as invalid.
        found = validated_state(STATES[self.method], state)
        known: Known = {}
        for index, (env_id, statistics) in enumerate(found.environments):
            if env_id in known or (env_id is None) is self.per_environment:
                raise StateError(
                    f"`environments[{index}]` has an invalid or duplicate id {shown(env_id)}"
                )
            known[env_id] = statistics
        if len(known) > self.max_environments:
            raise StateError(
                f"`environments` must have at most {self.max_environments:,} items, got "
                f"{len(known):,}"
            )
        return known

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = dict(self.__dict__, _known=copy.deepcopy(self._known))
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        frozen = ", frozen" if self._frozen else ""
        return f"RewardNormalizer({self.method!r}, {len(self._known)} environments{frozen})"


def _divisor(scale: Scale) -> float:
    is_spread = scale.spread >= SMALLEST_SPREAD and scale.spread > ROUNDING * abs(scale.center)
    return scale.spread if is_spread else 1.0


# Reading the arguments of a call ------------------------------------------------------------------

_ACCEPTED = f"a finite number up to {LARGEST:g}"
_ID = f"an integer or a string of up to {MAX_CHARACTERS:,} characters"
_NUMBERS = (float, int, np.floating, np.integer)


class _Rows(NamedTuple):
    """Rewards, (N,); the index of each one's environment in `ids`, (N,); and the given shape."""

    rewards: Floats
    codes: Integers
    ids: list[EnvId | None]
    shape: tuple[int, ...]


def _check_id(env_id: Any) -> EnvId:
    if isinstance(env_id, str) and len(env_id) <= MAX_CHARACTERS:
        return str(env_id)
    if isinstance(env_id, Integral) and not isinstance(env_id, bool):
        return int(env_id)
    raise InvalidArgumentError(f"`env_id` must be {_ID}, got {shown(env_id)}")


def _read_rows(reward: ArrayLike, env_id: Any) -> _Rows:
    """Return rewards with the ids of their environments; None pools them."""
    rewards = _read_rewards(reward)
    shape, rewards = rewards.shape, rewards.ravel()
    if env_id is None or isinstance(env_id, str | Integral):
        key = None if env_id is None else _check_id(env_id)
        return _Rows(rewards, np.zeros(len(rewards), np.int64), [key][: len(rewards)], shape)
    ids = _as_array(env_id, "env_id")
    if ids.shape != shape:
        raise InvalidArgumentError(
            f"`env_id` has shape {ids.shape} and `reward` {shape}; they must be equal, or one id "
            "given for all"
        )
    if ids.dtype.kind in "iu" or not ids.size:
        found, codes = np.unique(ids, return_inverse=True)
        return _Rows(rewards, codes.ravel(), found.tolist(), shape)
    return _Rows(rewards, *_other_ids(ids.ravel().tolist()), shape)


def _read_rewards(reward: ArrayLike) -> Floats:
    array = _as_array(reward, "reward")
    if array.dtype == object:
        invalid = [row for row, value in enumerate(array.ravel()) if not is_finite(value)]
        if invalid:
            raise _rows_error(invalid, array.ravel()[invalid[0]])
    elif array.dtype.kind not in "iuf":
        raise InvalidArgumentError(f"`reward` must contain numbers, got dtype {array.dtype}")
    with np.errstate(over="ignore"):  # values of a wider float type
        array = array.astype(np.float64, copy=False)
    # NaN and infinity fail the comparison too.
    if array.size and not (array.max() <= LARGEST and array.min() >= -LARGEST):
        invalid = np.flatnonzero(~(np.abs(array.ravel()) <= LARGEST)).tolist()
        raise _rows_error(invalid, array.ravel()[invalid[0]].item())
    return array


def _as_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        raise InvalidArgumentError(
            f"`{name}` must be a single value, a list or an array, got {shown(value)}"
        )
    if np.ma.is_masked(value):
        raise InvalidArgumentError(f"`{name}` must not be masked; leave those rows out")
    try:
        if isinstance(value, list | tuple):
            # By itself numpy converts True to 1.0 beside numbers, and numbers to text beside text.
            kinds = set(map(type, value)) or {float}
            plain = all(issubclass(kind, _NUMBERS) and kind is not bool for kind in kinds)
            return np.asarray(value) if plain else np.array(value, dtype=object)
        return np.asarray(value)
    except Exception as error:  # such as a tensor on a GPU
        raise InvalidArgumentError(f"`{name}` can't be read as an array: {error}") from error


def _other_ids(ids: list[Any]) -> tuple[Integers, list[EnvId | None]]:
    invalid = {
        kind
        for kind in set(map(type, ids))
        if issubclass(kind, bool) or not issubclass(kind, str | Integral)
    }
    if invalid:
        rows = [row for row, each in enumerate(ids) if type(each) in invalid]
        raise InvalidArgumentError(
            f"`env_id` must be {_ID}, got {shown(ids[rows[0]])} in {_rows_text(rows)}"
        )
    found = number(ids, len(ids))
    return found.codes, [_check_id(each) for each in found.ids]


def _rows_error(rows: list[int], example: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"`reward` must be {_ACCEPTED}, got {shown(example)} in {_rows_text(rows)}; no reward was "
        "added"
    )


def _rows_text(rows: list[int]) -> str:
    return f"row{'s' * (len(rows) != 1)} {listed(rows, len(rows))}"
