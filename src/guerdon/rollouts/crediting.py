"""Assigning credit to aligned rollouts and to result rows: one advantage for each step."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from guerdon._loading import load_object
from guerdon._validation import check_list, shown
from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.rollouts.alignment import AlignedBatch, AlignedRollout, split_by_agent
from guerdon.rollouts.json_forms import group_key
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rubrics.failure import describe_failure
from guerdon.types.agents import AGENT
from guerdon.types.message import Message, read_messages
from guerdon.types.rollout import Rollout, StepData

if TYPE_CHECKING:
    from guerdon.credit import Credit, StepBatch

__all__ = ["CreditSettings", "apply_credit", "system_apply_gigpo_to_batch_steps"]

StateKey: TypeAlias = Callable[[StepData], Any]


def apply_credit(
    batch: AlignedBatch | Sequence[AlignedRollout],
    method: str = "gigpo",
    *,
    state_key: str | StateKey = "last",
    action_key: StateKey | None = None,
    group: Callable[[AlignedRollout], Any] | Mapping[Any, Any] | None = None,
    default_step_reward: float = 0.0,
    **options: Any,
) -> Credit:
    """Set `advantage` and `return_to_go` of every step of a batch.

    `return_to_go` is the method's ``returns``: the discounted sum of the rewards from the step on,
    except for ``pure`` (the lowest of them) and ``gae`` (the advantage plus the value).

    A rollout whose score isn't valid takes part in no statistic, and its steps keep None. If the
    batch is rejected, no step is changed.

    Example:
        >>> from guerdon import StepData, apply_credit
        >>> from guerdon.rollouts import AlignedRollout
        >>> def rollout(name, score):
        ...     steps = [StepData(system_step_index=i, step_info={"assistant_turn_index": i})
        ...              for i in range(2)]
        ...     return AlignedRollout(name, steps, score=score)
        >>> won, lost = rollout("q7-0", 1.0), rollout("q7-1", 0.0)
        >>> credit = apply_credit([won, lost], "grpo", normalize="mean")
        >>> [step.advantage for step in won.steps + lost.steps]
        [0.5, 0.5, -0.5, -0.5]

    Args:
        batch: The result of the aligner, or a list of rollouts.
        method: The name of an estimator: ``gigpo``, ``grpo``, ``rloo``…, or one that is registered
            with `guerdon.credit.estimator`.
        state_key: What makes two steps the same state, for estimators that compare states:
            ``last``, ``last-K``, ``history``, or a function of a `StepData`.
        action_key: What makes two steps the same action, for estimators that compare actions: a
            function of a `StepData`. None takes the calls of an assistant message, or its text if
            it calls nothing, and otherwise the step's ``action_taken``.
        group: The group of each rollout: a function of it, or a mapping by its id. None takes
            `AlignedRollout.group`; if no rollout has one, all are one group. With several agents,
            each is compared with itself alone: a group contains the rollouts of one agent.
        default_step_reward: The reward of a step without one.
        **options: The estimator's options, such as ``gamma`` and ``omega``.

    Returns:
        The credit of all steps, rollout by rollout, with its diagnostics.

    Raises:
        InvalidArgumentError: There is no such method, option or state key.
        CreditError: The batch is contradictory; `CreditError.rows` counts over all steps.
    """
    if isinstance(batch, AlignedBatch):
        batch = batch.rollouts
    rollouts = check_list("batch", batch, error=CreditError)
    _check(rollouts)
    estimator = _estimator(method, options)
    groups = [
        _hashable(own) if rollout.agent is None else (_hashable(own), rollout.agent)
        for rollout, own in zip(rollouts, _groups(rollouts, group), strict=True)
    ]
    rows = [
        (rollout, own, step)
        for rollout, own in zip(rollouts, groups, strict=True)
        for step in rollout.steps
    ]
    keys = {"state": as_state_key(state_key), "action": action_key or own_action}
    steps = _step_batch(rows, keys, getattr(estimator, "needs", ()), default_step_reward)
    credit = estimator(steps, **options)
    numbers = zip(credit.advantage.tolist(), credit.returns.tolist(), credit.mask, strict=True)
    for (_, _, step), (advantage, return_to_go, counts) in zip(rows, numbers, strict=True):
        step.advantage = advantage if counts else None
        step.return_to_go = return_to_go if counts else None
    return _with_note(credit, rollouts)


def system_apply_gigpo_to_batch_steps(
    batch_of_step_data_lists: Sequence[Sequence[StepData]],
    final_scores_for_rollouts: Sequence[float | None],
    omega: float = 1.0,
    gamma: float = 1.0,
    state_hashing_function: StateKey | str = "last",
    default_step_reward: float = 0.0,
) -> list[list[StepData]]:
    """Set `advantage` and `return_to_go` on lists of steps by GiGPO.

    Example:
        >>> from guerdon import StepData
        >>> from guerdon.rollouts import system_apply_gigpo_to_batch_steps
        >>> batch = [[StepData(system_step_index=0, observation_data="start", base_reward=r)]
        ...          for r in (1.0, 0.0)]
        >>> steps = system_apply_gigpo_to_batch_steps(
        ...     batch, [1.0, 0.0], state_hashing_function=lambda step: step.observation_data)
        >>> [round(each[0].advantage, 3) for each in steps]
        [1.414, -1.414]

    Args:
        batch_of_step_data_lists: The steps of each rollout. They are one group, unless each first
            step has its own in ``step_info["group"]``; with several agents, the steps of each are
            a list of their own.
        final_scores_for_rollouts: The score of each rollout; None if it isn't valid.
        omega: The weight of the step advantages.
        gamma: The discount, in [0, 1].
        state_hashing_function: What makes two steps the same state; see `apply_credit`.
        default_step_reward: The reward of a step without one.

    Returns:
        The same steps.

    Raises:
        CreditError: The batch is contradictory, or there isn't one score for each rollout.
    """
    name, error = "batch_of_step_data_lists", CreditError
    lists = [
        check_list(f"{name}[{place}]", steps, error=error)
        for place, steps in enumerate(check_list(name, batch_of_step_data_lists, error=error))
    ]
    scores = check_list("final_scores_for_rollouts", final_scores_for_rollouts, error=error)
    if len(scores) != len(lists):
        raise CreditError(
            f"`final_scores_for_rollouts` must have one score for each of {len(lists)} rollouts, "
            f"got {len(scores)}"
        )
    rollouts = [
        AlignedRollout(
            number,
            steps,
            score,
            score is not None,
            _named(steps, "group"),
            agent=_named(steps, AGENT),
        )
        for number, (steps, score) in enumerate(zip(lists, scores, strict=True))
    ]
    apply_credit(
        rollouts,
        state_key=state_hashing_function,
        omega=omega,
        gamma=gamma,
        default_step_reward=default_step_reward,
    )
    return lists


def _named(steps: Sequence[Any], key: str) -> Any:
    """The group or the agent that the first step names, if it is a step."""
    return getattr(steps[0], "step_info", {}).get(key) if steps else None


def _estimator(method: str, options: Mapping[str, Any]) -> Callable[..., Credit]:
    """The estimator of that name, which must accept these options."""
    from guerdon.credit import ESTIMATORS

    estimator = ESTIMATORS[method]
    _, *known = inspect.signature(estimator).parameters.values()
    accepted = [*(each.name for each in known), "default_step_reward"]
    for name in options:
        if name not in accepted:
            raise InvalidArgumentError(
                f"{method} has no option {name!r}; it has {', '.join(accepted)}"
            )
    for each in known:
        if each.default is each.empty and each.name not in options:
            raise InvalidArgumentError(f"{method} requires the option {each.name!r}")
    return estimator


def _groups(
    rollouts: Sequence[AlignedRollout],
    group: Callable[[AlignedRollout], Any] | Mapping[Any, Any] | None,
) -> list[Any]:
    if isinstance(group, Mapping):
        missing = [rollout.id for rollout in rollouts if rollout.id not in group]
        if missing:
            raise CreditError(f"`group` lacks the rollouts {missing[:5]}")
        return [group[rollout.id] for rollout in rollouts]
    if callable(group):
        return [group(rollout) for rollout in rollouts]
    if group is not None:
        raise InvalidArgumentError(
            f"`group` must be a mapping by id or a function of a rollout, got {shown(group)}"
        )
    groups = {rollout.id: rollout.group for rollout in rollouts if rollout.steps}
    without = [name for name, own in groups.items() if own is None]
    if 0 < len(without) < len(groups):
        raise CreditError(
            f"the rollouts {without[:5]} have no group and others do; set `group` on all of them "
            "or on none (step_info['group'], or apply_credit(group=…))"
        )
    return [rollout.group for rollout in rollouts]


def _step_batch(
    rows: Sequence[tuple[AlignedRollout, Hashable, StepData]],
    keys: Mapping[str, StateKey],
    needs: Collection[str],
    default_step_reward: float,
) -> StepBatch:
    """The batch of all steps, each with its rollout and its group."""
    from guerdon.credit import StepBatch

    rewards: list[Any] = [step.base_reward for _, _, step in rows]
    needed: dict[str, Any] = {
        name: [_state(key, rollout, step, name) for rollout, _, step in rows]
        for name, key in keys.items()
        if name in needs
    }
    if "values" in needs:
        needed["values"] = [step.policy_value_estimate for _, _, step in rows]
    if "components" in needs:
        names = dict.fromkeys(name for rollout, _, _ in rows for name in rollout.components)
        needed["components"] = {
            name: [rollout.components.get(name) for rollout, _, _ in rows] for name in names
        }
    return StepBatch.from_arrays(
        rewards=rewards,
        trajectory=[rollout.id for rollout, _, _ in rows],
        step=[step.system_step_index for _, _, step in rows],
        group=[group for _, group, _ in rows],
        episode_score=[rollout.score for rollout, _, _ in rows],
        valid=[rollout.is_score_valid for rollout, _, _ in rows],
        default_step_reward=default_step_reward,
        **needed,
    )


def _hashable(group: Any) -> Hashable:
    try:
        hash(group)
    except TypeError:
        return (group_key(group),)
    return group  # type: ignore[no-any-return]


def _with_note(credit: Credit, rollouts: Sequence[AlignedRollout]) -> Credit:
    """Add a note about rollouts without steps, which no other rollout is compared with."""
    empty = [rollout.id for rollout in rollouts if rollout.is_score_valid and not rollout.steps]
    if not empty:
        return credit
    note = f"Rollouts without steps, whose scores are compared with no other: {empty[:5]}."
    diagnostics = replace(credit.diagnostics, notes=(*credit.diagnostics.notes, note))
    return replace(credit, diagnostics=diagnostics)


def _check(rollouts: Sequence[Any]) -> None:
    """Reject what is not a rollout, and steps that appear twice: a step has one advantage."""
    ids: set[Any] = set()
    owners: dict[int, Any] = {}
    for place, rollout in enumerate(rollouts):
        if not isinstance(rollout, AlignedRollout) or not isinstance(rollout.steps, list):
            raise CreditError(
                f"batch[{place}] must be an AlignedRollout, got {shown(rollout)}; lists of steps "
                "go to system_apply_gigpo_to_batch_steps"
            )
        if not isinstance(rollout.id, Hashable) or rollout.id in ids:
            raise CreditError(
                f"the id of batch[{place}] must be hashable and unique, got {shown(rollout.id)}"
            )
        ids.add(rollout.id)
        if rollout.is_score_valid and rollout.score is None:
            raise CreditError(f"rollout {rollout.id!r} is marked valid and has no score")
        for step in rollout.steps:
            if not isinstance(step, StepData):
                raise CreditError(
                    f"the steps of rollout {rollout.id!r} must be StepData, got {shown(step)}"
                )
            if id(step) in owners:
                raise CreditError(
                    f"a step of rollout {rollout.id!r} is the same object as one of "
                    f"{owners[id(step)]!r}, and a step has one advantage; copy the steps"
                )
            owners[id(step)] = rollout.id
            if step.step_info.get(AGENT) != rollout.agent:
                raise CreditError(
                    f"rollout {rollout.id!r} has the agent {rollout.agent!r} and a step of "
                    f"{step.step_info.get(AGENT)!r}; RLDataAligner splits an episode into one "
                    "rollout for each agent"
                )


def _state(key: StateKey, rollout: AlignedRollout, step: StepData, what: str) -> Any:
    where = f"step {step.system_step_index} of rollout {rollout.id!r}"
    try:
        return key(step)
    except CreditError as error:
        raise CreditError(f"{where}: {error}") from None
    except Exception as error:
        raise CreditError(
            f"the {what} key raised {type(error).__name__}: {error}, at {where}"
        ) from error


# States ------------------------------------------------------------------------------------------


def as_state_key(name: str | StateKey) -> StateKey:
    """Return the state key of that name; a function is returned unchanged.

    Example:
        >>> from guerdon import Message, StepData
        >>> step = StepData(system_step_index=0, step_info={"assistant_turn_index": 0},
        ...     resulting_messages_history=[Message(role="user", content="6 × 7?"),
        ...                                 Message(role="assistant", content="42")])
        >>> as_state_key("last")(step)
        (('user', '6 × 7?'),)

    Args:
        name: ``last``, the last message before the step that isn't the assistant's; ``last-3``,
            the last three of these; ``history``, all messages before the step, including the
            assistant's; or a function of a `StepData`.

    Raises:
        InvalidArgumentError: There is no such state key.
    """
    if callable(name):
        return name
    if name == "history":
        return whole_history
    found = re.fullmatch("last(?:-([1-9][0-9]{0,8}))?", name) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgumentError(
            "`state_key` must be 'last', 'last-K' (such as 'last-3'), 'history' or a function of "
            f"a step, got {shown(name)}"
        )
    return last_messages(int(found[1] or 1))


def last_messages(count: int) -> StateKey:
    """Return a key of the last messages before a step that aren't the assistant's.

    Results of several tool calls of one turn count as one message. Ids of calls are left out: they
    differ in each rollout.

    Args:
        count: How many, at least 1.
    """

    def key(step: StepData) -> Hashable:
        history, place = step.resulting_messages_history, _own_turn(step)
        messages: list[tuple[str, Hashable]] = []
        counted, after = 0, ""
        for each in reversed(history[:place]):  # most of a long history is never read
            if each.role != "assistant":
                counted += not (each.role == "tool" == after)
                if counted > count:
                    break
                messages.append((each.role, _content(each)))
            after = each.role
        return tuple(reversed(messages))

    return key


def own_action(step: StepData) -> Any:
    """Return the calls of the step's assistant message, its text, or its structured action.

    Ids of calls are left out.

    Raises:
        CreditError: The step has no action.
    """
    taken = step.action_taken
    if taken is None:
        raise CreditError("it has no `action_taken` to compare; pass an `action_key` function")
    if isinstance(taken, dict) and taken.get("role") == "assistant":
        [message] = read_messages([taken])
        return _calls(message) or _content(message)
    return taken


def whole_history(step: StepData) -> Hashable:
    """Return all messages before the step, with the names and arguments of tool calls."""
    before = step.resulting_messages_history[: _own_turn(step)]
    return tuple((each.role, _content(each), _calls(each)) for each in before)


def _own_turn(step: StepData) -> int:
    """The index of the step's own assistant turn in its messages; their number if it has none.

    Raises:
        CreditError: The step has no messages.
    """
    history = step.resulting_messages_history
    if not history:
        raise CreditError(
            "it has no messages to compare; pass a `state_key` function, such as "
            "lambda step: step.observation_data"
        )
    roles = [each.role for each in history]
    turns = roles.count("assistant")
    number = step.step_info.get("assistant_turn_index")
    if type(number) is int and 0 <= number < turns - 1:  # the conversation went on
        return [place for place, role in enumerate(roles) if role == "assistant"][number]
    # The step's own turn is the last, also in a history whose beginning was cut off.
    return len(roles) - 1 - roles[::-1].index("assistant") if turns else len(roles)


def _content(message: Message) -> Hashable:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return ("parts", json.dumps(content, sort_keys=True))


def _calls(message: Message) -> tuple[tuple[str, str], ...]:
    functions = [call.get("function") for call in message.tool_calls or ()]
    return tuple(
        (str(each.get("name")), str(each.get("arguments")))
        if isinstance(each, dict)
        else ("", repr(each))
        for each in functions
    )


# Result rows -------------------------------------------------------------------------------------


# Estimators that require what a file of rollouts doesn't have.
_NOT_OF_FILES = {
    "gae": "requires the value estimates of the policy, which recorded conversations don't have",
    "reinforce_pp": "compares with the whole batch, but a file is scored a group at a time",
}


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """How credit is assigned.

    Example:
        >>> CreditSettings("gigpo", options={"gamma": 0.95}).state_key
        'last'

    Attributes:
        method: The name of an estimator of `guerdon.credit`.
        state_key: What makes two steps the same state: ``last``, ``last-K``, ``history``, or
            ``file.py:function``.
        options: The options of the estimator, such as ``gamma``.
    """

    method: str
    state_key: str = "last"
    options: Mapping[str, Any] = field(default_factory=dict)


class RowCredit:
    """Assigns credit to the rows of a group.

    Args:
        settings: How credit is assigned.
        weights: The weights of the reward's components; the option ``weights`` of an estimator
            that reads components overrides them.

    Raises:
        InvalidArgumentError: There is no such estimator, option or state key.
        LoadError: The function of the state key can't be loaded.
    """

    def __init__(
        self, settings: CreditSettings, *, weights: Mapping[str, float] | None = None
    ) -> None:
        from guerdon.credit import ESTIMATORS

        self.settings = settings
        if settings.method in _NOT_OF_FILES:
            raise InvalidArgumentError(
                f"{settings.method} {_NOT_OF_FILES[settings.method]}; call "
                "guerdon.apply_credit(…) in the trainer instead"
            )
        self._key: StateKey | str = settings.state_key
        if ":" in settings.state_key:
            self._key = load_object(settings.state_key)
        self._options = dict(settings.options)
        self._reads_components = "components" in getattr(ESTIMATORS[settings.method], "needs", ())
        if self._reads_components and weights:
            self._options.setdefault("weights", dict(weights))
        # Check the settings before anything is scored.
        _estimator(settings.method, self._options)
        apply_credit([], settings.method, state_key=self._key, **self._options)
        if settings.method == "gdpo" and self._options.get("normalize_batch", True):
            raise InvalidArgumentError(
                "gdpo normalizes over the whole batch, but a file is scored a group at a time; use "
                "normalize_batch=false here, or call guerdon.apply_credit(…) in the trainer"
            )

    @property
    def identity(self) -> list[Any]:
        """What a fingerprint covers."""
        return [self.settings.method, self._key, dict(self.settings.options)]

    def add(self, scored: Sequence[tuple[Rollout, ResultRow]]) -> None:
        """Add advantages to the rows of one group; failures are reported in their notes."""
        aligned = [_aligned(*pair, place) for place, pair in enumerate(scored)]
        rows = [row for _, row in scored]
        try:
            if self._reads_components:
                for rollout, row in zip(aligned, rows, strict=True):
                    rollout.components = self._components(row)
            parts = [part for rollout in aligned for part in split_by_agent(rollout)]
            credit = apply_credit(
                parts,
                self.settings.method,
                state_key=self._key,
                group=lambda rollout: "",
                **self._options,
            )
        except Exception as error:  # a user's state key may raise anything
            for row in rows:
                row.setdefault("notes", []).append(f"no credit: {describe_failure(error)}")
            return
        steps = [id(step) for part in parts for step in part.steps]
        anchors = dict(zip(steps, credit.anchor.tolist(), strict=True))
        missing = list(_missing_components(aligned))
        ids = Counter(str(row["id"]) for row in rows)
        for rollout, row in zip(aligned, rows, strict=True):
            row["steps"] = list(_steps(rollout, row, anchors))
            row.setdefault("notes", []).extend([*self._notes(row, credit), *missing])
            if ids[str(row["id"])] > 1 and row["id"] is not None:
                row["notes"].append("another rollout of its group has the same id")

    def _components(self, row: ResultRow) -> dict[str, float]:
        """The components of a rollout; NaN where it lacks one that has a weight."""
        found = row["components"] if row["is_score_valid"] else {}
        names = list(self._options.get("weights", found))
        return {name: found.get(name, math.nan) for name in names}

    def _notes(self, row: ResultRow, credit: Credit) -> Iterator[str]:
        if self.settings.method == "pure":  # which compares with nothing
            return
        if row["group"] is None:
            yield "it has no group, so that nothing compares with it"
        elif credit.diagnostics.singletons:
            yield "its group has no other valid score, so that nothing compares with it"
        rewards = [reward for reward in row["step_rewards"] or () if reward is not None]
        if rewards and row["score"] and not any(rewards):
            yield "all its base rewards are 0, so that no return contains its score"


def _missing_components(rollouts: Sequence[AlignedRollout]) -> Iterator[str]:
    for name in dict.fromkeys(name for each in rollouts for name in each.components):
        if all(math.isnan(each.components.get(name, math.nan)) for each in rollouts):
            yield f"no rollout of its group has the component {name!r}, which has a weight"


def _aligned(rollout: Rollout, row: ResultRow, place: int) -> AlignedRollout:
    steps = rollout.to_step_data()
    for step, reward in zip(steps, row["step_rewards"] or (), strict=False):
        step.base_reward = reward
    return AlignedRollout(place, steps, row["score"], row["is_score_valid"])


def _steps(
    rollout: AlignedRollout, row: ResultRow, anchors: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """The steps of a row with their advantages, and what the reward returned about them."""
    outputs = {each["step_index"]: each for each in row.get("steps", ())}
    for step in rollout.steps:
        turn = step.step_info["assistant_turn_index"]
        data = {
            "step_index": turn,
            "base_reward": step.base_reward,
            "advantage": step.advantage,
            "return_to_go": step.return_to_go,
        }
        anchor = anchors[id(step)]
        if anchor >= 0:
            data["anchor"] = anchor
        output = outputs.get(turn, {})
        yield data | {name: output[name] for name in ("reason", "metrics") if name in output}
