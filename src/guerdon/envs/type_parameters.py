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
    for name, given in zip(NAMES, _arguments(cls, base), strict=False):
        if isinstance(given, type):
            setattr(cls, name, given)


def _arguments(cls: type[Any], base: type[Any]) -> tuple[Any, ...]:
    """What a class gives for the parameters of a base of it; a TypeVar where that is open."""
    for each in cls.__dict__.get("__orig_bases__", ()):
        origin = get_origin(each)
        if origin is base:
            return get_args(each)
        if isinstance(origin, type) and issubclass(origin, base):
            given = dict(zip(origin.__parameters__, get_args(each), strict=False))  # type: ignore[attr-defined]
            return tuple(given.get(inner, inner) for inner in _arguments(origin, base))
    return ()
