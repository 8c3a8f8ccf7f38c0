"""Rewards and step credit for TRL's `GRPOTrainer`.

`reward_func` turns a rubric tree, a reward function or a pipeline's file into one of its
``reward_funcs``; `reward_funcs` turns a `WeightedSum` into several. `StepCredit` replaces the one
advantage of each completion by one for each of its turns; ``StepCreditGRPOTrainer`` is
``GRPOTrainer`` with it. Only ``StepCreditGRPOTrainer`` imports TRL.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon._validation import as_score, shown
from guerdon.credit.batch import StepBatch
from guerdon.credit.credit import Credit
from guerdon.credit.estimators import ESTIMATORS
from guerdon.credit.tokens import to_token_advantages
from guerdon.errors import InvalidArgumentError, MissingExtraError
from guerdon.integrations.conversation_reward import ConversationReward, RewardLike
from guerdon.rubrics.containers import WeightedSum
from guerdon.rubrics.functions.placement import Misfit, place_outputs, places_of
from guerdon.types.evaluate_result import EvaluateResult

if TYPE_CHECKING:
    StepCreditGRPOTrainer: Any

__all__ = ["RewardFunc", "StepCredit", "reward_func", "reward_funcs", "turn_index"]

_logger = logging.getLogger(__name__)

Rewards: TypeAlias = "list[float | None]"

# Columns of a dataset with other meanings as arguments of a reward function.
_CONVERSATION = frozenset(("messages", "rollouts_messages", "ground_truth", "ground_truths"))

# What TRL passes beside the columns of the dataset.
_HOOKS = ("trainer_state", "log_extra", "log_metric", "environments")


# Reward functions ---------------------------------------------------------------------------------


def reward_func(
    reward: RewardLike,
    *,
    name: str,
    ground_truth: str | None = None,
    group: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> RewardFunc:
    """Make one of the ``reward_funcs`` of TRL's `GRPOTrainer`.

    A tree is one number, and so one column. A completion whose reward failed has None, which TRL
    excludes from its group, never 0. With a reward that is async or asks a judge, the function is
    async, and the rewards of a batch are computed concurrently.

    Example:
        >>> from guerdon import NumericAnswer
        >>> from guerdon.integrations.trl import reward_func
        >>> correct = reward_func(NumericAnswer(), name="correct", ground_truth="answer")
        >>> correct(["6 × 7?", "6 × 7?", "6 × ?"], ["A: 42", "A: 41", "A: 42"],
        ...         answer=["42", "42", None])
        [1.0, 0.0, None]

    Args:
        reward: A rubric, a function that scores, a reward function, or the name of one: the path of
            a pipeline's file, ``module:name`` or ``file.py:name``. The schedules of a file follow
            ``trainer_state.global_step``.
        name: Its name in TRL's logs.
        ground_truth: The column of the dataset that contains the ground truth; None takes
            ``ground_truth`` if the dataset has it.
        group: The column whose equal neighbours a batch reward function scores together; None
            takes the prompt.
        parameters: Keyword arguments for a reward function.

    Raises:
        InvalidArgumentError: The reward has no parameter of such a name, or its file has a
            curriculum.
        RewardConfigError: The file is invalid.
        LoadError: The reward can't be loaded.
        ServiceUnavailableError: A service of the file is not available.
    """
    return _make(reward, name, ground_truth, group, dict(parameters or {}))


def _make(reward: Any, name: str, *settings: Any) -> RewardFunc:
    scoring = ConversationReward(reward, settings[-1])
    kind = _AsyncRewardFunc if scoring.is_async else RewardFunc
    made = kind(scoring, name, *settings)
    made._made_of = (reward, name, *settings)
    return made


class RewardFunc:
    """A reward in the form that TRL calls; `reward_func` makes it.

    Attributes:
        results: The results of the latest batch, one for each completion.
    """

    results: list[EvaluateResult]
    _made_of: tuple[Any, ...]

    def __init__(
        self,
        scoring: ConversationReward,
        name: str,
        ground_truth: str | None,
        group: str | None,
        parameters: dict[str, Any],
    ) -> None:
        self.__name__ = name
        self._scoring, self._function = scoring, scoring.function
        self._ground_truth, self._group = ground_truth, group
        self._parameters = parameters
        self._components = dict.fromkeys(scoring.names)
        self._count = 0  # of the rollouts that were scored
        self.results = []

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the reward and its parameters, as ``guerdon score`` computes it."""
        return self._scoring.fingerprint

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Any = None,
        **columns: Any,
    ) -> Any:  # fmt: skip
        """Return the reward of each completion, None where it failed.

        Args:
            prompts: Texts, or lists of messages.
            completions: Texts, or lists of messages.
            completion_ids: Their tokens, which are not used.
            **columns: Columns of the dataset, and what TRL passes beside them.

        Raises:
            InvalidArgumentError: The dataset lacks a column that was named.
        """
        hooks = {name: columns.pop(name, None) for name in _HOOKS}
        evaluate = self._function.evaluate
        calls = self._calls(prompts, completions, columns, hooks["trainer_state"])
        return self._finished([evaluate(*call) for call in calls], hooks)

    def close(self) -> None:
        """Disconnect the services of a pipeline."""
        self._scoring.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, self._made_of

    def _calls(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: dict[str, Any],
        state: Any,
    ) -> list[tuple[Any, Any, dict[str, Any]]]:
        """The messages, the ground truth and the columns of each call of the reward function."""
        for wanted in (self._ground_truth, self._group):
            if wanted is not None and wanted not in columns:
                raise InvalidArgumentError(
                    f"the dataset has no column {wanted!r} for the reward {self.__name__!r}, only "
                    f"{sorted(columns)}"
                )
        if self._scoring.has_schedules:
            self._report_step(state, len(prompts))
        truths = columns.get(self._ground_truth or "ground_truth", [None] * len(prompts))
        columns = {name: given for name, given in columns.items() if name not in _CONVERSATION}
        before = [_messages(prompt, "user") for prompt in prompts]
        columns["first_turn"] = [_turns(messages) for messages in before]
        chats = [
            [*messages, *_messages(completion, "assistant")]
            for messages, completion in zip(before, completions, strict=True)
        ]
        if self._function.mode == "pointwise":
            return [
                (chat, truths[row], {name: given[row] for name, given in columns.items()}
                 | self._parameters)
                for row, chat in enumerate(chats)
            ]  # fmt: skip
        keys = prompts if self._group is None else columns[self._group]
        groups = groupby(range(len(chats)), key=keys.__getitem__)
        return [self._batch_call(list(rows), chats, truths, columns) for _, rows in groups]

    def _report_step(self, trainer_state: Any, count: int) -> None:
        if trainer_state is None:
            raise InvalidArgumentError(
                "the schedules of the reward's file need TRL's `trainer_state`, which this trainer "
                "doesn't pass"
            )
        self._scoring.report_step(trainer_state.global_step, episode=self._count)
        self._count += count

    def _batch_call(
        self, rows: list[int], chats: list[Any], truths: Sequence[Any], columns: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        taken = {name: [given[row] for row in rows] for name, given in columns.items()}
        return [chats[row] for row in rows], [truths[row] for row in rows], taken | self._parameters

    def _finished(self, found: list[Any], hooks: dict[str, Any]) -> Rewards:
        batch = self._function.mode == "batch"
        self.results = results = [each for group in found for each in group] if batch else found
        rewards = [result.score if result.is_score_valid else None for result in results]
        failed = [
            result.error or result.reason or "it was marked invalid"
            for result in results
            if not result.is_score_valid
        ]
        if failed:
            _logger.warning(
                "%d of %d rewards of %s failed and have no advantage; the first: %s",
                len(failed), len(results), self.__name__, failed[0],
            )  # fmt: skip
        if hooks["log_extra"] is not None:
            self._log(rewards, hooks["log_extra"], hooks["log_metric"])
        return rewards

    def _log(self, rewards: Rewards, log_extra: Any, log_metric: Any) -> None:
        """Log all components of each row; TRL's table needs the same columns each time."""
        rows = [_numbers(result.metrics) for result in self.results]
        for row in rows:  # reward functions name them in their results alone
            self._components |= dict.fromkeys(row)
        for name in self._components:
            column = f"{self.__name__}/{name}"
            log_extra(column, [row.get(name, math.nan) for row in rows])
            for row in rows:  # the mean over those that have it, on all processes
                if name in row:
                    log_metric(column, row[name])
        for reward in rewards:
            log_metric(f"{self.__name__}/failed", float(reward is None))
        log_extra(f"{self.__name__}/error", [result.error for result in self.results])
        log_extra(f"{self.__name__}/fingerprint", [self.fingerprint] * len(rows))


class _AsyncRewardFunc(RewardFunc):
    async def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Any = None,
        **columns: Any,
    ) -> Any:  # fmt: skip
        hooks = {name: columns.pop(name, None) for name in _HOOKS}
        calls = self._calls(prompts, completions, columns, hooks["trainer_state"])
        found = await asyncio.gather(*[self._function.evaluate(*call) for call in calls])
        return self._finished(found, hooks)


def _messages(given: Any, role: str) -> list[Any]:
    return [{"role": role, "content": given}] if isinstance(given, str) else list(given)


def _turns(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: as_score(value) for name, value in metrics.items()}
    return {name: value for name, value in numbers.items() if value is not None}


# One column for each rubric of a sum --------------------------------------------------------------


def reward_funcs(
    weighted_sum: WeightedSum, *, ground_truth: str | None = None
) -> tuple[list[Callable[..., Any]], list[float]]:
    """Make a reward function of each rubric of a sum, with their weights.

    TRL then normalizes each before it adds them, with
    ``GRPOConfig(multi_objective_aggregation="normalize_then_sum", reward_weights=weights)``. TRL
    counts None in one column beside a number in another as 0, so where one rubric fails, the row is
    None in all columns.

    Example:
        >>> from guerdon import NumericAnswer, RegexMatch, WeightedSum
        >>> from guerdon.integrations.trl import reward_funcs
        >>> reward = WeightedSum([NumericAnswer(), RegexMatch("A:")], weights=[1.0, 0.25])
        >>> funcs, weights = reward_funcs(reward)
        >>> prompts, completions = ["6 × 7?", "6 × ?"], ["A: 42", "A: 1"]
        >>> [func(prompts, completions, ground_truth=["42", None]) for func in funcs], weights
        ([[1.0, None], [1.0, None]], [1.0, 0.25])

    Args:
        weighted_sum: The sum.
        ground_truth: The column of the dataset that contains the ground truth; None takes
            ``ground_truth`` if the dataset has it.

    Returns:
        The functions, which are called with the same lists and score them once, and the weights.

    Raises:
        InvalidArgumentError: It is not a `WeightedSum`.
    """
    if not isinstance(weighted_sum, WeightedSum):
        raise InvalidArgumentError(
            f"`weighted_sum` must be a WeightedSum, got {shown(weighted_sum)}"
        )
    joint = _Joint(weighted_sum, ground_truth)
    is_async = any(isinstance(part, _AsyncRewardFunc) for part in joint.parts)
    kind = _AsyncColumn if is_async else _Column
    return [kind(joint, index) for index in range(len(joint.parts))], weighted_sum.weights


class _Joint:
    """The columns of a sum, scored together: the functions are called one after another."""

    def __init__(self, weighted_sum: WeightedSum, ground_truth: str | None) -> None:
        self._made_of = (weighted_sum, ground_truth)
        self.parts = [
            reward_func(child, name=name, ground_truth=ground_truth)
            for name, child in weighted_sum.named_children()
        ]
        self._lock = threading.Lock()  # AsyncGRPOTrainer calls the functions in threads
        self._completions: Any = None
        self._columns: list[Rewards] = []
        self._task: asyncio.Future[list[Rewards]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Joint, self._made_of

    def columns(self, completions: Any, arguments: dict[str, Any]) -> list[Rewards]:
        with self._lock:
            if self._completions is not completions:
                found = [part(completions=completions, **arguments) for part in self.parts]
                self._completions, self._columns = completions, _none_together(found)
            return self._columns

    async def columns_async(self, completions: Any, arguments: dict[str, Any]) -> list[Rewards]:
        if self._completions is not completions or self._task is None:
            self._completions = completions
            self._task = asyncio.ensure_future(self._score_async(completions, arguments))
        return await self._task

    async def _score_async(self, completions: Any, arguments: dict[str, Any]) -> list[Rewards]:
        found = [part(completions=completions, **arguments) for part in self.parts]
        waiting = [index for index, each in enumerate(found) if asyncio.iscoroutine(each)]
        awaited = await asyncio.gather(*[found[index] for index in waiting])
        for index, rewards in zip(waiting, awaited, strict=True):
            found[index] = rewards
        return _none_together(found)


class _Column:
    def __init__(self, joint: _Joint, index: int) -> None:
        self.joint, self.index = joint, index
        self.__name__ = joint.parts[index].__name__

    @property
    def results(self) -> list[EvaluateResult]:
        return self.joint.parts[self.index].results

    def __call__(self, prompts: Any, completions: Any, **others: Any) -> Any:
        return self.joint.columns(completions, {"prompts": prompts, **others})[self.index]


class _AsyncColumn(_Column):
    async def __call__(self, prompts: Any, completions: Any, **others: Any) -> Any:
        found = await self.joint.columns_async(completions, {"prompts": prompts, **others})
        return found[self.index]


def _none_together(columns: list[Rewards]) -> list[Rewards]:
    failed = [None in row for row in zip(*columns, strict=True)]
    return [
        [None if out else reward for out, reward in zip(failed, column, strict=True)]
        for column in columns
    ]


# Step credit --------------------------------------------------------------------------------------


def turn_index(mask: ArrayLike) -> NDArray[np.int64]:
    """Return the turn of each token: turns are the runs of 1 in a mask of the policy's tokens.

    Example:
        >>> from guerdon.integrations.trl import turn_index
        >>> turn_index([[1, 1, 0, 1, 0]]).tolist()
        [[0, 0, -1, 1, -1]]

    Args:
        mask: Booleans or 0 and 1, (B, T).

    Returns:
        The turns from 0, and -1 where the mask is 0, (B, T).
    """
    written = np.asarray(mask).astype(np.int64)
    begins = np.diff(written, axis=1, prepend=0) > 0
    return np.where(written == 1, np.cumsum(begins, axis=1) - 1, -1)


class StepCredit:
    """A mixin for TRL's `GRPOTrainer`: an advantage for each turn, from any of our estimators.

    ``StepCreditGRPOTrainer`` is `GRPOTrainer` with it, and imports TRL when it is first used. The
    estimator replaces what TRL does with rewards, such as ``scale_rewards``. A step's reward is the
    weighted sum of what the functions of `reward_func` give its turn; the reward of any other
    function is added at the last turn. A completion without a score has advantage 0 and takes
    part in no statistic. The completions table contains the mean advantage of a completion's tokens
    and the advantages of its turns.

    Args:
        *args: Those of the trainer.
        credit: The name of an estimator, or a function of a `StepBatch`, such as
            ``functools.partial(gigpo, gamma=0.95)``.
        states: The column that contains the state of each turn, a list for each completion: a
            column of the dataset, a field of ``rollout_func``, or an attribute of the environment.
            None means that there are no states.
        step_rewards: The column that contains the reward of each turn; None takes them from the
            reward functions.
        **kwargs: Those of the trainer.

    Raises:
        InvalidArgumentError: There are several processes, or the rewards are normalized before they
            are added.
    """

    def __init__(
        self,
        *args: Any,
        credit: str | Callable[[StepBatch], Credit],
        states: str | None = None,
        step_rewards: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._estimator = ESTIMATORS[credit] if isinstance(credit, str) else credit
        self._states, self._step_rewards = states, step_rewards
        super().__init__(*args, **kwargs)
        trainer: Any = self
        if trainer.accelerator.num_processes > 1:
            raise InvalidArgumentError(
                "step credit compares the turns of a group, and TRL may split a group over "
                f"processes; use one process, there are {trainer.accelerator.num_processes}"
            )
        if trainer.multi_objective_aggregation != "sum_then_normalize":
            raise InvalidArgumentError(
                "with step credit the estimator normalizes, got "
                f"multi_objective_aggregation={trainer.multi_objective_aggregation!r}"
            )

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Any:
        trainer: Any = super()
        rewards = trainer._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._inputs, self._rewards = inputs, rewards.double().cpu().numpy()
        # The first turn of each completion, counted with those of its prompt, and their number.
        self._spans = [
            (_turns(_messages(prompt, "user")), _turns(_messages(completion, "assistant")))
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        trainer: Any = super()
        output = trainer._generate_and_score_completions(inputs)
        mask = output["completion_mask"]
        if "tool_mask" in output:
            mask = mask * output["tool_mask"]
        turns = turn_index(mask.cpu().numpy())
        counts, credit = self._credit(turns.max(axis=1, initial=-1) + 1)
        starts = np.cumsum(counts) - counts
        index = np.where(
            (turns >= 0) & (turns < counts[:, None]), turns + starts[:, None], -1
        )  # a turn after the episode's end has no step
        tokens = to_token_advantages(credit.advantage, turns >= 0, index=index)
        output["advantages"] = output["advantages"].new_tensor(tokens)
        self._log_advantages(tokens, turns >= 0, np.split(credit.advantage, starts[1:]))
        return output

    def _credit(self, written: NDArray[Any]) -> tuple[NDArray[Any], Credit]:
        """The number of steps of each completion, and the credit of all, one after another."""
        trainer: Any = self
        rewards = self._rewards
        weighted = rewards * trainer.reward_weights.double().cpu().numpy()
        is_valid = ~np.isnan(rewards).all(axis=1)
        states, given = self._column(self._states), self._column(self._step_rewards)
        counts = np.maximum(_lengths(written, states, given), 1)
        by_turn: Sequence[Any] = self._turn_rewards(weighted, counts) if given is None else given
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        rows = np.repeat(np.arange(len(counts)), counts)
        batch = StepBatch.from_arrays(
            [reward for row in by_turn for reward in row or [None]],
            trajectory=rows,
            step=np.arange(len(rows)),
            group=rows // size,
            state=None if states is None else [one for row in states for one in row or [None]],
            episode_score=dict(enumerate(np.nansum(weighted, axis=1).tolist())),
            valid=dict(enumerate(is_valid.tolist())),
        )
        return counts, self._estimator(batch)

    def _column(self, name: str | None) -> list[Sequence[Any]] | None:
        """The values of a column of the dataset, or of an attribute of the environments."""
        if name is None:
            return None
        inputs, environments = self._inputs, getattr(self, "environments", None)
        if environments is not None and name not in inputs[0]:
            return [getattr(environment, name) for environment in environments]
        if name not in inputs[0]:
            raise InvalidArgumentError(
                f"no column {name!r} for step credit, only {sorted(inputs[0])}"
            )
        return [row[name] for row in inputs]

    def _turn_rewards(self, weighted: NDArray[Any], counts: NDArray[Any]) -> list[list[float]]:
        """The rewards of turns: what the functions give them, and other scores at the end."""
        trainer: Any = self
        found = [[0.0] * count for count in counts.tolist()]
        misfits: list[Misfit] = []
        for column, func in enumerate(trainer.reward_funcs):
            results = getattr(func, "results", None) or [None] * len(found)
            weight = float(trainer.reward_weights[column])
            for row, (rewards, result) in enumerate(zip(found, results, strict=True)):
                score = weighted[row, column]
                if np.isnan(score):
                    continue
                first, turns = self._spans[row]
                outputs = result.step_outputs if result is not None else None
                if not outputs or turns != len(rewards):  # `rollout_func` has a message for all
                    rewards[-1] += score
                    continue
                places = places_of((first + turn, None) for turn in range(turns))
                placed, unplaced = place_outputs(outputs, places)
                for turn, output in placed.items():
                    rewards[turn] += weight * output.base_reward
                misfits += unplaced
        if misfits:
            _logger.warning(
                "%d step outputs have no turn and were left out; the first: %s",
                len(misfits), misfits[0],
            )  # fmt: skip
        return found

    def _log_advantages(
        self, tokens: NDArray[Any], written: NDArray[Any], by_turn: list[NDArray[Any]]
    ) -> None:
        """Replace TRL's advantages in the completions table, which has the latest rows."""
        trainer: Any = self
        means = (tokens.sum(axis=1) / np.maximum(written.sum(axis=1), 1)).tolist()
        logged = trainer._logs["advantages"]
        kept = list(logged)[: max(len(logged) - len(means), 0)]
        logged.clear()
        logged.extend(kept + means)
        trainer._logs["extra"]["step_advantages"].extend(each.tolist() for each in by_turn)


def _lengths(
    written: NDArray[Any], states: Sequence[Any] | None, rewards: Sequence[Any] | None
) -> NDArray[Any]:
    """The number of turns of each completion: as many as it has states or rewards."""
    given = [np.array([len(each) for each in one]) for one in (states, rewards) if one is not None]
    if len(given) == 2 and (given[0] != given[1]).any():
        row = int(np.flatnonzero(given[0] != given[1])[0])
        raise InvalidArgumentError(
            f"each turn needs a state and a reward, but completion {row} has {given[0][row]} "
            f"states and {given[1][row]} rewards"
        )
    return given[0] if given else written


def __getattr__(name: str) -> Any:
    if name != "StepCreditGRPOTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        base = import_module("trl").GRPOTrainer
    except ImportError as error:
        raise MissingExtraError(
            f"{name} requires the package trl: pip install trl ({error})"
        ) from error
    made = type(name, (StepCredit, base), {"__module__": __name__, "__doc__": StepCredit.__doc__})
    globals()[name] = made
    return made
