"""Plays recorded conversations against a server, and compares what it answers with them.

``python -m examples.tau_airline.replay [FOLDER]`` starts a server, plays the recordings of a folder
in 16 sessions at a time, and prints how exactly they are reproduced.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples.tau_airline.data import Record, data_path
from examples.tau_airline.play import reward_of
from guerdon import GenericEnvClient, RLRolloutWorker
from guerdon.envs.client.launchers import ProcessLauncher
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts import ReplayPolicy, RolloutRecord

__all__ = ["Played", "main", "replay"]

ENVIRONMENT = "examples.tau_airline.environment:TauAirlineEnvironment"
SESSIONS = 16
# Addresses have a province in the recordings, but a state in the published users.
RENAMED = ('"state": ', '"province": ')


@dataclass(frozen=True, slots=True)
class Played:
    """A recording, and the episode in which it was played again.

    Attributes:
        record: The recording, in tau-bench's layout.
        rollout: The episode.
    """

    record: Record
    rollout: RolloutRecord

    @property
    def agrees(self) -> bool:
        """Whether the reward is the published one."""
        return bool(reward_of(self.rollout.to_row()) == self.record["reward"])

    def answers(self) -> list[tuple[str, str, str]]:
        """Return each tool's name, its answer, and the recorded one."""
        texts = [each.text for each in self.rollout.messages if each.role == "tool"]
        recorded = [each for each in self.record["traj"] if each["role"] == "tool"]
        pairs = zip(texts, recorded, strict=False)  # an episode that failed has fewer
        return [(each["name"], text, each["content"]) for text, each in pairs]


async def replay(url: str, records: Sequence[Record]) -> list[Played]:
    """Play recordings on a server: the recorded actions, answered by the recorded user.

    Example:
        >>> from examples.tau_airline.replay import replay
        >>> async def agreement(url, records):
        ...     return sum(each.agrees for each in await replay(url, records))

    Args:
        url: The address of a server of `TauAirlineEnvironment`.
        records: The recordings, in tau-bench's layout.

    Returns:
        The recordings in their order, with the episodes in which they were played.
    """
    sessions = asyncio.Semaphore(SESSIONS)

    async def play(record: Mapping[str, Any]) -> RolloutRecord:
        said = [each["content"] for each in record["traj"] if each["role"] == "user"]
        options = {"task": record["task_id"], "user_messages": said}
        worker = RLRolloutWorker(
            lambda: GenericEnvClient.from_url(url),
            ReplayPolicy(record["traj"]),
            max_steps=sum(each["role"] == "assistant" for each in record["traj"]),
        )
        async with sessions:
            name = f"{record['task_id']}-{record['trial']}"
            task = {"id": record["task_id"], "reset": options, "task": record["task_id"]}
            return await worker.run(task, rollout_id=name)

    rollouts = await asyncio.gather(*map(play, records))
    return [Played(*pair) for pair in zip(records, rollouts, strict=True)]


async def _replay_here(records: Sequence[Record]) -> tuple[list[Played], float]:
    """Start a server, play the recordings on it, and return the seconds that they took."""
    server = ProcessLauncher(ENVIRONMENT)
    try:
        url = await server.start()
        start = time.perf_counter()
        return await replay(url, records), time.perf_counter() - start
    finally:
        await server.stop()


def main(arguments: Sequence[str]) -> int:
    """Replay the recordings in a folder; return 1 if a reward differs, 2 if a file is missing."""
    try:
        folder = data_path(arguments[0] if arguments else None)
    except InvalidArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in ("tasks.json", "trajectories.json"):
        if not (folder / name).is_file():
            print(f"error: {folder / name} is missing", file=sys.stderr)
            return 2
    os.environ["TAU_AIRLINE_DATA"] = str(folder)  # for the server
    records = json.loads((folder / "trajectories.json").read_text(encoding="utf-8"))
    played, seconds = asyncio.run(_replay_here(records))
    Console(width=None if sys.stdout.isatty() else 110).print(_table(played))
    agree = sum(each.agrees for each in played)
    print(f"conversations: {len(played)}, rewards that agree: {agree} ({seconds:.2f} s)")
    for each in played:
        if not each.agrees:
            why = each.rollout.error or each.rollout.ended
            print(f"{each.rollout.id}: {each.rollout.env_rewards}, {why}")
    return 0 if agree == len(played) else 1


def _table(played: Sequence[Played]) -> Table:
    """Return a table of how many answers of each tool equal the recorded ones."""
    calls, exact, renamed = Counter[str](), Counter[str](), Counter[str]()
    for name, text, recorded in (answer for each in played for answer in each.answers()):
        for row in (name, "all"):
            calls[row] += 1
            exact[row] += text == recorded
            renamed[row] += text.replace(*RENAMED) == recorded
    out = Table("tool", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("answers", "identical", "identical, state as province"):
        out.add_column(heading, justify="right")
    for name in [*sorted(calls.keys() - {"all"}), "all"]:
        out.add_row(name, *(str(each[name]) for each in (calls, exact, renamed)))
    return out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
