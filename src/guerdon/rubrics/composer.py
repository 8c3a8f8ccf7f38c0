"""`RubricComposer`: named rubrics with weights, some due at every step, some at the end."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

from guerdon._validation import check_number, shown
from guerdon.errors import AsyncRubricError, InvalidArgumentError, RubricDefinitionError
from guerdon.rubrics import step_rewards
from guerdon.rubrics.calling import evaluate_named
from guerdon.rubrics.containers import Container
from guerdon.rubrics.evaluation import evaluate
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.recording import Recorder, StepScore, add_components
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.step_rewards import exact_sum

__all__ = ["RubricComposer", "ScoreRange"]

logger = logging.getLogger("guerdon.config")

# Held while an observed range grows, which is seldom; one for all, so that composers can be copied.
_widening = threading.Lock()


class ScoreRange(NamedTuple):
    """Where a rubric's scores lie.

    Example:
        >>> from guerdon import RegexMatch, RubricComposer
        >>> RubricComposer({"polite": RegexMatch("please")}, {"polite": 1.0}).ranges()
        {'polite': ScoreRange(low=0.0, high=1.0, source='declared')}

    Attributes:
        low: The lowest score.
        high: The highest score.
        source: ``"declared"`` by the rubric, or ``"observed"`` so far.
    """

    low: float
    high: float
    source: str


class RubricComposer(Container):
    """The weighted sum of named rubrics, of which some are due only when the episode ends.

    For the components c that are due, with weights w and factors f (of schedules, 1 by default)::

        reward = Σ w_i · f_i · n(c_i)      n(c) = (c − low) / (high − low), or c itself

    A component that isn't due is absent, not 0. One that is due and fails makes the whole fail: a
    penalty does not vanish because its judge is down.

    Example:
        >>> from guerdon import RubricComposer
        >>> composer = RubricComposer(
        ...     {"brief": lambda a, o: float(len(a) < 9), "solved": lambda a, o: o["solved"]},
        ...     weights={"brief": 0.5, "solved": 1.0},
        ...     normalize=False,
        ...     episode_end=["solved"],
        ... )
        >>> composer.compute("look", {"done": False})
        (0.5, {'brief': 1.0})
        >>> composer.compute("answer", {"done": True, "solved": 1.0})
        (1.5, {'brief': 1.0, 'solved': 1.0})
        >>> composer.update_weights({"brief": 0.0})
        >>> composer.combine({"brief": 1.0, "solved": 0.5})
        0.5

    Args:
        rubrics: Rubrics or functions by name; of a list, the names are ``rubric_0`` and so on.
        weights: One finite number each, by the same names or in the same order. They may be
            negative and need not sum to 1.
        normalize: Map each rubric's declared `score_range` to [0, 1]; a score outside of it goes
            on along the same line. Where none is declared, the range of the scores seen so far,
            this one among them, takes its place, and the reason of the score says so; until two
            scores have differed, the score itself is taken, cut to [0, 1].
        episode_end: The names of those that are due only where ``observation.done`` is true. A
            trajectory rubric among them sees the other steps all the same.

    Raises:
        InvalidArgumentError: Weights and rubrics don't match, or a weight is no finite number.
        RubricDefinitionError: A name can't be one, or something is no rubric.
    """

    _in_order = False
    _measured = ("observed",)
    state_names = ("weights", "normalize", "factors", "observed")
    tunable = ("weights",)

    _maps: list[str] | None  # the names whose scores are mapped; None where none is
    _undeclared: list[str]  # the names whose range isn't known from the start
    _vector: list[float]  # the effective weights, in the order of the children
    _lows: list[float]
    _highs: list[float]

    def __init__(
        self,
        rubrics: Mapping[str, RubricLike] | Iterable[RubricLike],
        weights: Mapping[str, float] | Iterable[float],
        normalize: bool = True,
        *,
        episode_end: Collection[str] = (),
    ) -> None:
        super().__init__()
        named = _named_rubrics(rubrics)
        ordered = _matched_weights(named, weights)
        self._at_end = _names_at_end(episode_end, named)
        self._weights = {
            name: ordered[name] for name in sorted(named, key=self._at_end.__contains__)
        }
        self._factors: dict[str, float] = {}
        self._observed: dict[str, tuple[float, float]] = {}
        self._told: set[str] = set()
        self.normalize = normalize
        for name in self._weights:
            setattr(self, name, as_rubric(named[name]))

    # What it computes --------------------------------------------------------------------------

    def compute(self, action: Any, observation: Any) -> tuple[float, dict[str, float]]:
        """Evaluate the components that are due, and combine them.

        Args:
            action: What the agent did.
            observation: What came of it.

        Returns:
            The reward, and the score of each component that was due, as its rubric gave it.

        Raises:
            AsyncRubricError: The tree has an async member; use ``await compute_async()``.
            Exception: What a component that was due raised, with its path added.
        """
        if (self._traits or self._look()).is_async:
            raise AsyncRubricError(
                "the composer has an async member: use `await composer.compute_async(…)`"
            )
        named: dict[str, float] = {}
        reward = evaluate_named(self, action, observation, named, {})
        return reward, self._own(named)

    async def compute_async(self, action: Any, observation: Any) -> tuple[float, dict[str, float]]:
        """Like `compute`, on any tree; the components are evaluated at the same time."""
        with Recorder() as recorder:
            reward = await evaluate(self, action, observation)
        named: dict[str, float] = {}
        add_components(named, {}, recorder.frames[-1])
        return reward, self._own(named)

    def combine(self, components: Mapping[str, float]) -> float:
        """The reward that components make, without evaluating anything.

        Args:
            components: Scores by name, of those that were due.

        Raises:
            InvalidArgumentError: A name is unknown, or a score is no finite number.
        """
        self._known(components, "a component")
        scores = {name: check_number(name, value) for name, value in components.items()}
        return exact_sum(
            self._effective(name) * self._normalized(name, score) for name, score in scores.items()
        )

    def _own(self, named: dict[str, float]) -> dict[str, float]:
        children = self._children
        if len(named) <= len(children) and named.keys() <= children.keys():
            return named
        return {name: score for name, score in named.items() if name in children}

    # Weights -----------------------------------------------------------------------------------

    @property
    def weights(self) -> dict[str, float]:
        """The weights by name; a copy. Set it to change them all."""
        return dict(self._weights)

    @weights.setter
    def weights(self, weights: Mapping[str, float]) -> None:
        self._weights = _matched_weights(self._weights, weights)

    def update_weights(self, weights: Mapping[str, float]) -> None:
        """Change some weights, all of those that are named or none.

        Raises:
            InvalidArgumentError: A name is unknown, or a weight is no finite number.
        """
        self._known(weights, "a weight")
        checked = {name: check_number(f"weights[{name!r}]", each) for name, each in weights.items()}
        self._weights = {**self._weights, **checked}
        self._reconfigured()

    @property
    def factors(self) -> dict[str, float]:
        """What the weights are multiplied by, by name, where that isn't 1; schedules set it."""
        return dict(self._factors)

    @factors.setter
    def factors(self, factors: Mapping[str, float]) -> None:
        self._known(factors, "a factor")
        checked = {name: check_number(f"factors[{name!r}]", each) for name, each in factors.items()}
        self._factors = {name: each for name, each in checked.items() if each != 1.0}

    @property
    def effective_weights(self) -> dict[str, float]:
        """The weights times their factors: what scores are multiplied by now."""
        return dict(zip(self._children, self._vector, strict=True))

    @property
    def episode_end(self) -> tuple[str, ...]:
        """The names of the components that are due only at the end of an episode."""
        return tuple(name for name in self._weights if name in self._at_end)

    def _effective(self, name: str) -> float:
        return self._weights[name] * self._factors.get(name, 1.0)

    def _known(self, given: Mapping[str, Any], what: str) -> None:
        if not isinstance(given, Mapping):
            raise InvalidArgumentError(f"{given!r:.80} is no mapping of names to numbers")
        unknown = [name for name in given if name not in self._weights]
        if unknown:
            raise InvalidArgumentError(
                f"{what} is named {', '.join(map(repr, unknown))}; there are {list(self._weights)}"
            )

    # Ranges ------------------------------------------------------------------------------------

    @property
    def normalize(self) -> bool:
        """Whether scores are mapped to [0, 1] before they are weighted."""
        return self._normalize

    @normalize.setter
    def normalize(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise InvalidArgumentError(f"`normalize` must be True or False, got {shown(value)}")
        self._normalize = value

    @property
    def observed(self) -> dict[str, list[float]]:
        """The lowest and the highest score seen of each component, by name."""
        return {name: list(each) for name, each in self._observed.items()}

    @observed.setter
    def observed(self, observed: Mapping[str, Sequence[float]]) -> None:
        self._known(observed, "an observed range")
        checked = {}
        for name, ends in observed.items():
            if not isinstance(ends, (list, tuple)) or len(ends) != 2:
                raise InvalidArgumentError(f"observed[{name!r}] is {ends!r:.80}, no low and high")
            low, high = (check_number(f"observed[{name!r}]", end) for end in ends)
            if low > high:
                raise InvalidArgumentError(f"observed[{name!r}] goes from {low} down to {high}")
            checked[name] = (low, high)
        self._observed = checked
        self._refresh()

    def ranges(self) -> dict[str, ScoreRange | None]:
        """Where each component's scores lie: as declared, else as seen so far, else None."""
        return {name: self._range_of(name) for name in self._children}

    def _range_of(self, name: str) -> ScoreRange | None:
        declared = _declared_range(self._children[name])
        if declared is not None:
            return ScoreRange(*declared, "declared")
        seen = self._observed.get(name)
        return ScoreRange(*seen, "observed") if seen is not None else None

    def _normalized(self, name: str, score: float) -> float:
        if not self._normalize:
            return score
        found = self._range_of(name)
        if found is None or found.low == found.high:
            return min(max(score, 0.0), 1.0)
        return (score - found.low) / (found.high - found.low)

    def _widen(self, scores: Sequence[float]) -> None:
        """Let the observed ranges hold new scores."""
        with _widening:
            for name, score in zip(self._children, scores, strict=False):
                low, high = self._observed.get(name, (score, score))
                self._observed[name] = min(low, score), max(high, score)
            self._set_bounds()

    def _set_bounds(self) -> None:
        seen = [self._observed.get(name, (math.inf, -math.inf)) for name in self._children]
        self._lows, self._highs = [low for low, _ in seen], [high for _, high in seen]

    # What a container says ---------------------------------------------------------------------

    def _reconfigured(self) -> None:
        self._refresh()
        super()._reconfigured()

    def _refresh(self) -> None:
        super()._refresh()
        declared = {name: _declared_range(child) for name, child in self._children.items()}
        plain = not self._normalize or all(each == (0.0, 1.0) for each in declared.values())
        self.__dict__["_maps"] = None if plain else list(self._children)
        self.__dict__["_undeclared"] = [name for name, each in declared.items() if each is None]
        self.__dict__["_vector"] = [self._effective(name) for name in self._children]
        self._set_bounds()
        if self._at_end:
            self.__dict__["_kids_at_end"] = self._kids
            self.__dict__["_kids"] = tuple(
                each for each in self._kids if each[0] not in self._at_end
            )

    def _combine(self, scores: Sequence[float]) -> float:
        if not scores and self._at_end:
            return StepScore(0.0, None, None, True)  # nothing is due
        for score, low, high in zip(scores, self._lows, self._highs, strict=False):
            if not low <= score <= high:
                self._widen(scores)
                break
        if self._maps is not None:
            named = zip(self._maps, scores, strict=False)
            scores = [self._normalized(name, score) for name, score in named]
            self._tell_observed(len(scores))
        try:
            return math.fsum(map(mul, scores, self._vector))
        except OverflowError:
            return math.inf

    def _tell_observed(self, count: int) -> None:
        """Say which components were mapped by what has been seen of them."""
        due = self._maps[:count] if self._maps is not None else ()
        for name in self._undeclared:
            if name not in due:
                continue
            if name not in self._told:
                self._told.add(name)
                logger.warning(
                    "%r declares no finite score_range: the composer normalises it by the "
                    "scores seen so far, so that equal scores may count differently; declare one, "
                    "or use normalize=False",
                    name,
                )
            low, high = self._observed[name]
            self.explain("%s normalised by the observed range [%.6g, %.6g]", name, low, high)

    def _adopt(self, name: str, child: Rubric) -> None:
        _declared_range(child)  # refused now, rather than at the first score
        Rubric._adopt(self, name, child)
        # One that comes back takes its old place: scores and weights go by it.
        places = {each: place for place, each in enumerate(self._weights)}
        ordered = sorted(self._children.items(), key=lambda item: places[item[0]])
        self.__dict__["_children"] = dict(ordered)

    def _check_name(self, name: str) -> None:
        super()._check_name(name)
        if name not in self._weights:
            raise RubricDefinitionError(
                f"the composer has no weight for {name!r}; make a new one, or replace one of "
                f"{list(self._weights)}"
            )

    def _weight_of(self, name: str) -> float | None:
        return self._effective(name)

    def _needs(self, name: str) -> str | None:
        return "due at the end of the episode" if name in self._at_end else None

    def _why_absent(self, name: str) -> str | None:
        return self._needs(name)

    def _range(self) -> tuple[float, float] | None:
        low = high = 0.0
        for name, child in self._children.items():
            declared = _declared_range(child)
            if declared is None:
                return None
            if self._normalize:
                declared = (0.0, 1.0)
            ends = sorted(self._effective(name) * end for end in declared)
            if name in self._at_end:  # absent at most steps
                ends = [min(0.0, ends[0]), max(0.0, ends[1])]
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _rewards_by_step(self) -> dict[int, float]:
        known = {name: step_rewards.by_step(child) for name, child in self._children.items()}
        return {
            stamp: exact_sum(
                self._effective(name) * self._normalized(name, rewards.get(stamp, 0.0))
                for name, rewards in known.items()
                if self._counts(name, stamp)
            )
            for stamp in step_rewards.stamps(self)
        }

    def _counts(self, name: str, stamp: int) -> bool:
        """Whether a component has a reward at a step: it was due, or spreads its score."""
        child = self._children[name]
        return child._look().has_trajectory or step_rewards.was_called(child, stamp)


def _named_rubrics(rubrics: Any) -> dict[str, RubricLike]:
    """Rubrics by name; those of a list are numbered."""
    if isinstance(rubrics, Mapping):
        return dict(rubrics)
    if isinstance(rubrics, Rubric) or not isinstance(rubrics, Iterable):
        raise InvalidArgumentError(
            f"{rubrics!r:.80} is no mapping of names to rubrics, and no list of them"
        )
    return {f"rubric_{place}": rubric for place, rubric in enumerate(rubrics)}


def _matched_weights(named: Collection[str], weights: Any) -> dict[str, float]:
    """One weight for each name."""
    if isinstance(weights, str) or not isinstance(weights, Iterable):
        raise InvalidArgumentError(
            f"weights is {weights!r:.80}; it takes one number a rubric, by its name or in order"
        )
    if not isinstance(weights, Mapping):
        given = list(weights)
        if len(given) != len(named):
            raise InvalidArgumentError(
                f"the {len(named)} rubrics and {len(given)} weights of RubricComposer must match; "
                "a rubric takes one weight"
            )
        weights = dict(zip(named, given, strict=True))
    if weights.keys() != set(named):
        raise InvalidArgumentError(
            f"the weights are named {list(weights)}, the rubrics {list(named)}; a rubric takes "
            "one weight, by its name"
        )
    return {name: check_number(f"weights[{name!r}]", weights[name]) for name in named}


def _names_at_end(episode_end: Any, named: Collection[str]) -> frozenset[str]:
    """The names that are due only at the end."""
    if isinstance(episode_end, str):
        raise InvalidArgumentError(f"episode_end is {episode_end!r}; it takes a list of names")
    unknown = [name for name in episode_end if name not in named]
    if unknown:
        raise InvalidArgumentError(
            f"episode_end names {', '.join(map(repr, unknown))}; there are {list(named)}"
        )
    return frozenset(episode_end)


def _declared_range(rubric: Rubric) -> tuple[float, float] | None:
    """The range that a rubric declares; None of one that has an end at infinity, or none at all.

    Raises:
        InvalidArgumentError: What it declares is no range.
    """
    declared = rubric._range()
    if declared is None:
        return None
    try:
        low, high = declared
        ordered = low <= high
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise InvalidArgumentError(
            f"{type(rubric).__name__}.score_range is {declared!r:.80}; it takes the lowest and "
            "the highest score"
        )
    return (low, high) if math.isfinite(high - low) else None
