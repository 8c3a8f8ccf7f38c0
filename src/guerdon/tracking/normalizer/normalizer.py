"""`RewardNormalizer`: rewards of several environments on one scale, as they come in."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from guerdon._validation import shown as told
from guerdon.credit.columns import Floats
from guerdon.errors import InvalidArgumentError
from guerdon.tracking.normalizer.moments import Moments, population_scale
from guerdon.tracking.normalizer.rows import EnvId, read_id, read_reward, read_rows
from guerdon.tracking.normalizer.settings import KEPT, Known, Method, Range, Settings
from guerdon.tracking.normalizer.statistics import ROUNDING, SMALLEST_SPREAD, Scale

__all__ = ["RewardNormalizer"]


class RewardNormalizer:
    """Rewards of several environments on one scale.

    A call takes rewards in first, all of an array at once, and then normalises them by what is
    known with them: (r − centre) / spread, cut to `clip_range`.

    ====================  ==============================  ===========================
    method                centre                          spread
    ====================  ==============================  ===========================
    ``running_mean_std``  the mean μ                      the standard deviation σ
    ``min_max``           the lowest                      the highest − the lowest
    ``percentile``        the 5th percentile              the 95th − the 5th
    ``population``        the mean M of the environments  their common deviation S
    ====================  ==============================  ===========================

    - ``running_mean_std``: σ² = Σ (r − μ)² / n, by Welford (1962) and, for arrays and merges, Chan,
      Golub and LeVeque (1979), which stay exact where rewards are large and differ little.
    - ``min_max``: gives 0 to 1.
    - ``percentile``: as ``min_max``, but rare extremes don't matter; the range from the 5th to the
      95th percentile is that of DreamerV3 (arXiv 2301.04104). A sketch of bounded memory gives
      percentiles that are exact below 2,048 rewards; of n, their ranks are off by at most
      (1 + log₂(n / 2048)) / 2048 of all, 0.65 % of 10⁷ (see `Scale.rank_error`).
    - ``population``: environments are members of a population in which each counts the same,
      however many rewards it gave. By the moments of their mixture, M = Σ μ_e / E and
      S² = Σ (σ_e² + (μ_e − M)²) / E. All are put on one scale, so an environment that pays more
      than the others still does; with ``running_mean_std`` each has mean 0. Pooled, it is the same
      as ``running_mean_std``.

    Where the spread is 0, or at most 2⁻⁴⁶ (1.4e-14) of the centre, which is rounding, 1 is in its
    place. So the first reward gives 0.0, and so do rewards that are all the same; the first two
    that differ give −1.0 and 1.0 by mean and deviation when they come in one array.

    Threads may share one. Rewards up to 1e100 are taken; NaN and infinity are refused, with all
    that came in the same call.

    Example:
        >>> from guerdon import RewardNormalizer
        >>> normalizer = RewardNormalizer()
        >>> normalizer(reward=10.0, env_id="chess")
        0.0
        >>> normalizer([0.0, 200.0, 20.0], env_id=["go", "go", "chess"]).tolist()
        [-1.0, 1.0, 1.0]
        >>> normalizer.scale("chess")
        Scale(count=2, centre=15.0, spread=5.0, rank_error=0.0)

    Args:
        method: One of the table's.
        per_environment: Whether each environment is normalised by what it gave itself; otherwise
            all are pooled, and `env_id` isn't looked at.
        clip_range: The lowest and the highest that come out; None: as it is.
        percentiles: Which ones ``percentile`` goes by, from 0 to 100.
        max_environments: How many environments it knows at most; one more is refused.

    Raises:
        InvalidArgumentError: An argument can't be meant.
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
        self.settings = Settings(method, per_environment, clip_range, percentiles, max_environments)
        self._frozen = False
        self._known: Known = {}
        self._lock = threading.Lock()

    # Calling ---------------------------------------------------------------------------------

    @overload
    def __call__(self, reward: float, env_id: EnvId | None = None) -> float: ...
    @overload
    def __call__(self, reward: ArrayLike, env_id: Any = None) -> Floats: ...
    def __call__(self, reward: Any, env_id: Any = None) -> float | Floats:
        """Take rewards in, unless it is frozen, and normalise them.

        Args:
            reward: One number, or a list or array of them in any shape.
            env_id: Which environment it is of, a whole number or a text; for several rewards, one
                id for each in the same shape, or one for all.

        Returns:
            A float for one number; otherwise an array in the rewards' shape.

        Raises:
            InvalidArgumentError: A reward is no finite number up to 1e100, an id is none, there are
                more environments than it may know, or it is frozen and doesn't know one. Nothing of
                the call is taken in.
        """
        if env_id is None and self.settings.per_environment:
            raise InvalidArgumentError(
                "env_id is missing; say of which environment a reward is, or make the normaliser "
                "with per_environment=False"
            )
        if reward is None:
            raise InvalidArgumentError(
                "reward is None, as where scoring failed: there is none to normalise; leave it out"
            )
        if getattr(reward, "shape", None) == ():
            reward = reward.item()
        if getattr(env_id, "shape", None) == ():
            env_id = env_id.item()
        return self._one(reward, env_id) if isinstance(reward, Real) else self._many(reward, env_id)

    def _one(self, reward: Any, env_id: Any) -> float:
        reward = read_reward(reward)
        key = read_id(env_id) if self.settings.per_environment else None
        with self._lock:
            if not self._frozen:
                known = self._known.get(key)
                if known is None:
                    self._check_room([key])
                    known = self._known[key] = self.settings.new()
                known.add(reward)
            scale = self._scale(key)
        normal: float = (reward - scale.centre) / _divisor(scale)
        if self.settings.clip_range is None:
            return normal
        lowest, highest = self.settings.clip_range
        return min(max(normal, lowest), highest)

    def _many(self, reward: ArrayLike, env_id: Any) -> Floats:
        rows = read_rows(reward, env_id, per_environment=self.settings.per_environment)
        added: Known = {}
        if rows.ids and not self._frozen:
            of_rows = KEPT[self.settings.method].of_rows
            found = of_rows(rows.rewards, rows.codes, len(rows.ids))
            added.update(zip(rows.ids, found, strict=True))
        with self._lock:
            if not self._frozen:
                self._take(added)
            scales = [self._scale(each) for each in rows.ids]
        centre = np.array([scale.centre for scale in scales])
        divisor = np.array([_divisor(scale) for scale in scales])
        normal: Floats = rows.rewards - centre[rows.codes]
        normal /= divisor[rows.codes]
        if self.settings.clip_range is not None:
            np.clip(normal, *self.settings.clip_range, out=normal)
        return normal.reshape(rows.shape)

    # Statistics ------------------------------------------------------------------------------

    def _check_room(self, env_ids: Iterable[EnvId | None]) -> None:
        new = [each for each in env_ids if each not in self._known]
        if len(self._known) + len(new) > self.settings.max_environments:
            more = f" and {len(new) - 1:,} more" if len(new) > 1 else ""
            raise InvalidArgumentError(
                f"there is no room for environment {told(new[0])}{more}: {len(self._known):,} are "
                f"known, and max_environments is {self.settings.max_environments:,}"
            )

    def _take(self, added: Known) -> None:
        self._check_room(added)
        for env_id, statistics in added.items():
            self._known.setdefault(env_id, self.settings.new()).merge(statistics)

    def _scale(self, env_id: EnvId | None) -> Scale:
        if self.settings.method == "population" and self._known:
            return population_scale(cast(list[Moments], list(self._known.values())))
        if env_id not in self._known:
            frozen = "it is frozen, and " if self._frozen else ""
            raise InvalidArgumentError(
                f"the normaliser knows no reward of environment {told(env_id)}: {frozen}"
                f"it knows {told(list(self._known))}"
            )
        return self._known[env_id].scale()

    def scale(self, env_id: EnvId | None = None) -> Scale:
        """By what the next rewards of an environment would be normalised, if it were frozen.

        Args:
            env_id: The environment; None where they are pooled.

        Raises:
            InvalidArgumentError: No reward of it was taken in.
        """
        with self._lock:
            return self._scale(env_id if env_id is None else read_id(env_id))

    @property
    def environments(self) -> list[EnvId]:
        """The environments that it knows, in the order in which they first came."""
        with self._lock:
            return [each for each in self._known if each is not None]

    # Freezing --------------------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """Whether it takes nothing in."""
        return self._frozen

    def freeze(self) -> None:
        """Take nothing in from now on, as for evaluation; rewards are still normalised."""
        with self._lock:
            self._frozen = True

    def unfreeze(self) -> None:
        """Take rewards in again."""
        with self._lock:
            self._frozen = False

    # State -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What it knows, as JSON can hold it without loss; not what it was told how to do."""
        with self._lock:
            return self.settings.state(self._known, frozen=self._frozen)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Know what another knew, and nothing else.

        Args:
            state: What `state_dict` gave.

        Raises:
            StateError: It is none, or that of another method; nothing was loaded.
        """
        known = self.settings.read(state)
        with self._lock:
            self._known, self._frozen = known, state["frozen"]

    def merge(self, *others: RewardNormalizer | Mapping[str, Any]) -> None:
        """Take in what others know, as if their rewards had come here.

        What comes of it is what one would know that had seen all rewards: for mean, deviation, min
        and max but for rounding; for percentiles within the same bound of error. A past that two
        have in common, such as a state that both loaded, counts twice.

        Example:
            >>> from guerdon import RewardNormalizer
            >>> workers = [RewardNormalizer(), RewardNormalizer()]
            >>> for worker, reward in zip(workers, [1.0, 3.0]):
            ...     _ = worker(reward, env_id="chess")
            >>> together = RewardNormalizer()
            >>> together.merge(*workers)
            >>> together.scale("chess")
            Scale(count=2, centre=2.0, spread=1.0, rank_error=0.0)

        Args:
            *others: Other normalisers, or what their `state_dict` gave.

        Raises:
            StateError: One is of another method; nothing was taken in.
            InvalidArgumentError: It is frozen, or would know too many environments.
        """
        together = RewardNormalizer()
        together.settings = self.settings
        for other in others:
            state = other.state_dict() if isinstance(other, RewardNormalizer) else other
            together._take(self.settings.read(state))
        with self._lock:
            if self._frozen:
                raise InvalidArgumentError("the normaliser is frozen; unfreeze() it to merge")
            self._take(together._known)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            kept = dict(self.__dict__, _known=copy.deepcopy(self._known))
        del kept["_lock"]
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        frozen = ", frozen" if self._frozen else ""
        return (
            f"RewardNormalizer({self.settings.method!r}, {len(self._known)} environments{frozen})"
        )


def _divisor(scale: Scale) -> float:
    is_one = scale.spread >= SMALLEST_SPREAD and scale.spread > ROUNDING * abs(scale.centre)
    return scale.spread if is_one else 1.0
