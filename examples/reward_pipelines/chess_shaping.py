"""A training script that fades out shaping with ``POST /config`` of the environment's server.

The weight of the shaping decreases in one of two ways, with the same rewards:

- `FromFile`: the schedule is in ``chess_shaping.yaml``, on the server. The script only reports the
  training step.
- `FromScript`: the script computes the weight with the same schedule, and posts it with the version
  that it has read. If the configuration was changed since then, the server rejects the update, and
  the script tries again.

Run it to serve the environment and to play some games at each of several training steps::

    python -m examples.reward_pipelines.chess_shaping
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from examples.reward_pipelines.knight import moves
from guerdon import GenericEnvClient, HTTPEnvClient, RewardConfig
from guerdon.envs import SyncEnvClient, SyncHTTPEnvClient
from guerdon.errors import ConfigConflictError

__all__ = ["FromFile", "FromScript", "Played", "REWARD", "Shaping", "main", "play", "train"]

HERE = Path(__file__).parent
REWARD = HERE / "chess_shaping.yaml"
STEPS = (0, 200, 600, 1000)
GAMES = 8


class Shaping(Protocol):
    """Sets the weight of the shaping for a training step."""

    def __call__(self, server: SyncHTTPEnvClient, training_step: int) -> None:
        """Configure a server for a training step."""
        ...


class FromFile:
    """Reports the training step to the server, which has the schedule.

    Example:
        >>> from examples.reward_pipelines.chess_shaping import FromFile
        >>> from guerdon import HTTPEnvClient
        >>> def main():
        ...     with HTTPEnvClient("http://localhost:8000").sync() as server:
        ...         FromFile()(server, 600)
    """

    def __call__(self, server: SyncHTTPEnvClient, training_step: int) -> None:
        """Report the step for any version of the configuration."""
        server.post("/config", json={"training_step": training_step, "by": "chess_shaping.py"})


class FromScript:
    """Computes the weight from the schedule and posts it.

    Example:
        >>> from examples.reward_pipelines.chess_shaping import FromScript
        >>> FromScript().weight(600)
        0.25

    Attributes:
        entry: The entry of the file whose weight changes.
    """

    def __init__(self) -> None:
        (self.entry,) = RewardConfig.from_file(REWARD).per_turn

    def weight(self, training_step: int) -> float:
        """Return the weight at a training step."""
        assert self.entry.schedule is not None
        return self.entry.weight * self.entry.schedule(training_step)

    def __call__(self, server: SyncHTTPEnvClient, training_step: int) -> None:
        """Post the weight, and remove the server's own schedule."""
        name = self.entry.name
        change = {
            "weights": {name: self.weight(training_step)},
            "schedules": {name: None},
            "by": "chess_shaping.py",
        }
        while True:
            version = server.get_config()["version"]
            try:
                server.update_config(change, version=version)
            except ConfigConflictError:
                continue  # the configuration was changed since
            return


class Played(NamedTuple):
    """The results of the games at a training step.

    Attributes:
        training_step: The training step.
        rewards: The sum of each game's rewards.
        won: The number of games won.
        fingerprints: The fingerprints of the configurations that scored them.
    """

    training_step: int
    rewards: list[float]
    won: int
    fingerprints: set[str]


def train(
    url: str, shape: Shaping, *, steps: Iterable[int] = STEPS, games: int = GAMES
) -> list[Played]:
    """Play at several training steps, each with its weight of the shaping; there is no learning.

    Args:
        url: The server's address.
        shape: Sets the weight of the shaping.
        steps: The training steps.
        games: The number of games at each step.
    """
    played = []
    with (
        HTTPEnvClient(url).sync() as server,
        GenericEnvClient.from_url(url).sync() as client,
    ):
        for step in steps:
            shape(server, step)
            found = [play(client, seed=seed) for seed in range(games)]
            rewards, won, fingerprints = zip(*found, strict=True)
            played.append(Played(step, list(rewards), sum(won), set(fingerprints)))
    return played


def play(client: SyncEnvClient[Any, Any, Any], *, seed: int) -> tuple[float, bool, str]:
    """Play a game by a fixed strategy: take the king if possible, else any piece.

    Args:
        client: A client of the server.
        seed: The seed of the positions of the pieces.

    Returns:
        The sum of the rewards, whether the game was won, and the fingerprint of the configuration.
    """
    result = client.reset(seed=seed)
    rewards = 0.0
    visited: list[str] = []
    while not result.done:
        board = result.observation
        visited.append(board["knight"])
        squares = moves(board["knight"])
        captures = [square for square in squares if square in board["pieces"]]
        kings = [square for square in captures if board["pieces"][square] == "king"]
        to = (kings or captures or sorted(squares, key=visited.count))[0]
        result = client.step({"to": to})
        assert result.reward is not None
        rewards += result.reward
    return rewards, result.observation["won"], result.metadata["reward_fingerprint"]


def main() -> int:
    """Serve the environment, train both ways, and print the rewards of the games."""
    spec, config = f"{HERE / 'knight.py'}:KnightEnvironment", RewardConfig.from_file(REWARD)
    with GenericEnvClient.from_module(spec, config=config).sync() as served:
        for shape in (FromFile(), FromScript()):
            print(type(shape).__name__)
            for step, rewards, won, _ in train(served.base_url, shape):
                mean = sum(rewards) / len(rewards)
                print(f"  training step {step:>5}: mean reward {mean:.3f}, {won} games won")
    return 0


if __name__ == "__main__":
    sys.exit(main())
