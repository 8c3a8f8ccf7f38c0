"""Plays a game with scripted agents, and prints the rewards of each.

Run it, optionally with a seed::

    python -m examples.codenames.play 5
"""

from __future__ import annotations

import random
import sys

from rich.console import Console
from rich.table import Table

from examples.codenames.environment import CodenamesEnvironment
from examples.codenames.models import CodenamesAction, CodenamesObservation
from examples.codenames.words import ASSOCIATIONS, fits

__all__ = ["act", "main", "play", "print_game"]


def act(observation: CodenamesObservation, rng: random.Random) -> CodenamesAction:
    """Return the action of the agent that acts next.

    Example:
        >>> import random
        >>> from examples.codenames.environment import CodenamesEnvironment
        >>> from examples.codenames.play import act
        >>> act(CodenamesEnvironment().reset(seed=3), random.Random(1)).kind
        'clue'

    Args:
        observation: The last observation.
        rng: The source of random choices.
    """
    if observation.metadata["agent"] == "spymaster":
        return _clue(observation)
    return _guess(observation, rng)


def _clue(observation: CodenamesObservation) -> CodenamesAction:
    """The clue that fits most agents, less the other words that it fits."""
    worth = {"agent": 2, "bystander": -1, "assassin": -3}
    hidden = _hidden(observation)

    def points(clue: str) -> int:
        return sum(worth[observation.key[word]] for word in hidden if word in fits(clue))

    valid = [clue for clue in ASSOCIATIONS if not any(word in clue for word in observation.words)]
    best = max(valid, key=points)
    agents = [word for word in hidden if observation.key[word] == "agent" and word in fits(best)]
    return CodenamesAction(kind="clue", word=best, number=max(len(agents), 1))


def _guess(observation: CodenamesObservation, rng: random.Random) -> CodenamesAction:
    """A random word that the clue fits; a pass after as many as it announced."""
    fitting = [word for word in _hidden(observation) if word in fits(observation.clue)]
    if not fitting or observation.guesses_left == 1:
        return CodenamesAction(kind="pass")
    return CodenamesAction(kind="guess", word=rng.choice(fitting))


def _hidden(observation: CodenamesObservation) -> list[str]:
    """The words that weren't guessed: a client that doesn't know the type has only the fields."""
    return [word for word in observation.words if word not in observation.revealed]


def play(environment: CodenamesEnvironment, *, seed: int) -> list[CodenamesObservation]:
    """Play one game.

    Example:
        >>> from examples.codenames.environment import CodenamesEnvironment
        >>> from examples.codenames.play import play
        >>> play(CodenamesEnvironment(), seed=3)[-1].done
        True

    Args:
        environment: The environment.
        seed: The seed of the board and of the guesser's choices.

    Returns:
        The observations of all steps.
    """
    return [observation for _, observation in _steps(environment, seed)]


def _steps(
    environment: CodenamesEnvironment, seed: int
) -> list[tuple[CodenamesAction, CodenamesObservation]]:
    """The actions of a game and the observations that they led to."""
    rng = random.Random(f"guesser {seed}")
    observation = environment.reset(seed=seed)
    steps = []
    while not observation.done:
        action = act(observation, rng)
        observation = environment.step(action)
        steps.append((action, observation))
    return steps


def print_game(seed: int) -> None:
    """Play a game, and print a table of its steps with the rewards of both agents.

    Example:
        >>> from examples.codenames.play import print_game
        >>> def main():
        ...     print_game(seed=25)

    Args:
        seed: The seed of the board and of the guesser's choices.
    """
    with CodenamesEnvironment() as environment:
        steps = _steps(environment, seed)
        agents = environment.agents
    table = Table("step", "action", "result", *agents, "reward")
    totals = dict.fromkeys(agents, 0.0)
    for number, (action, observation) in enumerate(steps):
        rewards = observation.metadata["agent_rewards"]
        totals = {agent: totals[agent] + rewards[agent] for agent in agents}
        shown = f"{action.kind} {action.word}"
        if action.kind == "clue":
            shown += f" {action.number}"
        table.add_row(
            str(number),
            shown,
            observation.revealed.get(action.word, ""),
            *(f"{rewards[agent]:+.2f}" for agent in agents),
            f"{observation.reward:+.2f}",
            end_section=observation.done,
        )
    table.add_row("", "total", "", *(f"{totals[agent]:+.2f}" for agent in agents), "")
    console = Console(highlight=False, width=100)
    console.print(table)
    console.print(f"Seed {seed}: {steps[-1][1].ending}.")


def main() -> int:
    """Print the game of the seed that the command names."""
    print_game(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
    return 0


if __name__ == "__main__":
    sys.exit(main())
