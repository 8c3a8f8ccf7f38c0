"""Advantages of steps, spread over the tokens that the policy wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon.credit.arguments import Floats, as_array, refused
from guerdon.errors import CreditError

__all__ = ["to_token_advantages"]


def to_token_advantages(
    advantage: ArrayLike, mask: ArrayLike, *, index: ArrayLike | None = None
) -> Floats:
    """Give every token that the policy wrote the advantage of its step.

    Either each row of ``mask`` is one step, or a row is a whole rollout and ``index`` tells of each
    token which step it is of.

    Example:
        >>> from guerdon.credit import to_token_advantages
        >>> to_token_advantages([0.5, -1.0], [[0, 1, 1], [1, 1, 0]]).tolist()
        [[0.0, 0.5, 0.5], [-1.0, -1.0, 0.0]]
        >>> to_token_advantages([0.5, -1.0], [[0, 1, 1, 0, 1]], index=[[-1, 0, 0, -1, 1]]).tolist()
        [[0.0, 0.5, 0.5, 0.0, -1.0]]

    Args:
        advantage: The advantage of each step, (N,), finite.
        mask: Where the policy's tokens are, (B, T), booleans or 0 and 1; without ``index`` B is N.
        index: The row in ``advantage`` of each token, (B, T), whole numbers below N; -1: none.

    Returns:
        The advantages, (B, T); 0.0 where the mask is 0 or the index is -1.

    Raises:
        CreditError: Shapes don't fit, or a value is none of those.
    """
    values, there = as_array(advantage, "advantage"), as_array(mask, "mask")
    is_object = values.dtype == object
    none = [row for row, each in enumerate(values.flat) if each is None] if is_object else []
    if none:
        raise refused(
            "advantage is None",
            none,
            accepted="those are steps of rollouts that don't count: leave them out, or take the "
            "array of the Credit, whose mask says which count",
        )
    if values.ndim != 1 or (values.dtype.kind not in "iuf" and values.size):
        raise CreditError(
            f"advantage has shape {values.shape} and holds {values.dtype} values; a 1-d array with "
            "one number for each step is needed"
        )
    wrong = np.flatnonzero(~np.isfinite(values)) if values.size else ()
    if len(wrong):
        raise refused("advantage is not finite", wrong)
    if there.ndim != 2 or not np.isin(there, (0, 1)).all():
        raise CreditError(
            f"mask has shape {there.shape} and holds {there.dtype} values; a 2-d array of booleans "
            "or 0 and 1 is needed, (rows, tokens)"
        )
    written = there.astype(np.bool_)
    if index is not None:
        return _by_index(values, written, as_array(index, "index"))
    if len(there) != len(values):
        raise CreditError(
            f"mask has {len(there)} rows and there are {len(values)} advantages; without index, "
            "one row for each is needed"
        )
    spread: Floats = np.where(written, values[:, None].astype(np.float64), 0.0)
    return spread


def _by_index(values: NDArray[Any], written: NDArray[np.bool_], index: NDArray[Any]) -> Floats:
    if index.shape != written.shape or (index.dtype.kind not in "iu" and index.size):
        raise CreditError(
            f"index has shape {index.shape} and holds {index.dtype} values; whole numbers of the "
            f"mask's shape {written.shape} are needed"
        )
    wrong = ((index < -1) | (index >= len(values))) & written
    if wrong.any():
        raise refused(
            "index is outside of the advantages",
            np.flatnonzero(wrong.any(axis=1)),
            accepted=f"-1 to {len(values) - 1} are accepted",
        )
    used = written & (index >= 0)
    result = np.zeros(written.shape)
    result[used] = values[index[used]]
    return result
