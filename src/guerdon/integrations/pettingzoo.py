"""PettingZoo: environments with a reward for each of several agents, in turn or in parallel."""

from __future__ import annotations

import copy
from typing import Any, TypeAlias, Unpack

from guerdon.envs.environment import ERROR
from guerdon.errors import EnvDefinitionError, MissingExtraError
from guerdon.integrations.spaces import SpaceOptions, spaces_of
from guerdon.integrations.stepping import LocalEnvironment, MakeEnv, OnInvalid, ends, reward_of
from guerdon.types.agents import AGENT, AGENT_REWARDS

try:
    from gymnasium.vector.utils import batch_space, create_empty_array, iterate
    from pettingzoo import AECEnv, ParallelEnv
except ImportError as error:
    message = "this module needs the package pettingzoo: pip install 'guerdon[pettingzoo]'"
    raise MissingExtraError(message, extra="pettingzoo") from error

ByAgent: TypeAlias = dict[str, Any]

__all__ = ["PettingZooAECEnv", "PettingZooParallelEnv"]


class PettingZooAECEnv(AECEnv[str, Any, Any]):
    """An environment of several agents as a `pettingzoo.AECEnv`: the agents act in turn.

    Each agent gets the observations that name it in ``metadata["agent"]``, and never those of
    another; before its first, an observation of zeros and empty texts. `infos` has the metadata of
    the observation for the agent that it names, and the name of the agent that acts for the others.

    Example:
        >>> from examples.codenames.environment import CodenamesEnvironment
        >>> from gymnasium import spaces
        >>> from guerdon.integrations.pettingzoo import PettingZooAECEnv
        >>> def to_action(index, agent):
        ...     if agent == "spymaster":
        ...         return {"kind": "clue", "word": ["animal", "music"][index]}
        ...     return {"kind": "pass"}
        >>> game = PettingZooAECEnv(
        ...     CodenamesEnvironment,
        ...     action_space={"spymaster": spaces.Discrete(2), "guesser": spaces.Discrete(1)},
        ...     to_action=to_action,
        ...     observation_space=spaces.Text(30, min_length=0),
        ...     to_observation=lambda observation, agent: observation.clue,
        ... )
        >>> game.reset(seed=25)
        >>> game.step(1)
        >>> game.agent_selection, game.observe("guesser"), round(game.rewards["spymaster"], 2)
        ('guesser', 'music', 0.05)

    Args:
        env: An environment class with `agents`, or a function that returns such an environment.
        on_invalid: What an agent's failed reward does: ``"raise"``, or a number, which then is its
            reward at a step that truncates the episode of all agents; `infos` has the reason.
        render_mode: ``"ansi"``: `render` returns the text of the last observation.
        **options: See `SpaceOptions`.

    Raises:
        EnvDefinitionError: The environment declares no agents.
        InvalidArgumentError: A field has no space, or a space was given without its function.
    """

    def __init__(
        self,
        env: MakeEnv,
        *,
        on_invalid: OnInvalid = "raise",
        render_mode: str | None = None,
        **options: Unpack[SpaceOptions],
    ) -> None:
        super().__init__()
        self._local = LocalEnvironment(env)
        environment = self._local.environment
        name = environment.environment_id
        if not environment.agents:
            raise EnvDefinitionError(f"{name} has no `agents`; use GymnasiumEnv for one agent")
        self.metadata = {"name": name, "render_modes": ["ansi"]}
        self.possible_agents = list(environment.agents)
        actions, seen = spaces_of(environment, options)
        self._to_action, self._to_observation = actions.to_fields, seen.to_element
        self.action_spaces = self._by_agent(actions.space)
        self.observation_spaces = self._by_agent(seen.space)
        self.on_invalid, self.render_mode = on_invalid, render_mode
        self._seen: dict[str, Any] = {}

    def _by_agent(self, space: Any) -> ByAgent:
        if isinstance(space, dict):
            return space
        return {agent: copy.deepcopy(space) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode.

        Args:
            seed: The seed; random by default.
            options: Arguments of the environment's `reset`; it gets those that it accepts.
        """
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection = None
        self._seen = {agent: _zeros(self.observation_spaces[agent]) for agent in self.agents}
        self.agent_selection = self.agents[0]
        self._observe(self._local.reset(seed, options))

    def step(self, action: Any) -> None:
        """Take the action of `agent_selection`; of an agent whose episode has ended, None.

        Raises:
            EnvError: The reward of an agent failed, with ``on_invalid="raise"``.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        result = self._local.step(self._to_action(action, agent))
        rewards = result.metadata[AGENT_REWARDS]
        self.rewards = {
            each: reward_of(rewards[each], self.on_invalid, result, of=each) for each in rewards
        }
        terminated, truncated = ends(result, failed=None in rewards.values())
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        self._cumulative_rewards[agent] = 0.0
        self._observe(result)
        self._accumulate_rewards()
        if terminated or truncated:
            self._deads_step_first()

    def _observe(self, observation: Any) -> None:
        """Give an observation to the agent that it names, which acts next."""
        acts = observation.metadata.get(AGENT, self.agent_selection)
        self._seen[acts] = self._to_observation(observation, acts)
        shared = {key: each for key, each in observation.metadata.items() if key == ERROR}
        self.infos = {agent: {AGENT: acts, **shared} for agent in self.agents}
        self.infos[acts] |= observation.metadata
        self.agent_selection = acts

    def observe(self, agent: str) -> Any:
        """Return the agent's last observation."""
        return self._seen[agent]

    def render(self) -> str | None:
        """Return the text of the last observation, in the mode ``"ansi"``."""
        return self._local.render(self.render_mode)

    def close(self) -> None:
        """Close the environment."""
        self._local.close()


class PettingZooParallelEnv(ParallelEnv[str, Any, Any]):
    """An environment of several agents as a `pettingzoo.ParallelEnv`.

    All agents pass an action at each step; only that of the agent whose turn it is counts.
    ``infos[agent]["agent"]`` names it.

    Example:
        >>> from examples.codenames.environment import CodenamesEnvironment
        >>> from gymnasium import spaces
        >>> from guerdon.integrations.pettingzoo import PettingZooParallelEnv
        >>> game = PettingZooParallelEnv(
        ...     CodenamesEnvironment,
        ...     observation_space=spaces.Text(30, min_length=0),
        ...     to_observation=lambda observation, agent: observation.clue,
        ... )
        >>> seen, infos = game.reset(seed=25)
        >>> clue = game.aec.action_space("spymaster").sample() | {"word": "music", "kind": 0}
        >>> seen, rewards, terminated, truncated, infos = game.step({"spymaster": clue})
        >>> seen, infos["spymaster"]
        ({'spymaster': '', 'guesser': 'music'}, {'agent': 'guesser'})

    Args:
        env: As for `PettingZooAECEnv`.
        **options: Its other arguments.

    Attributes:
        aec: The environment in which the agents act in turn.
    """

    def __init__(self, env: MakeEnv, **options: Any) -> None:
        self.aec = aec = PettingZooAECEnv(env, **options)
        self.metadata, self.render_mode = aec.metadata, aec.render_mode
        self.possible_agents = aec.possible_agents
        self.agents: list[str] = []
        self.observation_space, self.action_space = (
            self.aec.observation_space,
            self.aec.action_space,
        )
        self.render, self.close = self.aec.render, self.aec.close

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[ByAgent, ByAgent]:
        """Begin an episode; see `PettingZooAECEnv.reset`."""
        self.aec.reset(seed, options)
        self.agents = list(self.possible_agents)
        return dict(self.aec._seen), self.aec.infos

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Take the action of the agent whose turn it is.

        Raises:
            EnvError: The reward of an agent failed, with ``on_invalid="raise"``.
        """
        aec = self.aec
        aec.step(actions[aec.agent_selection])
        if any(aec.terminations.values()) or any(aec.truncations.values()):
            self.agents = []
        return dict(aec._seen), aec.rewards, aec.terminations, aec.truncations, aec.infos


def _zeros(space: Any) -> Any:
    """Zeros and empty texts."""
    return next(iter(iterate(batch_space(space, 1), create_empty_array(space, 1))))
