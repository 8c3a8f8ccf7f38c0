"""The reward: tau-bench's verdict, and components that show why an episode failed.

The same tree scores live episodes and recorded rollouts. Only the verdict counts, so that the
reward is the published one; ``reward.yaml`` is the same, with weights to change.
"""

from __future__ import annotations

import os
from typing import Any, get_args

from examples.tau_airline.audit import Audit, Finding, Kind
from examples.tau_airline.data import AirlineData, load_data
from examples.tau_airline.task import task_of
from guerdon import Rubric, RubricComposer
from guerdon._validation import check_choice

__all__ = ["KINDS", "Count", "Resolved", "airline_reward"]

DataLike = AirlineData | str | os.PathLike[str] | None

KINDS: tuple[Kind, ...] = get_args(Kind)


class _OfEpisode(Rubric):
    """Audits an episode turn by turn, with an audit of its own."""

    def __init__(self, data: DataLike) -> None:
        super().__init__()
        self._data = data
        self._audit: Audit | None = None

    def reset(self) -> None:
        """Begin a new audit."""
        self._audit = None

    def _take(self, action: Any, observation: Any) -> tuple[Audit, list[Finding]]:
        audit = self._audit
        if audit is None:
            data = self._data if isinstance(self._data, AirlineData) else load_data(self._data)
            audit = self._audit = Audit(task_of(observation.metadata, data), data)
        return audit, audit.take(action, observation)


class Resolved(_OfEpisode):
    """tau-bench's verdict: the episode ended with the expected database and all outputs.

    Its score is 0 before the end, and at an end that neither the user nor a transfer brought about.
    The outputs are searched in messages without calls, in lower case and without commas.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.reward import Resolved
        >>> from guerdon import Rollout, score_rollouts
        >>> row = {"ground_truth": {"actions": [], "outputs": ["1327"]}, "messages": [
        ...     {"role": "assistant", "content": "That makes $1,327."},
        ...     {"role": "user", "content": "Thanks! ###STOP###"}]}
        >>> rollout = Rollout.from_row(row)
        >>> next(score_rollouts(Resolved(AirlineData({}, {}, {})), [rollout]))["score"]
        1.0

    Args:
        data: The data or its folder; see `data.data_path` for the default.

    Raises:
        InvalidArgumentError: At evaluation, if the data is missing, or the task is invalid.
        MissingInputError: At evaluation, if the observation has no task.
    """

    score_range = (0.0, 1.0)

    def __init__(self, data: DataLike = None) -> None:
        super().__init__(data)

    def forward(self, action: Any, observation: Any) -> float:
        """Return the verdict at the end of the episode."""
        audit, _ = self._take(action, observation)
        if not observation.done:
            return 0.0
        solved, reason = audit.verdict()
        self.explain("%s", reason)
        return float(solved)


class Count(_OfEpisode):
    """Counts what is found about a step.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.reward import Count
        >>> from guerdon import Rollout
        >>> rollout = Rollout.from_row({"ground_truth": {"actions": [], "outputs": ["327"]},
        ...                             "messages": [{"role": "assistant", "content": "No."}]})
        >>> score = Count("missing_output", AirlineData({}, {}, {})).score(*rollout.steps[0])
        >>> score.value, score.reason
        (1.0, '327')

    Args:
        kind: ``expected_write`` and ``wrong_write``: writes with an effect that the task expects,
            or doesn't; ``failed_call``: calls answered with an error; ``forbidden``: writes that
            break a rule of the policy and aren't expected, and turns with several calls;
            ``missing_read``: changes without a look-up. At the end also what the episode lacks:
            ``missing_write``, ``missing_output``; ``missing_read`` of the users and reservations
            in the task's actions.
        data: The data or its folder; see `data.data_path` for the default.

    Raises:
        InvalidArgumentError: `kind` is unknown. At evaluation, as for `Resolved`.
    """

    def __init__(self, kind: Kind, data: DataLike = None) -> None:
        super().__init__(data)
        self.kind = check_choice("kind", kind, KINDS)

    def forward(self, action: Any, observation: Any) -> float:
        """Return the number of findings of the kind."""
        _, findings = self._take(action, observation)
        reasons = [each.reason for each in findings if each.kind == self.kind]
        if reasons:
            self.explain("%s", "; ".join(reasons))
        return float(len(reasons))


def airline_reward(data: DataLike = None) -> RubricComposer:
    """Return the reward.

    Args:
        data: The data or its folder; see `data.data_path` for the default.
    """
    rubrics: dict[str, Rubric] = {"resolved": Resolved(data)}
    rubrics |= {kind: Count(kind, data) for kind in KINDS}
    weights = {name: float(name == "resolved") for name in rubrics}
    return RubricComposer(rubrics, weights, normalize=False)
