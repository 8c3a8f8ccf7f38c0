"""Plays a group of games from one seed, and shows what each move was worth: one advantage a step.

The whole way from live episodes to what a trainer takes: play, score the conversations with a
reward function, put the results on the steps, assign credit. Run it, with a seed where other games
are wanted::

    python -m examples.connect4.advantages 5
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.connect4.board import Board, Side
from examples.connect4.environment import Connect4Environment
from guerdon import (
    EvaluateResult,
    Message,
    RLDataAligner,
    RLRolloutWorker,
    StepData,
    apply_credit,
    reward_function,
)
from guerdon.credit import Credit
from guerdon.rollouts import AlignedBatch, PolicyOutput, RolloutRecord

__all__ = ["Wanders", "careless", "credited", "main", "play_group", "position", "won"]

GAMES = 32
MOVES = 22  # more than a game has


class Wanders:
    """A policy that drops its piece anywhere, the middle a little more often.

    Example:
        >>> import asyncio
        >>> from examples.connect4.advantages import Wanders
        >>> from examples.connect4.environment import Connect4Environment
        >>> observation = Connect4Environment().reset(seed=1)
        >>> asyncio.run(Wanders(7).get_action(observation)).action
        {'column': 4}

    Args:
        seed: Decides where.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"wanders {seed}")

    async def get_action(
        self, observation: Any, available_tools_specs: list[Any] | None = None
    ) -> PolicyOutput:
        """A column that takes a piece."""
        columns = [*observation.legal_columns, *set(observation.legal_columns) & {2, 3, 4}]
        column = self._rng.choice(columns)
        return PolicyOutput({"column": column}, f"I take column {column}.")


@reward_function
def won(messages: list[Message]) -> EvaluateResult:
    """The agent won: 1. The opponent did: 0. A draw: 0.5."""
    last = json.loads(messages[-1].text)
    if last["turn"] is not None:
        return EvaluateResult(error="the game isn't over")
    score = {last["mover"]: 1.0, None: 0.5}.get(last["winner"], 0.0)
    return EvaluateResult(score=score, reason=f"{last['winner'] or 'nobody'} won")


def position(step: StepData) -> Any:
    """The state of a step: the board that the agent saw."""
    return tuple(step.observation_data["board"])


def careless(board: Board, side: Side, rng: random.Random) -> int:
    """An opponent that drops its piece anywhere, by the numbers that the game's seed gives.

    Example:
        >>> import random
        >>> from examples.connect4.advantages import careless
        >>> from examples.connect4.board import Board, Side
        >>> careless(Board(), "O", random.Random(1)) in range(7)
        True
    """
    return rng.choice(board.legal_columns)


def play_group(seed: int, games: int = GAMES) -> list[RolloutRecord]:
    """Play games that begin alike.

    Example:
        >>> from examples.connect4.advantages import play_group
        >>> [record.id for record in play_group(seed=3, games=2)]
        ['seed 3, game 0', 'seed 3, game 1']

    Args:
        seed: The opponent's.
        games: How many.
    """
    name = f"seed {seed}"
    return [
        RLRolloutWorker(
            lambda: Connect4Environment(opponent=careless), Wanders(game), max_steps=MOVES
        ).run_sync({"id": name}, seed=seed, rollout_id=f"{name}, game {game}")
        for game in range(games)
    ]


def credited(records: Sequence[RolloutRecord]) -> tuple[AlignedBatch, Credit]:
    """Score the games, and assign credit to their moves.

    Example:
        >>> from examples.connect4.advantages import credited, play_group
        >>> batch, credit = credited(play_group(seed=3, games=4))
        >>> len(batch.report), credit.advantage.shape == (sum(map(len, batch.step_lists)),)
        (0, True)
    """
    batch = RLDataAligner().align_data_for_rl_processing(
        [won(record.messages) for record in records],
        {record.id: record.steps for record in records},
        [record.id for record in records],
    )
    return batch, apply_credit(batch, "gigpo", state_key=position, gamma=0.95, normalize="mean")


def main() -> int:
    """Play, and print the opening moves of the group side by side."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    console = Console(highlight=False)
    batch, credit = credited(play_group(seed))
    scores = [score for score in batch.final_scores if score is not None]
    told = credit.diagnostics
    console.print(
        f"{len(batch)} games of connect four from seed {seed}: {scores.count(1.0)} won, "
        f"{scores.count(0.0)} lost. {told.anchor_coverage:.0%} of {len(credit.mask)} positions "
        "came up more than once.\n"
    )
    moves = dict[int, list[StepData]]()
    for rollout in batch:
        if rollout.is_score_valid:
            moves.setdefault(rollout.steps[0].action_taken["column"], []).append(rollout.steps[0])
    table = Table("opening", "games", "mean return", "mean advantage")
    for column, steps in sorted(moves.items()):
        table.add_row(
            f"column {column}",
            f"{len(steps)}",
            _mean([step.return_to_go for step in steps]),
            _mean([step.advantage for step in steps]),
        )
    console.print(table)
    return 0


def _mean(numbers: Sequence[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    return f"{sum(known) / len(known):+.3f}" if known else "–"


if __name__ == "__main__":
    sys.exit(main())
