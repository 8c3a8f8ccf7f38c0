"""Matching step outputs to steps: by the number of the assistant turn, or by the step's id."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from guerdon.types.evaluate_result import StepOutput

__all__ = ["Misfit"]

_NUMBER = re.compile(r" *(-?\d{1,9}) *")

# The number of step ids that a message lists.
_LISTED = 5


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing that didn't fit when results were put on steps.

    Example:
        >>> from guerdon.rubrics.functions import Misfit
        >>> print(Misfit("no such step", "step 7: there are 3 steps, 0 to 2", rollout="q7-0"))
        rollout 'q7-0': step 7: there are 3 steps, 0 to 2

    Attributes:
        problem: The kind of misfit.
        text: What is wrong.
        rollout: The rollout's id, if it concerns one.
        step_index: The index in the result, if it concerns one.
    """

    problem: str
    text: str
    rollout: Hashable = None
    step_index: int | str | None = None

    def __str__(self) -> str:
        return self.text if self.rollout is None else f"rollout {self.rollout!r}: {self.text}"


def places_of(steps: Iterable[tuple[int | None, str | None]]) -> dict[int | str, int | None]:
    """Return the places of steps by their numbers and ids.

    Example:
        >>> places_of([(0, None), (1, "ask"), (2, "ask")])
        {0: 0, 1: 1, 'ask': None, 2: 2}

    Args:
        steps: The number and the id of each step, or None.

    Returns:
        Numbers and ids to places, from 0; those of several steps to None.
    """
    places: dict[int | str, int | None] = {}
    for place, names in enumerate(steps):
        for name in names:
            if name is not None:
                places[name] = None if name in places else place
    return places


def place_outputs(
    outputs: Iterable[StepOutput],
    places: Mapping[int | str, int | None],
    *,
    counted: Literal["turn", "message"] = "turn",
) -> tuple[dict[int, StepOutput], list[Misfit]]:
    """Find the step of each output.

    Args:
        outputs: The step outputs of a result.
        places: The result of `places_of`.
        counted: What the numbers count, for error messages.

    Returns:
        The output for each place, and what didn't fit. Two outputs for one step are both left out.
    """
    found: dict[int, list[StepOutput]] = {}
    misfits = []
    for output in outputs:
        place = places.get(output.step_index)
        if place is None:
            misfits.append(_no_place(output.step_index, places, counted))
        else:
            found.setdefault(place, []).append(output)
    for place, several in list(found.items()):
        if len(several) > 1:
            rewards = " and ".join(f"{each.base_reward:g}" for each in several)
            index = several[-1].step_index
            text = f"step {index!r}: it has {len(several)} outputs ({rewards}); none was used"
            misfits.append(Misfit("two outputs for one step", text, step_index=index))
            del found[place]
    return {place: several[0] for place, several in found.items()}, misfits


def _no_place(index: int | str, places: Mapping[int | str, int | None], counted: str) -> Misfit:
    step = f"step {index!r:.60}"
    if index in places:
        text = f"{step}: several steps have this number, so it is ambiguous"
        return Misfit("two steps of one number", text, step_index=index)
    number = _NUMBER.fullmatch(index) if isinstance(index, str) else None
    if number is not None and int(number[1]) in places:
        text = f"{step} is text, and no step has this id; for {counted} {number[1]}, write an int"
        return Misfit("text for a number", text, step_index=index)
    if isinstance(index, str):
        names = [each for each in places if isinstance(each, str)]
        there = f"the ids are {names[:_LISTED]}" if names else "no step has an id"
    else:
        numbers = [each for each in places if isinstance(each, int)]
        there = "no step has a number"
        if numbers:
            there = f"the assistant {counted}s are {min(numbers)} to {max(numbers)}"
    return Misfit("no such step", f"{step}: there is no such step; {there}", step_index=index)
