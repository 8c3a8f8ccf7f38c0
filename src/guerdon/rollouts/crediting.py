"""Assigning credit to aligned rollouts: one advantage for each step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, Any

from guerdon._validation import shown
from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.rollouts import keys
from guerdon.rollouts.alignment import AlignedBatch, AlignedRollout
from guerdon.types.step_data import StepData

if TYPE_CHECKING:
    from guerdon.credit import Credit

__all__ = ["apply_credit", "check_options", "system_apply_gigpo_to_batch_steps"]


def apply_credit(
    batch: AlignedBatch | Sequence[AlignedRollout],
    method: str = "gigpo",
    *,
    state_key: str | keys.StateKey = "last",
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
        group: The group of each rollout: a function of it, or a mapping by its id. None takes
            `AlignedRollout.group`; if no rollout has one, all are one group.
        default_step_reward: The reward of a step without one.
        **options: The estimator's options, such as ``gamma`` and ``omega``.

    Returns:
        The credit of all steps, rollout by rollout, with its diagnostics.

    Raises:
        InvalidArgumentError: There is no such method, option or state key.
        CreditError: The batch is contradictory; `CreditError.rows` counts over all steps.
    """
    from guerdon.credit import StepBatch

    rollouts = list(batch) if isinstance(batch, AlignedBatch) else _listed(batch, "batch")
    _check(rollouts)
    estimator = check_options(method, options)
    key = keys.state_key(state_key)
    needs = getattr(estimator, "needs", ())
    columns = _columns(rollouts, _groups(rollouts, group), key, needs)
    credit = estimator(
        StepBatch.from_arrays(**columns, default_step_reward=default_step_reward), **options
    )
    numbers = zip(credit.advantage.tolist(), credit.returns.tolist(), credit.mask, strict=True)
    for rollout in rollouts:
        for step in rollout.steps:
            advantage, return_to_go, counts = next(numbers)
            step.advantage = advantage if counts else None
            step.return_to_go = return_to_go if counts else None
    return _with_note(credit, rollouts)


def system_apply_gigpo_to_batch_steps(
    batch_of_step_data_lists: Sequence[Sequence[StepData]],
    final_scores_for_rollouts: Sequence[float | None],
    omega: float = 1.0,
    gamma: float = 1.0,
    state_hashing_function: keys.StateKey | str = "last",
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
            step has its own in ``step_info["group"]``.
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
    name = "batch_of_step_data_lists"
    lists = [
        _listed(steps, f"{name}[{place}]")
        for place, steps in enumerate(_listed(batch_of_step_data_lists, name))
    ]
    scores = _listed(final_scores_for_rollouts, "final_scores_for_rollouts")
    if len(scores) != len(lists):
        raise CreditError(
            f"`final_scores_for_rollouts` must have one score for each of {len(lists)} rollouts, "
            f"got {len(scores)}"
        )
    rollouts = [
        AlignedRollout(number, steps, score, score is not None)
        for number, (steps, score) in enumerate(zip(lists, scores, strict=True))
    ]
    _check(rollouts)
    for rollout in rollouts:
        rollout.group = rollout.steps[0].step_info.get("group") if rollout.steps else None
    apply_credit(
        rollouts,
        state_key=state_hashing_function,
        omega=omega,
        gamma=gamma,
        default_step_reward=default_step_reward,
    )
    return lists


def check_options(method: str, options: Mapping[str, Any]) -> Callable[..., Credit]:
    """Return the estimator of that name if it takes these options.

    Raises:
        InvalidArgumentError: There is no such estimator, or it takes no such option.
    """
    from guerdon.credit import ESTIMATORS

    estimator = ESTIMATORS[method]
    _, *takes = [*inspect.signature(estimator).parameters, "default_step_reward"]
    for name in options:
        if name not in takes:
            raise InvalidArgumentError(
                f"{method} has no option {name!r}; it has {', '.join(takes)}"
            )
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


def _columns(
    rollouts: Sequence[AlignedRollout], groups: Sequence[Any], key: keys.StateKey, needs: Any
) -> dict[str, list[Any]]:
    """The columns of a `StepBatch`, of all steps, rollout by rollout."""
    rows = [
        (rollout, _hashable(group), step)
        for rollout, group in zip(rollouts, groups, strict=True)
        for step in rollout.steps
    ]
    read: dict[str, Callable[[AlignedRollout, Any, StepData], Any]] = {
        "rewards": lambda rollout, group, step: step.base_reward,
        "trajectory": lambda rollout, group, step: rollout.id,
        "step": lambda rollout, group, step: step.system_step_index,
        "group": lambda rollout, group, step: group,
        "episode_score": lambda rollout, group, step: rollout.score,
        "valid": lambda rollout, group, step: rollout.is_score_valid,
        "state": lambda rollout, group, step: _key_of(key, step, rollout),
        "values": lambda rollout, group, step: step.policy_value_estimate,
    }
    unused = {"state", "values"} - {*needs}
    return {name: list(starmap(of, rows)) for name, of in read.items() if name not in unused}


def _hashable(group: Any) -> Hashable:
    try:
        hash(group)
    except TypeError:
        return (keys.group_key(group),)
    return group  # type: ignore[no-any-return]


def _with_note(credit: Credit, rollouts: Sequence[AlignedRollout]) -> Credit:
    """Add a note about rollouts without steps, which no other rollout is compared with."""
    empty = [rollout.id for rollout in rollouts if rollout.is_score_valid and not rollout.steps]
    if not empty:
        return credit
    note = f"Rollouts without steps, whose scores are compared with no other: {empty[:5]}."
    diagnostics = replace(credit.diagnostics, notes=(*credit.diagnostics.notes, note))
    return replace(credit, diagnostics=diagnostics)


def _listed(given: Any, name: str) -> list[Any]:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise CreditError(f"`{name}` must be a list, got {shown(given)}")
    return list(given)


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
            problem = "is repeated" if isinstance(rollout.id, Hashable) else "is not hashable"
            raise CreditError(f"the id {shown(rollout.id)} of batch[{place}] {problem}")
        ids.add(rollout.id)
        if rollout.is_score_valid and rollout.score is None:
            raise CreditError(f"rollout {rollout.id!r} is marked valid and has no score")
        _check_steps(rollout, owners)


def _check_steps(rollout: AlignedRollout, owners: dict[int, Any]) -> None:
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


def _key_of(key: keys.StateKey, step: StepData, rollout: AlignedRollout) -> Any:
    where = f"step {step.system_step_index} of rollout {rollout.id!r}"
    try:
        return key(step)
    except CreditError as error:
        raise CreditError(f"{where}: {error}") from None
    except Exception as error:
        raise CreditError(
            f"the state key raised {type(error).__name__}: {error}, at {where}"
        ) from error
