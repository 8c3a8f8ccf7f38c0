"""The action, observation and state of Atari games."""

from __future__ import annotations

from base64 import b64decode, b64encode

from pydantic import BaseModel, ConfigDict, Field

from examples.atari.png import Pixels, decode, encode
from guerdon import Action, Observation, State
from guerdon.errors import InvalidArgumentError

__all__ = ["AtariAction", "AtariObservation", "AtariState", "Frame"]

MOST_ACTIONS = 18  # of any game
LONGEST_PNG = 400_000  # characters; an uncompressed frame of 250 × 160 pixels has 160,000


class Frame(BaseModel):
    """An image, as a PNG file in base64.

    Example:
        >>> import numpy as np
        >>> from examples.atari.models import Frame
        >>> frame = Frame.of(np.zeros((210, 160, 3), dtype=np.uint8))
        >>> frame.width, frame.height, frame.pixels().shape
        (160, 210, (210, 160, 3))

    Attributes:
        width: In pixels.
        height: In pixels.
        png: The file in base64.
    """

    model_config = ConfigDict(extra="forbid")

    width: int = Field(ge=1)
    height: int = Field(ge=1)
    png: str = Field(max_length=LONGEST_PNG, repr=False)

    @classmethod
    def of(cls, pixels: Pixels) -> Frame:
        """Return the frame of an image of shape (height, width, 3)."""
        height, width, _ = pixels.shape
        return cls(width=width, height=height, png=b64encode(encode(pixels)).decode())

    def pixels(self) -> Pixels:
        """Return the colours, of shape (height, width, 3).

        Raises:
            InvalidArgumentError: `png` isn't an image, or has another size.
        """
        pixels = decode(b64decode(self.png))
        if pixels.shape[:2] != (self.height, self.width):
            raise InvalidArgumentError(
                f"the image has {pixels.shape[1]} × {pixels.shape[0]} pixels, "
                f"expected {self.width} × {self.height}"
            )
        return pixels


class AtariAction(Action):
    """Press a joystick's button and direction for four frames.

    Example:
        >>> from examples.atari.models import AtariAction
        >>> AtariAction(action_id=3).action_id
        3

    Attributes:
        action_id: The index in the `actions` of the observation.
    """

    action_id: int = Field(ge=0, lt=MOST_ACTIONS)


class AtariObservation(Observation):
    """A frame of a game.

    Example:
        >>> import numpy as np
        >>> from examples.atari.models import AtariObservation, Frame
        >>> frame = Frame.of(np.zeros((210, 160, 3), dtype=np.uint8))
        >>> AtariObservation(game_id="ALE/Pong-v5", frame=frame, actions=["NOOP", "FIRE"]).score
        0.0

    Attributes:
        game_id: The game's ID in Gymnasium, such as ``ALE/Pong-v5``.
        frame: The screen.
        actions: What each `action_id` means in this game, such as ``RIGHTFIRE``.
        points: The change of the game's score in this step.
        score: The game's score in this episode.
        lives: The remaining lives; 0 in games without lives.
        lives_lost: The number of lives lost in this step.
        truncated: Whether the episode ended before the game did.
    """

    game_id: str
    frame: Frame
    actions: list[str]
    points: float = 0.0
    score: float = 0.0
    lives: int = 0
    lives_lost: int = 0
    truncated: bool = False


class AtariState(State):
    """The state of an episode.

    Example:
        >>> from examples.atari.models import AtariState
        >>> AtariState(game_id="ALE/Pong-v5").over
        True

    Attributes:
        game_id: The game; None before the first reset.
        score: The game's score in this episode.
        lives: The remaining lives.
        over: Whether no episode is running.
    """

    game_id: str | None = None
    score: float = 0.0
    lives: int = 0
    over: bool = True
