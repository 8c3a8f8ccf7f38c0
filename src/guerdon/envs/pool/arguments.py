"""What a pool is asked for, checked before anything of it is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from guerdon.errors import InvalidArgumentError
from guerdon.types.action import Action

__all__ = ["check_action", "check_actions", "check_options", "check_seeds", "check_slots"]


def check_actions(actions: Any, n: int) -> None:
    """Whether there is something for each of `n` slots."""
    if isinstance(actions, (str, bytes)) or not isinstance(actions, Sequence):
        raise InvalidArgumentError(
            f"actions is {actions!r:.60}; it takes a list of one for each slot"
        )
    if len(actions) != n:
        raise InvalidArgumentError(
            f"there are {len(actions)} actions for {n} slots; give one for each, None to skip"
        )


def check_slots(slots: Sequence[int] | None, n: int) -> list[int]:
    """Which of `n` slots are meant."""
    if slots is None:
        return list(range(n))
    if isinstance(slots, (str, bytes)) or not isinstance(slots, Iterable):
        raise InvalidArgumentError(f"slots is {slots!r:.60}; it takes a list of slots")
    chosen = list(slots)
    for slot in chosen:
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < n:
            raise InvalidArgumentError(f"there is no slot {slot!r}; there are 0 to {n - 1}")
    if len(set(chosen)) < len(chosen):
        raise InvalidArgumentError(f"a slot stands twice in {chosen}")
    return chosen


def check_action(slot: int, action: Any) -> Any:
    """One action, a model or a dict."""
    if not isinstance(action, (Action, Mapping)):
        raise InvalidArgumentError(
            f"actions[{slot}] is {action!r:.60}; it takes an Action, a dict, or None to skip"
        )
    return action


def check_seeds(seeds: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """One seed for each of so many slots."""
    if seeds is None:
        return [None] * count
    if isinstance(seeds, int):
        given: list[int | None] = [seeds + place for place in range(count)]
    else:
        is_list = isinstance(seeds, Sequence) and not isinstance(seeds, (str, bytes))
        given = list(seeds) if is_list else []
    wrong = [seed for seed in given if not (seed is None or _is_seed(seed))]
    if isinstance(seeds, bool) or wrong or len(given) != count:
        raise InvalidArgumentError(
            f"seeds is {seeds!r:.60}; it takes an int of at least 0, or one (or None) for each of "
            f"the {count} slots"
        )
    return given


def _is_seed(seed: object) -> bool:
    return isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0


def check_options(
    options: Sequence[Mapping[str, Any]] | None, common: Mapping[str, Any], count: int
) -> list[Mapping[str, Any]]:
    """What else each of so many slots' reset takes."""
    if options is None:
        return [common] * count
    given = options if isinstance(options, Sequence) else []
    dicts = [each for each in given if isinstance(each, Mapping) and "seed" not in each]
    if len(dicts) != len(given) or len(dicts) != count:
        raise InvalidArgumentError(
            f"options is {options!r:.60}; it takes one dict for each of the {count} slots, with "
            "anything but a seed"
        )
    return [{**common, **each} for each in dicts]
