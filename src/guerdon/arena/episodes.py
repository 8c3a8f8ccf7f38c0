"""Playing many episodes of many policies at once, in the tables of a `Model`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guerdon.arena.chance import derive, uniform
from guerdon.arena.model import Floats, Integers, Model
from guerdon.credit import StepBatch

__all__ = ["Episodes", "episode_seeds", "play"]

Seeds = NDArray[np.uint64]


def episode_seeds(seed: int | Seeds, update: int, episodes: int) -> Seeds:
    """Return the seeds of the episodes of an update, (…, episodes).

    Args:
        seed: The seed of a run, or an array of these.
        update: The number of the update.
        episodes: How many.
    """
    of_update = derive(np.asarray(seed, np.uint64)[..., None], update)
    numbers = [derive(of_update, number) for number in range(episodes)]
    seeds: Seeds = np.concatenate(numbers, -1)
    return seeds


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """The steps of R × E episodes of a model, E for each of R policies.

    The steps are sorted by policy, episode and turn: M in total.

    Attributes:
        model: The model.
        per_run: E.
        episode: The number of the episode of each step, in [0, R × E), (M,).
        turn: The number of the step in its episode, (M,).
        state: The state in which it was taken, (M,).
        action: The action, (M,).
        after: The state that it led to, (M,).
        is_last: Whether it is the last of its episode, (M,).
        reward: Its reward, (M,).
        counts: How often each event happened, (M, E).
        starts: The index of the first step of each episode, (R × E,).
    """

    model: Model
    per_run: int
    episode: Integers
    turn: Integers
    state: Integers
    action: Integers
    after: Integers
    is_last: NDArray[np.bool_]
    reward: Floats
    counts: Floats
    starts: Integers

    @property
    def run(self) -> Integers:
        """The number of the policy of each step, (M,)."""
        return self.episode // self.per_run

    def run_bounds(self) -> Integers:
        """Return where the steps of each policy begin, and where the last ones end, (R + 1,)."""
        return np.append(self.starts[:: self.per_run], len(self.episode))

    def batch(
        self,
        run: int,
        *,
        group_size: int,
        rewards: Floats | None = None,
        values: Floats | None = None,
    ) -> StepBatch:
        """Return the episodes of one policy as a batch, which is what `apply_credit` would make.

        Args:
            run: The number of the policy.
            group_size: The number of episodes of a group, which divides E.
            rewards: The base reward of every step of all policies, (M,); by default the world's.
            values: The critic's value of every step of all policies, (M,).
        """
        model = self.model
        first, last = self.run_bounds()[run : run + 2]
        mine = slice(first, last)
        starts = self.starts[run * self.per_run : (run + 1) * self.per_run] - first
        lengths = np.diff(starts, append=last - first)
        group_of = np.arange(self.per_run) // group_size
        trajectory = np.repeat(np.arange(self.per_run), lengths)
        group = group_of[trajectory]
        base = (self.reward if rewards is None else rewards)[mine]
        state = group * len(model.states) + self.state[mine]
        if model.world.stamped:
            state = np.arange(last - first)
        return StepBatch(
            size=int(last - first),
            rows=np.arange(last - first),
            trajectory=trajectory,
            group=group,
            rewards=base,
            is_rewarded=np.ones(len(base), np.bool_),
            state=state,
            action=group * len(model.world.actions) + self.action[mine],
            values=None if values is None else values[mine],
            starts=starts,
            lengths=lengths,
            group_of=group_of,
            scores=self._sums(self.reward, mine),
            components={
                name: self._sums(self.counts[:, place], mine)
                for place, name in enumerate(model.weights)
            },
            trajectory_ids=tuple(range(self.per_run)),
            group_ids=tuple(range(self.per_run // group_size)),
            has_groups=True,
            state_keys=(),
            masked={},
            default_step_reward=0.0,
        )

    def _sums(self, values: Floats, mine: slice) -> Floats:
        """Return the sum of each episode of a policy, (E,)."""
        trajectory = self.episode[mine] - self.episode[mine.start]
        return np.bincount(trajectory, values[mine], self.per_run).astype(np.float64)


def play(model: Model, policies: Floats, seeds: Seeds) -> Episodes:
    """Play episodes of several policies, all in step.

    Draw 2 t of an episode's seed selects the action of step t, and draw 2 t + 1 its outcome.

    Args:
        model: The model.
        policies: R policies, (R, S, A).
        seeds: The seeds of E episodes of each, (R, E).
    """
    per_run = seeds.shape[1]
    flat = seeds.ravel()
    chosen = np.cumsum(policies, -1)
    chosen[..., -1] = 1.0
    going = np.arange(len(flat))
    state = np.zeros(len(flat), np.int64)
    parts = []
    for turn in range(model.horizon):
        draw = uniform(flat[going], 2 * turn)
        action = (draw[:, None] >= chosen[going // per_run, state]).sum(-1)
        draw = uniform(flat[going], 2 * turn + 1)
        place = (draw[:, None] >= model.cumulative[state, action]).sum(-1)
        after = model.next[state, action, place]
        ends = model.done[state, action, place] | (turn == model.horizon - 1)
        parts.append((going, np.full(len(going), turn), state, action, place, after, ends))
        going, state = going[~ends], after[~ends]
        if not len(going):
            break
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")  # by episode; the turns are in order already
    episode, number, state, action, place, after, ends = (column[order] for column in columns)
    return Episodes(
        model=model,
        per_run=per_run,
        episode=episode,
        turn=number,
        state=state,
        action=action,
        after=after,
        is_last=ends.astype(np.bool_),
        reward=model.reward[state, action, place],
        counts=model.counts[state, action, place],
        starts=np.flatnonzero(number == 0),
    )
