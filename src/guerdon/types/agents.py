"""Several agents in one environment: what the metadata of an observation says about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from guerdon._validation import as_score, shown
from guerdon.errors import GuerdonError

# The keys of an observation's metadata, and of a step's `step_info`.
AGENT = "agent"
AGENT_REWARDS = "agent_rewards"


def check_agent_rewards(
    given: Any, agents: Collection[str] | None, *, error: type[GuerdonError]
) -> dict[str, float | None]:
    """Return the rewards of the agents for one step, by name.

    Example:
        >>> from guerdon.errors import InvalidObservationError
        >>> check_agent_rewards({"a": 1, "b": None}, ["a", "b"], error=InvalidObservationError)
        {'a': 1.0, 'b': None}

    Args:
        given: The rewards: finite numbers, or None for a reward that is unknown.
        agents: The names of all agents; None accepts any names.
        error: The class of the exception.

    Raises:
        GuerdonError: A reward is missing or invalid, or that of an agent that doesn't exist.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise error(f"`{AGENT_REWARDS}` must be a dict of rewards by agent, got {shown(given)}")
    known = list(given if agents is None else agents)
    for agent in known:
        if agent not in given:
            raise error(f"`{AGENT_REWARDS}` lacks the reward of {agent!r}; the agents are {known}")
    rewards: dict[str, float | None] = {}
    for agent, reward in given.items():
        if agent not in known:
            raise error(f"`{AGENT_REWARDS}` has {agent!r:.60}, but the agents are {known}")
        rewards[agent] = as_score(reward)
        if rewards[agent] is None and reward is not None:
            raise error(
                f"`{AGENT_REWARDS}[{agent!r}]` must be a finite number, or None if it is unknown, "
                f"got {shown(reward)}"
            )
    return rewards
