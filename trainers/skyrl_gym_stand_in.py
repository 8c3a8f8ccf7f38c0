"""A stand-in for SkyRL-Gym, for what runs without it."""

from __future__ import annotations

from types import SimpleNamespace


class BaseTextEnv:
    """What the adapter uses of the class of SkyRL-Gym."""

    def __init__(self) -> None:
        self.turns = 0

    def close(self) -> None:
        """Close nothing."""


SKYRL_GYM = SimpleNamespace(BaseTextEnv=BaseTextEnv)
