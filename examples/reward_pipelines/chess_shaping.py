"""A training script that takes shaping away, through ``POST /config`` of the environment's server.

The shaping's weight goes down in two ways, with the same rewards:

- `FromFile`: the schedule stands in ``chess_shaping.yaml``, on the server. The script reports how
  far training is, and nothing else.
- `FromScript`: the script computes the weight with the same schedule and posts it, for the version
  that it has seen. Where somebody else has changed the configuration since, the server refuses,
  and the script looks again.

Run it, which serves the environment and plays some games at each of several training steps::

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
    """Takes the shaping of a server where a training step wants it."""

    def __call__(self, server: SyncHTTPEnvClient, training_step: int) -> None:
        """Say to a server how far training is."""
        ...


class FromFile:
    """The server has the schedule; it is told the training step.

    Example:
        >>> from examples.reward_pipelines.chess_shaping import FromFile
        >>> from guerdon import HTTPEnvClient
        >>> def main():
        ...     with HTTPEnvClient("http://localhost:8000").sync() as server:
        ...         FromFile()(server, 600)
    """

    def __call__(self, server: SyncHTTPEnvClient, training_step: int) -> None:
        """Report the step, whatever version of the configuration the server is at."""
        server.post("/config", json={"training_step": training_step, "by": "chess_shaping.py"})


class FromScript:
    """The script has the schedule, and posts the weight that it gives.

    Example:
        >>> from examples.reward_pipelines.chess_shaping import FromScript
        >>> FromScript().weight(600)
        0.25

    Attributes:
        entry: Whose weight it moves, as the file has it.
    """

    def __init__(self) -> None:
        (self.entry,) = RewardConfig.from_file(REWARD).per_turn

    def weight(self, training_step: int) -> float:
        """The weight at a training step."""
        assert self.entry.schedule is not None
        return self.entry.weight * self.entry.schedule(training_step)

    def __call__(self, server: SyncHTTPEnvClient, training_step: int) -> None:
        """Post the weight, and take the server's own schedule away."""
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
                continue  # somebody was faster
            return


class Played(NamedTuple):
    """What came of the games at a training step.

    Attributes:
        training_step: Which.
        rewards: The sum of each game's rewards.
        won: How many were won.
        fingerprints: By what configurations they were scored.
    """

    training_step: int
    rewards: list[float]
    won: int
    fingerprints: set[str]


def train(
    url: str, shape: Shaping, *, steps: Iterable[int] = STEPS, games: int = GAMES
) -> list[Played]:
    """Play at several training steps, each after the shaping was set for it. Nobody learns here.

    Args:
        url: The server's address.
        shape: Sets it.
        steps: The training steps.
        games: How many games each has.
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
    """Play a game as somebody does who takes what there is, and the king when he can.

    Args:
        client: Where to play.
        seed: Where the men stand.

    Returns:
        The sum of the rewards, whether it was won, and the fingerprint of what scored it.
    """
    result = client.reset(seed=seed)
    rewards = 0.0
    visited: list[str] = []
    while not result.done:
        board = result.observation
        visited.append(board["knight"])
        can = moves(board["knight"])
        men = [square for square in can if square in board["men"]]
        kings = [square for square in men if board["men"][square] == "king"]
        to = (kings or men or sorted(can, key=visited.count))[0]
        result = client.step({"to": to})
        assert result.reward is not None
        rewards += result.reward
    return rewards, result.observation["won"], result.metadata["reward_fingerprint"]


def main() -> int:
    """Serve the environment, train both ways, and print what the games earned."""
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
