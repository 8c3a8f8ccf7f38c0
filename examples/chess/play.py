"""Plays a game in this process, and prints the reward of each step with its components.

Run it, optionally with a seed::

    python -m examples.chess.play 7
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.chess.environment import ChessEnvironment
from examples.chess.game import Game
from examples.chess.models import ChessAction, ChessObservation
from examples.chess.opponents import search
from guerdon.envs import ConfiguredEnv

__all__ = ["REWARD", "act", "main", "play"]

REWARD = Path(__file__).parent / "reward.yaml"
COMPONENTS = ["win_loss", "material", "mobility", "king_safety"]


def act(observation: ChessObservation, rng: random.Random) -> ChessAction:
    """Choose a move like the strongest opponent, from the observation alone.

    Example:
        >>> import random
        >>> from examples.chess.environment import ChessEnvironment
        >>> from examples.chess.play import act
        >>> act(ChessEnvironment().reset(), random.Random(0)).content
        '<move>e3</move>'

    Args:
        observation: An observation of a game that isn't over.
        rng: The random generator for equal moves.
    """
    return ChessAction(content=f"<move>{search(Game(observation.fen), rng)}</move>")


def play(environment: ChessEnvironment, *, seed: int) -> list[ChessObservation]:
    """Play one game.

    Example:
        >>> from examples.chess.environment import ChessEnvironment
        >>> from examples.chess.play import play
        >>> play(ChessEnvironment(), seed=1)[-1].done
        True

    Args:
        environment: An environment.
        seed: The seed of both sides' random choices.

    Returns:
        The observations of all steps.
    """
    rng = random.Random(f"agent {seed}")
    observation = environment.reset(seed=seed)
    observations = []
    while not observation.done:
        observation = environment.step(act(observation, rng))
        observations.append(observation)
    return observations


def main() -> int:
    """Play a game; print its moves with their rewards, and its last position."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 58
    console = Console(highlight=False, width=100)
    with ConfiguredEnv(ChessEnvironment, REWARD) as make, make() as environment:
        observations = play(environment, seed=seed)
    last = observations[-1]
    table = Table("step", "moves", *COMPONENTS, "reward", "step reward")
    for step, observation in enumerate(observations):
        components = observation.metadata["reward_components"]
        table.add_row(
            str(step),
            " ".join(observation.last_moves),
            *(f"{components[name]:+.3f}" for name in COMPONENTS),
            f"{observation.reward:+.3f}",
            f"{last.metadata['step_rewards'][step]:+.3f}",
        )
    console.print(table)
    console.print(f"\n{last.result} by {last.ended_by} after {last.ply} plies, seed {seed}.")
    console.print(last.fen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
