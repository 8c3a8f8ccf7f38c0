"""`RLDataAligner`: puts the results of reward functions on recorded steps."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from guerdon._validation import check_list, shown
from guerdon.errors import AlignmentError
from guerdon.rubrics.functions.placement import Misfit, place_outputs, places_of
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.rollout import StepData

__all__ = [
    "AlignedBatch",
    "AlignedRollout",
    "AlignmentReport",
    "RLDataAligner",
]

logger = logging.getLogger(__name__)


class AlignmentReport(list[Misfit]):
    """Everything that didn't fit when results were put on steps.

    Example:
        >>> from guerdon.rollouts import AlignmentReport
        >>> from guerdon.rubrics.functions import Misfit
        >>> report = AlignmentReport([Misfit("no result", "it has no result", rollout="q7-0")])
        >>> len(report), report.counts()
        (1, {'no result': 1})
        >>> print(report)
        rollout 'q7-0': it has no result
    """

    def counts(self) -> dict[str, int]:
        """Return the number of misfits of each kind."""
        return dict(Counter(misfit.problem for misfit in self))

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "everything fitted"


@dataclass(slots=True)
class AlignedRollout:
    """A rollout whose steps have their base rewards.

    Example:
        >>> from guerdon.rollouts import AlignedRollout
        >>> AlignedRollout("q7-0", [], score=1.0).is_score_valid
        True

    Attributes:
        id: The rollout's id.
        steps: Its steps, in order.
        score: Its final score; None if it has none.
        is_score_valid: Whether the score counts; credit assignment masks the rollout otherwise.
        group: The group of rollouts of the same task; None if unknown.
        error: Why the score doesn't count.
    """

    id: Hashable
    steps: list[StepData]
    score: float | None = None
    is_score_valid: bool = True
    group: Any = None
    error: str | None = None


@dataclass(slots=True)
class AlignedBatch:
    """Rollouts whose steps have their base rewards, and what didn't fit.

    Example:
        >>> from guerdon.rollouts import AlignedBatch, AlignedRollout
        >>> batch = AlignedBatch([AlignedRollout("q7-0", [], score=1.0)])
        >>> batch["q7-0"].score, batch.final_scores, len(batch.report)
        (1.0, [1.0], 0)

    Attributes:
        rollouts: The rollouts, in the requested order.
        report: What didn't fit.
    """

    rollouts: list[AlignedRollout]
    report: AlignmentReport = field(default_factory=AlignmentReport)

    @property
    def step_lists(self) -> list[list[StepData]]:
        """The steps of each rollout."""
        return [rollout.steps for rollout in self.rollouts]

    @property
    def final_scores(self) -> list[float | None]:
        """The valid score of each rollout, or None."""
        return [rollout.score if rollout.is_score_valid else None for rollout in self.rollouts]

    def __getitem__(self, rollout_id: Hashable) -> AlignedRollout:
        for rollout in self.rollouts:
            if rollout.id == rollout_id:
                return rollout
        raise KeyError(rollout_id)

    def __iter__(self) -> Iterator[AlignedRollout]:
        return iter(self.rollouts)

    def __len__(self) -> int:
        return len(self.rollouts)


class RLDataAligner:
    """Puts the step rewards of reward functions on recorded steps.

    Example:
        >>> from guerdon import EvaluateResult, RLDataAligner, StepData, StepOutput
        >>> steps = [StepData(system_step_index=i, step_info={"assistant_turn_index": i})
        ...          for i in range(2)]
        >>> result = EvaluateResult(score=1.0, step_outputs=[
        ...     StepOutput(step_index=1, base_reward=0.5), StepOutput(step_index=7, base_reward=1)])
        >>> batch = RLDataAligner().align_data_for_rl_processing(result, {"q7-0": steps}, ["q7-0"])
        >>> [step.base_reward for step in batch["q7-0"].steps], batch["q7-0"].score
        ([None, 0.5], 1.0)
        >>> print(batch.report)
        rollout 'q7-0': step 7: there is no such step; the assistant turns are 0 to 1

    Args:
        strict: Whether to raise if anything doesn't fit.
        score_failed: Whether the score of an episode that failed counts; otherwise it is masked
            and reported.
    """

    def __init__(self, *, strict: bool = False, score_failed: bool = False) -> None:
        self.strict = strict
        self.score_failed = score_failed

    def align_data_for_rl_processing(
        self,
        eval_results_from_sandbox: EvaluateResult | Sequence[EvaluateResult | None],
        raw_rollout_step_data_map: Mapping[Any, Sequence[StepData]],
        rollout_ids_in_order: Sequence[Any],
    ) -> AlignedBatch:
        """Set the base reward of each step that a result names.

        A step is named by the number of its assistant turn, which is its
        ``step_info["assistant_turn_index"]``, or by its ``step_info["step_id"]``. A step that no
        result names keeps its base reward. The arguments are not changed: the returned steps are
        shallow copies. If anything doesn't fit, a warning with the counts is logged.

        Args:
            eval_results_from_sandbox: One result for each rollout, or the result of one rollout.
            raw_rollout_step_data_map: The recorded steps of each rollout, by its id.
            rollout_ids_in_order: The ids, in the order of the results.

        Raises:
            AlignmentError: An argument is invalid; or something didn't fit and the aligner is
                strict, with all misfits as ``problems``.
        """
        if isinstance(eval_results_from_sandbox, EvaluateResult):
            eval_results_from_sandbox = [eval_results_from_sandbox]
        results = check_list(
            "eval_results_from_sandbox", eval_results_from_sandbox, error=AlignmentError
        )
        ids = check_list("rollout_ids_in_order", rollout_ids_in_order, error=AlignmentError)
        _check_steps(raw_rollout_step_data_map)
        report = AlignmentReport()
        aligned: dict[Any, AlignedRollout] = {}
        for place, rollout_id in enumerate(ids):
            if not isinstance(rollout_id, Hashable):
                raise AlignmentError(
                    f"`rollout_ids_in_order` must contain hashable ids, got {shown(rollout_id)}"
                )
            if rollout_id in aligned:
                report.append(
                    Misfit("rollout asked for twice", "it is asked for twice", rollout_id)
                )
                continue
            steps = raw_rollout_step_data_map.get(rollout_id)
            result = results[place] if place < len(results) else None
            aligned[rollout_id] = _aligned(rollout_id, steps, result, report)
            if not self.score_failed:
                _mask_failed(aligned[rollout_id], report)
        _report_unmatched(results, ids, raw_rollout_step_data_map, report)
        if report and self.strict:
            raise AlignmentError(f"{len(report)} things don't fit:\n{report}", problems=report)
        if report:
            counts = ", ".join(f"{kind} ({count})" for kind, count in report.counts().items())
            logger.warning("results and recorded steps don't fit: %s; see the report", counts)
        return AlignedBatch(list(aligned.values()), report)


def _report_unmatched(
    results: list[Any], ids: list[Any], steps: Mapping[Any, Any], report: AlignmentReport
) -> None:
    for place in range(len(ids), len(results)):
        text = f"result {place} has no rollout: there are {len(results)} results for {len(ids)}"
        report.append(Misfit("result without a rollout", text))
    asked = set(ids)
    for rollout_id in steps:
        if rollout_id not in asked:
            text = "it has recorded steps, and its id isn't among those asked for"
            report.append(Misfit("rollout not asked for", text, rollout_id))


def _check_steps(steps: Any) -> None:
    name = "raw_rollout_step_data_map"
    if not isinstance(steps, Mapping):
        raise AlignmentError(f"`{name}` must be a mapping from ids to steps, got {shown(steps)}")
    for rollout_id, of in steps.items():
        if not isinstance(of, Sequence) or not all(isinstance(each, StepData) for each in of):
            raise AlignmentError(f"`{name}[{shown(rollout_id)}]` must be a list of StepData")


def _aligned(
    rollout_id: Any, steps: Sequence[StepData] | None, result: Any, report: AlignmentReport
) -> AlignedRollout:
    if steps is None:
        report.append(Misfit("no recorded steps", "it has no recorded steps", rollout_id))
    copies = [step.model_copy() for step in steps or ()]
    places = _places(copies, rollout_id, report)
    group = copies[0].step_info.get("group") if copies else None
    if not isinstance(result, EvaluateResult):
        given = "" if result is None else f": got {shown(result)}, not an EvaluateResult"
        text = f"it has no result{given}"
        report.append(Misfit("no result", text, rollout_id))
        return AlignedRollout(rollout_id, copies, None, False, group, text)
    if steps is not None:
        placed, misfits = place_outputs(result.step_outputs or (), places)
        report.extend(replace(misfit, rollout=rollout_id) for misfit in misfits)
        for place, output in placed.items():
            copies[place].base_reward = output.base_reward
    aligned = AlignedRollout(rollout_id, copies, result.score, result.is_score_valid, group)
    if not result.is_score_valid:
        aligned.error = result.error or result.reason or "it was marked invalid"
    return aligned


def _mask_failed(rollout: AlignedRollout, report: AlignmentReport) -> None:
    """Mask the score of an episode that failed: the episode is not complete."""
    errors = (
        step.step_info.get(name) for step in rollout.steps for name in ("error", "episode_error")
    )
    error = next(filter(None, errors), None)
    if error is not None and rollout.is_score_valid:
        rollout.is_score_valid = False
        rollout.error = f"the episode ended with an error: {error}"
        report.append(
            Misfit("failed episode", f"its score doesn't count: {rollout.error}", rollout.id)
        )


def _places(
    steps: Sequence[StepData], rollout_id: Any, report: AlignmentReport
) -> dict[int | str, int | None]:
    names: list[tuple[int | None, str | None]] = []
    for place, step in enumerate(steps):
        number, name = step.step_info.get("assistant_turn_index"), step.step_info.get("step_id")
        if type(number) is not int:
            text = f"`assistant_turn_index` of step {place} must be an int, got {shown(number)}"
            report.append(Misfit("step without a number", text, rollout_id))
            number = None
        if name is not None and not isinstance(name, str):
            text = f"`step_id` of step {place} must be a string, got {shown(name)}"
            report.append(Misfit("step id that is not text", text, rollout_id))
            name = None
        names.append((number, name))
    return places_of(names)
