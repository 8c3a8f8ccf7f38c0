"""`RubricComposer`: named rubrics with weights, some due at every step, some at the end."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from guerdon._thresholds import reaches
from guerdon._validation import check_number, shown
from guerdon.errors import AsyncRubricError, InvalidArgumentError, InvalidScoreError
from guerdon.rubrics.calling import evaluate_named
from guerdon.rubrics.containers import Weighted, check_range, matched_weights, named_rubrics
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.recording import Recorder, StepScore, add_components, current
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked
from guerdon.rubrics.step_rewards import exact_sum

__all__ = ["RubricComposer", "ScoreRange"]

logger = logging.getLogger("guerdon.config")

# Locked while an observed range grows, which is rare; shared, so that composers can be copied.
_widening = threading.Lock()


class ScoreRange(NamedTuple):
    """The range of a rubric's scores.

    Example:
        >>> from guerdon import RegexMatch, RubricComposer
        >>> RubricComposer({"polite": RegexMatch("please")}, {"polite": 1.0}).ranges()
        {'polite': ScoreRange(low=0.0, high=1.0, source='declared')}

    Attributes:
        low: The lowest score.
        high: The highest score.
        source: ``"declared"`` by the rubric, ``"default"`` for a rubric that declares none, or
            ``"observed"`` so far.
    """

    low: float
    high: float
    source: str


def _check_normalize(name: str, value: object) -> bool | str:
    if value is True or value is False or value == "observed":
        return value
    raise InvalidArgumentError(f"`{name}` must be True, False or 'observed', got {shown(value)}")


class RubricComposer(Weighted):
    """The weighted sum of named rubrics, of which some are due only when the episode ends.

    For the components c that are due, with weights w and factors f (of schedules, 1 by default)::

        reward = Σ w_i · f_i · n(c_i)      n(c) = (c − low) / (high − low), or c itself

    A component that isn't due is absent, not 0. If one that is due fails, the whole fails: a
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
        normalize: Map each rubric's `score_range` linearly to [0, 1].

            - True: scores outside of a declared range are not clipped. A rubric that declares no
              finite range has [0, 1], and a score outside of it is an error.
            - ``"observed"``: a rubric that declares no finite range has that of the scores seen so
              far, including this one, and the reason of the score includes it; until two scores
              have differed, the score itself is used, clipped to [0, 1]. Equal scores may count
              differently at different times.
            - False: the scores themselves are used.
        episode_end: The names of the components that are due only if ``observation.done`` is
            true. A trajectory rubric among them still sees the other steps.

    Raises:
        InvalidArgumentError: Weights and rubrics don't match, or a weight is not a finite number.
        RubricDefinitionError: A name or a rubric is invalid.
    """

    _is_composer = True
    _measured = ("observed",)
    state_names = ("weights", "normalize", "factors", "observed")
    tunable = ("weights",)
    normalize = Checked(_check_normalize)

    # Derived from the children and the configuration, for the hot path:
    _maps: bool  # whether scores are mapped to [0, 1]
    _observing: list[str]  # the names whose range is that of the scores seen so far

    def __init__(
        self,
        rubrics: Mapping[str, RubricLike] | Iterable[RubricLike],
        weights: Mapping[str, float] | Iterable[float],
        normalize: bool | Literal["observed"] = True,
        *,
        episode_end: Collection[str] = (),
    ) -> None:
        super().__init__()
        named = named_rubrics(rubrics)
        self._weights = matched_weights(named, weights)
        self._check_names(episode_end, "episode_end")
        self._at_end = frozenset(episode_end)
        # Those that are due at the end come last.
        self._weights = dict(sorted(self._weights.items(), key=lambda item: item[0] in episode_end))
        self._factors: dict[str, float] = {}
        self._observed: dict[str, tuple[float, float]] = {}
        self._warned: set[str] = set()
        self.normalize = normalize
        for name in self._weights:
            setattr(self, name, as_rubric(named[name]))

    # Computing ---------------------------------------------------------------------------------

    def compute(self, action: Any, observation: Any) -> tuple[float, dict[str, float]]:
        """Evaluate the components that are due, and combine them.

        Args:
            action: The action of the agent.
            observation: The observation that it led to.

        Returns:
            The reward, and the score of each component that was due, as its rubric returned it.

        Raises:
            AsyncRubricError: The tree has an async member; use ``await compute_async()``.
            Exception: The exception of a component that was due, with its path added.
        """
        if (self._traits or self._find_traits()).is_async:
            raise AsyncRubricError(
                "the composer has an async member: use `await composer.compute_async(…)`"
            )
        named: dict[str, float] = {}
        reward = evaluate_named(self, action, observation, named, {})
        return reward, self._own(named)

    async def compute_async(self, action: Any, observation: Any) -> tuple[float, dict[str, float]]:
        """Like `compute`, for any tree; the components are evaluated concurrently."""
        with Recorder(parent=current()) as recorder:
            reward = await self.evaluate(action, observation)
        named: dict[str, float] = {}
        add_components(named, {}, recorder.frames[-1])
        return reward, self._own(named)

    def combine(self, components: Mapping[str, float]) -> float:
        """Return the reward for given component scores, without evaluating anything.

        Args:
            components: Scores by name, of the components that were due.

        Raises:
            InvalidArgumentError: A name is unknown, or a score is not a finite number.
        """
        scores = self._checked(components, "components")
        return exact_sum(
            self._weight_of(name) * self._normalized(name, score) for name, score in scores.items()
        )

    def _own(self, named: dict[str, float]) -> dict[str, float]:
        return {name: score for name, score in named.items() if name in self._children}

    # Weights -----------------------------------------------------------------------------------

    @property
    def weights(self) -> dict[str, float]:
        """The weights by name; a copy. Assign a mapping to change them all."""
        return dict(self._weights)

    @weights.setter
    def weights(self, weights: Mapping[str, float]) -> None:
        self._weights = matched_weights(self._weights, weights)

    def update_weights(self, weights: Mapping[str, float]) -> None:
        """Change some weights: all the given ones, or, if one is invalid, none.

        Raises:
            InvalidArgumentError: A name is unknown, or a weight is not a finite number.
        """
        self._weights = {**self._weights, **self._checked(weights, "weights")}
        self._reconfigured()

    @property
    def factors(self) -> dict[str, float]:
        """Factors of the weights by name, where they aren't 1; schedules set them."""
        return dict(self._factors)

    @factors.setter
    def factors(self, factors: Mapping[str, float]) -> None:
        checked = self._checked(factors, "factors")
        self._factors = {name: each for name, each in checked.items() if each != 1.0}

    @property
    def effective_weights(self) -> dict[str, float]:
        """The weights times their factors: what scores are multiplied by now."""
        if self._traits is None:
            self._find_traits()  # which sets the vector of a composer that wasn't evaluated yet
        return dict(zip(self._children, self._vector, strict=True))

    @property
    def episode_end(self) -> tuple[str, ...]:
        """The names of the components that are due only at the end of an episode."""
        return tuple(name for name in self._weights if name in self._at_end)

    def _weight_of(self, name: str) -> float:
        return self._weights[name] * self._factors.get(name, 1.0)

    def _checked(self, given: Mapping[str, Any], what: str) -> dict[str, float]:
        """Finite numbers by the names of components."""
        if not isinstance(given, Mapping):
            raise InvalidArgumentError(
                f"`{what}` must be a mapping of component names, got {shown(given)}"
            )
        self._check_names(given, what)
        return {name: check_number(f"{what}[{name!r}]", each) for name, each in given.items()}

    def _check_names(self, given: Iterable[str], what: str) -> None:
        if isinstance(given, str):
            raise InvalidArgumentError(f"`{what}` must be a list of names, got {given!r}")
        unknown = [name for name in given if name not in self._weights]
        if unknown:
            raise InvalidArgumentError(
                f"`{what}` has no component {', '.join(map(repr, unknown))}; there are "
                f"{list(self._weights)}"
            )

    # Ranges ------------------------------------------------------------------------------------

    @property
    def observed(self) -> dict[str, list[float]]:
        """The lowest and the highest score observed of each component, by name."""
        return {name: list(each) for name, each in self._observed.items()}

    @observed.setter
    def observed(self, observed: Mapping[str, Sequence[float]]) -> None:
        self._check_names(observed, "observed")
        checked = {}
        for name, ends in observed.items():
            where = f"observed[{name!r}]"
            if not isinstance(ends, (list, tuple)) or len(ends) != 2:
                raise InvalidArgumentError(f"`{where}` must be [low, high], got {shown(ends)}")
            low = check_number(where, ends[0])
            checked[name] = (low, check_number(where, ends[1], low=low))
        self._observed = checked

    def ranges(self) -> dict[str, ScoreRange | None]:
        """Return the range of each component's scores; None if it isn't known."""
        return {name: self._range_of(name) for name in self._children}

    def _range_of(self, name: str) -> ScoreRange | None:
        declared = _declared_range(self._children[name])
        if declared is not None:
            return ScoreRange(*declared, "declared")
        if self.normalize != "observed":
            return ScoreRange(0.0, 1.0, "default") if self.normalize else None
        seen = self._observed.get(name)
        return ScoreRange(*seen, "observed") if seen is not None else None

    def _normalized(self, name: str, score: float) -> float:
        if not self.normalize:
            return score
        found = self._range_of(name)
        if found is None or found.low == found.high:
            return min(max(score, 0.0), 1.0)
        if found.source == "default" and not reaches(0.5, abs(score - 0.5)):
            raise InvalidScoreError(
                f"{name!r} returned {score!r} and declares no finite score_range, so that it must "
                "be in [0, 1]: declare a score_range, or use normalize: observed or false",
                value=score,
            )
        return (score - found.low) / (found.high - found.low)

    # As a container ----------------------------------------------------------------------------

    def _reconfigured(self) -> None:
        self._refresh()
        super()._reconfigured()

    def _refresh(self) -> None:
        super()._refresh()
        declared = {name: _declared_range(child) for name, child in self._children.items()}
        plain = not self.normalize or all(each == (0.0, 1.0) for each in declared.values())
        self.__dict__["_maps"] = not plain
        is_observed = self.normalize == "observed"
        undeclared = [name for name, each in declared.items() if each is None and is_observed]
        self.__dict__["_observing"] = undeclared
        if self._at_end:
            kids = self._kids
            self.__dict__["_kids_at_end"] = kids
            self.__dict__["_kids"] = tuple(kid for kid in kids if kid[0] not in self._at_end)

    def _combine(self, scores: Sequence[float]) -> float:
        if not scores and self._at_end:
            return StepScore(0.0, None, None, True)  # nothing is due yet
        if self._maps:
            named = dict(zip(self._children, scores, strict=False))
            self._observe(named)
            scores = [self._normalized(name, score) for name, score in named.items()]
            for (name, score), normalized in zip(named.items(), scores, strict=True):
                if normalized != score and name not in self._observing:
                    self.explain("%s normalized to %.6g", name, normalized)
        return super()._combine(scores)

    def _observe(self, scores: Mapping[str, float]) -> None:
        """Extend the observed ranges to new scores, and report those that are used."""
        for name in self._observing:
            if name not in scores:
                continue
            if name not in self._warned:
                self._warned.add(name)
                logger.warning(
                    "%r declares no finite score_range: the composer normalizes it by the scores "
                    "observed so far, so that equal scores may count differently",
                    name,
                )
            score = scores[name]
            with _widening:
                low, high = self._observed.get(name, (score, score))
                self._observed[name] = low, high = min(low, score), max(high, score)
            self.explain("%s normalized by the observed range [%.6g, %.6g]", name, low, high)

    def _check_child(self, name: str, child: Rubric) -> None:
        super()._check_child(name, child)
        _declared_range(child)  # rejects an invalid one now, rather than at the first score

    def _needs(self, name: str) -> str | None:
        return "due at the end of the episode" if name in self._at_end else None

    def _range_of_child(self, name: str, child: Rubric) -> list[float] | None:
        found = (0.0, 1.0) if self.normalize else _declared_range(child)
        if found is None:
            return None
        ends = [self._weight_of(name) * end for end in found]
        return [*ends, 0.0] if name in self._at_end else ends  # absent at most steps


def _declared_range(rubric: Rubric) -> tuple[float, float] | None:
    """The range that a rubric declares; None if it declares none, or one without finite ends.

    Raises:
        InvalidArgumentError: The declared value is not a range.
    """
    declared = check_range(rubric, rubric._range())
    return declared if declared is not None and math.isfinite(declared[1] - declared[0]) else None
