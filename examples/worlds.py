"""Plays every world of the examples in a real server, and prints how each was rewarded.

``make worlds`` runs it where the packages of all worlds are installed. Run it, optionally with the
names of some worlds::

    python -m examples.worlds connect4 atari
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from guerdon import EnvPool, GenericEnvClient, Observation

__all__ = ["Episode", "World", "WORLDS", "main", "play"]

SLOTS = 16
SEED = 1
MOST_STEPS = 1000  # of an episode; a policy that needs more has failed

Episode = list[Observation]


@dataclass(frozen=True, slots=True)
class World:
    """An environment, and a policy that plays it.

    Example:
        >>> from examples.worlds import World
        >>> World("chess", "examples.chess.environment:ChessEnvironment").policy
        'examples.chess.play'

    Attributes:
        name: The folder in ``examples/``.
        environment: The environment class, as ``guerdon serve`` accepts it.
        games: The arguments of `reset`, for one episode after the other.
    """

    name: str
    environment: str
    games: Sequence[dict[str, Any]] = ({},)

    @property
    def policy(self) -> str:
        """The module whose function `act` plays it."""
        return f"examples.{self.name}.play"

    @property
    def reward(self) -> Path | None:
        """The file of its reward; None if the environment's own is the only one."""
        path = Path(__file__).parent / self.name / "reward.yaml"
        return path if path.is_file() else None


def _games(*names: str) -> list[dict[str, Any]]:
    return [{"game": name} for name in names]


WORLDS = (
    World("connect4", "examples.connect4.environment:Connect4Environment"),
    World("chess", "examples.chess.environment:ChessEnvironment"),
    World("codenames", "examples.codenames.environment:CodenamesEnvironment"),
    World("plan_mode", "examples.plan_mode.environment:PlanModeEnvironment"),
    World(
        "atari",
        "examples.atari.environment:AtariEnvironment",
        _games("ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Freeway-v5", "ALE/SpaceInvaders-v5"),
    ),
    World(
        "textarena",
        "examples.textarena.environment:TextArenaEnvironment",
        _games("Wordle-v0", "FrozenLake-v0", "Mastermind-v0", "Hangman-v0", "TowerOfHanoi-v0"),
    ),
)


async def play(world: World, url: str) -> list[Episode]:
    """Play one episode in each slot of a pool of 16, by the scripted policy of the world.

    Args:
        world: The world.
        url: The address of its server.

    Returns:
        The observations of each episode.

    Raises:
        RuntimeError: A step failed or has no reward, or an episode doesn't end.
    """
    module, _, name = world.environment.partition(":")
    observation_type = getattr(import_module(module), name).observation_type
    act = import_module(world.policy).act
    rngs = [random.Random(f"{SEED} {slot}") for slot in range(SLOTS)]
    episodes: list[Episode] = [[] for _ in range(SLOTS)]

    def take(slot: int, observation: Observation) -> dict[str, Any]:
        if observation.metadata.get("error"):
            raise RuntimeError(f"slot {slot}: {observation.metadata['error']}")
        return act(observation, rngs[slot]).model_dump()  # type: ignore[no-any-return]

    async with EnvPool(url, n=SLOTS, observation_type=observation_type) as pool:
        games = [world.games[slot % len(world.games)] for slot in range(SLOTS)]
        first = await pool.reset_batch(seeds=SEED, options=games)
        actions = [take(slot, observation) for slot, observation in enumerate(first)]
        async for slot, observation in pool.as_completed(actions):
            episode = episodes[slot]
            episode.append(observation)
            if observation.reward is None:
                problem = observation.metadata.get("error") or observation.metadata["reward_error"]
                raise RuntimeError(f"step {len(episode)} of slot {slot} has no reward: {problem}")
            if len(episode) == MOST_STEPS:
                raise RuntimeError(f"the episode of slot {slot} has {MOST_STEPS} steps, no end yet")
            if not observation.done:
                pool.send(slot, take(slot, observation))
    return episodes


async def _serve_and_play(world: World) -> list[str]:
    """Return the row of a world."""
    async with GenericEnvClient.from_module(world.environment, config=world.reward) as server:
        start = time.perf_counter()
        episodes = await play(world, server.base_url)
        seconds = time.perf_counter() - start
    steps = sum(map(len, episodes))
    scores = defaultdict[str, list[float]](list)
    for observation in (each for episode in episodes for each in episode):
        components = observation.metadata["reward_components"]
        for path, score in components.items():
            if not any(each.startswith(f"{path}.") for each in components):  # a leaf
                name = path.rpartition(".")[2]
                scores[path if name.startswith("rubric_") else name].append(score)
    # `play` has raised if a step had no reward.
    returns = [sum(cast(float, each.reward) for each in episode) for episode in episodes]
    return [
        world.name,
        str(len(episodes)),
        str(steps),
        f"{fmean(returns):.3f}",
        ", ".join(f"{name} {fmean(each):.3f}" for name, each in scores.items()) or "–",
        f"{steps / seconds:,.0f}",
    ]


def main() -> int:
    """Play the worlds, all or those that the arguments name; return 1 if one failed."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    names = sys.argv[1:] or [world.name for world in WORLDS]
    if unknown := set(names) - {world.name for world in WORLDS}:
        console.print(f"unknown: {', '.join(sorted(unknown))}; the worlds: {_listed(WORLDS)}")
        return 2
    table = Table("world", "episodes", "steps", "mean return", "mean of leaves", "steps/s")
    failures = []
    start = time.perf_counter()
    for world in (world for world in WORLDS if world.name in names):
        try:
            table.add_row(*asyncio.run(_serve_and_play(world)))
        except Exception as error:
            table.add_row(world.name, "failed")
            failures.append(f"{world.name} failed: {type(error).__name__}: {error}")
    console.print(table)
    for failure in failures:
        console.print(failure, markup=False)
    console.print(
        f"{len(names) - len(failures)} of {len(names)} worlds played, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return 1 if failures else 0


def _listed(worlds: Sequence[World]) -> str:
    return ", ".join(world.name for world in worlds)


if __name__ == "__main__":
    sys.exit(main())
