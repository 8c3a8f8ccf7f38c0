"""What an agent does with its tools: which ones it calls, how often, and how many calls fail.

The rubrics score the steps of a `ToolEnvironment` and the turns of recorded conversations alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, get_args

from guerdon._validation import (
    check_choice,
    check_integer,
    check_list,
    check_number,
    check_type,
)
from guerdon.errors import MissingInputError
from guerdon.rubrics.checks.calls import StepCall, calls_of_step, check_error_pattern
from guerdon.rubrics.checks.differences import difference_text, differences
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked
from guerdon.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric

__all__ = ["CallBudget", "CalledTool", "ToolCost", "ToolErrors"]


class CalledTool(TrajectoryRubric):
    """The agent has called the tool in the episode.

    It is a trajectory rubric: whether a tool was called is a property of the episode. It scores 0.0
    until the last step, so that the scores of the steps add up to the score of the episode, however
    long it is. The step reward belongs to the step of the first call that counts.

    Args:
        name: The tool's name.
        arguments: Arguments that the tool must have received, with equal values; others don't
            matter. By default any. In a `ToolEnvironment` they are those that the tool was called
            with: converted to the annotated types, and with defaults. In a recorded conversation
            only what the model wrote is known, and compared.
        include_failed: Whether a call that failed counts.
        error_pattern: A regular expression that finds the texts of recorded errors, such as
            ``"^Error"``, where a recording doesn't mark them. A match may take 5 seconds.

    Returns:
        At the last step 1.0 if there was such a call, otherwise 0.0.

    Raises:
        InvalidArgumentError: `name` is not a string, `arguments` not a dict, or `error_pattern` not
            a regular expression.
        MissingInputError: At evaluation, an action is neither a `ToolAction` nor a turn of a
            recorded conversation.

    Example:
        >>> from guerdon import CalledTool, Rollout
        >>> call = {"name": "book", "arguments": '{"flight": "HAT170", "bags": 1}'}
        >>> rollout = Rollout.from_row({"messages": [
        ...     {"role": "user", "content": "Book HAT170, please."},
        ...     {"role": "assistant", "tool_calls": [{"id": "c0", "function": call}]},
        ...     {"role": "tool", "tool_call_id": "c0", "content": "booked"},
        ...     {"role": "assistant", "content": "Done."}]})
        >>> rubric = CalledTool("book", {"flight": "HAT170"})
        >>> [rubric(action, observation) for action, observation in rollout.steps]
        [0.0, 1.0]
        >>> rubric.compute_step_rewards()
        [1.0, 0.0]
    """

    score_range = (0.0, 1.0)
    name = Checked(check_type, kind=str)
    arguments: Checked[dict[str, Any] | None] = Checked(check_type, kind=dict, optional=True)
    include_failed = Checked(check_type, kind=bool)
    error_pattern: Checked[str | None] = Checked(check_error_pattern, optional=True)

    def __init__(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        include_failed: bool = False,
        error_pattern: str | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.arguments = arguments
        self.include_failed = include_failed
        self.error_pattern = error_pattern

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        """Return whether a call of the episode counts."""
        problem = f"{self.name} was never called"
        for _, problem in self._calls(trajectory):
            if not problem:
                return 1.0
        self.explain("%.300s", problem)
        return 0.0

    def compute_step_rewards(self) -> list[float]:
        """Return 1.0 for the step of the first call that counts, and 0.0 for the others."""
        right = (place for place, problem in self._calls(self.trajectory) if not problem)
        first = next(right, None)
        return [float(place == first) for place in range(len(self.trajectory))]

    def _calls(self, trajectory: list[tuple[Any, Any]]) -> Iterator[tuple[int, str]]:
        """Yield the step of each call of the tool, and why it doesn't count, ``""`` if it does."""
        from guerdon.types.tool_calls import ToolAction

        for place, (action, observation) in enumerate(trajectory):
            for call in calls_of_step(action, observation, error_pattern=self.error_pattern):
                if call.name == self.name:
                    yield place, self._problem(call, isinstance(action, ToolAction))

    def _problem(self, call: StepCall, is_played: bool) -> str:
        if call.error and not self.include_failed:
            return f"{self.name} failed: {call.error}: {call.text}"
        wanted = self.arguments or {}
        found = {name: each for name, each in call.arguments.items() if name in wanted}
        differing = next(differences(wanted, found), None)
        if differing is None:
            return ""
        written = "" if is_played else " (as the model wrote it)"
        return f"{self.name}: {difference_text(*differing)}{written}"


def _check_error_types(name: str, value: object) -> tuple[str, ...]:
    from guerdon.types.tool_calls import ErrorType

    known = get_args(ErrorType)
    return tuple(check_choice(name, each, known) for each in check_list(name, value))


class ToolErrors(Rubric):
    """No tool call of the step has failed; the score falls with the share of those that have.

    A step without a call has no error and scores 1.0: a message to the user is neither blocked by a
    `Gate` nor punished, and the agent doesn't gain by a call that it doesn't need. In a sum, each
    step without an error adds to the score of the episode; the weight of a constant 1.0 beside it,
    as -0.1 beside 0.1, makes it a penalty.

    Args:
        error_types: The types of errors that count, of ``execution_error``, ``invalid_args``,
            ``transport_error``, ``tool_not_found`` and ``timeout``; by default all. In a recording
            that `RLRolloutWorker` hasn't made, ``tool_not_found`` and ``timeout`` are an
            ``execution_error``.
        share: Whether the score is one minus the share of the step's calls that failed; else a
            single failed call scores 0.0.
        error_pattern: A regular expression that finds the texts of recorded errors, such as
            ``"^Error"``, where a recording doesn't mark them. A match may take 5 seconds.

    Returns:
        1.0 without an error, 0.0 if all calls failed.

    Raises:
        InvalidArgumentError: `error_types` is not a list or has an unknown type, or `error_pattern`
            is not a regular expression.
        MissingInputError: At evaluation, the action is neither a `ToolAction` nor a turn of a
            recorded conversation.

    Example:
        >>> from guerdon import ToolErrors
        >>> from guerdon.types import (
        ...     CallToolAction, CallToolsAction, CallToolsObservation, ToolError, ToolOutcome)
        >>> action = CallToolsAction(calls=[CallToolAction(tool_name="look")] * 2)
        >>> error = ToolError(error_type="timeout", message="look took longer than 5 s")
        >>> observation = CallToolsObservation(results=[
        ...     ToolOutcome(tool_name="look"), ToolOutcome(tool_name="look", error=error)])
        >>> ToolErrors()(action, observation), ToolErrors(["invalid_args"])(action, observation)
        (0.5, 1.0)
    """

    score_range = (0.0, 1.0)
    error_types: Checked[tuple[str, ...] | None] = Checked(_check_error_types, optional=True)
    share = Checked(check_type, kind=bool)
    error_pattern: Checked[str | None] = Checked(check_error_pattern, optional=True)

    def __init__(
        self,
        error_types: Sequence[str] | None = None,
        *,
        share: bool = True,
        error_pattern: str | None = None,
    ) -> None:
        super().__init__()
        self.error_types = error_types
        self.share = share
        self.error_pattern = error_pattern

    def forward(self, action: Any, observation: Any) -> float:
        """Count the calls of the step that failed."""
        calls = calls_of_step(action, observation, error_pattern=self.error_pattern)
        types = self.error_types
        failed = [each for each in calls if each.error and (types is None or each.error in types)]
        if not failed:
            return 1.0
        text = f"{len(failed)} of {len(calls)} calls failed"
        first = failed[0]
        self.explain("%s: %.60s: %s: %.200s", text, first.name, first.error, first.text)
        return 1.0 - len(failed) / len(calls) if self.share else 0.0


class CallBudget(ExponentialDiscountingTrajectoryRubric):
    """The agent has made few enough tool calls in the episode.

    It is a trajectory rubric: each step's own score would reward long episodes. All calls count,
    also those that failed.

    Args:
        max_calls: The number of calls up to which the score is 1.0, at least 0.
        zero_at: The number of calls from which on it is 0.0, more than `max_calls`; between the two
            it falls evenly. None is the next number after `max_calls`.
        gamma: The discount of the step rewards, in [0, 1].

    Returns:
        0.0 before the last step, and there the score of the episode.

    Raises:
        InvalidArgumentError: A number is out of range.
        MissingInputError: At evaluation, an action is neither a `ToolAction` nor a turn of a
            recorded conversation.

    Example:
        >>> from guerdon import CallBudget
        >>> from guerdon.types import CallToolAction, CallToolObservation
        >>> rubric = CallBudget(1, zero_at=5)
        >>> look = CallToolAction(tool_name="look")
        >>> for done in False, True:
        ...     score = rubric(look, CallToolObservation(tool_name="look", done=done))
        >>> score
        0.75
    """

    score_range = (0.0, 1.0)
    max_calls = Checked(check_integer, low=0)
    zero_at: Checked[int | None] = Checked(check_integer, optional=True, low=1)

    def __init__(self, max_calls: int, *, zero_at: int | None = None, gamma: float = 0.99) -> None:
        super().__init__(gamma=gamma)
        self.max_calls = max_calls
        self.zero_at = zero_at
        self._checked_zero()

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        """Count the calls of the episode."""
        calls = sum(len(calls_of_step(action, observation)) for action, observation in trajectory)
        if calls <= self.max_calls:
            return 1.0
        self.explain("%d calls, wanted at most %d", calls, self.max_calls)
        zero_at = self._checked_zero()
        return max(0.0, (zero_at - calls) / (zero_at - self.max_calls))

    def _checked_zero(self) -> int:
        """Check the bounds together; not when one is set, as the other may be set next."""
        lowest = self.max_calls + 1
        return check_integer("zero_at", self.zero_at or lowest, low=lowest)


class ToolCost(Rubric):
    """Higher is worse: what the tool calls of the step cost.

    What a call costs is declared with the tool, ``@tool(cost=0.1)``. A call whose tool was not
    called, or raised, costs nothing. With a negative weight, the cost is subtracted from the
    reward.

    Args:
        maximum: The highest score, greater than 0; a step that costs more has this score.

    Returns:
        The cost, 0.0 of a step without a call that costs anything.

    Raises:
        InvalidArgumentError: `maximum` is out of range.
        MissingInputError: At evaluation, the step is not one of a `ToolEnvironment`.

    Example:
        >>> from guerdon import ToolCost
        >>> from guerdon.types import CallToolAction, CallToolObservation
        >>> observation = CallToolObservation(tool_name="look", metadata={"tool_cost": 0.1})
        >>> ToolCost()(CallToolAction(tool_name="look"), observation)
        0.1
    """

    state_names: ClassVar[tuple[str, ...]] = ("maximum",)
    score_range: tuple[float, float] = (0.0, 1.0)

    def __init__(self, maximum: float = 1.0) -> None:
        super().__init__()
        self.maximum = maximum

    @property
    def maximum(self) -> float:
        """The highest score."""
        return self.score_range[1]

    @maximum.setter
    def maximum(self, value: float) -> None:
        self.score_range = (0.0, check_number("maximum", value, low=0, low_open=True))

    def forward(self, action: Any, observation: Any) -> float:
        """Return the cost of the step."""
        from guerdon.types.tool_calls import ToolAction

        if not isinstance(action, ToolAction):
            raise MissingInputError(
                "the cost of calls is known in a ToolEnvironment alone, whose actions are of type "
                f"ToolAction, got {type(action).__name__}"
            )
        cost: float = observation.metadata.get("tool_cost", 0.0)
        return min(cost, self.maximum)
