"""Rubrics on bookings: whether they are as expected, and whether a tool call failed."""

from __future__ import annotations

from examples.tau_chat.models import ChatAction, ChatObservation
from guerdon import Rubric
from guerdon.errors import MissingInputError

__all__ = ["Refused", "Settled"]


class Refused(Rubric):
    """The agent's tool call failed; give it a negative weight."""

    score_range = (0.0, 1.0)

    def forward(self, action: ChatAction, observation: ChatObservation) -> float:
        """Return whether the tool call failed."""
        if observation.refused:
            self.explain("%s", observation.content)
        return float(observation.refused)


class Settled(Rubric):
    """The bookings are as expected at the end of the conversation."""

    score_range = (0.0, 1.0)

    def forward(self, action: ChatAction, observation: ChatObservation) -> float:
        """Return the environment's comparison of the bookings."""
        if observation._settled is None:
            raise MissingInputError(
                "the observation has no comparison of the bookings; TauChatEnvironment.step adds "
                "it to the last observation, and it isn't sent over the wire"
            )
        return float(observation._settled)
