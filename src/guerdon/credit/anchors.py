"""Anchor groups: the steps of one group that are in the same state, with the same history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from itertools import chain, count, pairwise
from typing import Any

import numpy as np

from guerdon.credit.arguments import Integers, refused
from guerdon.credit.batch import Batch
from guerdon.credit.keys import numbered, states_as_keys
from guerdon.errors import CreditError

__all__: list[str] = []


def anchors_of(batch: Batch, state: Any, similarity: float | None) -> Integers:
    """The number of the anchor group of each valid row, (M,), in order of appearance.

    Args:
        batch: The batch.
        state: The states of all rows, a list or an array of N.
        similarity: None: the same state is an equal one. Else the ratio from which on texts are
            similar; each joins the first similar state of its group in canonical order.

    Raises:
        CreditError: A state can't be compared.
    """
    states = state.tolist() if isinstance(state, np.ndarray) and state.ndim == 1 else state
    if len(batch.rows) < batch.size or (np.diff(batch.rows) != 1).any():
        states = [states[row] for row in batch.rows.tolist()]
    keys = states_as_keys(list(states), batch.rows)
    if similarity is not None:
        _only_text(keys, batch.rows)
        keys = _similar(batch, keys, similarity)
    # One table for each group: a state belongs to its group, and small tables are faster.
    number = count()
    codes: list[Iterable[int]] = []
    for start, end in pairwise(_bounds(batch)):
        table: dict[Hashable, int] = defaultdict(number.__next__)
        codes.append(map(table.__getitem__, keys[start:end]))
    try:
        return np.fromiter(chain.from_iterable(codes), np.int64, len(keys))
    except Exception as error:  # whatever a class of somebody's own raises when it is compared
        raise CreditError(
            f"states can't be compared: {type(error).__name__}: {error}; pass a key of your own, "
            "such as a text or a tuple of numbers"
        ) from error


def deeper(batch: Batch, anchor: Integers, state: Integers, depth: int) -> Integers:
    """Split anchor groups by what the state was ``depth`` steps earlier.

    Args:
        batch: The batch.
        anchor: The groups by the last ``depth`` states, (M,).
        state: The groups by the state alone, (M,).
        depth: How far to look back, 1 or more; before the first step there is nothing.

    Returns:
        The number of the group of each valid row, (M,), in order of appearance.
    """
    earlier = np.arange(len(state)) - depth
    inside = earlier >= batch.starts[batch.trajectory]
    before = np.where(inside, state[np.maximum(earlier, 0)], -1)
    pairs = anchor * (len(state) + 1) + before + 1
    return numbered(pairs.tolist(), len(pairs)).codes


def _bounds(batch: Batch) -> list[int]:
    """Where each group starts, and the end of the last."""
    changes = np.flatnonzero(np.diff(batch.group, prepend=-1))
    return [*changes.tolist(), len(batch.group)]


def _only_text(keys: list[Any], rows: Integers) -> None:
    wrong = [row for row, key in zip(rows.tolist(), keys, strict=True) if type(key) is not str]
    if wrong:
        raise refused("state is no text", wrong, accepted="similarity compares texts only")


def _similar(batch: Batch, keys: list[Any], similarity: float) -> list[Any]:
    """The number of the similar state that stands for each, counted in each group."""
    from guerdon.credit.similarity import similar_groups

    return list(
        chain.from_iterable(
            similar_groups(keys[start:end], similarity).tolist()
            for start, end in pairwise(_bounds(batch))
        )
    )
