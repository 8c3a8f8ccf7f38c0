"""The state of the world after an episode."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from guerdon._validation import check_number, shown
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks.differences import Tolerance, difference_text, differences
from guerdon.rubrics.checks.inputs import field_of, ground_truth_of
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.state import Checked
from guerdon.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, Trajectory

__all__ = ["StateMatches"]

# Differences in a reason.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of an object whose attributes are no configuration: the fingerprint reads `code`."""

    code: Any
    _bound: Callable[[Any, Any], Any]

    def __call__(self, action: Any, observation: Any) -> Any:
        return self._bound(action, observation)


def _check_source(name: str, value: Any) -> Any:
    """Return a value, or a function of a step, which must not be async."""
    if callable(value) and is_async_callable(value):
        raise InvalidArgumentError(f"`{name}` must be a plain function, got an async one")
    return _Method(value.__func__, value) if inspect.ismethod(value) else value


def _check_state(name: str, value: Any) -> Any:
    if not callable(value) and not (isinstance(value, str) and all(value.split("."))):
        raise InvalidArgumentError(
            f"`{name}` must be the path of an attribute or key of the observation, such as "
            f"'metadata.state', or a function of the action and the observation, got {shown(value)}"
        )
    return _check_source(name, value)


class StateMatches(ExponentialDiscountingTrajectoryRubric):
    """The world is in the expected state after the episode, such as that of the right actions.

    The state is any nested value: mappings, lists, models, dataclasses, texts, numbers. Sets and
    the keys of mappings have no order, lists have one. Numbers of all types are compared by their
    values, within the tolerances; texts and bools are no numbers. What may differ, such as the time
    of a change, `state` and `expected` leave out.

    Args:
        expected: The expected state; a function of the last action and observation that returns it;
            or None for the observation's ground truth.
        state: Where the state is: the path of an attribute or key of the last observation, where a
            recorded row has its columns in ``metadata``; or a function of the last action and
            observation, such as a method of the environment.
        absolute_tolerance: How much two numbers may differ, at least 0.
        relative_tolerance: How much two numbers may differ as a share of the larger one, in [0, 1];
            integers must be equal within `absolute_tolerance` alone. The default allows for the
            rounding of a sum, and tells times that are a millisecond apart.
        gamma: The discount of the step rewards, in [0, 1].

    Returns:
        At the last step 1.0 if the states are equal, otherwise 0.0; the explanation has the first
        differences, as ``reservations.HAT001.cabin: 'economy', expected 'business'``. Before it
        0.0.

    Raises:
        InvalidArgumentError: `state` is no path and no function, a function is async, or a
            tolerance is out of range.
        MissingInputError: At evaluation, there is no state or no expected one, or one of them is
            nested deeper than 100 levels or has a value that JSON can't represent.

    Example:
        >>> from guerdon import StateMatches
        >>> from guerdon.types import SayAction, SayObservation
        >>> rubric = StateMatches({"seats": {"HAT170": 0}})
        >>> last = SayObservation(messages=[], done=True, metadata={"state": {"seats": {}}})
        >>> score = rubric.score(SayAction(content="Done."), last)
        >>> score.value, score.reason
        (0.0, 'seats.HAT170: nothing, expected 0')
    """

    score_range = (0.0, 1.0)
    expected = Checked(_check_source, optional=True)
    state = Checked(_check_state)
    absolute_tolerance = Checked(check_number, low=0)
    relative_tolerance = Checked(check_number, low=0, high=1)

    def __init__(
        self,
        expected: Any = None,
        *,
        state: str | Callable[[Any, Any], Any] = "metadata.state",
        absolute_tolerance: float = 1e-9,
        relative_tolerance: float = 1e-14,
        gamma: float = 0.99,
    ) -> None:
        super().__init__(gamma=gamma)
        self.expected = expected
        self.state = state
        self.absolute_tolerance = absolute_tolerance
        self.relative_tolerance = relative_tolerance

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """What it reads: the state, and the ground truth if nothing else is expected."""
        return ("state",) if self.expected is not None else ("state", "ground_truth")

    def score_trajectory(self, trajectory: Trajectory) -> float:
        """Compare the state after the last step."""
        action, observation = trajectory[-1]
        expected = self.expected
        if expected is None:
            expected = ground_truth_of(observation)
        elif callable(expected):
            expected = _given("expected", expected(action, observation))
        found = self._found(action, observation)
        tolerance = Tolerance(self.absolute_tolerance, self.relative_tolerance)
        differing = differences(expected, found, tolerance=tolerance)
        named = [difference_text(*each) for each in islice(differing, MOST_NAMED)]
        if not named:
            return 1.0
        more = sum(1 for _ in differing)
        self.explain("%s", "; ".join(named) + (f"; and {more} more" if more else ""))
        return 0.0

    def _found(self, action: Any, observation: Any) -> Any:
        if callable(self.state):
            return _given("state", self.state(action, observation))
        found = observation
        for name in self.state.split("."):
            found = field_of(found, name)
        if found is None:
            kind = type(observation).__name__
            raise MissingInputError(f"the observation ({kind}) has no state at {self.state!r}")
        return found


def _given(name: str, value: Any) -> Any:
    if value is None:
        raise MissingInputError(f"`{name}` returned None, which is no state")
    return value
