"""Several agents in one episode: the steps and the rewards of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from guerdon._validation import shown
from guerdon.errors import AlignmentError
from guerdon.rubrics.step_rewards import exact_sum
from guerdon.types.agents import AGENT, AGENT_REWARDS, check_agent_rewards
from guerdon.types.evaluate_result import EvaluateResult, StepOutput
from guerdon.types.rollout import StepData

__all__ = ["agent_results"]


def agent_results(steps: Sequence[StepData]) -> dict[str, EvaluateResult]:
    """Return a result for each agent of an episode, from the rewards that its steps recorded.

    The reward of an agent's step is the sum of the agent's rewards from this step until before its
    next one, whoever acted in between; those before its first step are added to the first. Its
    score is the sum of all.

    If one of these rewards is unknown, the step has no reward, and the agent's score isn't valid.

    Example:
        >>> from guerdon import StepData
        >>> from guerdon.rollouts import agent_results
        >>> episode = [("a", {"a": 1, "b": 2}), ("b", {"a": 4, "b": 8}), ("a", {"a": 16, "b": 32})]
        >>> results = agent_results([
        ...     StepData(system_step_index=i, step_info={"agent": agent, "agent_rewards": rewards})
        ...     for i, (agent, rewards) in enumerate(episode)])
        >>> [(each.step_index, each.base_reward) for each in results["a"].step_outputs]
        [(0, 5.0), (2, 16.0)]
        >>> [(each.step_index, each.base_reward) for each in results["b"].step_outputs]
        [(1, 42.0)]

    Args:
        steps: All steps of an episode, as `RLRolloutWorker` records them: ``step_info["agent"]``
            is the agent that acted, ``step_info["agent_rewards"]`` are the rewards of all agents
            by name, or None if they are unknown.

    Returns:
        The results of the agents that acted, for `RLDataAligner`.

    Raises:
        AlignmentError: A step has no agent or no rewards, or they are invalid.
    """
    acted = acting_agents(steps)
    rewards = _rewards(steps, acted)
    results = {}
    for agent in dict.fromkeys(acted):
        places = [place for place, name in enumerate(acted) if name == agent]
        of_agent = [None if each is None else each[agent] for each in rewards]
        outputs = []
        for place, (start, end) in zip(places, pairwise([0, *places[1:], len(steps)]), strict=True):
            known = [reward for reward in of_agent[start:end] if reward is not None]
            if len(known) == end - start:
                turn = steps[place].step_info.get("assistant_turn_index", place)
                outputs.append(StepOutput(step_index=turn, base_reward=exact_sum(known)))
        result = EvaluateResult(score=exact_sum(filter(None, of_agent)), step_outputs=outputs)
        if None in of_agent:
            error = f"the reward of {agent!r} at step {of_agent.index(None)} is unknown"
            result = EvaluateResult(error=error, step_outputs=outputs)
        results[agent] = result
    return results


def acting_agents(steps: Sequence[StepData]) -> list[str]:
    """Return the agent of each step.

    Raises:
        AlignmentError: A step names none.
    """
    agents: list[Any] = [step.step_info.get(AGENT) for step in steps]
    for place, agent in enumerate(agents):
        if not isinstance(agent, str):
            raise AlignmentError(
                f"step {place} must name the agent that acted, in step_info[{AGENT!r}], got "
                f"{shown(agent)}"
            )
    return agents


def _rewards(
    steps: Sequence[StepData], acted: Collection[str]
) -> list[dict[str, float | None] | None]:
    """The rewards of all agents at each step; None where they are unknown.

    Raises:
        AlignmentError: They are missing or invalid.
    """
    rewards: list[dict[str, float | None] | None] = []
    agents: Collection[str] | None = None
    for place, step in enumerate(steps):
        if AGENT_REWARDS not in step.step_info:
            raise AlignmentError(f"step {place} has no step_info[{AGENT_REWARDS!r}]")
        given = step.step_info[AGENT_REWARDS]
        if given is not None:
            try:
                given = check_agent_rewards(given, agents, error=AlignmentError)
            except AlignmentError as error:
                raise AlignmentError(f"step {place}: {error}") from None
            agents = given
        rewards.append(given)
    lacking = [
        agent for agent in dict.fromkeys(acted) if agents is not None and agent not in agents
    ]
    if lacking:
        raise AlignmentError(
            f"{lacking[0]!r} has acted and has no rewards; there are those of {list(agents or ())}"
        )
    return rewards
