"""Plays a few games by the colours on the screen, and prints how each was rewarded.

Run it, optionally with a seed::

    python -m examples.atari.play 5
"""

from __future__ import annotations

import random
import sys
from collections import Counter

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.atari.environment import AtariEnvironment
from examples.atari.models import AtariAction, AtariObservation
from examples.atari.png import Pixels

__all__ = ["GAMES", "act", "main", "play"]

GAMES = ("ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Freeway-v5", "ALE/SpaceInvaders-v5")

WHITE, GREEN, RED = (236, 236, 236), (92, 186, 92), (200, 72, 72)


def act(observation: AtariObservation, rng: random.Random) -> AtariAction:
    """Follow the ball in Pong and Breakout, cross the road in Freeway; else a random action.

    Example:
        >>> import random
        >>> import numpy as np
        >>> from examples.atari.models import AtariObservation, Frame
        >>> from examples.atari.play import act
        >>> frame = Frame.of(np.zeros((210, 160, 3), dtype=np.uint8))
        >>> first = AtariObservation(game_id="ALE/Freeway-v5", frame=frame, actions=["NOOP", "UP"])
        >>> act(first, random.Random(1)).action_id
        1
    """
    match observation.game_id:
        case "ALE/Pong-v5":
            move = _pong(observation.frame.pixels())
        case "ALE/Breakout-v5":
            move = _breakout(observation.frame.pixels())
        case "ALE/Freeway-v5":
            move = "UP"
        case _:
            move = rng.choice(observation.actions)
    return AtariAction(action_id=observation.actions.index(move))


def _pong(pixels: Pixels) -> str:
    field = pixels[34:194]
    ball, paddle = _centre(field[:, 20:140], WHITE), _centre(field[:, 140:144], GREEN)
    if ball is None or paddle is None or abs(ball[0] - paddle[0]) < 4:
        return "NOOP"
    return "RIGHT" if ball[0] < paddle[0] else "LEFT"  # up, down


def _breakout(pixels: Pixels) -> str:
    field = pixels[:, 8:152]
    ball, paddle = _centre(field[93:188], RED), _centre(field[189:193], RED)
    if ball is None or paddle is None:
        return "FIRE"  # a new ball
    if abs(ball[1] - paddle[1]) < 4:
        return "NOOP"
    return "RIGHT" if ball[1] > paddle[1] else "LEFT"


def _centre(pixels: Pixels, colour: tuple[int, int, int]) -> tuple[float, float] | None:
    """Return the mean row and column of the pixels of a colour, or None without any."""
    rows, columns = np.nonzero((pixels == colour).all(axis=2))
    return (float(rows.mean()), float(columns.mean())) if len(rows) else None


def play(environment: AtariEnvironment, *, seed: int) -> list[AtariObservation]:
    """Play one game, the environment's default.

    Example:
        >>> from examples.atari.environment import AtariEnvironment
        >>> from examples.atari.play import play
        >>> def main():
        ...     with AtariEnvironment("ALE/Freeway-v5", max_steps=200) as environment:
        ...         print(play(environment, seed=1)[-1].score)

    Args:
        environment: The environment.
        seed: The seed of the game and of random actions.

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
    """Play four games; print a table of their rewards, and of the rubric that was chosen."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    console = Console(highlight=False)
    table = Table("game", "steps", "score", "rewards of steps", "rubric")
    for game in GAMES:
        with AtariEnvironment(game) as environment:
            observations = play(environment, seed=seed)
        rewards = Counter(f"{each.reward:+g}" for each in observations if each.reward)
        components = observations[-1].metadata["reward_components"]
        chosen = next(name for name in components if name.startswith("game."))
        table.add_row(
            game,
            str(len(observations)),
            f"{observations[-1].score:g}",
            ", ".join(f"{count} × {reward}" for reward, count in sorted(rewards.items())),
            chosen.removeprefix("game."),
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
