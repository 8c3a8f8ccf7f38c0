"""`RLRolloutWorker`: plays episodes of a policy in an environment, and records them."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import random
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError

from guerdon._background import background_loop, run
from guerdon._patterns import Pattern
from guerdon._validation import check_choice, check_integer, check_seconds, shown
from guerdon.envs.runner import EnvRunner, EnvThreads, Keywords
from guerdon.errors import InvalidArgumentError, InvalidObservationError, PolicyError
from guerdon.rollouts.json_forms import as_json, json_items
from guerdon.rollouts.playing.adapters import adapter_of, read_result
from guerdon.rollouts.playing.observations import answer_messages, content_of, first_messages
from guerdon.rollouts.playing.policies import AgentPolicy, PolicyOutput, calls_of, kind_of
from guerdon.rollouts.playing.record import Ending, RolloutRecord
from guerdon.rubrics.failure import describe_failure
from guerdon.types.agents import AGENT, AGENT_REWARDS, check_agent_rewards
from guerdon.types.message import INSTRUCTION_ROLES, Message, read_messages
from guerdon.types.numbers import FiniteFloat
from guerdon.types.observation import TRUNCATED, StepResult
from guerdon.types.rollout import StepData

__all__ = ["RLRolloutWorker"]

logger = logging.getLogger("guerdon.rollouts")

_value = TypeAdapter(FiniteFloat | None)

# Makes messages of an observation and of the tool calls that it answers.
ToMessages: TypeAlias = Callable[[Any, list[dict[str, Any]]], list[Message]]

# Seconds that closing an environment may take, at most.
CLOSE_S = 10.0
# Seconds that a policy has to end once it was cancelled.
GRACE_S = 1.0
# Columns of a row that belong to the episode, and not to the task.
RECORD_COLUMNS = frozenset(
    ("seed", "ended", "error", "env_rewards", "first_turn", "agents", "agent_rewards", TRUNCATED)
)


class RLRolloutWorker:
    """Plays a policy in an environment, one episode or a group of them, and records the steps.

    The environment is guerdon's or OpenEnv's, in process or a client, sync or async: any object
    with `reset` and `step`. Sync ones run in threads. A failure of the environment or the policy
    is data: the record contains the steps so far and the error.

    An episode ends when the environment is done; with an action ``{"type": "terminate"}``, which
    is recorded as the last step and not sent; with the step in whose raw output the stop pattern
    was found, which is still taken; after `max_steps`; or with an error. A step that failed is the
    last one recorded, without a reward; so is one whose action the environment refused, which
    `to_action` may prevent.

    The conversation belongs to the worker: the task's messages, or the first observation; then
    each assistant turn with the environment's answer. If a task has only instructions (``system``,
    ``developer``), the first observation follows them. If observations name the agent that acts
    next, in ``metadata["agent"]``, the policy gets the messages of this agent: the task's, the
    observations before its turns, and its turns.

    Example:
        >>> from guerdon import Action, Environment, Observation, RLRolloutWorker, Rubric, State
        >>> from guerdon.rollouts import ScriptedPolicy
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
            another function that returns one, called for each episode, which is closed after it.
        policy: Decides on the actions; concurrent episodes share it.
        max_steps: The maximum number of steps of an episode, at least 1.
        to_action: Returns the environment's action for the policy's. By default they are the same;
            a dict becomes the environment's type of action, if that is known.
        first_observation: Whether the conversation includes the first observation: ``always``,
            ``never``, or ``auto``, if the task has only instructions.
        to_messages: Returns messages for an observation and the tool calls that it answers, which
            are empty for the first. By default a message for each call, or one of the user; its
            text is the observation's own (`messages`, `content`, `message`, `text`, `prompt`), or
            else its JSON.
        stop_pattern: A regular expression that ends the episode if it matches in the raw output, as
            for `RegexMatch`.
        step_per: What is a step, if a turn calls several tools: the ``"turn"``, or each ``"call"``,
            of which all have the same ``assistant_turn_index``, and the ``step_id`` ``"3.0"``,
            ``"3.1"`` and so on. With several agents it is the turn.
        tools: The tools that the policy gets; by default the environment's own `tools`, as they are
            before each turn.
        step_timeout: Seconds that the environment may take for a reset or a step.
        policy_timeout: Seconds that the policy may take for a decision.

    Raises:
        InvalidArgumentError: An argument is invalid.
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
        step_per: Literal["turn", "call"] = "turn",
        tools: Sequence[Any] | None = None,
        step_timeout: float = 60.0,
        policy_timeout: float = 600.0,
    ) -> None:
        if not callable(getattr(policy, "get_action", None)) or isinstance(policy, type):
            raise InvalidArgumentError(
                "`policy` must have `async def get_action(self, observation, "
                f"available_tools_specs=None)`, got {shown(policy)}"
            )
        self.max_steps = check_integer("max_steps", max_steps, low=1)
        self.to_action = to_action
        self.to_messages = to_messages
        self.stop_pattern = None if stop_pattern is None else Pattern("stop_pattern", stop_pattern)
        self.first_observation = check_choice(
            "first_observation", first_observation, ("auto", "always", "never")
        )
        self.step_per = check_choice("step_per", step_per, ("turn", "call"))
        self.tools = None if tools is None else list(tools)
        self.step_timeout = check_seconds("step_timeout", step_timeout)
        self.policy_timeout = check_seconds("policy_timeout", policy_timeout)
        self.policy = policy
        self.policy_takes = Keywords.of(policy.get_action, 2)
        self._env = env
        self._is_factory = _is_factory(env)
        self._is_busy = False  # whether an environment of the caller's plays an episode

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
            task: How the conversation begins: a prompt, or a dict with ``messages`` or a
                ``prompt``. A dict may also have an ``id``, which becomes the group, a
                ``ground_truth``, arguments of the environment's reset as ``reset``, and other
                columns, which become columns of the row.
            seed: Makes the environment's part repeatable; at least 0.
            rollout_id: The episode's name; by default a random one.
            ground_truth: The task's answer, instead of its own.

        Raises:
            InvalidArgumentError: The task is invalid, or the environment already plays an episode.
        """
        record, reset = _read_task(task, ground_truth, seed)
        if record.group is None:
            record.group = record.id
        record.id = rollout_id or str(uuid.uuid4())
        return await self._play(record, reset)

    async def run_group(
        self,
        task: str | Mapping[str, Any] | None,
        n: int,
        *,
        seed: int | None = None,
        group: Any = None,
        ground_truth: Any = None,
    ) -> list[RolloutRecord]:
        """Play several episodes of the same task and seed concurrently.

        Example:
            >>> async def batch(worker, tasks):
            ...     return [record for task in tasks for record in await worker.run_group(task, 8)]

        Args:
            task: As for `run`.
            n: The number of episodes, at least 1; more than one need a class or a factory as
                environment.
            seed: The seed of all of them; by default a random one.
            group: The group's name: by default the task's, or its id with the seed, ``"q7:5"``;
                else a random one. The episodes are named ``"q7:5-0"`` and so on.
            ground_truth: As for `run`.

        Returns:
            The records in order. The record of an episode that failed contains its error.

        Raises:
            InvalidArgumentError: As for `run`; or there is one environment for several episodes.
        """
        check_integer("n", n, low=1)
        if n > 1 and not self._is_factory:
            raise InvalidArgumentError(
                f"{n} concurrent episodes need {n} environments, and {self._env!r:.60} is one; "
                "pass its class, or a function that returns one"
            )
        record, reset = _read_task(task, ground_truth, seed)
        if record.seed is None:
            record.seed = random.SystemRandom().getrandbits(31)
        if group is None:
            # With the seed: the same task begins differently with another.
            named = str(uuid.uuid4()) if record.id is None else f"{record.id}:{record.seed}"
            group = record.group or named
        episodes = []
        for number in range(n):
            own = replace(record, id=f"{group}-{number}", group=group, steps=[])
            own.messages = list(record.messages)
            episodes.append(self._play(own, reset))
        # Exceptions are raised after all have ended, so that none is left running.
        records: list[Any] = await asyncio.gather(*episodes, return_exceptions=True)
        for record in records:
            if isinstance(record, BaseException):
                raise record
        return records

    def run_sync(
        self, task: str | Mapping[str, Any] | None = None, **options: Any
    ) -> RolloutRecord:
        """Like `run`, for sync code."""
        return run(self.run(task, **options))

    def run_group_sync(
        self, task: str | Mapping[str, Any] | None, n: int, **options: Any
    ) -> list[RolloutRecord]:
        """Like `run_group`, for sync code."""
        return run(self.run_group(task, n, **options))

    async def _play(self, record: RolloutRecord, reset: Mapping[str, Any]) -> RolloutRecord:
        if self._is_busy:
            raise InvalidArgumentError(
                f"{self._env!r:.60} already plays an episode, or hangs in an abandoned one; for "
                "several at once pass its class, or a function that returns one"
            )
        self._is_busy = not self._is_factory
        threads = EnvThreads(1, name="guerdon-rollout")
        adapt = partial(self._adapt, in_background=threads.loop is background_loop())
        runner = EnvRunner(self._make, threads, timeout_s=self.step_timeout, adapt=adapt)
        try:
            await runner.open()
            await _Episode(self, runner, record).play(reset)
        except Exception as error:
            record.ended, record.error = "error", describe_failure(error, "making the environment")
        finally:
            await runner.close(min(self.step_timeout, CLOSE_S))
            threads.close()
        return record

    def _make(self) -> Any:
        return self._env() if self._is_factory else self._env

    def _adapt(self, made: Any, *, in_background: bool) -> Any:
        if self._is_factory:
            return adapter_of(made)
        try:
            return adapter_of(made, release=self._release, shared_with_sync=in_background)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        self._is_busy = False


def _is_factory(env: Any) -> bool:
    """Whether an object makes environments, and isn't one."""
    if isinstance(env, type):
        return True
    if callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None)):
        if getattr(env, "own_thread", False) is True:
            raise InvalidArgumentError(
                f"`env` has `own_thread = True`, and {type(env).__name__} belongs to the thread "
                "that made it; pass its class, or a function that returns one"
            )
        return False
    if callable(env):
        return True
    raise InvalidArgumentError(
        f"`env` must have reset and step, or be a class or a function that returns an environment, "
        f"got {shown(env)}"
    )


# Tasks -----------------------------------------------------------------------------------------


def _read_task(task: Any, ground_truth: Any, seed: Any) -> tuple[RolloutRecord, Mapping[str, Any]]:
    """The record with which an episode begins, and the arguments of the environment's reset.

    The record has the task's id and group, not those of the episode.
    """
    if seed is not None:
        check_integer("seed", seed, low=0)
    if task is None or isinstance(task, str):
        task = {"prompt": task}
    if not isinstance(task, Mapping):
        raise InvalidArgumentError(
            f"`task` must be a prompt, or a dict with 'messages', got {shown(task)}"
        )
    columns = dict(task)
    messages, prompt = columns.pop("messages", None), columns.pop("prompt", None)
    if messages is not None and prompt is not None:
        raise InvalidArgumentError("a task must have either 'messages' or a 'prompt', not both")
    taken = sorted(RECORD_COLUMNS & columns.keys())
    if taken:
        raise InvalidArgumentError(f"a task must not have {taken}: rows have them of the episode")
    reset = columns.pop("reset", None) or {}
    if not isinstance(reset, Mapping) or not reset.keys().isdisjoint(("seed", "episode_id")):
        raise InvalidArgumentError(
            "task['reset'] must be a dict of arguments other than 'seed' and 'episode_id', which "
            f"the worker passes, got {shown(reset)}"
        )
    own_truth = columns.pop("ground_truth", None)
    record = RolloutRecord(
        columns.pop("id", None),
        columns.pop("group", None),
        messages=_begins(messages, "messages") or _begins(prompt, "prompt"),
        ground_truth=own_truth if ground_truth is None else ground_truth,
        seed=seed,
        columns=columns,
    )
    return record, reset


def _begins(given: Any, name: str) -> list[Message]:
    if given is None:
        return []
    if isinstance(given, str):
        return [Message(role="user", content=given)]
    return read_messages(given, f"task[{name!r}]")


# Episodes --------------------------------------------------------------------------------------


class _Episode:
    """An episode that is being played; its record is written as it goes.

    Args:
        worker: Has the options.
        runner: Runs the environment, which is open.
        record: Has the episode's name, its seed and the beginning of its conversation.
    """

    def __init__(self, worker: RLRolloutWorker, runner: EnvRunner, record: RolloutRecord) -> None:
        self._worker = worker
        self._runner = runner
        self._record = record
        self._turns = 0  # of the policy
        self._doing = "reset"  # for the error's text
        self._is_stepping = False  # whether the last recorded step has not ended yet
        self._result: StepResult[Any] = StepResult(None)
        self._content: Any = None  # of the result's observation, as JSON
        self._reset_metadata: dict[str, Any] = {}
        # With several agents; otherwise the agent is None.
        self._agent: str | None = None  # the one that acts next
        self._agents: dict[str, Any] | None = None  # all of them, once they have rewards
        self._calls: dict[str | None, list[dict[str, Any]]] = {}  # of each one's last turn
        self._seen_by: list[str | None] = [None] * len(record.messages)  # None means by all

    async def play(self, reset: Mapping[str, Any]) -> None:
        """Play the episode to its end.

        Args:
            reset: Further arguments of the environment's reset.
        """
        record = self._record
        try:
            await self._begin(reset)
            ended = None
            while ended is None:
                ended = await self._turn()
            record.ended = ended
        except (Exception, SystemExit) as error:  # what ends a program ends only the episode
            record.ended, record.error = "error", describe_failure(error, self._doing)
            if record.steps:
                last = record.steps[-1].step_info
                last["error" if self._is_stepping else "episode_error"] = record.error

    async def _begin(self, reset: Mapping[str, Any]) -> None:
        record, messages = self._record, self._record.messages
        if record.seed is not None and not self._runner.adapter.takes_seed:
            logger.warning(
                "the environment's reset accepts no seed, so that %r may begin differently from "
                "the others of its group",
                record.id,
            )
            record.seed = None
        answer = await self._runner.reset(record.seed, record.id, reset)
        self._result = read_result(answer, "reset")
        self._reset_metadata = json_items(self._result.metadata)
        self._agent = _agent_of(self._result)
        includes = self._worker.first_observation
        only_instructions = all(each.role in INSTRUCTION_ROLES for each in messages)
        self._content = content_of(self._result.observation)
        if includes == "always" or (includes == "auto" and only_instructions):
            self._show(None)
        record.first_turn = sum(each.role == "assistant" for each in messages)

    async def _turn(self) -> Ending | None:
        """Let the policy decide, and take its steps; return how the episode ends, if so."""
        record, worker = self._record, self._worker
        turn = record.first_turn + self._turns
        self._turns += 1
        self._doing = f"the policy at step {turn}"
        output = await self._decide()
        self._doing = f"step {turn}"
        message = _message(output, turn)
        self._add([message], self._agent)
        calls = message.tool_calls or []
        parts = [(output, calls)]
        if worker.step_per == "call" and self._agent is None:
            parts = _parts(output, calls)
        ended = None
        for place, (part, answered) in enumerate(parts):
            step_id = f"{turn}.{place}" if len(parts) > 1 else None
            ended = await self._step(part, turn, answered, step_id)
            if ended is not None:
                break
        stop = worker.stop_pattern
        if ended in ("terminate", "done") or stop is None:
            return ended
        found = await asyncio.to_thread(stop.found_in, output.raw_output)
        return "pattern" if found else ended

    async def _step(
        self, output: PolicyOutput, turn: int, calls: list[dict[str, Any]], step_id: str | None
    ) -> Ending | None:
        """Take a step, which answers some calls; return how the episode ends with it, if so."""
        record, worker = self._record, self._worker
        step = self._open_step(output, turn)
        if step_id is not None:
            step.step_info["step_id"] = step_id
        action = output.action
        if worker.to_action is not None and not _terminates(action):
            action = worker.to_action(action)
        if _terminates(action):
            step.is_done = True
            self._close_step(step)
            return "terminate"
        answer = await self._runner.step(action, worker.step_timeout)
        self._result = result = read_result(answer, "step")
        self._calls[self._agent] = calls
        self._next_agent(step)
        step.is_done = result.done
        step.step_info["env_reward"] = result.reward
        self._content = content_of(result.observation)
        self._show(self._calls.get(self._agent, []))
        if metadata := json_items(result.metadata):
            step.step_info["env_metadata"] = metadata
        if result.truncated:
            step.step_info[TRUNCATED] = True
        self._close_step(step)
        if result.done:
            return "done"
        return "max_steps" if len(record.steps) == worker.max_steps else None

    async def _decide(self) -> PolicyOutput:
        _record, worker = self._record, self._worker
        messages = [*self._conversation(self._agent)]
        optional: dict[str, Any] = {"messages": messages, "turn": self._turns - 1}
        if self._agent is not None:
            optional["agent"] = self._agent
        tools = worker.tools
        if tools is None:
            tools = await self._declared_tools()
        asking: Any = worker.policy.get_action(
            self._result.observation, tools, **worker.policy_takes.accepted(optional)
        )
        if not inspect.isawaitable(asking):
            raise PolicyError(f"get_action must be async, got {asking!r:.60} from it")
        return _checked(await _within(asking, worker.policy_timeout))

    async def _declared_tools(self) -> list[Any] | None:
        adapter = self._runner.adapter
        if adapter.own_calls is None:
            tools = adapter.tools
        else:
            tools = await self._runner.call(lambda adapter: adapter.tools, "tools")
        return cast("list[Any] | None", tools)

    def _open_step(self, output: PolicyOutput, turn: int) -> StepData:
        record = self._record
        info: dict[str, Any] = {"assistant_turn_index": turn, "env_reward": None}
        if output.info:
            info["policy_info"] = as_json(output.info)
        if record.group is not None:
            info["group"] = record.group
        if self._agent is not None:
            info |= {AGENT: self._agent, AGENT_REWARDS: None}
        if self._reset_metadata and not record.steps:
            info["reset_metadata"] = self._reset_metadata
        step = StepData(
            system_step_index=len(record.steps),
            observation_data=self._content,
            action_taken=as_json(output.action),
            raw_policy_output=output.raw_output,
            resulting_messages_history=self._conversation(self._agent),
            policy_logprobs=output.logprobs,
            policy_value_estimate=output.value_estimate,
            step_info=info,
        )
        record.steps.append(step)
        self._is_stepping = True
        return step

    def _close_step(self, step: StepData) -> None:
        step.resulting_messages_history = list(self._conversation(step.step_info.get(AGENT)))
        self._is_stepping = False

    def _show(self, calls: list[dict[str, Any]] | None) -> None:
        """Add the environment's answer to the conversation; `calls` is None for the first."""
        if self._worker.to_messages is not None:
            made = self._worker.to_messages(self._result.observation, calls or [])
            added = [Message.model_validate(each) for each in made]
        elif calls is None:
            added = first_messages(self._content)
        else:
            added = answer_messages(self._content, calls)
        self._add(added, self._agent)

    # Several agents ----------------------------------------------------------------------------

    def _next_agent(self, step: StepData) -> None:
        """Record the rewards of the agents, and which of them acts next."""
        result, actor = self._result, self._agent
        agent = _agent_of(result)
        given = result.metadata.get(AGENT_REWARDS)
        if (agent is None) != (actor is None) and not result.done:
            raise InvalidObservationError(
                f"every observation must name the agent that acts next in metadata[{AGENT!r}], or "
                f"none: after {actor!r} it is {agent!r}"
            )
        if given is not None or self._agents is not None:
            if actor is None:
                raise InvalidObservationError(
                    f"metadata[{AGENT_REWARDS!r}] requires metadata[{AGENT!r}], from the reset on"
                )
            self._agents = check_agent_rewards(given, self._agents, error=InvalidObservationError)
            step.step_info[AGENT_REWARDS] = self._agents
        elif actor is not None:
            del step.step_info[AGENT_REWARDS]
        self._agent = actor if agent is None else agent

    def _add(self, messages: Sequence[Message], agent: str | None) -> None:
        """Add messages to the conversation, for one agent or for all."""
        self._record.messages.extend(messages)
        self._seen_by += [agent] * len(messages)

    def _conversation(self, agent: str | None) -> list[Message]:
        """The part of the conversation that an agent sees."""
        messages = self._record.messages
        if agent is None:
            return messages
        seen = zip(messages, self._seen_by, strict=True)
        return [message for message, by in seen if by is None or by == agent]


def _parts(
    output: PolicyOutput, calls: list[dict[str, Any]]
) -> list[tuple[PolicyOutput, list[dict[str, Any]]]]:
    """Divide a turn with several calls into one for each, with the call that it answers."""
    actions = calls_of(output.action)
    if len(actions) < 2 or len(actions) != len(calls):
        return [(output, calls)]
    _, text, logprobs, value = output
    parts = []
    for action, call in zip(actions, calls, strict=True):
        parts.append((PolicyOutput(action, text, logprobs, value, info=output.info), [call]))
        logprobs = value = None  # the tokens of the turn are those of its first step
    return parts


def _agent_of(result: StepResult[Any]) -> str | None:
    agent = result.metadata.get(AGENT)
    if agent is None or isinstance(agent, str):
        return agent
    raise InvalidObservationError(
        f"metadata[{AGENT!r}] must be the name of the agent that acts next, got {agent!r:.60}"
    )


async def _within(asking: Awaitable[Any], limit: float) -> Any:
    """Await a policy; it is cancelled if it takes too long or its caller is cancelled."""
    task = asyncio.ensure_future(_asked(asking))
    try:
        done, _ = await asyncio.wait((task,), timeout=limit)
        if not done:
            raise PolicyError(f"the policy took longer than {limit:g} s")
        if task.cancelled():
            raise PolicyError("the policy ended itself with CancelledError")
        return task.result()
    finally:
        task.add_done_callback(_retrieve)
        if task.cancel():
            await asyncio.wait((task,), timeout=GRACE_S)


async def _asked(asking: Awaitable[Any]) -> Any:
    try:
        return await asking
    except SystemExit as error:  # in a task, it would end the event loop
        raise PolicyError(f"the policy raised {error!r}") from error


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve an exception that no caller waits for, so that asyncio doesn't report it."""
    if not task.cancelled():
        task.exception()


def _checked(output: Any) -> PolicyOutput:
    if isinstance(output, tuple) and len(output) == 4 and not isinstance(output, PolicyOutput):
        output = PolicyOutput(*output)
    if not isinstance(output, PolicyOutput):
        size = f" of {len(output)}" if isinstance(output, (tuple, list)) else ""
        raise PolicyError(
            "get_action must return a tuple of action, raw output, logprobs and value estimate, "
            f"got {output!r:.60} ({type(output).__name__}{size})"
        )
    if not isinstance(output.raw_output, str):
        raise PolicyError(
            f"the policy's raw output must be a string, got {output.raw_output!r:.60}"
        )
    if output.message is not None and output.message.role != "assistant":
        raise PolicyError(
            f"the role of the policy's message must be 'assistant', got {output.message.role!r}"
        )
    try:
        _value.validate_python(output.value_estimate)
    except ValidationError:
        raise PolicyError(
            "the policy's value estimate must be a finite number or None, got "
            f"{output.value_estimate!r:.60}"
        ) from None
    return output


def _terminates(action: Any) -> bool:
    kind = kind_of(action)
    return isinstance(kind, str) and kind == "terminate"


def _message(output: PolicyOutput, turn: int) -> Message:
    """The assistant's message: the policy's own, or one made from its output."""
    if output.message is not None:
        return output.message
    calls = []
    for number, call in enumerate(calls_of(output.action)):
        arguments = json.dumps(call.get("arguments") or {}, ensure_ascii=False)
        function = {"name": call.get("tool_name"), "arguments": arguments}
        name = f"call_{turn}_{number}"
        calls.append({"id": name, "type": "function", "function": function})
    if not calls:
        return Message(role="assistant", content=output.raw_output)
    return Message(role="assistant", content=output.raw_output or None, tool_calls=calls)
