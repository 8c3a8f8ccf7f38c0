"""Assigning credit to aligned rollouts: one advantage for each step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.rollouts import state_keys
from guerdon.rollouts.alignment import AlignedBatch, AlignedRollout
from guerdon.rollouts.group_keys import group_key
from guerdon.rollouts.state_keys import StateKey
from guerdon.types.step_data import StepData

if TYPE_CHECKING:
    from guerdon.credit import Credit, CreditDiagnostics

__all__ = ["apply_credit", "check_options", "system_apply_gigpo_to_batch_steps"]

# What is read from the rollouts, and not an option.
_READ = frozenset(
    ("rewards", "group", "trajectory", "step", "state", "episode_score", "valid", "values")
)


def apply_credit(
    batch: AlignedBatch | Sequence[AlignedRollout],
    method: str = "gigpo",
    *,
    state_key: str | StateKey = "last",
    group: Callable[[AlignedRollout], Any] | Mapping[Any, Any] | None = None,
    **options: Any,
) -> Credit:
    """Fill in `advantage` and `return_to_go` of every step of a batch.

    `return_to_go` is what the method has for the returns: the discounted sum of the rewards from
    the step on, but for ``pure``, the least of them, and ``gae``, the advantage plus the value.

    A rollout whose score isn't valid takes part in no statistic, and its steps keep None. Where
    anything is refused, nothing is filled in.

    Example:
        >>> from guerdon import Message, StepData, apply_credit
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
        batch: What the aligner gave, or rollouts made by hand.
        method: The estimator, by its name in `guerdon.credit`: ``gigpo``, ``grpo``, ``rloo``…
        state_key: What makes two steps the same state, for the estimators that ask: ``last``,
            ``last-K``, ``history``, or a function of a `StepData`.
        group: The group of each rollout: a function of it, or a mapping by its id. None takes the
            rollouts' own `group`; where none has one, all are one group.
        **options: The estimator's own, such as ``gamma`` and ``omega``.

    Returns:
        The credit of all steps, rollout by rollout, with its diagnostics.

    Raises:
        InvalidArgumentError: There is no such method, option or state key.
        CreditError: The batch is contradictory; it says which rows, counted over all steps.
    """
    rollouts = (
        list(batch) if isinstance(batch, AlignedBatch) else _sequence(batch, "batch", "rollouts")
    )
    _check(rollouts)
    estimator = check_options(method, options)
    key = state_keys.state_key(state_key)
    steps = [(number, each) for number, rollout in enumerate(rollouts) for each in rollout.steps]
    given = _arguments(rollouts, steps, key, estimator, _groups(rollouts, group))
    credit: Credit = _noting_empty(estimator(**given, **options), rollouts)
    numbers = zip(
        steps, credit.advantage.tolist(), credit.returns.tolist(), credit.mask.tolist(), strict=True
    )
    for (_, step), advantage, return_to_go, counts in numbers:
        step.advantage = advantage if counts else None
        step.return_to_go = return_to_go if counts else None
    return credit


def system_apply_gigpo_to_batch_steps(
    batch_of_step_data_lists: Sequence[Sequence[StepData]],
    final_scores_for_rollouts: Sequence[float | None],
    omega: float = 1.0,
    gamma: float = 1.0,
    state_hashing_function: StateKey | str = "last",
    default_step_reward: float = 0.0,
) -> list[list[StepData]]:
    """GiGPO on lists of steps: fill in `advantage` and `return_to_go`.

    Example:
        >>> from guerdon import StepData
        >>> from guerdon.rollouts import system_apply_gigpo_to_batch_steps
        >>> batch = [[StepData(system_step_index=0, observation_data="start", base_reward=r)]
        ...          for r in (1.0, 0.0)]
        >>> filled = system_apply_gigpo_to_batch_steps(
        ...     batch, [1.0, 0.0], state_hashing_function=lambda step: step.observation_data)
        >>> [round(steps[0].advantage, 3) for steps in filled]
        [1.414, -1.414]

    Args:
        batch_of_step_data_lists: The steps of each rollout. They are of one group, unless each
            first step has its own in ``step_info["group"]``.
        final_scores_for_rollouts: The score of each rollout; None where it isn't valid.
        omega: The weight of the step advantages.
        gamma: The discount, in [0, 1].
        state_hashing_function: What makes two steps the same state; see `apply_credit`.
        default_step_reward: The reward of a step that has none.

    Returns:
        The same steps.

    Raises:
        CreditError: The batch is contradictory, or there isn't one score for each rollout.
    """
    lists = [
        _sequence(steps, f"batch_of_step_data_lists[{place}]", "steps")
        for place, steps in enumerate(
            _sequence(batch_of_step_data_lists, "batch_of_step_data_lists", "lists of steps")
        )
    ]
    scores = _sequence(final_scores_for_rollouts, "final_scores_for_rollouts", "scores")
    if len(scores) != len(lists):
        raise CreditError(
            f"there are {len(scores)} final scores for {len(lists)} rollouts; it takes one for each"
        )
    rollouts = [
        AlignedRollout(number, steps, score, score is not None, _said_group(steps))
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


def check_options(method: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The estimator of that name, where it takes these options.

    Raises:
        InvalidArgumentError: It doesn't; it says what there is.
    """
    from guerdon.credit import METHODS

    if not isinstance(method, str) or method not in METHODS:
        raise InvalidArgumentError(f"there is no method {method!r}; there are {sorted(METHODS)}")
    estimator: Callable[..., Any] = METHODS[method]
    takes = [name for name in inspect.signature(estimator).parameters if name not in _READ]
    for name in options:
        if name not in takes:
            raise InvalidArgumentError(f"{method} takes no {name!r}; it takes {', '.join(takes)}")
    return estimator


def _groups(
    rollouts: Sequence[AlignedRollout],
    group: Callable[[AlignedRollout], Any] | Mapping[Any, Any] | None,
) -> list[Any]:
    if isinstance(group, Mapping):
        missing = [rollout.id for rollout in rollouts if rollout.id not in group]
        if missing:
            raise CreditError(f"the rollouts {missing[:5]} are in no group that was given")
        return [group[rollout.id] for rollout in rollouts]
    if group is not None and not callable(group):
        raise InvalidArgumentError(
            f"group is {group!r:.60}; it takes a mapping by id, or a function of a rollout"
        )
    if group is not None:
        return [group(rollout) for rollout in rollouts]
    asked = [rollout for rollout in rollouts if rollout.steps]
    without = [rollout.id for rollout in asked if rollout.group is None]
    if without and len(without) < len(asked):
        raise CreditError(
            f"the rollouts {without[:5]} say no group, and others do; all say one "
            "(step_info['group'], or apply_credit(group=…)), or none does"
        )
    return [rollout.group for rollout in rollouts]


def _arguments(
    rollouts: Sequence[AlignedRollout],
    steps: Sequence[tuple[int, StepData]],
    key: StateKey,
    estimator: Callable[..., Any],
    groups: Sequence[Any],
) -> dict[str, Any]:
    """What the estimator reads from the rollouts; only what it takes."""
    scores, valid = [], []
    seen: dict[Any, Any] = {}
    for rollout, of in zip(rollouts, groups, strict=True):
        if rollout.id in seen:
            first = seen[rollout.id]
            where = "twice" if first == of else f"in two groups, {first!r} and {of!r}"
            raise CreditError(f"rollout {rollout.id!r} is there {where}; a rollout is there once")
        seen[rollout.id] = of
        if rollout.is_score_valid and rollout.score is None:
            raise CreditError(f"rollout {rollout.id!r} is marked valid and has no score")
        scores.append(float("nan") if rollout.score is None else rollout.score)
        valid.append(rollout.is_score_valid)
    takes = inspect.signature(estimator).parameters
    keys = [_hashable(of) for of in groups]
    read: dict[str, Callable[[], list[Any]]] = {
        "rewards": lambda: [_or_nan(step.base_reward) for _, step in steps],
        "group": lambda: [keys[number] for number, _ in steps],
        "trajectory": lambda: [rollouts[number].id for number, _ in steps],
        "step": lambda: [step.system_step_index for _, step in steps],
        "state": lambda: [_keyed(key, step, rollouts[number]) for number, step in steps],
        "episode_score": lambda: [scores[number] for number, _ in steps],
        "valid": lambda: [valid[number] for number, _ in steps],
        "values": lambda: [_or_nan(step.policy_value_estimate) for _, step in steps],
    }
    return {name: make() for name, make in read.items() if name in takes}


def _noting_empty(credit: Credit, rollouts: Sequence[AlignedRollout]) -> Credit:
    """The same credit, whose notes tell of rollouts without steps: nobody is compared with them."""
    empty = [rollout.id for rollout in rollouts if rollout.is_score_valid and not rollout.steps]
    if not empty:
        return credit
    note = f"Rollouts without steps, whose scores are compared with nobody's: {empty[:5]}."

    def diagnose() -> CreditDiagnostics:
        known = credit.diagnostics
        return replace(known, notes=(*known.notes, note))

    return replace(credit, _diagnose=diagnose)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _hashable(group: Any) -> Any:
    try:
        hash(group)
    except TypeError:
        return (group_key(group),)  # as in a file, where a group may be any JSON
    return group


def _said_group(steps: Sequence[Any]) -> Any:
    return steps[0].step_info.get("group") if steps and isinstance(steps[0], StepData) else None


def _sequence(given: Any, name: str, what: str) -> list[Any]:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise CreditError(f"{name} is {given!r:.60}; it takes a list of {what}")
    return list(given)


def _check(rollouts: Sequence[Any]) -> None:
    """Refuse what are no rollouts, and steps that several share: each has one advantage."""
    owners: dict[int, Any] = {}
    for place, rollout in enumerate(rollouts):
        if not isinstance(rollout, AlignedRollout) or not isinstance(rollout.steps, list):
            raise CreditError(
                f"batch[{place}] is {rollout!r:.60}; it takes AlignedRollout, as the "
                "aligner gives, and lists of steps go to system_apply_gigpo_to_batch_steps"
            )
        try:
            hash(rollout.id)
        except TypeError:
            raise CreditError(
                f"the id of batch[{place}] is {rollout.id!r:.60}; an id is a text or a number"
            ) from None
        for step in rollout.steps:
            if not isinstance(step, StepData):
                raise CreditError(f"rollout {rollout.id!r} has {step!r:.60} among its StepData")
            if id(step) in owners:
                raise CreditError(
                    f"a step of rollout {rollout.id!r} is that of {owners[id(step)]!r}, the very "
                    "same object, and has one advantage; give each rollout steps of its own"
                )
            owners[id(step)] = rollout.id


def _keyed(key: StateKey, step: StepData, rollout: AlignedRollout) -> Any:
    try:
        return key(step)
    except CreditError as error:
        raise CreditError(
            f"step {step.system_step_index} of rollout {rollout.id!r}: {error}"
        ) from None
    except Exception as error:
        raise CreditError(
            f"the state key raised {type(error).__name__}: {error}, at step "
            f"{step.system_step_index} of rollout {rollout.id!r}"
        ) from error
