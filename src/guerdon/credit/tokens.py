"""Advantages of steps, spread over the tokens that the policy wrote."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from guerdon.credit.columns import Floats, read_array, read_floats, row_error
from guerdon.errors import CreditError

__all__ = ["to_token_advantages"]


def to_token_advantages(
    advantage: ArrayLike, mask: ArrayLike, *, index: ArrayLike | None = None
) -> Floats:
    """Give every token that the policy wrote the advantage of its step.

    Each row of ``mask`` is one step; or a row is a whole rollout, and ``index`` contains the step
    of each token.

    Example:
        >>> from guerdon.credit import to_token_advantages
        >>> to_token_advantages([0.5, -1.0], [[0, 1, 1], [1, 1, 0]]).tolist()
        [[0.0, 0.5, 0.5], [-1.0, -1.0, 0.0]]
        >>> to_token_advantages([0.5, -1.0], [[0, 1, 1, 0, 1]], index=[[-1, 0, 0, -1, 1]]).tolist()
        [[0.0, 0.5, 0.5, 0.0, -1.0]]

    Args:
        advantage: The advantage of each step, (N,), finite.
        mask: Where the policy's tokens are, (B, T), booleans or 0 and 1; without ``index`` B is N.
        index: The row in ``advantage`` of each token, (B, T), integers below N; -1 means none.

    Returns:
        The advantages, (B, T); 0.0 where the mask is 0 or the index is -1.

    Raises:
        CreditError: Shapes don't match, or a value is out of range.
    """
    values, written = read_floats(advantage, "advantage"), read_array(mask, "mask")
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise row_error(
            "`advantage` is not finite",
            wrong,
            expected="leave out the steps of rollouts that don't count, or pass "
            "`Credit.advantage`, whose mask marks them",
        )
    if written.ndim != 2 or not np.isin(written, (0, 1)).all():
        raise CreditError(
            "`mask` must be 2-d, (rows, tokens), with booleans or 0 and 1, got "
            f"{written.dtype} values of shape {written.shape}"
        )
    if index is None:
        if len(written) != len(values):
            raise CreditError(
                f"without `index`, `mask` must have one row for each of {len(values)} advantages, "
                f"got {len(written)}"
            )
        places = np.repeat(np.arange(len(values))[:, None], written.shape[1], axis=1)
    else:
        places = read_array(index, "index")
    if places.shape != written.shape or (places.dtype.kind not in "iu" and places.size):
        raise CreditError(
            f"`index` must have integers and the mask's shape {written.shape}, got "
            f"{places.dtype} values of shape {places.shape}"
        )
    wrong = np.flatnonzero((((places < -1) | (places >= len(values))) & (written != 0)).any(axis=1))
    if len(wrong):
        raise row_error(f"`index` is not in [-1, {len(values) - 1}]", wrong)
    used = (written != 0) & (places >= 0)
    result = np.zeros(written.shape)
    result[used] = values[places[used]]
    return result
