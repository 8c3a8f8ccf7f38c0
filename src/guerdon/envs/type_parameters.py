"""The types in ``Environment[Move, Board, State]``, as attributes of the class."""

from __future__ import annotations

from typing import Any, get_args, get_origin

__all__ = ["set_types"]

NAMES = ("action_type", "observation_type", "state_type")


def set_types(cls: type[Any], base: type[Any]) -> None:
    """Set a class's `action_type`, `observation_type` and `state_type` from its parameters.

    Args:
        cls: A class that was just made.
        base: The generic class whose parameters count.
    """
    for each in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(each)
        if isinstance(origin, type) and issubclass(origin, base):
            for name, given in zip(NAMES, get_args(each), strict=False):
                if isinstance(given, type):
                    setattr(cls, name, given)
