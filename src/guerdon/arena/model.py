"""`Model`: a world as tables of numbers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guerdon._validation import check_integer, shown
from guerdon.arena.world import Outcome, World
from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.rubric import Rubric

__all__ = ["Model"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The most states that a world may have, and the longest episode.
MAX_STATES = 20_000
MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """The transitions and rewards of a world with S states, A actions and up to K outcomes.

    Outcomes that an action doesn't have are repetitions of its last one with probability 0.

    Example:
        >>> from guerdon.arena import Model, Umbrella
        >>> model = Model.of(Umbrella(days=2))
        >>> len(model.states), model.horizon, model.weights
        (7, 3, {'dry': 1.0, 'gift': 0.5, 'bill': -0.5})

    Attributes:
        world: The world.
        states: Its states, S of them, in the order in which they are found; the initial one first.
        next: The number of the state after each outcome, (S, A, K).
        cumulative: The probability of this outcome or one before it, (S, A, K); the last is 1.
        probability: The probability of each outcome, (S, A, K).
        done: Whether the episode ends with it, (S, A, K).
        counts: How often each event happened, (S, A, K, E), in the order of `weights`.
        reward: Its reward, (S, A, K), computed by the world's rubric.
        is_end: Whether no step is taken in a state, (S,).
        horizon: H, after how many steps an episode is cut off.
        weights: The weights of the world's events.
        outcomes: The outcomes of each state and action; an end has none.
    """

    world: World
    states: tuple[Hashable, ...]
    next: Integers
    cumulative: Floats
    probability: Floats
    done: NDArray[np.bool_]
    counts: Floats
    reward: Floats
    is_end: NDArray[np.bool_]
    horizon: int
    weights: dict[str, float]
    outcomes: tuple[tuple[tuple[Outcome, ...], ...], ...]

    @classmethod
    def of(cls, world: World) -> Model:
        """Tabulate a world, by a search of the states that can be reached.

        Raises:
            InvalidArgumentError: The world has more than 20,000 states or invalid outcomes.
            RubricError: The rubric returned an invalid score.
        """
        horizon = check_integer("max_steps", world.max_steps, low=1, high=MAX_STEPS)
        if not world.actions:
            raise InvalidArgumentError(f"the world {world.name!r} must have at least one action")
        found = _search(world)
        numbers = {state: number for number, state in enumerate(found)}
        most = max((len(each) for row in found.values() for each in row), default=1)
        shape = (len(found), len(world.actions), most)
        names = list(world.weights)
        next_, done = np.zeros(shape, np.int64), np.ones(shape, np.bool_)
        probability, counts = np.zeros(shape), np.zeros((*shape, len(names)))
        for number, row in enumerate(found.values()):
            for action, outcomes in enumerate(row):
                for place in range(most):
                    each = outcomes[min(place, len(outcomes) - 1)]
                    at = number, action, place
                    next_[at], done[at] = numbers[each.state], each.done
                    counts[at] = [list(each.events).count(name) for name in names]
                    if place < len(outcomes):
                        probability[at] = each.probability
        cumulative = np.cumsum(probability, -1)
        cumulative[probability[..., ::-1].cumsum(-1)[..., ::-1] - probability <= 0] = 1.0
        model = cls(
            world=world,
            states=tuple(found),
            next=next_,
            cumulative=cumulative,
            probability=probability,
            done=done,
            counts=counts,
            reward=np.zeros(shape),
            is_end=np.array([not row for row in found.values()]),
            horizon=horizon,
            weights=dict(world.weights),
            outcomes=tuple(found.values()),
        )
        return model.with_reward(world.rubric())

    @property
    def expected_reward(self) -> Floats:
        """The expected reward of each state and action, (S, A)."""
        expected: Floats = (self.probability * self.reward).sum(-1)
        return expected

    def with_reward(self, rubric: Rubric) -> Model:
        """Return the model with the rewards of another rubric.

        The rubric is called once for each outcome, with the name of the action and an observation
        that has ``events`` and ``done``.

        Args:
            rubric: A sync rubric whose score depends on the step alone.
        """
        reward = np.zeros(self.next.shape)
        for number, row in enumerate(self.outcomes):
            for action, outcomes in enumerate(row):
                scores = [
                    rubric(
                        self.world.actions[action],
                        SimpleNamespace(events=list(each.events), done=each.done),
                    )
                    for each in outcomes
                ]
                reward[number, action] = scores[-1]
                reward[number, action, : len(scores)] = scores
        return replace(self, reward=reward)


def _search(world: World) -> dict[Hashable, tuple[tuple[Outcome, ...], ...]]:
    """Return the outcomes of each action by state; those of an end are empty."""
    start = world.initial()
    found: dict[Hashable, tuple[tuple[Outcome, ...], ...]] = {start: ()}
    waiting, queued = deque([start]), {start}
    while waiting:
        state = waiting.popleft()
        found[state] = rows = tuple(
            tuple(_checked(world, state, action, world.outcomes(state, action)))
            for action in range(len(world.actions))
        )
        for outcome in (outcome for row in rows for outcome in row):
            found.setdefault(outcome.state, ())
            if not outcome.done and outcome.state not in queued:
                queued.add(outcome.state)
                waiting.append(outcome.state)
        if len(found) > MAX_STATES:
            raise InvalidArgumentError(
                f"the world {world.name!r} has more than {MAX_STATES:,} states; a world of the "
                "arena must be small enough to be solved exactly"
            )
    return found


def _checked(world: World, state: Any, action: int, outcomes: Any) -> list[Outcome]:
    """Check the outcomes of an action."""
    listed = list(outcomes)
    total = math.fsum(each.probability for each in listed)
    wrong = None
    if not listed or any(not 0 < each.probability <= 1 for each in listed):
        wrong = "probabilities in (0, 1]"
    elif abs(total - 1) > 1e-9:
        wrong = f"probabilities that add up to 1, got {total}"
    else:
        unknown = {name for each in listed for name in each.events} - world.weights.keys()
        if unknown:
            wrong = f"events among {sorted(world.weights)}, got {sorted(unknown)}"
    if wrong is not None:
        raise InvalidArgumentError(
            f"the outcomes of {world.actions[action]!r} in the state {shown(state)} of the world "
            f"{world.name!r} must have {wrong}"
        )
    return listed
