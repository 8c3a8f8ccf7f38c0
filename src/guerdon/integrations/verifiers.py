"""verifiers: rewards and environments for its v1, and advantages of steps in its traces."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon.errors import EnvError
from guerdon.integrations.conversation_reward import (
    RewardLike,
    one_at_a_time,
    score_of,
    with_ground_truth,
)
from guerdon.integrations.framework import import_framework
from guerdon.integrations.text_episode import MakeEnv, TextEpisode, ToAction, ToText
from guerdon.rollouts.alignment import AlignedRollout
from guerdon.rollouts.crediting import StateKey, apply_credit
from guerdon.rollouts.playing.observations import observation_text
from guerdon.rubrics.functions.libraries import from_verifiers
from guerdon.rubrics.functions.placement import place_outputs, places_of
from guerdon.types.message import read_messages
from guerdon.types.rollout import StepData

if TYPE_CHECKING:
    from guerdon.credit import Credit

__all__ = ["environment", "from_verifiers", "reward", "step_advantages", "taskset"]

INFO = "guerdon"  # the key of `Trace.info`
VERIFIERS = ("verifiers.v1", "pip install 'verifiers>=0.4'")

logger = logging.getLogger(__name__)


# Rewards -----------------------------------------------------------------------------------------


def reward(
    tree: RewardLike, *, name: str = "reward", weight: float = 1.0, ground_truth: str = "answer"
) -> Callable[..., Any]:
    """Return a method of a `Task` class, marked with `vf.reward`.

    It scores the conversation of the trace's last branch; assistant messages of the prompt are not
    steps. The fields of the task's data are the columns of the row. A reward that fails raises, so
    that verifiers records the error, ``trace.ok`` is False and ``trace.rewards[name]`` is None.

    Each component of the tree over the turns becomes a metric ``name/component``, None if it was
    not reached. ``trace.info["guerdon"]`` has the fingerprint of the reward and the rewards of the
    steps, which are the turns that the model sampled. A step output for any other turn is left out,
    with a warning.

    Example:
        >>> def task_class(vf, data_class):
        ...     from guerdon import NumericAnswer
        ...     from guerdon.integrations.verifiers import reward
        ...     class WordProblem(vf.Task[data_class]):
        ...         solved = reward(NumericAnswer(), name="solved")
        ...     return WordProblem

    Args:
        tree: A rubric, a pointwise reward function, or the name of one: the path of a
            pipeline's file, ``module:name`` or ``file.py:name``.
        name: The name in ``trace.rewards``; different for each reward of a class.
        weight: The weight of the score in ``trace.reward``.
        ground_truth: The field of the task's data that contains the expected answer; if there is no
            such field, it is ``ground_truth``.

    Raises:
        MissingExtraError: verifiers is not installed.
        RewardFunctionError: The tree is a reward function that scores batches.
        InvalidArgumentError: The file has schedules or a curriculum.
    """
    vf = import_framework(*VERIFIERS)
    scoring = one_at_a_time(tree)
    fingerprint = scoring.fingerprint

    async def score(*_: Any, task: Any, trace: Any) -> float:  # without or as a method
        path = trace.branches[-1].nodes if trace.nodes else []
        turns = [node for node in path if node.message.role == "assistant"]
        columns = with_ground_truth(task.model_dump(exclude={"prompt"}), ground_truth)
        sampled = [turn for turn, node in enumerate(turns) if node.sampled]
        columns["first_turn"] = sampled[0] if sampled else len(turns)
        messages = [_openai(node.message) for node in path]
        result: Any = await scoring.evaluate_async(messages, columns)
        outputs, places = result.step_outputs or (), places_of((turn, None) for turn in sampled)
        placed, misfits = place_outputs(outputs, places)
        if misfits:
            logger.warning(
                "%d step outputs of %s were left out: %s", len(misfits), name, misfits[0]
            )
        numbers = {id(node): number for number, node in enumerate(trace.nodes)}
        steps = {
            numbers[id(turns[sampled[place]])]: weight * output.base_reward
            for place, output in placed.items()
        }
        _record(trace, name, scoring.components(result), steps, fingerprint)
        return score_of(result)

    score.__name__ = score.__qualname__ = name
    marked: Callable[..., Any] = vf.reward(weight=weight)(score)
    return marked


def _record(trace: Any, name: str, components: Any, steps: Any, fingerprint: Any) -> None:
    """Record the components, and the rewards of the steps by the index of their node."""
    trace.metrics.update({f"{name}/{key}": value for key, value in components.items()})
    rewards = {str(place): value for place, value in steps.items()}  # as keys of JSON
    trace.info.setdefault(INFO, {})[name] = {"fingerprint": fingerprint, "step_rewards": rewards}


def _openai(message: Any) -> dict[str, Any]:
    """Return a message of verifiers, whose tool calls have no ``function``."""
    return dict(message.model_dump(exclude_none=True, exclude={"provider_state"}))


# Environments ------------------------------------------------------------------------------------


def taskset(resets: Sequence[Mapping[str, Any]], *, system_prompt: str | None = None) -> type[Any]:
    """Return a `Taskset` class with one task for each dict of arguments of an environment's reset.

    Example:
        >>> def tasks():
        ...     from guerdon.integrations.verifiers import taskset
        ...     return taskset([{"seed": seed} for seed in range(100)])

    Args:
        resets: The arguments, such as ``seed``: values of JSON.
        system_prompt: The system prompt of all tasks.

    Raises:
        MissingExtraError: verifiers is not installed.
    """
    vf = import_framework(*VERIFIERS)

    class EpisodeData(vf.TaskData):  # type: ignore[name-defined]
        reset: dict[str, Any]

    class EpisodeTask(vf.Task[EpisodeData]):  # type: ignore[name-defined]
        pass

    class EpisodeTaskset(vf.Taskset[EpisodeTask, vf.TasksetConfig]):  # type: ignore[name-defined]
        def load(self) -> Any:
            for reset in resets:
                data = EpisodeData(system_prompt=system_prompt, reset=dict(reset))
                yield EpisodeTask(data, self.config.task)

    return EpisodeTaskset


def environment(
    env: MakeEnv,
    *,
    name: str = "reward",
    to_action: ToAction = None,
    observation_text: ToText = observation_text,
) -> type[Any]:
    """Return an `Env` class whose agent ``player`` plays an environment of guerdon.

    The environment is the user: each observation is a user's message, each reply of the model an
    action. The sum of the rewards of the steps is recorded as ``trace.rewards[name]``, the sum of
    each component as a metric ``name/component``, and the rewards of the steps in
    ``trace.info["guerdon"]``. A failed reward, an environment that raises, an invalid action and an
    episode without a step raise: ``trace.ok`` is False and ``trace.rewards[name]`` is None.

    Example:
        >>> def environment_class(number_environment):
        ...     from guerdon.integrations.verifiers import environment
        ...     return environment(number_environment)

    Args:
        env: An environment class, or a function that returns an environment.
        name: The name of the reward.
        to_action: Returns the action for the model's reply; by default the reply is a JSON object,
            or the value of the action's only required field.
        observation_text: Returns the text of an observation; by default its own text, or else its
            JSON.

    Raises:
        MissingExtraError: verifiers is not installed.
    """
    vf = import_framework(*VERIFIERS)

    class PlayConfig(vf.EnvConfig):  # type: ignore[name-defined]
        player: vf.AgentConfig = vf.AgentConfig()  # type: ignore[name-defined]

    class Play(vf.Env[PlayConfig]):  # type: ignore[name-defined]
        async def run(self, task: Any, agents: Any) -> None:
            # What fails inside of the interaction fails its trace.
            player = agents.player.interaction(task)
            playing = TextEpisode.open(env, to_action=to_action, observation_text=observation_text)
            async with player as interaction, playing as episode:
                await _play(episode, interaction, name)

    return Play


async def _play(episode: TextEpisode, interaction: Any, name: str) -> None:
    """Play an episode, and record its reward in the trace; a failure raises."""
    trace = interaction.trace
    trace.rewards[name] = None  # until it is known
    steps: dict[int, float] = {}
    text = await episode.reset(trace.task.data.reset)
    while not episode.done:
        segment = await interaction.turn(text)
        if segment.terminated:  # by a limit, or by an error, which is in the trace
            break
        text = await episode.step(segment.last_reply)
        steps[_sampled(trace)[-1]] = episode.rewards[-1]
    if trace.errors:
        return
    if not steps:
        raise EnvError(f"the run ended before the first step: {trace.stop_condition}")
    _record(trace, name, episode.component_sums(), steps, episode.fingerprint)
    trace.record_reward(name, sum(episode.rewards))


# Credit ------------------------------------------------------------------------------------------


def step_advantages(
    traces: Sequence[Any],
    groups: Sequence[Any],
    *,
    method: str = "gigpo",
    state_key: str | StateKey = "last",
    **options: Any,
) -> Credit:
    """Set the advantages of all sampled nodes of traces, one for each turn of the model.

    All sampled tokens of a node get the advantage of its step. The score of a trace is its
    ``reward``; the rewards of the steps are those that `reward` and `environment` recorded. A trace
    that is not ``ok``, or has no reward, or one that is None, takes part in no statistic, and its
    nodes keep None.

    Example:
        >>> def credit(episodes):
        ...     from guerdon.integrations.verifiers import step_advantages
        ...     traces = [trace for episode in episodes for trace in episode.traces]
        ...     return step_advantages(traces, [trace.task.key for trace in traces], gamma=0.95)

    Args:
        traces: The traces, with the tokens of a `TrainClient`.
        groups: The group of each trace: only traces of one group are compared.
        method: The name of an estimator; see `apply_credit`.
        state_key: What makes two steps the same state; see `apply_credit`.
        **options: The options of the estimator, such as ``gamma``.

    Returns:
        The credit of all steps, trace by trace, with its diagnostics.

    Raises:
        InvalidArgumentError: There is no such method, option or state key.
        CreditError: The batch is contradictory; then no node is changed.
        ValueError: There isn't one group for each trace.
    """
    rollouts = []
    for number, (trace, group) in enumerate(zip(traces, groups, strict=True)):
        score = _score(trace)
        rollouts.append(AlignedRollout(number, _steps(trace), score, score is not None, group))
    credit = apply_credit(rollouts, method, state_key=state_key, **options)
    for trace, rollout in zip(traces, rollouts, strict=True):
        for place, step in zip(_sampled(trace), rollout.steps, strict=True):
            node, advantage = trace.nodes[place], step.advantage
            node.advantages = None if advantage is None else [advantage] * sum(node.mask)
    return credit


def _sampled(trace: Any) -> list[int]:
    """The indices of the nodes that the model wrote."""
    return [place for place, node in enumerate(trace.nodes) if node.sampled]


def _score(trace: Any) -> float | None:
    """The reward of a trace; None if it doesn't count: `Trace.reward` is 0 then."""
    rewards = list(trace.rewards.values())
    if not trace.ok or not rewards or None in rewards:
        return None
    return float(trace.reward)


def _steps(trace: Any) -> list[StepData]:
    rewards: Counter[str] = Counter()
    for recorded in trace.info.get(INFO, {}).values():
        rewards.update(recorded["step_rewards"])
    messages = read_messages([_openai(node.message) for node in trace.nodes])
    steps = []
    for number, place in enumerate(_sampled(trace)):
        path, parent = [messages[place]], trace.nodes[place].parent
        while parent is not None:
            path.insert(0, messages[parent])
            parent = trace.nodes[parent].parent
        step = StepData(system_step_index=number, resulting_messages_history=path)
        step.base_reward = rewards.get(str(place))
        steps.append(step)
    return steps
