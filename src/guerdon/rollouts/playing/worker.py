"""`RLRolloutWorker`: plays episodes of a policy in an environment, and records them."""

from __future__ import annotations

import asyncio
import random
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from guerdon._background import background_loop, run
from guerdon._validation import check_seconds
from guerdon.envs.runner import EnvRunner, EnvThreads
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.playing.adapters import adapter_of
from guerdon.rollouts.playing.episode import Rules, ToMessages, bind_policy, play
from guerdon.rollouts.playing.policies import AgentPolicy
from guerdon.rollouts.playing.record import RolloutRecord
from guerdon.rubrics.failure import say_failure
from guerdon.types.message import Message, read_messages

__all__ = ["RLRolloutWorker"]

# Seconds that closing an environment may take, at most.
CLOSE_S = 10.0

# Columns of a row that the episode gives, and no task.
_OF_RECORDS = frozenset(("seed", "ended", "error", "env_rewards", "first_turn"))


class _Task(NamedTuple):
    """What a task says.

    Attributes:
        messages: How the conversation begins.
        id: Its name.
        group: What it shares with others, where it says so.
        ground_truth: Its answer.
        reset: Arguments of the environment's reset.
        columns: Whatever else it says.
    """

    messages: list[Message]
    id: Any
    group: Any
    ground_truth: Any
    reset: dict[str, Any]
    columns: dict[str, Any]


class RLRolloutWorker:
    """Plays a policy in an environment, one episode or a group of them, and records the steps.

    The environment is guerdon's or OpenEnv's, in process or a client, sync or async: anything
    with `reset` and `step`. Sync ones run in threads. What fails in the environment or in the
    policy is data: the record holds the steps so far and says what failed.

    An episode ends where the environment is done; with an action ``{"type": "terminate"}``,
    which is recorded as the last step and not sent; with the step in whose raw output the stop
    pattern was found, which is taken still; after `max_steps`; or with an error. A step that
    failed is the last one recorded, without a reward; so is one whose action the environment
    refused, which `to_action` may prevent.

    The conversation is the worker's: the task's messages, or the first observation; then each
    assistant turn with what the environment answered. A task that gives only instructions
    (``system``, ``developer``) is followed by the first observation.

    Example:
        >>> from guerdon import Action, Environment, Observation, RLRolloutWorker, Rubric
        >>> from guerdon import ScriptedPolicy, State
        >>> class Guess(Action):
        ...     number: int
        >>> class Hint(Observation):
        ...     text: str
        >>> class Right(Rubric):
        ...     def forward(self, action, observation):
        ...         return float(action.number == 7)
        >>> class Guessing(Environment[Guess, Hint, State]):
        ...     def __init__(self):
        ...         super().__init__(rubric=Right())
        ...     def reset(self, seed=None, **kwargs):
        ...         return Hint(text="Which number?")
        ...     def step(self, action, **kwargs):
        ...         done = action.number == 7
        ...         return self.score(action, Hint(text="yes" if done else "no", done=done))
        ...     @property
        ...     def state(self):
        ...         return State()
        >>> policy = ScriptedPolicy([{"number": 3}, {"number": 7}])
        >>> worker = RLRolloutWorker(Guessing, policy, max_steps=5)
        >>> record = worker.run_sync()
        >>> record.ended, record.env_rewards, [message.text for message in record.messages]
        ('done', [0.0, 1.0], ['Which number?', '{"number": 3}', 'no', '{"number": 7}', 'yes'])

    Args:
        env: An environment, which plays one episode at a time and stays open; or its class or
            another function that makes one, called for each episode, which is closed after it.
        policy: What decides. Several episodes at once share it.
        max_steps: Steps of an episode, at most; at least 1.
        to_action: Makes the environment's action of the policy's. By default it goes as it is; a
            dict becomes the environment's type of action, where that is known.
        first_observation: Whether the conversation shows the first observation: ``always``,
            ``never``, or ``auto``, where the task says nothing but instructions.
        to_messages: Makes messages of an observation and of the tool calls that it answers, none
            for the first. By default a message for each call, or one of the user's; its text is
            the observation's own (`messages`, `content`, `message`, `text`, `prompt`), or else
            its JSON.
        stop_pattern: A regular expression that ends the episode where it is found in the raw
            output.
        tools: The tools that the policy is told of; by default the environment's own `tools`.
        step_timeout: Seconds that the environment may take for a reset or a step.
        policy_timeout: Seconds that the policy may take for a decision.

    Raises:
        InvalidArgumentError: One of these can't be meant.
    """

    def __init__(
        self,
        env: Any,
        policy: AgentPolicy,
        *,
        max_steps: int,
        to_action: Callable[[Any], Any] | None = None,
        to_messages: ToMessages | None = None,
        stop_pattern: str | re.Pattern[str] | None = None,
        first_observation: Literal["auto", "always", "never"] = "auto",
        tools: Sequence[Any] | None = None,
        step_timeout: float = 60.0,
        policy_timeout: float = 600.0,
    ) -> None:
        if not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1:
            raise InvalidArgumentError(f"max_steps is {max_steps!r}; it takes at least 1")
        if not callable(getattr(policy, "get_action", None)) or isinstance(policy, type):
            raise InvalidArgumentError(
                f"{policy!r:.60} is no policy; it has `async def get_action(self, observation, "
                "available_tools_specs=None)`"
            )
        if first_observation not in ("auto", "always", "never"):
            raise InvalidArgumentError(
                f"first_observation is {first_observation!r}; it takes 'auto', 'always' or 'never'"
            )
        self._env = env
        self._is_factory = _is_factory(env)
        self._is_lent = False  # whether an environment of the caller's plays an episode
        self._step_timeout = check_seconds("step_timeout", step_timeout)
        self._rules = Rules(
            decide=bind_policy(policy),
            max_steps=max_steps,
            policy_timeout=check_seconds("policy_timeout", policy_timeout),
            tools=None if tools is None else list(tools),
            to_action=to_action,
            to_messages=to_messages,
            stop_pattern=_pattern(stop_pattern),
            first_observation=first_observation,
        )

    async def run(
        self,
        task: str | Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        rollout_id: str | None = None,
        ground_truth: Any = None,
    ) -> RolloutRecord:
        """Play one episode.

        Args:
            task: What the conversation begins with: a prompt, or a dict with ``messages`` or a
                ``prompt``. A dict
                may also have an ``id``, which becomes the group, a ``ground_truth``, arguments of
                the environment's reset as ``reset``, and other columns, which rows have too.
            seed: Makes the environment's part repeatable; at least 0.
            rollout_id: What to call the episode; one is made up otherwise.
            ground_truth: The task's answer, instead of its own.

        Raises:
            InvalidArgumentError: The task is none, or the environment plays an episode already.
        """
        read = _read(task, ground_truth)
        _check_seed(seed)
        name = rollout_id or str(uuid.uuid4())
        group = read.id if read.group is None else read.group
        return await self._play(read, seed=seed, name=name, group=group)

    async def run_group(
        self,
        task: str | Mapping[str, Any] | None,
        n: int,
        *,
        seed: int | None = None,
        group: Any = None,
        ground_truth: Any = None,
    ) -> list[RolloutRecord]:
        """Play several episodes of the same task and seed at once.

        Example:
            >>> async def batch(worker, tasks):
            ...     return [record for task in tasks for record in await worker.run_group(task, 8)]

        Args:
            task: As of `run`.
            n: How many, at least 1; more than one need a class or a factory as environment.
            seed: Of all of them; without one, one is drawn for them.
            group: What to call the group: by default what the task says, or its id with the seed,
                ``"q7:5"``; else a name is made up. The episodes are called after it,
                ``"q7:5-0"`` and so on.
            ground_truth: As of `run`.

        Returns:
            The records in order. An episode that fails says so in its own.

        Raises:
            InvalidArgumentError: As `run`; or there is one environment for several episodes.
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise InvalidArgumentError(f"n is {n!r}; it takes at least 1")
        if n > 1 and not self._is_factory:
            raise InvalidArgumentError(
                f"{n} episodes at once need {n} environments, and {self._env!r:.60} is one; give "
                "its class, or a factory that makes one"
            )
        read = _read(task, ground_truth)
        _check_seed(seed)
        if seed is None:
            seed = random.SystemRandom().getrandbits(31)
        if group is None:
            # With the seed: the same task begins otherwise with another.
            group = read.group or (str(uuid.uuid4()) if read.id is None else f"{read.id}:{seed}")
        episodes = (
            self._play(read, seed=seed, name=f"{group}-{number}", group=group)
            for number in range(n)
        )
        # Exceptions are told after all have ended: none is left behind.
        records = await asyncio.gather(*episodes, return_exceptions=True)
        for record in records:
            if isinstance(record, BaseException):
                raise record
        return [record for record in records if isinstance(record, RolloutRecord)]

    def run_sync(
        self, task: str | Mapping[str, Any] | None = None, **options: Any
    ) -> RolloutRecord:
        """Like `run`, for code that awaits nothing."""
        return run(self.run(task, **options))

    def run_group_sync(
        self, task: str | Mapping[str, Any] | None, n: int, **options: Any
    ) -> list[RolloutRecord]:
        """Like `run_group`, for code that awaits nothing."""
        return run(self.run_group(task, n, **options))

    async def _play(self, task: _Task, *, seed: int | None, name: str, group: Any) -> RolloutRecord:
        record = RolloutRecord(
            name,
            group,
            messages=list(task.messages),
            ground_truth=task.ground_truth,
            seed=seed,
            columns=task.columns,
        )
        self._lend()
        threads = EnvThreads(1, name="guerdon-rollout")
        adapt = partial(self._adapt, in_background=threads.loop is background_loop())
        runner = EnvRunner(self._make, threads, timeout_s=self._step_timeout, adapt=adapt)
        try:
            await runner.open()
            await play(runner, self._rules, record=record, reset=task.reset)
        except Exception as error:
            record.ended, record.error = "error", say_failure(error, "making the environment")
        finally:
            await runner.close(min(self._step_timeout, CLOSE_S))
            threads.close()
        return record

    def _make(self) -> Any:
        return self._env() if self._is_factory else self._env

    def _adapt(self, made: Any, *, in_background: bool) -> Any:
        if self._is_factory:
            return adapter_of(made)
        try:
            return adapter_of(made, freed=self._give_back, shared_with_sync=in_background)
        except BaseException:
            self._give_back()
            raise

    def _lend(self) -> None:
        if self._is_factory:
            return
        if self._is_lent:
            raise InvalidArgumentError(
                f"{self._env!r:.60} plays an episode, or hangs in one that was given up; for "
                "several at once give its class, or a factory that makes one"
            )
        self._is_lent = True

    def _give_back(self) -> None:
        self._is_lent = False


def _is_factory(env: Any) -> bool:
    """Whether something makes environments, and isn't one."""
    if isinstance(env, type):
        return True
    if callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None)):
        return False
    if callable(env):
        return True
    raise InvalidArgumentError(
        f"{env!r:.60} is no environment; it has reset and step, or is a class or a factory"
    )


def _pattern(given: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    try:
        return None if given is None else re.compile(given)
    except (re.error, TypeError) as error:
        raise InvalidArgumentError(
            f"stop_pattern is {given!r:.60}, which is no regular expression: {error}"
        ) from None


def _check_seed(seed: Any) -> None:
    if seed is not None and (type(seed) is not int or seed < 0):
        raise InvalidArgumentError(f"seed is {seed!r:.60}; it takes a whole number of at least 0")


def _read(task: Any, ground_truth: Any) -> _Task:
    if task is None or isinstance(task, str):
        messages = [] if task is None else [Message(role="user", content=task)]
        return _Task(messages, None, None, ground_truth, {}, {})
    if not isinstance(task, Mapping):
        raise InvalidArgumentError(
            f"the task is {task!r:.60}; it is a prompt, or a dict with 'messages'"
        )
    columns = dict(task)
    said = {name: columns.pop(name, None) for name in ("messages", "prompt")}
    given = {name: each for name, each in said.items() if each is not None}
    if len(given) > 1:
        raise InvalidArgumentError("the task has 'messages' and a 'prompt'; it takes one of them")
    taken = sorted(_OF_RECORDS & columns.keys())
    if taken:
        raise InvalidArgumentError(f"the task has {taken}, which rows have of the episode")
    reset = columns.pop("reset", None) or {}
    truth = columns.pop("ground_truth", None)
    if not isinstance(reset, Mapping):
        raise InvalidArgumentError(f"task['reset'] is {reset!r:.60}; it is a dict of arguments")
    own = sorted({"seed", "episode_id"} & reset.keys())
    if own:
        raise InvalidArgumentError(
            f"task['reset'] has {own}, which the worker gives: seed=…, and the rollout's id"
        )
    begins: list[Message] = []
    for name, each in given.items():
        if isinstance(each, str):
            begins = [Message(role="user", content=each)]
        else:
            begins = read_messages(each, f"task[{name!r}]")
    return _Task(
        begins,
        columns.pop("id", None),
        columns.pop("group", None),
        truth if ground_truth is None else ground_truth,
        dict(reset),
        columns,
    )
