"""Reading what a normaliser is called with: whatever can't be meant is refused, with its rows."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from guerdon._validation import is_finite
from guerdon._validation import shown as told
from guerdon.credit.columns import Floats, Integers, listed, number
from guerdon.errors import InvalidArgumentError
from guerdon.tracking.normalizer.statistics import LARGEST

__all__ = ["EnvId", "Rows"]

EnvId: TypeAlias = str | int
MAX_LETTERS = 1_000

_NUMBERS = (float, int, np.floating, np.integer)
_NEEDED = f"finite numbers up to {LARGEST:g} are needed"


class Rows(NamedTuple):
    """Rewards, and which environment each is of.

    Attributes:
        rewards: Of shape (N,).
        codes: Which of the ids each is of, (N,).
        ids: The environments, each once; None stands for all of them together.
        shape: The shape that the rewards came in.
    """

    rewards: Floats
    codes: Integers
    ids: list[EnvId | None]
    shape: tuple[int, ...]


def read_reward(reward: Any) -> float:
    """One reward."""
    if not is_finite(reward) or abs(reward) > LARGEST:
        raise InvalidArgumentError(f"the reward is {told(reward)}; {_NEEDED}")
    return float(reward)


def read_id(env_id: Any) -> EnvId:
    """The id of one environment."""
    if isinstance(env_id, str) and len(env_id) <= MAX_LETTERS:
        return str(env_id)
    if isinstance(env_id, Integral) and not isinstance(env_id, bool):
        return int(env_id)
    raise _refused_ids(told(env_id))


def read_rows(reward: ArrayLike, env_id: Any, *, per_environment: bool) -> Rows:
    """Rewards and the environment of each.

    Args:
        reward: An array or a list of numbers, of any shape.
        env_id: As many ids in the same shape, or one for all.
        per_environment: Whether environments are told apart at all.
    """
    rewards = _rewards(reward)
    shape, rewards = rewards.shape, rewards.ravel()
    if not per_environment:
        return _of_one(rewards, None, shape)
    if isinstance(env_id, str | Integral):
        return _of_one(rewards, read_id(env_id), shape)
    given = _array(env_id, "env_id")
    if given.shape != shape:
        raise InvalidArgumentError(
            f"env_id has shape {given.shape} and reward {shape}; one id for each reward, or one "
            "for all, is needed"
        )
    if given.dtype.kind in "iu" or not given.size:
        codes, ids = _whole_numbers(given.ravel())
    else:
        codes, ids = _any_ids(given.ravel().tolist())
    return Rows(rewards, codes, ids, shape)


def _of_one(rewards: Floats, env_id: EnvId | None, shape: tuple[int, ...]) -> Rows:
    return Rows(rewards, np.zeros(len(rewards), np.int64), [env_id] if len(rewards) else [], shape)


def _rewards(reward: ArrayLike) -> Floats:
    array = _array(reward, "reward")
    if array.dtype == object:
        wrong = [row for row, value in enumerate(array.ravel()) if not is_finite(value)]
        if wrong:
            raise _refused_rows(wrong, told(array.ravel()[wrong[0]]))
    elif array.dtype.kind not in "iuf":
        raise InvalidArgumentError(f"reward holds {array.dtype} values; {_NEEDED}")
    with np.errstate(over="ignore"):  # what a wider float holds
        array = array.astype(np.float64, copy=False)
    # Neither NaN nor infinity is within.
    if array.size and not (array.max() <= LARGEST and array.min() >= -LARGEST):
        wrong = np.flatnonzero(~(np.abs(array.ravel()) <= LARGEST)).tolist()
        raise _refused_rows(wrong, told(array.ravel()[wrong[0]].item()))
    return array


def _array(value: Any, name: str) -> np.ndarray[Any, Any]:
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        raise InvalidArgumentError(
            f"{name} is {told(value)}; it takes one value, a list or an array"
        )
    if np.ma.is_masked(value):
        raise InvalidArgumentError(f"{name} is masked in places; leave those rows out")
    try:
        return _of_list(value) if isinstance(value, list | tuple) else np.asarray(value)
    except Exception as error:  # such as a tensor on a GPU
        raise InvalidArgumentError(f"{name} can't be read as an array: {error}") from error


def _of_list(values: list[Any] | tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """A list as an array: as numbers where all are, otherwise of what is in it, as it is.

    By itself, numpy makes True a number beside numbers, and a number a text beside texts.
    """
    kinds = set(map(type, values)) or {float}
    if all(issubclass(kind, _NUMBERS) and kind is not bool for kind in kinds):
        return np.asarray(values)
    return np.array(values, dtype=object)


def _whole_numbers(ids: np.ndarray[Any, Any]) -> tuple[Integers, list[EnvId | None]]:
    """The codes of ids that are whole numbers: by counting, where they lie close together."""
    if not len(ids):
        return ids.astype(np.int64), []
    lowest, highest = int(ids.min()), int(ids.max())
    if highest - lowest > 4 * len(ids):
        found, codes = np.unique(ids, return_inverse=True)
        return codes.astype(np.int64), list(found.tolist())
    if not 0 <= lowest <= highest <= 4 * len(ids):
        wide = ids.astype(np.int64 if ids.dtype.kind == "i" else np.uint64)
        ids = wide - wide.dtype.type(lowest)
    else:
        lowest = 0
    codes = ids.astype(np.int64, copy=False)
    present = np.bincount(codes) > 0
    if not present.all():
        codes = (np.cumsum(present) - 1)[codes]
    return codes, [int(each) + lowest for each in np.flatnonzero(present)]


def _any_ids(ids: list[Any]) -> tuple[Integers, list[EnvId | None]]:
    kinds = set(map(type, ids))
    wrong = [
        kind for kind in kinds if issubclass(kind, bool) or not issubclass(kind, str | Integral)
    ]
    if wrong:
        rows = [row for row, each in enumerate(ids) if type(each) in wrong]
        raise _refused_ids(f"{told(ids[rows[0]])}, in {_rows_in_words(rows)}")
    found = number(ids, len(ids))
    return found.codes, [read_id(each) for each in found.ids]


def _refused_rows(rows: list[int], example: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"reward is {example} in {_rows_in_words(rows)}; {_NEEDED}, and nothing was taken in"
    )


def _refused_ids(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"env_id is {what}; an id is a whole number, or a text of up to {MAX_LETTERS:,} letters"
    )


def _rows_in_words(rows: Iterable[int]) -> str:
    numbers = list(rows)
    return f"row{'s' * (len(numbers) != 1)} {listed(numbers, len(numbers))}"
