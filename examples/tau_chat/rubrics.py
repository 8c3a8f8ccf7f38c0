"""What the bookings tell: whether they are as they should be, and what the desk refused."""

from __future__ import annotations

from examples.tau_chat.models import ChatAction, ChatObservation
from guerdon import Rubric
from guerdon.errors import MissingInputError

__all__ = ["Refused", "Settled"]


class Refused(Rubric):
    """1 where a tool couldn't do what the agent asked of it: a fault, for a weight below 0."""

    score_range = (0.0, 1.0)

    def forward(self, action: ChatAction, observation: ChatObservation) -> float:
        """Look whether the tool refused."""
        if observation.refused:
            self.explain("%s", observation.content)
        return float(observation.refused)


class Settled(Rubric):
    """The bookings are what they should be when the conversation is over."""

    score_range = (0.0, 1.0)

    def forward(self, action: ChatAction, observation: ChatObservation) -> float:
        """Read what the environment found."""
        if observation._settled is None:
            raise MissingInputError(
                "the observation doesn't say how the bookings are; TauChatEnvironment.step puts "
                "that there at the end, and it doesn't go over the wire"
            )
        return float(observation._settled)
