"""Plays a group of games from one seed, and prints the advantages of their opening moves.

It shows all steps from live episodes to training data: play, score the conversations with a reward
function, align the results with the steps, assign credit. Run it, optionally with a seed::

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

__all__ = [
    "RandomPolicy",
    "random_opponent",
    "assign_credit",
    "main",
    "play_group",
    "position",
    "won",
]

GAMES = 32
MOVES = 22  # more than a game has


class RandomPolicy:
    """A random policy that prefers the middle columns.

    Example:
        >>> import asyncio
        >>> from examples.connect4.advantages import RandomPolicy
        >>> from examples.connect4.environment import Connect4Environment
        >>> observation = Connect4Environment().reset(seed=1)
        >>> asyncio.run(RandomPolicy(7).get_action(observation)).action
        {'column': 4}

    Args:
        seed: The seed of the random choices.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"random policy {seed}")

    async def get_action(
        self, observation: Any, available_tools_specs: list[Any] | None = None
    ) -> PolicyOutput:
        """Return a random legal column."""
        columns = [*observation.legal_columns, *set(observation.legal_columns) & {2, 3, 4}]
        column = self._rng.choice(columns)
        return PolicyOutput({"column": column}, f"I take column {column}.")


@reward_function
def won(messages: list[Message]) -> EvaluateResult:
    """Score 1 for a win of the agent, 0.5 for a draw, 0 for a loss."""
    last = json.loads(messages[-1].text)
    if last["turn"] is not None:
        return EvaluateResult(error="the game isn't over")
    score = {last["mover"]: 1.0, None: 0.5}.get(last["winner"], 0.0)
    return EvaluateResult(
        score=score, reason=f"{last['winner']} won" if last["winner"] else "a draw"
    )


def position(step: StepData) -> Any:
    """Return the state of a step: the board that the agent saw."""
    return tuple(step.observation_data["board"])


def random_opponent(board: Board, side: Side, rng: random.Random) -> int:
    """Choose a random legal column with the game's random generator.

    Example:
        >>> import random
        >>> from examples.connect4.advantages import random_opponent
        >>> from examples.connect4.board import Board, Side
        >>> random_opponent(Board(), "O", random.Random(1)) in range(7)
        True
    """
    return rng.choice(board.legal_columns)


def play_group(seed: int, games: int = GAMES) -> list[RolloutRecord]:
    """Play several games with the same seed of the opponent.

    Example:
        >>> from examples.connect4.advantages import play_group
        >>> [record.id for record in play_group(seed=3, games=2)]
        ['seed 3, game 0', 'seed 3, game 1']

    Args:
        seed: The seed of the opponent.
        games: The number of games.
    """
    name = f"seed {seed}"
    return [
        RLRolloutWorker(
            lambda: Connect4Environment(opponent=random_opponent),
            RandomPolicy(game),
            max_steps=MOVES,
        ).run_sync({"id": name}, seed=seed, rollout_id=f"{name}, game {game}")
        for game in range(games)
    ]


def assign_credit(records: Sequence[RolloutRecord]) -> tuple[AlignedBatch, Credit]:
    """Score the games, and assign credit to their moves.

    Example:
        >>> from examples.connect4.advantages import assign_credit, play_group
        >>> batch, credit = assign_credit(play_group(seed=3, games=4))
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
    """Play a group of games, and print a table of its opening moves."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    console = Console(highlight=False)
    batch, credit = assign_credit(play_group(seed))
    scores = [score for score in batch.final_scores if score is not None]
    diagnostics = credit.diagnostics
    console.print(
        f"{len(batch)} games of connect four from seed {seed}: {scores.count(1.0)} won, "
        f"{scores.count(0.0)} lost. {diagnostics.anchor_coverage:.0%} of {len(credit.mask)} "
        "positions occurred more than once.\n"
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
