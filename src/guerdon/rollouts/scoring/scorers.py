"""Scorers: score rollouts with a rubric or a reward function, here or in a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any, Self, TypeAlias

from guerdon._thresholds import is_zero
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.reading import groups_of, rollouts_in
from guerdon.rollouts.scoring.result_rows import ResultRow, failed_row, invalid_row
from guerdon.rollouts.scoring.scoring_loop import ScoringLoop
from guerdon.rubrics.containers import gates_of
from guerdon.rubrics.copies import ROLLOUTS, RubricCopies
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.functions.conversion import as_reward
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

# The messages, the ground truth and the other arguments of a call.
Arguments: TypeAlias = tuple[Any, Any, dict[str, Any]]


# Raised to the caller instead of being reported in a row.
_PASSED_ON = (KeyboardInterrupt, GeneratorExit)

# The most rollouts, or groups, that are started and whose rows were not taken yet: a slow one does
# not stop the others.
AHEAD = 4 * ROLLOUTS
# The rollouts that are given to the event loop together, which is faster.
TOGETHER = 8

# Columns with arguments of their own.
_CONVERSATION = frozenset(("messages", "rollouts_messages", "ground_truth", "ground_truths"))


class Scorer(ABC):
    """Scores rollouts with one reward. Use it as a context manager.

    An async reward, or one that asks a judge, runs in an event loop in a thread of its own. The
    loop is kept between rollouts, so that what belongs to it, such as connections, survives; it is
    closed at the end.

    Attributes:
        fingerprint: The fingerprint of the reward and its parameters.
        takes_groups: Whether the rollouts of a group are scored together.
        is_concurrent: Whether rollouts are scored concurrently, up to 32 at a time.
        scores_chunks: Whether it is faster to score many rollouts at a time.
        gates: The paths of the rubrics that can stop an evaluation.
        rubrics: The names of the classes of the rubrics below a root, by path.
        sandbox_data: The sandbox in effect, as JSON data; None without one.
    """

    fingerprint: str
    takes_groups: bool = False
    is_concurrent: bool = False
    scores_chunks: bool = False
    gates: tuple[str, ...] = ()
    rubrics: Mapping[str, str] = {}
    sandbox_data: dict[str, Any] | None = None

    def __init__(self) -> None:
        self.loop = ScoringLoop()
        self._turns = asyncio.Semaphore(ROLLOUTS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the event loop; the scorer can be used again."""
        self.loop.close()
        self._turns = asyncio.Semaphore(ROLLOUTS)  # which belonged to the loop

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout, as a group of one if `takes_groups`."""
        return self.score_group([rollout])[0]

    @abstractmethod
    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score several rollouts; those of a group together if `takes_groups`.

        Failures are reported in the rows, not raised.
        """

    async def score_group_async(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Like `score_group`, in the event loop of the scorer."""
        return self.score_group(rollouts)

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
        self.is_concurrent = traits.is_async or traits.waits
        self._copies = RubricCopies(rubric)
        self._replay = self._new_replay()  # reused: each replay begins it anew

    def _new_replay(self) -> Replay:
        return Replay(keeps_trees=self._keeps_trees)

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout. Failures are reported in the row, not raised."""
        if self.is_concurrent:
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
        """Score several rollouts, in order; with an async tree or a judge, up to 32 at a time."""
        if self.is_concurrent:
            return self.loop.run(self.score_group_async(rollouts))
        return [self.score(rollout) for rollout in rollouts]

    async def score_group_async(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Like `score_group`, in the event loop of the scorer."""
        if self.is_concurrent:
            return await asyncio.gather(*map(self._score_async, rollouts))
        return self.score_group(rollouts)

    async def _score_async(self, rollout: Rollout) -> ResultRow:
        done = self._new_replay()
        async with self._turns:
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
        self.is_concurrent = function.is_async
        self.parameters = dict(parameters or {})
        for name in self.parameters:
            if name in _CONVERSATION or not function.parameters.takes(name):
                names = function.parameters.accepted or function.parameters.named
                accepted = ", ".join(sorted(names)) or "no parameters"
                raise InvalidArgumentError(
                    f"{function.__name__} has no parameter {name!r}; it accepts {accepted}"
                )
        self.fingerprint = fingerprint_of(function.fingerprint, function.mode, self.parameters)

    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score rollouts; a batch function scores them against each other.

        An async function scores up to 32 at a time.

        Failures are reported in the rows, not raised.
        """
        if self.is_concurrent:
            return self.loop.run(self.score_group_async(rollouts))
        return self._rows(rollouts, self._evaluate(self._calls(rollouts)))

    async def score_group_async(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Like `score_group`, in the event loop of the scorer."""
        if not self.is_concurrent:
            return self.score_group(rollouts)
        calls = self._calls(rollouts)
        return self._rows(rollouts, await asyncio.gather(*(self._await(*call) for call in calls)))

    def _calls(self, rollouts: Sequence[Rollout]) -> list[Arguments]:
        for rollout in rollouts:
            if not isinstance(rollout, Rollout):
                raise InvalidArgumentError(
                    f"expected a Rollout, got {rollout!r:.60}; convert a RolloutRecord with "
                    "record.to_rollout()"
                )
        return [_batch_arguments(rollouts)] if self.takes_groups else [*map(_arguments, rollouts)]

    def _rows(self, rollouts: Sequence[Rollout], results: list[Any]) -> list[ResultRow]:
        if self.takes_groups:
            [results] = results
            if isinstance(results, EvaluateResult):  # it couldn't be called
                results = [results] * len(rollouts)
        return [self._row(*pair) for pair in zip(rollouts, results, strict=True)]

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that can't be read, or whose episode failed."""
        return super().failed(error) | {"reason": None, "notes": []}

    def _evaluate(self, calls: Sequence[Arguments]) -> list[Any]:
        """What the function returned for each call; an invalid result if it couldn't be called."""
        return [self._call(*call) for call in calls]

    def _call(self, messages: Any, ground_truth: Any, columns: dict[str, Any]) -> Any:
        try:
            return self.function.evaluate(messages, ground_truth, columns | self.parameters)
        except _PASSED_ON:
            raise
        except BaseException as error:  # also a cancellation, which is the function's own here
            return failed(error)

    async def _await(self, messages: Any, ground_truth: Any, columns: dict[str, Any]) -> Any:
        async with self._turns:
            try:
                arguments = columns | self.parameters
                return await self.function.evaluate(messages, ground_truth, arguments)
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
    reward: Rubric | RewardFunction | Callable[..., Any],
    parameters: dict[str, Any] | None = None,
    *,
    keeps_trees: bool = False,
) -> RubricScorer | FunctionScorer:
    """The scorer of a reward.

    Args:
        reward: A rubric, a reward function, or a function that becomes one of them.
        parameters: Keyword arguments for a reward function.
        keeps_trees: Whether the rows of a rubric have ``trees``.

    Raises:
        InvalidArgumentError: The reward has no parameter of such a name.
        RubricDefinitionError: It is no reward.
        RewardFunctionError: It is a function with invalid parameters.
    """
    reward = as_reward(reward)
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
    reward: Rubric | RewardFunction | Callable[..., Any],
    rollouts: Iterable[Any],
    *,
    ground_truth: str | None = None,
    score_failed: bool = False,
) -> Iterator[ResultRow]:
    """Score rollouts, in order.

    Example:
        >>> from guerdon import NumericAnswer, read_rollouts
        >>> line = '{"ground_truth": "42", "messages": [{"role": "assistant", "content": "A: 42"}]}'
        >>> [row["score"] for row in score_rollouts(NumericAnswer(), read_rollouts([line, line]))]
        [1.0, 1.0]

    Args:
        reward: A rubric, which is reset before each rollout, or a reward function, or a function
            of messages or of a step. A batch function scores the rollouts of a group together; they
            must be consecutive. An async reward is also scored where an event loop is running, as
            in a notebook, which waits meanwhile.
        rollouts: Any number of rollouts, or of rows or lines, as in `read_rollouts`; one, or one
            group, is in memory at a time. With an async reward or a judge up to 128 are, of which
            32 are scored concurrently.
        ground_truth: The column that has the ground truth; None is ``ground_truth``.
        score_failed: Whether to score episodes that ended with an error; by default their rows
            are invalid.

    Yields:
        One row per rollout. Failures are reported in the rows, as are rows that can't be read.

    Raises:
        RolloutError: The reward is a batch function and a group is split.
        RubricDefinitionError: The reward is a function that can't be one as it is; the error says
            how to convert it.
        RewardFunctionError: The same, for a function of messages.
    """
    with scorer_of(reward) as scorer:
        read = rollouts_in(rollouts, ground_truth=ground_truth)
        if not (scorer.is_concurrent or scorer.takes_groups):
            for rollout in read:
                if isinstance(rollout, Rollout) and "ended" in rollout.columns:
                    rollout = unless_failed(rollout, score_failed)
                if isinstance(rollout, Rollout):
                    yield scorer.score(rollout)
                else:
                    yield scorer.failed(rollout)
            return
        remaining = (unless_failed(each, score_failed) for each in read)
        chunks = iter(lambda: list(itertools.islice(remaining, TOGETHER)), [])
        readable = groups_of(remaining) if scorer.takes_groups else chunks
        if not scorer.is_concurrent:
            for group in readable:
                yield from score_together(scorer, group)
            return
        pending: deque[Future[list[ResultRow]]] = deque()
        for group in readable:
            pending.append(scorer.loop.start(score_together_async(scorer, group)))
            while pending and (len(pending) * TOGETHER >= AHEAD or pending[0].done()):
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


def unless_failed(
    rollout: Rollout | RolloutError, score_failed: bool, *, line: int | None = None
) -> Rollout | RolloutError:
    """The rollout; an error if its episode failed and such episodes aren't scored."""
    if isinstance(rollout, RolloutError) or score_failed:
        return rollout
    failure = rollout.failure
    return rollout if failure is None else RolloutError(failure, line=line, row=rollout.columns)


def score_together(scorer: Scorer, rollouts: Sequence[Rollout | RolloutError]) -> list[ResultRow]:
    """Score the rollouts of a group; errors get an invalid row and aren't compared with."""
    readable = [each for each in rollouts if isinstance(each, Rollout)]
    return _with_errors(scorer, rollouts, scorer.score_group(readable) if readable else [])


async def score_together_async(
    scorer: Scorer, rollouts: Sequence[Rollout | RolloutError]
) -> list[ResultRow]:
    """Like `score_together`, in the event loop of the scorer."""
    readable = [each for each in rollouts if isinstance(each, Rollout)]
    rows = await scorer.score_group_async(readable) if readable else []
    return _with_errors(scorer, rollouts, rows)


def _with_errors(
    scorer: Scorer, rollouts: Sequence[Rollout | RolloutError], rows: Iterable[ResultRow]
) -> list[ResultRow]:
    rest = iter(rows)
    return [
        scorer.failed(each) if isinstance(each, RolloutError) else next(rest) for each in rollouts
    ]
