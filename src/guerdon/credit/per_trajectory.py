"""Reading what is given for every row, for every trajectory, or by trajectory id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guerdon.credit.arguments import (
    Column,
    Floats,
    Integers,
    PerTrajectory,
    as_array,
    column,
    floats,
    listed,
    refused,
)
from guerdon.credit.keys import Numbered
from guerdon.errors import CreditError

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class TrajectoryReader:
    """Reads arguments that have one value for each trajectory, in any of three forms.

    Attributes:
        size: N, the number of rows.
        trajectories: The trajectory of each row; T of them.
    """

    size: int
    trajectories: Numbered

    def masked(self, valid: PerTrajectory | None) -> dict[int, str]:
        """The numbers of the trajectories that don't count, and why."""
        if valid is None:
            return {}
        values, by_row = self._values(valid, "valid")
        array = as_array(values, "valid")
        if array.ndim != 1 or not np.isin(array, (0, 1)).all():
            raise CreditError("valid holds something else than booleans; True or False are needed")
        rows: dict[int, list[int]] = {}
        for place in np.flatnonzero(array == 0).tolist():
            code = int(self.trajectories.codes[place]) if by_row else place
            rows.setdefault(code, []).append(place)
        if not by_row:
            return dict.fromkeys(rows, "marked invalid")
        return {
            code: f"marked invalid in row{'s' * (len(some) > 1)} {listed(some, len(some))}"
            for code, some in rows.items()
        }

    def scores(self, given: PerTrajectory, counts: NDArray[np.bool_]) -> Floats:
        """The score of each trajectory, (T,); those that don't count may have any."""
        values, by_row = self._values(given, "episode_score")
        scores = floats(values, "episode_score")
        if by_row:
            scores = self._alike(scores, counts)
        self._refuse(
            ~np.isfinite(scores) & counts,
            "episode_score is not finite",
            "a valid trajectory needs a finite score; mark it invalid if it has none",
        )
        return scores

    def sums(self, rewards: Floats, rows: Integers, counts: NDArray[np.bool_]) -> Floats:
        """The sum of the given rewards of each trajectory, (T,), added up in the order of rows."""
        rows = rows[~np.isnan(rewards[rows])]
        codes, total = self.trajectories.codes[rows], len(counts)
        self._refuse(
            (np.bincount(codes, minlength=total) == 0) & counts,
            "neither a reward nor an episode_score",
            "give one of the two, or mark the trajectory invalid",
        )
        sums = np.bincount(codes, rewards[rows], total)
        return sums.astype(np.float64)  # without a row they are integers

    def _values(self, given: PerTrajectory, name: str) -> tuple[Column, bool]:
        """What was given as a column, and whether it is one of rows and not of trajectories."""
        ids = self.trajectories.ids
        if isinstance(given, Mapping):
            missing = [one for one in ids if one not in given]
            if missing:
                raise CreditError(
                    f"{name} lacks the trajectories {listed(map(repr, missing), len(missing))}; "
                    "each needs an entry"
                )
            return [given[one] for one in ids], False
        values = column(given, name)
        if len(values) not in (self.size, len(ids)):
            raise CreditError(
                f"{name} has {len(values)} entries; {self.size} (one for each row) or {len(ids)} "
                "(one for each trajectory) are needed"
            )
        return values, len(values) != len(ids)

    def _alike(self, scores: Floats, counts: NDArray[np.bool_]) -> Floats:
        """The one score that all rows of a trajectory have, (T,)."""
        codes, of_first = self.trajectories.codes, scores[self.trajectories.first_rows()]
        alike = (scores == of_first[codes]) | (np.isnan(scores) & np.isnan(of_first)[codes])
        wrong = np.flatnonzero(~alike & counts[codes])
        if len(wrong):
            raise refused(
                "episode_score differs within a trajectory",
                wrong,
                accepted="all rows of a trajectory have its one score",
            )
        return of_first

    def _refuse(self, bad: NDArray[np.bool_], problem: str, accepted: str) -> None:
        wrong = np.flatnonzero(bad)
        if len(wrong):
            named = listed((repr(self.trajectories.ids[code]) for code in wrong), len(wrong))
            raise refused(
                f"{problem} for the trajectories {named}, which start",
                self.trajectories.first_rows()[wrong],
                accepted=accepted,
            )
