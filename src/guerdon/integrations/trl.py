"""Rewards, environments and step credit for TRL's `GRPOTrainer`.

`reward_func` turns a rubric tree, a reward function or a pipeline's file into one of its
``reward_funcs``; `reward_funcs` turns a `WeightedSum` into several. `environment_factory` turns an
environment into a tool that the model calls, and `rollout_func` plays a pool of environments with
the trainer's model; `episode_reward` logs their episodes. `StepCredit` replaces the one advantage
of each completion by one for each of its turns; ``StepCreditGRPOTrainer`` is ``GRPOTrainer`` with
it. Only ``StepCreditGRPOTrainer`` imports TRL.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib import import_module
from itertools import count, groupby, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon._validation import as_score, check_integer, shown
from guerdon.credit.batch import StepBatch
from guerdon.credit.credit import Credit
from guerdon.credit.estimators import ESTIMATORS
from guerdon.credit.tokens import to_token_advantages
from guerdon.envs.pool.pool import SyncEnvPool
from guerdon.errors import (
    EnvError,
    EpisodeError,
    InvalidActionError,
    InvalidArgumentError,
    MissingExtraError,
)
from guerdon.integrations.conversation_reward import ConversationReward, RewardLike
from guerdon.integrations.stepping import LocalEnvironment, MakeEnv, failure_reason
from guerdon.integrations.text_episode import OBSERVATION, ToText, with_observation
from guerdon.rollouts.playing.observations import observation_text
from guerdon.rubrics.containers import WeightedSum
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.functions.libraries import from_trl
from guerdon.rubrics.functions.placement import Misfit, place_outputs, places_of
from guerdon.rubrics.state import classes_of
from guerdon.types.action import Action
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.observation import Observation
from guerdon.types.tools import tool_schema

if TYPE_CHECKING:
    StepCreditGRPOTrainer: Any

__all__ = [
    "EpisodeReward", "RewardFunc", "StepCredit", "environment_factory", "episode_reward",
    "from_trl", "reward_func", "reward_funcs", "rollout_func", "turn_index",
]  # fmt: skip

_logger = logging.getLogger(__name__)

Rewards: TypeAlias = "list[float | None]"

# Columns of a dataset with other meanings as arguments of a reward function.
_CONVERSATION = frozenset(("messages", "rollouts_messages", "ground_truth", "ground_truths"))

# The column of the episodes that `rollout_func` played.
_EPISODES = "guerdon_episodes"

# What TRL passes beside the columns of the dataset.
_HOOKS = ("trainer_state", "log_extra", "log_metric", "environments", _EPISODES)


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


class _Logged:
    """Results as rewards, with logs.

    Attributes:
        results: The results of the latest batch, one for each completion.
    """

    results: list[EvaluateResult]

    def __init__(self, name: str, components: Sequence[str] = ()) -> None:
        self.__name__ = name
        self._components = dict.fromkeys(components)
        self.results = []

    def _rewards(
        self, results: list[EvaluateResult], fingerprints: list[Any], hooks: Mapping[str, Any]
    ) -> Rewards:
        self.results = results
        episodes = _episodes(hooks) or [None] * len(results)
        rewards = [  # TRL counts None beside the number of another function as 0
            result.score if result.is_score_valid and not (episode and episode.error) else None
            for result, episode in zip(results, episodes, strict=True)
        ]
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
        if hooks.get("log_extra") is not None:
            self._log(rewards, fingerprints, hooks["log_extra"], hooks["log_metric"])
        return rewards

    def _log(
        self, rewards: Rewards, fingerprints: list[Any], log_extra: Any, log_metric: Any
    ) -> None:
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
        log_extra(f"{self.__name__}/fingerprint", fingerprints)


class RewardFunc(_Logged):
    """A reward in the form that TRL calls; `reward_func` makes it.

    Attributes:
        results: The results of the latest batch, one for each completion.
    """

    _made_of: tuple[Any, ...]

    def __init__(
        self,
        scoring: ConversationReward,
        name: str,
        ground_truth: str | None,
        group: str | None,
        parameters: dict[str, Any],
    ) -> None:
        super().__init__(name, scoring.names)
        self._scoring, self._function = scoring, scoring.function
        self._ground_truth, self._group = ground_truth, group
        self._parameters = parameters
        self._count = 0  # of the rollouts that were scored

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
        self._check_columns(columns)
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

    def _check_columns(self, columns: Mapping[str, Any]) -> None:
        for wanted in (self._ground_truth, self._group):
            if wanted is not None and wanted not in columns:
                raise InvalidArgumentError(
                    f"the dataset has no column {wanted!r} for the reward {self.__name__!r}, only "
                    f"{sorted(columns)}"
                )

    def _report_step(self, trainer_state: Any, count: int) -> None:
        if not self._scoring.has_schedules:
            return
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
        results = [each for group in found for each in group] if batch else found
        return self._rewards(results, [self.fingerprint] * len(results), hooks)


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
    weights = [weighted_sum._weight_of(name) for name, _ in weighted_sum.named_children()]
    return [kind(joint, index) for index in range(len(joint.parts))], weights


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


# Episodes of environments -------------------------------------------------------------------------


@dataclass
class _Episode:
    """An episode that is being played: what each step began with, and what it earned."""

    observation_text: Callable[[Any], str]
    components: dict[str, float | None] = field(default_factory=dict)  # their sums
    state: str = ""  # the text of the latest observation
    done: bool = False
    error: str | None = None  # of the first failure, which ends it
    states: list[str] = field(default_factory=list)
    rewards: Rewards = field(default_factory=list)
    refused: int = 0  # actions that were not valid
    fingerprint: str | None = None

    def see(self, observation: Observation) -> str:
        """Return the text of an observation."""
        self.state, self.done = self.observation_text(observation), observation.done
        return self.state

    def step(self, observation: Observation) -> str:
        """Record a step, and return the text of its observation."""
        metadata = observation.metadata
        if observation.reward is None:
            return self.fail(f"step {len(self.rewards)}: {failure_reason(metadata)}")
        self._add(observation.reward)
        self.fingerprint = metadata.get("reward_fingerprint")
        for name, score in (metadata.get("reward_components") or {}).items():
            self.components[name] = (self.components.get(name) or 0.0) + score
        return self.see(observation)

    def refuse(self, reason: str) -> str:
        """Record an action that was not valid, after which the environment is where it was."""
        self.refused += 1
        self._add(0.0)
        return reason

    def fail(self, error: str) -> str:
        """Record a failure of the environment or its reward: a step without a reward."""
        self._add(None)
        self.error = error
        return error

    def _add(self, reward: float | None) -> None:
        self.states.append(self.state)
        self.rewards.append(reward)

    @property
    def is_over(self) -> bool:
        """Whether it has ended or failed."""
        return self.done or self.error is not None

    @property
    def reward(self) -> float | None:
        """The sum of the rewards of its steps; None if it failed."""
        return None if self.error is not None else _total(self.rewards)

    def result(self) -> EvaluateResult:
        """Return its reward with what is logged."""
        metrics = {"steps": len(self.rewards), "invalid_actions": self.refused, **self.components}
        return EvaluateResult(score=self.reward, error=self.error, metrics=metrics)


def _total(rewards: Rewards) -> float:
    return math.fsum(reward for reward in rewards if reward is not None)


def _episodes(hooks: Mapping[str, Any]) -> list[Any] | None:
    """The `_Episode` of each completion that one of the two functions played, else None."""
    environments = hooks.get("environments")
    if environments is None:
        return hooks.get(_EPISODES)
    return [getattr(environment, "_episode", None) for environment in environments]


class EpisodeReward(_Logged):
    """The reward of episodes, with logs; `episode_reward` makes it.

    Attributes:
        results: The results of the latest batch, one for each completion.
    """

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Rewards:
        """Return the reward of each episode, None where it failed.

        Args:
            prompts: The prompts, which are not used.
            completions: The completions, which are not used.
            **columns: The columns, and what TRL passes beside them.

        Raises:
            InvalidArgumentError: Neither function played the episodes.
        """
        episodes = _episodes(columns)
        if episodes is None or None in episodes:
            raise InvalidArgumentError(
                "`episode_reward` needs episodes that `rollout_func` or `environment_factory` of "
                "guerdon.integrations.trl played"
            )
        results = [each.result() for each in episodes]
        rewards = self._rewards(results, [each.fingerprint for each in episodes], columns)
        # An environment's `get_reward` is a column of its own.
        return rewards if columns.get("environments") is None else [None] * len(rewards)


def episode_reward(name: str = "episode") -> EpisodeReward:
    """Make the reward function of the episodes of `rollout_func`, which also logs them.

    The reward of an episode is the sum of the rewards of its steps, and None if it failed. With the
    environments of `environment_factory`, whose own ``get_reward`` is the reward, it logs only.

    Example:
        >>> from guerdon.integrations.trl import episode_reward
        >>> episode_reward().__name__
        'episode'

    Args:
        name: Its name in TRL's logs.
    """
    return EpisodeReward(name)


# An environment as a tool -------------------------------------------------------------------------


def environment_factory(
    env: MakeEnv, *, tool: str | None = None, observation_text: ToText = observation_text
) -> Callable[[], Any]:
    """Make the `environment_factory` of TRL's `GRPOTrainer`: an environment that is a tool.

    A call of the tool is an action, and its answer the text of the observation. The reward is the
    sum of the rewards of the steps. It is None, never 0, if the environment raised or a reward
    failed; the tool refuses the calls that follow. An environment that raised is replaced with a
    new one at the next reset. Arguments that aren't a valid action are answered with the error, and
    take no step.

    ``reset`` gets the row of the dataset, and passes the arguments that the environment's reset
    accepts. The episodes of a group must begin alike, so the dataset needs a column such as
    ``seed``. TRL appends the text of the first observation to the last message of the prompt. An
    environment is closed when nothing refers to it any more, or when the process ends.

    For `StepCredit`, ``states="states"`` are the texts of the observations before each turn, and
    ``step_rewards="step_rewards"`` the sums of the rewards of the calls of each turn. A turn after
    the episode's end has no step.

    Example:
        >>> import inspect
        >>> from examples.connect4.environment import Connect4Environment
        >>> from guerdon.integrations.trl import environment_factory
        >>> game = environment_factory(Connect4Environment)()
        >>> board = game.reset(seed=3, prompt=[{"role": "user", "content": "Play."}])
        >>> str(inspect.signature(game.connect4_action))
        '(*, column: int)'
        >>> board = game.connect4_action(column=2)
        >>> game.get_reward()
        0.0

    Args:
        env: An environment class, or a function that returns an environment.
        tool: The name of the tool; by default that of the action's class, in snake case. Its
            description and arguments are those of `tool_schema`.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.

    Returns:
        A callable that makes an environment in the form that TRL uses. It can be pickled if `env`
        and `observation_text` can.
    """
    return partial(_make_tool, env, tool, observation_text)


def _make_tool(env: MakeEnv, tool: str | None, observation_text: ToText) -> _ToolEnvironment:
    game = LocalEnvironment(env)
    return _tool_class(type(game.environment), tool)(env, observation_text, game)


class _ToolEnvironment:
    """An environment as TRL uses it: all public functions of its class but two are tools."""

    _tool: str

    def __init__(self, env: MakeEnv, observation_text: ToText, game: LocalEnvironment) -> None:
        self._env, self._observation_text = env, observation_text
        names = classes_of(game.environment.rubric)
        self._components: dict[str, float | None] = dict.fromkeys(names)
        self._episode = _Episode(self._observation_text)
        self._use(game)

    def _use(self, game: LocalEnvironment) -> None:
        self._game, self._is_broken = game, False
        self._close = weakref.finalize(self, game.close)

    def reset(self, **row: Any) -> str:
        """Begin an episode, and return the text of the first observation."""
        self._episode = _Episode(self._observation_text, dict(self._components))
        seed = row.pop("seed", None)
        try:
            if self._is_broken:
                self._close()
                self._use(LocalEnvironment(self._env))
            return self._episode.see(self._game.reset(seed, row))
        except Exception as error:
            self._failed(error)
            return ""

    def get_reward(self) -> float | None:
        """Return the reward of the episode, None if it failed."""
        return self._episode.reward

    def _call(self, arguments: dict[str, Any]) -> str:
        """Take a step. TRL shows what it raises to the model, and counts it."""
        episode = self._episode
        if episode.is_over:
            raise EpisodeError(episode.error or "the episode has ended")
        try:
            return episode.step(self._game.step(arguments))
        except InvalidActionError as error:
            episode.refuse(str(error))
            raise
        except Exception as error:
            raise EnvError(self._failed(error)) from error

    def _failed(self, error: Exception) -> str:
        self._is_broken = True
        return self._episode.fail(describe_failure(error, "the environment failed"))

    def _turns(self, completion: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The state and the reward of each turn, whose calls are steps of the environment.

        The messages have calls without a step: those of other tools, those after the end, and those
        of the last turn if TRL's limit of calls was reached.
        """
        episode = self._episode
        states: list[str] = []
        rewards: Rewards = []
        place = 0
        for message in completion:
            if message["role"] != "assistant":
                continue
            if episode.is_over and place == len(episode.rewards):
                break
            calls = sum(map(self._is_own, message.get("tool_calls") or ()))
            states.append([*episode.states, episode.state][place])
            taken = episode.rewards[place : place + calls]
            rewards.append(_total(taken))
            place += len(taken)
        if episode.error is not None:
            rewards[-1] = None
        return {"states": states, "step_rewards": rewards}

    def _is_own(self, call: Mapping[str, Any]) -> bool:
        function = call.get("function") or {}
        return function.get("name") == self._tool and isinstance(function.get("arguments"), dict)


@cache  # TRL recognizes the environments of a factory by their class
def _tool_class(environment: Any, tool: str | None) -> type[_ToolEnvironment]:
    call = _tool_function(environment.action_type, tool)
    name = call.__name__
    if not name.isidentifier() or name.startswith("_") or hasattr(_ToolEnvironment, name):
        raise InvalidArgumentError(
            f"`tool` must be the name of a function other than reset and get_reward, got {name!r}"
        )
    members = {name: call, "_tool": name}
    return type(environment.__name__, (_ToolEnvironment,), members)


def _tool_function(action_type: type[Action], tool: str | None) -> Callable[..., str]:
    """The function of a tool, with the signature and the docstring by which TRL describes it."""

    def call(self: _ToolEnvironment, /, **arguments: Any) -> str:
        return self._call(arguments)

    schema = tool_schema(action_type, name=tool)["function"]
    fields, required = schema["parameters"]["properties"], schema["parameters"].get("required", ())
    hints = {each.alias or name: each.annotation for name, each in action_type.model_fields.items()}
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name],
            default=empty if name in required else None,
        )
        for name in fields
    ]  # fmt: skip
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    lines = [f"    {name}: {_described(name, each)}" for name, each in fields.items()]
    call.__name__ = schema["name"]
    call.__annotations__ = {name: hints[name] for name in fields}
    call.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
    call.__doc__ = "\n".join([schema["description"] or schema["name"], "", "Args:", *lines])
    return call


# What a type hint contains of a JSON Schema.
_IN_HINT = frozenset(("type", "enum", "const", "items", "prefixItems", "anyOf", "$ref"))


def _described(name: str, schema: Mapping[str, Any]) -> str:
    """The description of an argument, with what its type hint lacks, such as bounds."""
    text = " ".join(schema.get("description", name.replace("_", " ")).split())
    beside = {key: value for key, value in schema.items() if key not in _IN_HINT}
    beside.pop("description", None)
    more = ", ".join(f"{key} {value}" for key, value in beside.items())
    return f"{text} ({more})" if more else text


# A pool of environments ---------------------------------------------------------------------------


def rollout_func(
    pool: SyncEnvPool,
    *,
    max_turns: int,
    turn: str,
    to_action: Callable[[str], Action | Mapping[str, Any]],
    observation_text: ToText = observation_text,
    reset_arguments: Callable[[Any], Mapping[str, Any]] | None = None,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    r"""Make the `rollout_func` of TRL's `GRPOTrainer`: the episodes of a pool, in lock-step.

    In each turn, one batch is generated for all episodes that go on, and one step is taken in each.
    An episode ends when its environment is done, after `max_turns`, or where its tokens fill the
    model's context. ``max_completion_length`` limits each turn. In the prompt of the dataset, a
    text or messages, ``{observation}`` is replaced with the text of the first observation.

    An episode whose environment raised, took too long, or whose reward failed ends, and its reward
    is None. A text that isn't a valid action takes no step and earns 0; the next turn shows the
    error.

    The result has what TRL requires, ``env_mask``, the columns ``states`` (the text of the
    observation before each turn) and ``step_rewards`` for `StepCredit`, and the episodes for
    `episode_reward`.

    Example:
        >>> from guerdon.integrations.trl import episode_reward, rollout_func
        >>> def trainer(pool, **options):  # in `with EnvPool(Lock, n=64).sync() as pool`
        ...     from trl import GRPOTrainer
        ...     play = rollout_func(pool, max_turns=8, to_action=lambda text: {"digit": int(text)},
        ...         turn="\n<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n")
        ...     return GRPOTrainer(rollout_func=play, reward_funcs=[episode_reward()], **options)

    Args:
        pool: The environments, as ``EnvPool(…).sync()`` that is open. If a batch has more prompts
            than the pool has environments, they are played one part after another.
        max_turns: The maximum number of turns of an episode, at least 1.
        turn: The text between two actions, in the model's template, after the token that ends the
            model's turn; ``{observation}`` in it is replaced with the text of the observation.
        to_action: Returns the action for the model's text, without special tokens. It raises
            `InvalidActionError` or another `ValueError` for a text that isn't an action.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.
        reset_arguments: Returns the arguments of the environment's reset, such as ``seed``, for a
            prompt. By default each group of generations gets a seed of its own: 0, 1, ….

    Raises:
        InvalidArgumentError: `turn` doesn't contain ``{observation}``, or `max_turns` is below 1.
    """
    if OBSERVATION not in turn:
        raise InvalidArgumentError(f"`turn` must contain {OBSERVATION}, got {shown(turn)}")
    check_integer("max_turns", max_turns, low=1)
    return _Rollouts(pool, max_turns, turn, to_action, observation_text, reset_arguments)


@dataclass
class _Rollout(_Episode):
    """An episode that is being generated."""

    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)  # 1 for the tokens of the model
    logprobs: list[float] = field(default_factory=list)
    answer_ids: list[int] = field(default_factory=list)  # of the observation, for the next turn

    @property
    def context(self) -> list[int]:
        """The tokens before the next turn."""
        return self.prompt_ids + self.ids + self.answer_ids

    def add(self, ids: Sequence[int], mask: int, logprobs: Sequence[float] | None) -> None:
        """Append tokens, with the log-probabilities of the model's if it reports them."""
        self.ids += ids
        self.mask += [mask] * len(ids)
        self.logprobs += (logprobs or []) if mask else [0.0] * len(ids)


@dataclass
class _Rollouts:
    """Plays the episodes of a batch; called by TRL."""

    pool: SyncEnvPool
    max_turns: int
    turn: str
    to_action: Callable[[str], Action | Mapping[str, Any]]
    observation_text: Callable[[Any], str]
    reset_arguments: Callable[[Any], Mapping[str, Any]] | None
    seeds: Iterator[int] = field(default_factory=count)

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        resets, size = self._resets(prompts, trainer), len(self.pool)
        played: list[_Rollout] = []
        for start in range(0, len(prompts), size):
            part = slice(start, start + size)
            played += self._play(prompts[part], resets[part], trainer)
        # Generation with transformers reports none.
        has_logprobs = all(len(each.logprobs) == len(each.ids) for each in played)
        return {
            "prompt_ids": [each.prompt_ids for each in played],
            "completion_ids": [each.ids for each in played],
            "logprobs": [each.logprobs for each in played] if has_logprobs else None,
            "env_mask": [each.mask for each in played],
            "states": [each.states for each in played],
            "step_rewards": [each.rewards for each in played],
            _EPISODES: played,
        }

    def _resets(self, prompts: list[Any], trainer: Any) -> list[dict[str, Any]]:
        if self.reset_arguments is not None:
            return [dict(self.reset_arguments(prompt)) for prompt in prompts]
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        groups = [next(self.seeds) for _ in range(0, len(prompts), size)]
        return [{"seed": groups[row // size]} for row in range(len(prompts))]

    def _play(
        self, prompts: list[Any], resets: list[dict[str, Any]], trainer: Any
    ) -> list[_Rollout]:
        seeds = [reset.pop("seed", None) for reset in resets]
        first = self.pool.reset_batch(seeds, range(len(prompts)), options=resets)
        played = [_Rollout(self.observation_text) for _ in prompts]
        for one, observation in zip(played, first, strict=True):
            if "error" in observation.metadata:
                one.fail(f"the reset failed: {observation.metadata['error']}")
            else:
                one.see(observation)
        pairs = zip(prompts, played, strict=True)
        begun = [with_observation(prompt, one.state) for prompt, one in pairs]
        for one, ids in zip(played, trainer._tokenize_prompts(begun)[0], strict=True):
            one.prompt_ids = ids
        limit = trainer.model.config.max_position_embeddings
        for _ in range(self.max_turns):
            playing = {
                slot: one
                for slot, one in enumerate(played)
                if not one.is_over and len(one.context) < limit
            }
            if playing:
                self._take_turn(playing, trainer)
        for one in played:
            if not one.ids:  # TRL requires a token
                one.add([trainer.processing_class.eos_token_id], 0, None)
        return played

    def _take_turn(self, playing: Mapping[int, _Rollout], trainer: Any) -> None:
        """Generate a turn of each episode, and take its step."""
        tokenizer, rollouts = trainer.processing_class, playing.values()
        for one in rollouts:
            one.add(one.answer_ids, 0, None)
            one.answer_ids = []
        contexts = [one.context for one in rollouts]
        found, logprobs = trainer._generate_single_turn(contexts, None, {}, num_generations=1)
        for one, ids, each in zip(rollouts, found, logprobs or [None] * len(found), strict=True):
            one.add(ids, 1, each)
        actions: list[Any] = [None] * len(self.pool)
        answers: dict[int, str] = {}
        texts = tokenizer.batch_decode(found, skip_special_tokens=True)
        for (slot, one), text in zip(playing.items(), texts, strict=True):
            try:
                actions[slot] = self.to_action(text)
            except ValueError as error:
                answers[slot] = one.refuse(str(error))
        for slot, observation in enumerate(self.pool.step_batch(actions)):
            if observation is not None:
                answers[slot] = _answer(playing[slot], observation)
        for slot, one in playing.items():
            text = self.turn.replace(OBSERVATION, answers[slot])
            one.answer_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if not one.answer_ids and not one.is_over:  # the next turn would continue this one
                raise InvalidArgumentError(
                    f"`turn` must contain a token of the model, got none of {text!r:.80}"
                )


def _answer(episode: _Episode, observation: Observation) -> str:
    """Record a step of a pool, which returns an observation for an action that it refused, too."""
    metadata = observation.metadata
    is_known = observation.reward is not None or "reward_error" in metadata
    if not is_known and not observation.done and "error" in metadata:
        return episode.refuse(str(metadata["error"]))
    return episode.step(observation)


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
    written = np.asarray(mask).astype(np.bool_)
    begins = written.copy()
    begins[:, 1:] &= ~written[:, :-1]
    return np.where(written, np.cumsum(begins, axis=1) - 1, -1)


class StepCredit:
    """A mixin for TRL's `GRPOTrainer`: an advantage for each turn, from any of our estimators.

    ``StepCreditGRPOTrainer`` is `GRPOTrainer` with it, and imports TRL when it is first used. The
    estimator replaces what TRL does with rewards, such as ``scale_rewards``. A step's reward is the
    weighted sum of what the functions of `reward_func` give its turn; the reward of any other
    function is added at the last turn. A completion without a score, or where a function of
    `reward_func` failed, has advantage 0 and takes part in no statistic. The completions table
    contains the mean advantage of a completion's tokens and the advantages of its turns.

    Args:
        *args: Those of the trainer.
        credit: The name of an estimator, or a function of a `StepBatch`, such as
            ``functools.partial(gigpo, gamma=0.95)``.
        states: The column that contains the state of each turn, a list for each completion: a
            column of the dataset, a field of ``rollout_func``, or an attribute of the environment.
            None means that there are no states.
        step_rewards: The column that contains the reward of each turn, likewise; None takes them
            from the reward functions. A completion with a None among them has no score.
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
        self._completions = completions
        # The first turn of each completion, counted with those of its prompt, and their number.
        self._spans = [
            (
                0 if isinstance(prompt, str) else _turns(prompt),
                1 if isinstance(completion, str) else _turns(completion),
            )
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
        self._log_advantages(tokens, turns >= 0)
        advantages = iter(credit.advantage.tolist())
        by_turn = [list(islice(advantages, count)) for count in counts.tolist()]
        self._logs["extra"]["step_advantages"].extend(by_turn)  # type: ignore[attr-defined]
        return output

    def _credit(self, written: NDArray[Any]) -> tuple[NDArray[Any], Credit]:
        """The number of steps of each completion, and the credit of all, one after another."""
        trainer: Any = self
        weighted = self._rewards * trainer.reward_weights.double().cpu().numpy()
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
            episode_score=np.nansum(weighted, axis=1)[rows],
            valid=self._valid(given)[rows],
        )
        return counts, self._estimator(batch)

    def _valid(self, given: list[Sequence[Any]] | None) -> NDArray[np.bool_]:
        """Whether each completion has a score: none of its rewards failed."""
        trainer: Any = self
        is_valid: NDArray[np.bool_] = ~np.isnan(self._rewards).all(axis=1)
        for func in trainer.reward_funcs:
            if results := getattr(func, "results", None):  # a None of others is no failure
                is_valid &= [result.is_score_valid for result in results]
        if given is not None:
            is_valid &= [None not in row for row in given]
        return is_valid

    def _column(self, name: str | None) -> list[Sequence[Any]] | None:
        """The values of a column of the dataset, or of an attribute of the environments."""
        if name is None:
            return None
        inputs, environments = self._inputs, getattr(self, "environments", None)
        if environments is not None and name not in inputs[0]:
            rows = zip(environments, self._completions, strict=True)
            return [_of_turns(environment, completion, name) for environment, completion in rows]
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
            rows = zip(found, results, weighted[:, column].tolist(), self._spans, strict=True)
            for rewards, result, score, (first, turns) in rows:
                if math.isnan(score):
                    continue
                outputs = result.step_outputs if result is not None else None
                if not outputs or turns != len(rewards):  # `rollout_func` has a message for all
                    rewards[-1] += score
                    continue
                if turns == len(outputs) == 1 and outputs[0].step_index == first:  # the usual case
                    rewards[0] += weight * outputs[0].base_reward
                    continue
                placed, unplaced = place_outputs(outputs, _places(first, turns))
                for turn, output in placed.items():
                    rewards[turn] += weight * output.base_reward
                misfits += unplaced
        if misfits:
            _logger.warning(
                "%d step outputs have no turn and were left out; the first: %s",
                len(misfits), misfits[0],
            )  # fmt: skip
        return found

    def _log_advantages(self, tokens: NDArray[Any], written: NDArray[Any]) -> None:
        """Replace TRL's advantages in the completions table, which has the latest rows."""
        trainer: Any = self
        means = (tokens.sum(axis=1) / np.maximum(written.sum(axis=1), 1)).tolist()
        logged = trainer._logs["advantages"]
        kept = list(logged)[: max(len(logged) - len(means), 0)]
        logged.clear()
        logged.extend(kept + means)


@lru_cache(64)  # most completions of a batch have the same
def _places(first: int, turns: int) -> Mapping[int | str, int | None]:
    return places_of((first + turn, None) for turn in range(turns))


def _of_turns(environment: Any, completion: Any, name: str) -> Sequence[Any]:
    if isinstance(environment, _ToolEnvironment):
        return environment._turns(completion)[name]
    found: Sequence[Any] = getattr(environment, name)
    return found


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
