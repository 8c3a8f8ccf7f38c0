"""Plays a game in this process, and prints the discounted reward of each step.

Run it, optionally with a seed::

    python -m examples.connect4.play 5
"""

from __future__ import annotations

import random
import sys

from rich.console import Console
from rich.table import Table

from examples.connect4.board import Board
from examples.connect4.environment import Connect4Environment
from examples.connect4.models import Connect4Action, Connect4Observation
from examples.connect4.opponent import scripted

__all__ = ["act", "main", "play"]


def act(observation: Connect4Observation, rng: random.Random) -> Connect4Action:
    """Play like the scripted opponent.

    Example:
        >>> import random
        >>> from examples.connect4.environment import Connect4Environment
        >>> from examples.connect4.play import act
        >>> act(Connect4Environment().reset(seed=1), random.Random(1)).column in range(7)
        True
    """
    assert observation.turn is not None
    column = scripted(Board.from_rows(observation.board), observation.turn, rng)
    return Connect4Action(column=column)


def play(environment: Connect4Environment, *, seed: int) -> list[Connect4Observation]:
    """Play one game with an agent that plays like the scripted opponent.

    Example:
        >>> from examples.connect4.environment import Connect4Environment
        >>> from examples.connect4.play import play
        >>> observations = play(Connect4Environment(), seed=1)
        >>> observations[-1].done
        True

    Args:
        environment: An environment with an opponent.
        seed: The seed of both sides' random choices.

    Returns:
        The observations of all steps.
    """
    rng = random.Random(f"agent {seed}")
    observation = environment.reset(seed=seed)
    observations = []
    while observation.turn is not None:
        observation = environment.step(act(observation, rng))
        observations.append(observation)
    return observations


def main() -> int:
    """Play a game; print its last board and a table of its steps."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    console = Console(highlight=False)
    with Connect4Environment(gamma=0.9) as environment:
        observations = play(environment, seed=seed)
        step_rewards = environment.rubric.compute_step_rewards()
    last = observations[-1]
    console.print(Board.from_rows(last.board).draw())
    outcome = f"{last.winner} won" if last.winner else "a draw"
    console.print(f"\nThe agent played {last.mover}; {outcome}, seed {seed}.\n")
    table = Table("step", "agent", "opponent", "reward", "step reward")
    for step, (observation, step_reward) in enumerate(zip(observations, step_rewards, strict=True)):
        agent, *reply = map(str, observation.last_moves)
        table.add_row(
            str(step),
            agent,
            reply[0] if reply else "",
            f"{observation.reward:.3f}",
            f"{step_reward:.3f}",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
