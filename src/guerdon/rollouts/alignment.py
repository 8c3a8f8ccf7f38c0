"""`RLDataAligner`: puts the results of reward functions on recorded steps."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from guerdon._validation import as_score, check_choice, check_list, shown
from guerdon.errors import AlignmentError
from guerdon.rollouts.agents import acting_agents
from guerdon.rubrics.functions.placement import Misfit, place_outputs, places_of
from guerdon.types.agents import AGENT
from guerdon.types.evaluate_result import EvaluateResult, StepOutput
from guerdon.types.rollout import StepData

__all__ = [
    "AlignedBatch",
    "AlignedRollout",
    "AlignmentReport",
    "RLDataAligner",
]

logger = logging.getLogger(__name__)

# The result of a rollout: one, or one for each agent by name.
AnyResult: TypeAlias = EvaluateResult | Mapping[str, EvaluateResult]


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
        id: The rollout's id; for the part of an agent, a tuple of that and the agent.
        steps: Its steps, in order.
        score: Its final score; None if it has none.
        is_score_valid: Whether the score counts; credit assignment masks the rollout otherwise.
        group: The group of rollouts of the same task; None if unknown.
        error: Why the score doesn't count.
        agent: The agent whose steps these are; None in a rollout without agents.
        components: The scores that the score consists of, by name: the metrics of its result that
            are numbers. A component that is absent or NaN is unknown.
    """

    id: Hashable
    steps: list[StepData]
    score: float | None = None
    is_score_valid: bool = True
    group: Any = None
    error: str | None = None
    agent: str | None = None
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class AlignedBatch:
    """Rollouts whose steps have their base rewards, and what didn't fit.

    Example:
        >>> from guerdon.rollouts import AlignedBatch, AlignedRollout
        >>> batch = AlignedBatch([AlignedRollout("q7-0", [], score=1.0)])
        >>> batch["q7-0"].score, batch.final_scores, len(batch.report)
        (1.0, [1.0], 0)

    Attributes:
        rollouts: The rollouts, in the requested order. A rollout with several agents is split
            into one for each of them.
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
        step_index: What a number in `StepOutput.step_index` is: ``"assistant_turn"``, the number
            of the assistant turn; or ``"message"``, the index of its message in ``messages``.

    Raises:
        InvalidArgumentError: `step_index` is something else.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        score_failed: bool = False,
        step_index: Literal["assistant_turn", "message"] = "assistant_turn",
    ) -> None:
        self.strict = strict
        self.score_failed = score_failed
        self.step_index = check_choice("step_index", step_index, ("assistant_turn", "message"))

    def align_data_for_rl_processing(
        self,
        eval_results_from_sandbox: EvaluateResult | Sequence[AnyResult | None],
        raw_rollout_step_data_map: Mapping[Any, Sequence[StepData]],
        rollout_ids_in_order: Sequence[Any],
    ) -> AlignedBatch:
        """Set the base reward of each step that a result names.

        A step is named by the number of its assistant turn, which is its
        ``step_info["assistant_turn_index"]``, or by its ``step_info["step_id"]``. With
        ``step_index="message"``, the number is that of the turn's message in the longest
        ``resulting_messages_history`` of the steps. A step that no result names keeps its base
        reward. The arguments are not changed: the returned steps are shallow copies. If anything
        doesn't fit, a warning with the counts is logged.

        A rollout whose steps name their agents, in ``step_info["agent"]``, is split into one for
        each agent, whose id is ``(rollout id, agent)``.

        Args:
            eval_results_from_sandbox: One result for each rollout, or the result of one rollout.
                That of a rollout with agents may be a mapping from agents to results, such as that
                of `agent_results`; otherwise its score is that of all of them.
            raw_rollout_step_data_map: The recorded steps of each rollout, by its id.
            rollout_ids_in_order: The ids, in the order of the results.

        Raises:
            AlignmentError: An argument is invalid; a step names no agent and the first one of
                its rollout does; a rollout has agents and `step_index` is ``"message"``; or
                something didn't fit and the aligner is strict, with all misfits as ``problems``.
        """
        if isinstance(eval_results_from_sandbox, EvaluateResult):
            eval_results_from_sandbox = [eval_results_from_sandbox]
        results = check_list(
            "eval_results_from_sandbox", eval_results_from_sandbox, error=AlignmentError
        )
        ids = check_list("rollout_ids_in_order", rollout_ids_in_order, error=AlignmentError)
        _check_steps(raw_rollout_step_data_map)
        report = AlignmentReport()
        aligned: dict[Any, list[AlignedRollout]] = {}
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
            aligned[rollout_id] = self._of_agents(rollout_id, steps, result, report)
            if not self.score_failed:
                _mask_failed(aligned[rollout_id], steps or (), report)
        _report_unmatched(results, ids, raw_rollout_step_data_map, report)
        if report and self.strict:
            raise AlignmentError(f"{len(report)} things don't fit:\n{report}", problems=report)
        if report:
            counts = ", ".join(f"{kind} ({count})" for kind, count in report.counts().items())
            logger.warning("results and recorded steps don't fit: %s; see the report", counts)
        return AlignedBatch([each for parts in aligned.values() for each in parts], report)

    def _of_agents(
        self,
        rollout_id: Any,
        steps: Sequence[StepData] | None,
        result: Any,
        report: AlignmentReport,
    ) -> list[AlignedRollout]:
        """Return one rollout for each agent, or a rollout without agents."""
        if not steps or AGENT not in steps[0].step_info:
            return [self._aligned(rollout_id, steps, result, report)]
        if self.step_index == "message":
            raise AlignmentError(
                f"rollout {shown(rollout_id)} has agents, each of which sees messages of its own: "
                "its results must number the assistant turns"
            )
        agents = acting_agents(steps)
        parts: dict[str, AlignedRollout] = {}
        if isinstance(result, Mapping):
            for agent in dict.fromkeys((*agents, *result)):
                own = [step for step, name in zip(steps, agents, strict=True) if name == agent]
                name = (rollout_id, agent)
                if own:
                    parts[agent] = self._aligned(name, own, result.get(agent), report)
                else:
                    report.append(Misfit("no recorded steps", "the agent took no step", name))
            for agent, part in parts.items():
                part.agent = agent
            return list(parts.values())
        return split_by_agent(self._aligned(rollout_id, steps, result, report))

    def _aligned(
        self,
        rollout_id: Any,
        steps: Sequence[StepData] | None,
        result: Any,
        report: AlignmentReport,
    ) -> AlignedRollout:
        if steps is None:
            report.append(Misfit("no recorded steps", "it has no recorded steps", rollout_id))
        copies = [step.model_copy() for step in steps or ()]
        messages = _assistant_messages(copies)
        by_message = self.step_index == "message"
        places = _places(copies, rollout_id, report, messages=messages if by_message else None)
        group = copies[0].step_info.get("group") if copies else None
        if not isinstance(result, EvaluateResult):
            given = "" if result is None else f": got {shown(result)}, not an EvaluateResult"
            text = f"it has no result{given}"
            report.append(Misfit("no result", text, rollout_id))
            return AlignedRollout(rollout_id, copies, None, False, group, text)
        if steps is not None:
            outputs = result.step_outputs or []
            if by_message:
                placed, misfits = place_outputs(outputs, places, counted="message")
            else:
                placed, misfits = _place_turns(outputs, places, messages)
            report.extend(replace(misfit, rollout=rollout_id) for misfit in misfits)
            for place, output in placed.items():
                copies[place].base_reward = output.base_reward
        aligned = AlignedRollout(rollout_id, copies, result.score, result.is_score_valid, group)
        numbers = {name: as_score(value) for name, value in result.metrics.items()}
        aligned.components = {name: one for name, one in numbers.items() if one is not None}
        if not result.is_score_valid:
            aligned.error = result.error or result.reason or "it was marked invalid"
        return aligned


def split_by_agent(rollout: AlignedRollout) -> list[AlignedRollout]:
    """Return a rollout for each agent, with the score of the whole; itself if there are none.

    Raises:
        AlignmentError: A step names no agent, and the first one does.
    """
    if not rollout.steps or AGENT not in rollout.steps[0].step_info:
        return [rollout]
    parts: dict[str, AlignedRollout] = {}
    for step, agent in zip(rollout.steps, acting_agents(rollout.steps), strict=True):
        if agent not in parts:
            parts[agent] = replace(rollout, id=(rollout.id, agent), steps=[], agent=agent)
        parts[agent].steps.append(step)
    return list(parts.values())


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


def _mask_failed(
    parts: Sequence[AlignedRollout], steps: Sequence[StepData], report: AlignmentReport
) -> None:
    """Mask the scores of an episode that failed: the episode is not complete."""
    errors = (step.step_info.get(name) for step in steps for name in ("error", "episode_error"))
    error = next(filter(None, errors), None)
    if error is None:
        return
    for rollout in parts:
        if rollout.is_score_valid:
            rollout.is_score_valid = False
            rollout.error = f"the episode ended with an error: {error}"
            report.append(
                Misfit("failed episode", f"its score doesn't count: {rollout.error}", rollout.id)
            )


def _assistant_messages(steps: Sequence[StepData]) -> list[int]:
    """Return the index of each assistant turn's message in the conversation."""
    longest = max((step.resulting_messages_history for step in steps), key=len, default=[])
    return [index for index, message in enumerate(longest) if message.role == "assistant"]


def _place_turns(
    outputs: Sequence[StepOutput], places: Mapping[int | str, int | None], messages: Sequence[int]
) -> tuple[dict[int, StepOutput], list[Misfit]]:
    """Find the steps of outputs by turn; outputs with indices of messages are misfits.

    If one index can only be a message's, and the others may be, too, none is taken for a turn.
    """
    turns: dict[int | str, int] = {index: turn for turn, index in enumerate(messages)}
    numbers: set[int | str] = {
        each.step_index for each in outputs if isinstance(each.step_index, int)
    }
    of_messages = numbers.intersection(turns) - places.keys() - set(turns.values())
    if of_messages and numbers <= turns.keys():
        of_messages = numbers
    placed, misfits = place_outputs(
        (each for each in outputs if each.step_index not in of_messages), places
    )
    for index in (each.step_index for each in outputs if each.step_index in of_messages):
        text = (
            f"step {index} is the index of a message, that of turn {turns[index]}; write the "
            "number of the turn, or use RLDataAligner(step_index='message')"
        )
        misfits.append(Misfit("message index", text, step_index=index))
    return placed, misfits


def _places(
    steps: Sequence[StepData],
    rollout_id: Any,
    report: AlignmentReport,
    *,
    messages: Sequence[int] | None,
) -> dict[int | str, int | None]:
    """Return the places of steps by their turns, or by the indices of their messages."""
    names: list[tuple[int | None, str | None]] = []
    for place, step in enumerate(steps):
        number, name = step.step_info.get("assistant_turn_index"), step.step_info.get("step_id")
        if type(number) is not int:
            text = f"`assistant_turn_index` of step {place} must be an int, got {shown(number)}"
            report.append(Misfit("step without a number", text, rollout_id))
            number = None
        elif messages is not None and 0 <= number < len(messages):
            number = messages[number]
        elif messages is not None:
            text = f"step {place}: the recorded conversation has no assistant turn {number}"
            report.append(Misfit("step without a number", text, rollout_id))
            number = None
        if name is not None and not isinstance(name, str):
            text = f"`step_id` of step {place} must be a string, got {shown(name)}"
            report.append(Misfit("step id that is not text", text, rollout_id))
            name = None
        names.append((number, name))
    return places_of(names)
