"""`RLDataAligner`: what reward functions said about steps, put on the recorded steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.errors import AlignmentError
from guerdon.rubrics.functions.placement import Misfit, place_outputs, places_of
from guerdon.types.evaluate_result import EvaluateResult
from guerdon.types.step_data import StepData

__all__ = [
    "AlignedBatch",
    "AlignedRollout",
    "AlignmentReport",
    "RLDataAligner",
]

# Where a step says that its episode failed.
_FAILURES = ("error", "episode_error")


@dataclass(frozen=True, slots=True)
class AlignmentReport:
    """Everything that didn't fit when results were put on steps.

    Example:
        >>> report = AlignmentReport([Misfit("no result", "it has no result", rollout="q7-0")])
        >>> bool(report), len(report), report.counts()
        (True, 1, {'no result': 1})
        >>> print(report)
        rollout 'q7-0': it has no result

    Attributes:
        misfits: A line for each; empty where all fitted. The report is true where there are any.
    """

    misfits: list[Misfit] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How many there are of each kind."""
        return dict(Counter(misfit.problem for misfit in self.misfits))

    def __len__(self) -> int:
        return len(self.misfits)

    def __iter__(self) -> Iterator[Misfit]:
        return iter(self.misfits)

    def __str__(self) -> str:
        return "\n".join(map(str, self.misfits)) or "everything fitted"


@dataclass(slots=True)
class AlignedRollout:
    """A rollout whose steps have their base rewards.

    Example:
        >>> AlignedRollout("q7-0", [], score=1.0).is_score_valid
        True

    Attributes:
        id: The rollout's id.
        steps: Its steps, in order.
        score: Its final score; None where there is none.
        is_score_valid: Whether the score counts; credit masks the rollout where it doesn't.
        group: What it shares with the others of its task; None where nobody said.
        error: Why the score doesn't count, in words.
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
        >>> batch = AlignedBatch([AlignedRollout("q7-0", [], score=1.0)])
        >>> batch["q7-0"].score, batch.final_scores, len(batch.report)
        (1.0, [1.0], 0)

    Attributes:
        rollouts: The rollouts, in the order that was asked for.
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
        """The valid score of each rollout; None where there is none."""
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
    """Puts what a reward function said about steps on the recorded steps.

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
        strict: Whether to raise where anything doesn't fit.
        score_failed: Whether the score of an episode that failed counts; else it doesn't, and the
            report says so.
    """

    def __init__(self, *, strict: bool = False, score_failed: bool = False) -> None:
        self.strict = strict
        self.score_failed = score_failed

    def align_data_for_rl_processing(
        self,
        eval_results_from_sandbox: EvaluateResult | Sequence[EvaluateResult | None],
        raw_rollout_step_data_map: Mapping[Any, Sequence[StepData]],
        rollout_ids_in_order: Sequence[Any],
        *,
        strict: bool | None = None,
    ) -> AlignedBatch:
        """Set the base reward of each step that a result says something of.

        A step is named by the number of its assistant turn, which is its
        ``step_info["assistant_turn_index"]``, or by its ``step_info["step_id"]``. A step that no
        result names keeps the base reward that it has. Nothing that was given is changed: the
        steps are copies, though what they hold is shared.

        Args:
            eval_results_from_sandbox: One result for each rollout; a single one for a single
                rollout.
            raw_rollout_step_data_map: The recorded steps of each rollout, by its id.
            rollout_ids_in_order: The ids, in the order of the results.
            strict: Whether to raise where anything doesn't fit; None does as the aligner does.

        Raises:
            AlignmentError: Something didn't fit, and it should be strict; all of it is told. Or
                an argument is none.
        """
        results = _listed(eval_results_from_sandbox, "eval_results_from_sandbox")
        ids = _listed(rollout_ids_in_order, "rollout_ids_in_order")
        _check_map(raw_rollout_step_data_map, ids)
        misfits: list[Misfit] = []
        rollouts = []
        seen: set[Any] = set()
        for place, rollout_id in enumerate(ids):
            if rollout_id in seen:
                misfits.append(
                    Misfit("rollout asked for twice", "it is asked for twice", rollout_id)
                )
                continue
            seen.add(rollout_id)
            steps = raw_rollout_step_data_map.get(rollout_id)
            result = results[place] if place < len(results) else None
            aligned = _aligned(rollout_id, steps, result, misfits)
            if not self.score_failed:
                _mask_failed(aligned, misfits)
            rollouts.append(aligned)
        misfits += _left_over(len(results), len(ids), seen, raw_rollout_step_data_map)
        report = AlignmentReport(misfits)
        if misfits and (self.strict if strict is None else strict):
            raise AlignmentError(f"{len(misfits)} things don't fit:\n{report}", problems=misfits)
        return AlignedBatch(rollouts, report)


def _listed(given: Any, name: str) -> list[Any]:
    if isinstance(given, EvaluateResult):
        return [given]
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise AlignmentError(f"{name} is {given!r:.60}; it takes a list with one for each rollout")
    return list(given)


def _check_map(steps: Any, ids: list[Any]) -> None:
    if not isinstance(steps, Mapping):
        raise AlignmentError(
            f"raw_rollout_step_data_map is {steps!r:.60}; it takes a mapping from ids to steps"
        )
    for rollout_id in ids:
        try:
            hash(rollout_id)
        except TypeError:
            raise AlignmentError(
                f"rollout_ids_in_order has {rollout_id!r:.60}; an id is a text or a number"
            ) from None
    for rollout_id, of in steps.items():
        if not isinstance(of, Sequence) or not all(isinstance(each, StepData) for each in of):
            raise AlignmentError(f"the steps of rollout {rollout_id!r} are no list of StepData")


def _aligned(
    rollout_id: Any,
    steps: Sequence[StepData] | None,
    result: Any,
    misfits: list[Misfit],
) -> AlignedRollout:
    if steps is None:
        misfits.append(Misfit("no recorded steps", "there are no recorded steps of it", rollout_id))
    copies = [step.model_copy() for step in steps or ()]
    places = _places(copies, rollout_id, misfits)
    if not isinstance(result, EvaluateResult):
        text = "it has no result" if result is None else f"{result!r:.60} is no EvaluateResult"
        misfits.append(Misfit("no result", text, rollout_id))
        return AlignedRollout(rollout_id, copies, None, False, _group(copies), text)
    if steps is not None:
        placed, wrong = place_outputs(result.step_outputs or (), places)
        misfits += [
            Misfit(misfit.problem, misfit.text, rollout_id, misfit.step_index) for misfit in wrong
        ]
        for place, output in placed.items():
            copies[place].base_reward = output.base_reward
    valid = result.is_score_valid
    why = None if valid else result.error or result.reason or "it was marked invalid"
    return AlignedRollout(rollout_id, copies, result.score, valid, _group(copies), why)


def _mask_failed(rollout: AlignedRollout, misfits: list[Misfit]) -> None:
    """Let the score of an episode that failed not count: it is that of a beginning."""
    told = (each.step_info.get(name) for each in rollout.steps for name in _FAILURES)
    failed = next((each for each in told if each), None)
    if failed is not None and rollout.is_score_valid:
        rollout.is_score_valid = False
        rollout.error = f"the episode ended with an error: {failed}"
        text = f"its score doesn't count: {rollout.error}"
        misfits.append(Misfit("failed episode", text, rollout.id))


def _places(
    steps: Sequence[StepData], rollout_id: Any, misfits: list[Misfit]
) -> dict[int | str, int | None]:
    names: list[tuple[int | None, str | None]] = []
    for place, step in enumerate(steps):
        number, name = step.step_info.get("assistant_turn_index"), step.step_info.get("step_id")
        if type(number) is not int:
            told = "has no" if number is None else f"has {number!r} as"
            text = f"step {place} of its record {told} assistant_turn_index; it takes an int"
            misfits.append(Misfit("step without a number", text, rollout_id))
        if name is not None and not isinstance(name, str):
            text = f"step {place} of its record has {name!r:.60} as step_id; it takes a text"
            misfits.append(Misfit("step id that is no text", text, rollout_id))
        known = isinstance(name, str)
        names.append((number if type(number) is int else None, name if known else None))
    return places_of(names)


def _group(steps: Sequence[StepData]) -> Any:
    return steps[0].step_info.get("group") if steps else None


def _left_over(
    results: int, rollouts: int, seen: set[Any], steps: Mapping[Any, Any]
) -> Iterator[Misfit]:
    for place in range(rollouts, results):
        text = f"result {place} has no rollout: there are {results} results for {rollouts}"
        yield Misfit("result without a rollout", text)
    for rollout_id in steps:
        if rollout_id not in seen:
            text = "it has recorded steps, and its id isn't among those asked for"
            yield Misfit("rollout not asked for", text, rollout_id)
