"""The reward: a rubric for each game, and one for games without a rubric of their own."""

from __future__ import annotations

from examples.atari.models import AtariAction, AtariObservation
from guerdon import Rubric, RubricComposer, RubricDict

__all__ = ["Bricks", "ByGame", "ClippedPoints", "LifeLost", "Rallies", "default_reward"]


class Rallies(Rubric):
    """Pong: 1 for a rally that the agent wins, -1 for one that it loses."""

    score_range = (-1.0, 1.0)

    def forward(self, action: AtariAction, observation: AtariObservation) -> float:
        """Return the points of the step, which are 1, 0 or -1."""
        return observation.points


class Bricks(Rubric):
    """Breakout: 1 for a brick, whatever its row; the game gives 1, 4 or 7 points."""

    score_range = (0.0, 1.0)

    def forward(self, action: AtariAction, observation: AtariObservation) -> float:
        """Return whether the ball has hit a brick."""
        if observation.points:
            self.explain("a brick of %g points", observation.points)
        return float(observation.points > 0)


class ClippedPoints(Rubric):
    """The sign of the points of a step, as in the first agents that played many games."""

    score_range = (-1.0, 1.0)

    def forward(self, action: AtariAction, observation: AtariObservation) -> float:
        """Return 1 for points won, -1 for points lost, otherwise 0."""
        if observation.points:
            self.explain("%+g points", observation.points)
        return float((observation.points > 0) - (observation.points < 0))


class ByGame(Rubric):
    """Each game has a rubric of its own; all others have `ClippedPoints`.

    Example:
        >>> from examples.atari.rubrics import ByGame
        >>> sorted(ByGame().games)
        ['ALE/Breakout-v5', 'ALE/Pong-v5']
    """

    score_range = (-1.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.games = RubricDict({"ALE/Pong-v5": Rallies(), "ALE/Breakout-v5": Bricks()})
        self.other = ClippedPoints()

    def forward(self, action: AtariAction, observation: AtariObservation) -> float:
        """Return the score of the game's rubric."""
        score: float = self.games.get(observation.game_id, self.other)(action, observation)
        return score


class LifeLost(Rubric):
    """A life was lost in this step; give it a negative weight."""

    score_range = (0.0, 1.0)

    def forward(self, action: AtariAction, observation: AtariObservation) -> float:
        """Return whether a life was lost."""
        if observation.lives_lost:
            self.explain("%d lives left", observation.lives)
        return float(observation.lives_lost > 0)


def default_reward() -> RubricComposer:
    """Return the reward that ``reward.yaml`` describes.

    Example:
        >>> from examples.atari.rubrics import default_reward
        >>> default_reward().weights
        {'game': 1.0, 'life_lost': -1.0}
    """
    return RubricComposer(
        {"game": ByGame(), "life_lost": LifeLost()},
        weights={"game": 1.0, "life_lost": -1.0},
        normalize=False,
    )
