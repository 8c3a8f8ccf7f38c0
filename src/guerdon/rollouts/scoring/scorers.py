"""Scorers: score rollouts with a rubric or a reward function, here or in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any, Self, TypeAlias, TypeVar

from guerdon._thresholds import is_zero
from guerdon.errors import AsyncRubricError, InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.reading import groups_of
from guerdon.rollouts.scoring.result_rows import ResultRow, failed_row, invalid_row
from guerdon.rubrics.containers import gates_of
from guerdon.rubrics.copies import ROLLOUTS, RubricCopies
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.functions.function import RewardFunction, failed
from guerdon.rubrics.functions.placement import place_outputs, places_of
from guerdon.rubrics.replay import Replay, replay, replay_async
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import classes_of, fingerprint_of
from guerdon.sandbox.protocol import Limits
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.message import conversation_problems
from guerdon.types.rollout import Rollout
from guerdon.types.score import Score

__all__ = ["FunctionScorer", "RubricScorer", "SandboxSettings", "score_rollouts"]

T = TypeVar("T")

# The messages, the ground truth and the other arguments of a call.
Arguments: TypeAlias = tuple[Any, Any, dict[str, Any]]


class LoopRunningError(AsyncRubricError):
    """An async reward was called where an event loop is running: no failure of the reward."""


# Raised to the caller instead of being reported in a row.
_PASSED_ON = (LoopRunningError, KeyboardInterrupt, GeneratorExit)

# Columns with arguments of their own.
_CONVERSATION = frozenset(("messages", "rollouts_messages", "ground_truth", "ground_truths"))


class Scorer(ABC):
    """Scores rollouts with one reward. Use it as a context manager.

    An async reward runs in an event loop that is kept between rollouts, so that what belongs to
    the loop, such as connections, survives; it is closed at the end.

    Attributes:
        fingerprint: The fingerprint of the reward and its parameters.
        takes_groups: Whether the rollouts of a group are scored together.
        scores_chunks: Whether it is faster to score many rollouts at a time.
        gates: The paths of the rubrics that can stop an evaluation.
        rubrics: The names of the classes of the rubrics below a root, by path.
        sandbox_data: The sandbox in effect, as JSON data; None without one.
    """

    fingerprint: str
    takes_groups: bool = False
    scores_chunks: bool = False
    gates: tuple[str, ...] = ()
    rubrics: Mapping[str, str] = {}
    sandbox_data: dict[str, Any] | None = None

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the event loop; the scorer can be used again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout, as a group of one if `takes_groups`.

        Raises:
            AsyncRubricError: The reward is async and an event loop is running in this thread.
        """
        return self.score_group([rollout])[0]

    @abstractmethod
    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score several rollouts; those of a group together if `takes_groups`.

        Failures are reported in the rows, not raised.

        Raises:
            AsyncRubricError: The reward is async and an event loop is running in this thread.
        """

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that can't be read, or whose episode failed."""
        return failed_row(error, self.fingerprint)

    def _add_gates(self, row: ResultRow) -> None:
        """Add the gates that stopped a row, if it is valid: those that scored 0."""
        if (score := row["score"]) is not None:
            components = row.get("step_components", (row["components"],))[-1]
            stopped_by = [
                gate for gate in self.gates if is_zero(components.get(gate, 1.0) if gate else score)
            ]
            if stopped_by:
                row["stopped_by"] = stopped_by

    def _run(self, coroutine: Coroutine[Any, Any, T], name: str) -> T:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            coroutine.close()
            raise LoopRunningError(
                f"{name} is async, and an event loop is running in this thread; score rollouts "
                "outside of it or in another thread"
            )
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(coroutine)

    def _run_all(self, coroutines: Iterable[Coroutine[Any, Any, T]], name: str) -> list[T]:
        """Run up to 32 at a time, and return what they return in order."""
        turns = asyncio.Semaphore(ROLLOUTS)

        async def run(coroutine: Coroutine[Any, Any, T]) -> T:
            async with turns:
                return await coroutine

        async def run_all() -> list[T]:
            return await asyncio.gather(*map(run, coroutines))

        return self._run(run_all(), name)


class RubricScorer(Scorer):
    """Scores rollouts with a rubric, which is reset and replayed over each.

    Example:
        >>> from guerdon import NumericAnswer, Rollout
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"},
        ...     {"role": "assistant", "content": "A: 42"}]})
        >>> with RubricScorer(NumericAnswer()) as scorer:
        ...     scorer.score(rollout)["score"]
        1.0

    Args:
        rubric: The rubric. It must not be called elsewhere meanwhile.
        keeps_trees: Whether rows have ``trees``.
    """

    def __init__(self, rubric: Rubric, *, keeps_trees: bool = False) -> None:
        super().__init__()
        self.rubric = rubric
        self.gates = tuple(gates_of(rubric))
        self.rubrics = classes_of(rubric)
        self._keeps_trees = keeps_trees
        self.fingerprint = rubric.fingerprint()
        traits = rubric._find_traits()
        self._is_async = traits.is_async
        self.scores_chunks = traits.is_async or traits.waits
        self._copies = RubricCopies(rubric)
        self._replay = self._new_replay()  # reused: each replay begins it anew

    def _new_replay(self) -> Replay:
        return Replay(keeps_trees=self._keeps_trees)

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout. Failures are reported in the row, not raised.

        Raises:
            AsyncRubricError: The rubric is async and an event loop is running in this thread.
        """
        if self._is_async:
            return super().score(rollout)
        done = self._replay
        try:
            replay(self.rubric, rollout._steps or rollout.steps, done)
        except _PASSED_ON:
            raise
        except BaseException as error:  # sys.exit() in a reward ends the row, not the run
            return self._invalid_row(rollout, done, error)
        return self._row(rollout, done)

    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score several rollouts, in order; with an async tree or a judge, up to 32 at a time.

        Raises:
            AsyncRubricError: The rubric is async and an event loop is running in this thread.
        """
        # A judge can be called in sync code, too: inside a running loop, which can't run another.
        if not self.scores_chunks or (not self._is_async and asyncio._get_running_loop()):
            return [self.score(rollout) for rollout in rollouts]
        return self._run_all(map(self._score_async, rollouts), type(self.rubric).__name__)

    async def _score_async(self, rollout: Rollout) -> ResultRow:
        done = self._new_replay()
        try:
            async with self._copies.one() as rubric:
                await replay_async(rubric, rollout.steps, done)
        except _PASSED_ON:
            raise
        except BaseException as error:  # as above
            return self._invalid_row(rollout, done, error)
        return self._row(rollout, done)

    def _row(self, rollout: Rollout, done: Replay) -> ResultRow:
        row: ResultRow = {
            "id": rollout.id,
            "group": rollout.group,
            "score": done.score,
            "is_score_valid": True,
            "components": done.steps[0] if len(done.steps) == 1 else done.components(),
            "step_rewards": done.rewards,
            "error": "; ".join(done.handled) if done.handled else None,
            "fingerprint": self.fingerprint,
        }
        if len(done.steps) > 1 and row["components"]:
            row["step_components"] = done.steps
        if self.gates:
            self._add_gates(row)
        return row if done.trees is None else _with_trees(row, done.trees)

    def _invalid_row(self, rollout: Rollout, done: Replay, error: BaseException) -> ResultRow:
        row = invalid_row(
            rollout.id,
            rollout.group,
            fingerprint=self.fingerprint,
            error=describe_failure(error, done.where(rollout.first_turn)),
            components=done.components(),
        )
        return row if done.trees is None else _with_trees(row, done.trees)


def _with_trees(row: ResultRow, trees: Sequence[Score]) -> ResultRow:
    row["trees"] = [tree.to_dict() for tree in trees]
    return row


class FunctionScorer(Scorer):
    """Scores rollouts with a reward function, pointwise or group by group.

    Example:
        >>> from guerdon import Rollout, reward_function
        >>> @reward_function
        ... def answered(messages, ground_truth, *, bonus=0.0):
        ...     return float(ground_truth in messages[-1].text) + bonus
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]})
        >>> with FunctionScorer(answered, {"bonus": 0.5}) as scorer:
        ...     scorer.score(rollout)["score"]
        1.5

    Args:
        function: The function.
        parameters: Keyword arguments for the function; they override the columns of a rollout.

    Raises:
        InvalidArgumentError: The function has no parameter of such a name.
    """

    def __init__(self, function: RewardFunction, parameters: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.function = function
        self.takes_groups = function.mode == "batch"
        self.scores_chunks = function.is_async and not self.takes_groups
        self.parameters = dict(parameters or {})
        for name in self.parameters:
            if name in _CONVERSATION or not function.parameters.takes(name):
                accepted = ", ".join(sorted(function.parameters.named)) or "no parameters"
                raise InvalidArgumentError(
                    f"{function.__name__} has no parameter {name!r}; it accepts {accepted}"
                )
        self.fingerprint = fingerprint_of(function.fingerprint, function.mode, self.parameters)

    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score rollouts; a batch function scores them against each other.

        An async function scores up to 32 at a time.

        Failures are reported in the rows, not raised.

        Raises:
            AsyncRubricError: The function is async and an event loop is running in this thread.
        """
        for rollout in rollouts:
            if not isinstance(rollout, Rollout):
                raise InvalidArgumentError(
                    f"expected a Rollout, got {rollout!r:.60}; convert a RolloutRecord with "
                    "record.to_rollout()"
                )
        if self.takes_groups:
            [results] = self._evaluate([_batch_arguments(rollouts)])
            if isinstance(results, EvaluateResult):  # it couldn't be called
                results = [results] * len(rollouts)
        else:
            results = self._evaluate([_arguments(rollout) for rollout in rollouts])
        return [self._row(*pair) for pair in zip(rollouts, results, strict=True)]

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that can't be read, or whose episode failed."""
        return super().failed(error) | {"reason": None, "notes": []}

    def _evaluate(self, calls: Sequence[Arguments]) -> list[Any]:
        """What the function returned for each call; an invalid result if it couldn't be called."""
        if self.function.is_async:
            return self._run_all((self._await(*call) for call in calls), self.function.__name__)
        return [self._call(*call) for call in calls]

    def _call(self, messages: Any, ground_truth: Any, columns: dict[str, Any]) -> Any:
        try:
            return self.function.evaluate(messages, ground_truth, columns | self.parameters)
        except _PASSED_ON:
            raise
        except BaseException as error:  # also a cancellation, which is the function's own here
            return failed(error)

    async def _await(self, messages: Any, ground_truth: Any, columns: dict[str, Any]) -> Any:
        try:
            return await self.function.evaluate(messages, ground_truth, columns | self.parameters)
        except _PASSED_ON:
            raise
        except BaseException as error:  # as above
            return failed(error)

    def _row(self, rollout: Rollout, result: EvaluateResult) -> ResultRow:
        valid = result.is_score_valid
        row: ResultRow = {
            "id": rollout.id,
            "group": rollout.group,
            "score": result.score if valid else None,
            "is_score_valid": valid,
            "components": {},
            "step_rewards": None,
            "error": result.error or (None if valid else result.reason or "it was marked invalid"),
            "fingerprint": self.fingerprint,
            "reason": result.reason,
            "notes": conversation_problems(rollout.messages),
        }
        if result.metrics:
            row["components"] = dict(_numbers(result.metrics))
            rest = {k: v for k, v in result.metrics.items() if k not in row["components"]}
            if rest:
                row["metrics"] = rest
        if result.step_outputs is not None:
            _add_steps(row, rollout, result)
        if result.log:
            row["log"] = result.log
        return row


def _arguments(rollout: Rollout) -> Arguments:
    """The messages, the ground truth and the other columns of a rollout."""
    columns = {name: value for name, value in rollout.columns.items() if name not in _CONVERSATION}
    return rollout.messages, rollout.columns.get("ground_truth"), columns


def _batch_arguments(rollouts: Sequence[Rollout]) -> Arguments:
    """As lists, with None for a column that a rollout doesn't have."""
    names = dict.fromkeys(name for rollout in rollouts for name in rollout.columns)
    columns: dict[str, Any] = {
        name: [rollout.columns.get(name) for rollout in rollouts]
        for name in names
        if name not in _CONVERSATION
    }
    truths = [rollout.columns.get("ground_truth") for rollout in rollouts]
    return [rollout.messages for rollout in rollouts], truths, columns


def _numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics that are finite numbers."""
    for name, value in metrics.items():
        if isinstance(value, Real):
            with contextlib.suppress(OverflowError):  # an int larger than every float
                if math.isfinite(value):
                    yield str(name), float(value)


def _add_steps(row: ResultRow, rollout: Rollout, result: EvaluateResult) -> None:
    """Assign the step outputs to assistant turns; outputs without a turn become notes."""
    turns = [action.turn for action, _ in rollout.steps]
    places = places_of((action.turn, action.step_id) for action, _ in rollout.steps)
    placed, misfits = place_outputs(result.step_outputs or (), places)
    row["step_rewards"] = [
        placed[place].base_reward if place in placed else None for place in range(len(turns))
    ]
    row["notes"] += [str(misfit) for misfit in misfits]
    row["steps"] = [
        {"step_index": turns[place], "base_reward": output.base_reward}
        | ({"reason": output.reason} if output.reason is not None else {})
        | ({"metrics": output.metrics} if output.metrics else {})
        for place, output in sorted(placed.items())
    ]


# In a sandbox ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The sandbox of a reward that isn't trusted.

    Example:
        >>> from guerdon import Limits
        >>> SandboxSettings(limits=Limits(seconds=10)).level
        'auto'

    Attributes:
        level: ``auto``, ``strict``, ``process``, or the name of a plug-in.
        limits: The limits of each call.
        allow_read: Files and folders that the reward may read, besides itself and Python.
        reuse: Whether consecutive rollouts are scored in one copy of the reward's process, for up
            to half a second: faster, but each sees the state that those before it left there.

    Raises:
        InvalidArgumentError: The level is ``none``.
    """

    level: str = "auto"
    limits: Limits = field(default_factory=Limits)
    allow_read: tuple[str, ...] = ()
    reuse: bool = False

    def __post_init__(self) -> None:
        if self.level == "none":
            raise InvalidArgumentError("`level` must name a sandbox, got 'none'; leave it out")


class SandboxScorer(FunctionScorer):
    """Scores rollouts with a reward function or a rubric that is loaded in a sandbox alone.

    The rows are those of the same reward without a sandbox, and have the sandbox's level and what
    the reward printed besides. As many threads as the sandbox has workers can score at once.

    Args:
        spec: The reward as ``module:name`` or ``file.py:name``.
        settings: The sandbox. It is opened here and closed with the scorer.
        parameters: Keyword arguments for a reward function.
        workers: How many calls run at the same time.

    Raises:
        LoadError: The reward can't be loaded.
        SandboxUnavailableError: The level doesn't work on this machine.
        InvalidArgumentError: The reward has no parameter of such a name.
    """

    def __init__(
        self,
        spec: str,
        settings: SandboxSettings,
        *,
        parameters: dict[str, Any] | None = None,
        workers: int = 1,
    ) -> None:
        from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox

        self.sandbox = EvalSandbox(
            spec,
            level=settings.level,
            workers=workers,
            limits=settings.limits,
            allow_read=settings.allow_read,
        )
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.sandbox)
            if self.sandbox.is_rubric:
                _refuse_parameters(parameters)
            super().__init__(self.sandbox.function, parameters)
            opened.pop_all()
        self.sandbox_data = asdict(settings) | {
            "level": self.sandbox.level,
            "promise": self.sandbox.promise,
            "allow_read": list(settings.allow_read),
        }
        self.scores_chunks = settings.reuse and not self.takes_groups
        if self.sandbox.is_rubric:  # as without a sandbox; the level isn't part of a fingerprint
            self.fingerprint = self.function.fingerprint
            self.gates, self.rubrics = self.sandbox.gates, self.sandbox.rubrics

    def close(self) -> None:
        """Close the sandbox; calls that are running end at once, without a result."""
        self.sandbox.close()
        super().close()

    def _evaluate(self, calls: Sequence[Arguments]) -> list[Any]:
        if not self.scores_chunks:
            return super()._evaluate(calls)
        return self.sandbox.evaluate_together(
            [(messages, truth, columns | self.parameters) for messages, truth, columns in calls]
        )

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that can't be read, or whose episode failed."""
        return self._of_sandbox(super().failed(error))

    def _row(self, rollout: Rollout, result: EvaluateResult) -> ResultRow:
        return self._of_sandbox(super()._row(rollout, result))

    def _of_sandbox(self, row: ResultRow) -> ResultRow:
        if self.sandbox.is_rubric:  # whose rows have neither
            steps = row.get("steps", ())
            if len(steps) > 1 and row["components"]:
                row["step_components"] = [step.get("metrics", {}) for step in steps]
            for name in ("reason", "notes", "steps", "metrics"):
                row.pop(name, None)  # type: ignore[misc]
            if not row["is_score_valid"]:
                row["step_rewards"] = None
            self._add_gates(row)
        row["sandbox"] = self.sandbox.level
        return row


# Any reward --------------------------------------------------------------------------------------


def scorer_of(
    reward: Rubric | RewardFunction,
    parameters: dict[str, Any] | None = None,
    *,
    keeps_trees: bool = False,
) -> RubricScorer | FunctionScorer:
    """The scorer of a reward.

    Args:
        reward: A rubric or a reward function.
        parameters: Keyword arguments for a reward function.
        keeps_trees: Whether the rows of a rubric have ``trees``.

    Raises:
        InvalidArgumentError: The reward has no parameter of such a name.
    """
    if isinstance(reward, RewardFunction):
        return FunctionScorer(reward, parameters)
    _refuse_parameters(parameters)
    return RubricScorer(reward, keeps_trees=keeps_trees)


def _refuse_parameters(parameters: dict[str, Any] | None) -> None:
    if parameters:
        raise InvalidArgumentError(
            f"a rubric has no parameters, got {sorted(parameters)}; reward functions have them"
        )


def score_rollouts(
    reward: Rubric | RewardFunction,
    rollouts: Iterable[Rollout],
    *,
    score_failed: bool = False,
) -> Iterator[ResultRow]:
    """Score rollouts, in order.

    Example:
        >>> from guerdon import NumericAnswer, read_rollouts
        >>> line = '{"ground_truth": "42", "messages": [{"role": "assistant", "content": "A: 42"}]}'
        >>> [row["score"] for row in score_rollouts(NumericAnswer(), read_rollouts([line, line]))]
        [1.0, 1.0]

    Args:
        reward: A rubric, which is reset before each rollout, or a reward function. A batch
            function scores the rollouts of a group together; they must be consecutive.
        rollouts: Any number of rollouts; one, or one group, is in memory at a time. With an async
            reward or a judge 32 are, which are scored concurrently.
        score_failed: Whether to score episodes that ended with an error; by default their rows
            are invalid.

    Yields:
        One row per rollout. Failures are reported in the rows.

    Raises:
        RolloutError: The reward is a batch function and a group is split.
    """
    with scorer_of(reward) as scorer:
        if scorer.takes_groups or scorer.scores_chunks:
            remaining = iter(rollouts)
            chunks = iter(lambda: list(itertools.islice(remaining, ROLLOUTS)), [])
            for group in groups_of(rollouts) if scorer.takes_groups else chunks:
                yield from score_together(
                    scorer, [unless_failed(each, score_failed) for each in group]
                )
            return
        for rollout in rollouts:
            failure = rollout.failure if not score_failed and "ended" in rollout.columns else None
            if failure is None:
                yield scorer.score(rollout)
            else:
                yield scorer.failed(RolloutError(failure, row=rollout.columns))


def unless_failed(
    rollout: Rollout, score_failed: bool, *, line: int | None = None
) -> Rollout | RolloutError:
    """The rollout; an error if its episode failed and such episodes aren't scored."""
    failure = None if score_failed else rollout.failure
    return rollout if failure is None else RolloutError(failure, line=line, row=rollout.columns)


def score_together(scorer: Scorer, rollouts: Sequence[Rollout | RolloutError]) -> list[ResultRow]:
    """Score the rollouts of a group; errors get an invalid row and aren't compared with."""
    readable = [each for each in rollouts if isinstance(each, Rollout)]
    rows = iter(scorer.score_group(readable) if readable else ())
    return [
        scorer.failed(each) if isinstance(each, RolloutError) else next(rows) for each in rollouts
    ]
