"""Replays the tool calls of a recorded conversation, and compares the result with its task.

``python -m examples.tau_airline.replay [FOLDER]`` measures how exactly this reproduces recordings.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Shown

from examples.tau_airline.calls import Call, calls_of
from examples.tau_airline.data import AirlineData, data_path, load_data
from examples.tau_airline.effects import effect
from examples.tau_airline.task import Task
from examples.tau_airline.tools import END, WRITES, Database
from guerdon import Message
from guerdon.errors import InvalidArgumentError

__all__ = ["Played", "Replay", "main", "replay"]

STOP = "###STOP###"  # the user's message at the end


@dataclass(frozen=True, slots=True)
class Played:
    """A replayed call.

    Example:
        >>> from examples.tau_airline.calls import Call
        >>> from examples.tau_airline.replay import Played
        >>> Played(Call(0, "get_user_details", "{}"), "Error: user not found", "").failed
        True

    Attributes:
        call: The call.
        answer: The tool's answer in the replay.
        effect: The call's effect on the database, see `effects.effect`.
    """

    call: Call
    answer: str
    effect: str

    @property
    def failed(self) -> bool:
        """Whether the answer is an error."""
        return self.answer.startswith("Error: ")


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed conversation, compared with its task.

    Example:
        >>> from examples.tau_airline.replay import Replay
        >>> Replay(played=[], expected=[], differences=[], missing=["327"], ended=True).solved
        False

    Attributes:
        played: The calls of the conversation.
        expected: The calls of the ground truth.
        differences: The records in which the final databases differ.
        missing: The task's outputs that the agent didn't state.
        ended: Whether the episode ended properly.
    """

    played: list[Played]
    expected: list[Played]
    differences: list[str]
    missing: list[str]
    ended: bool

    @property
    def solved(self) -> bool:
        """Whether the episode ended with the expected database and all outputs."""
        return self.ended and not self.differences and not self.missing


def replay(messages: Sequence[Message], task: Task, *, data: AirlineData) -> Replay:
    """Replay the calls of a conversation and of its task, each on a separate database.

    The episode has ended if the last message is the user's and contains ``###STOP###``, or if the
    last assistant turn transferred the user to a human. All other recordings were cut off after
    30 steps of the agent.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.replay import replay
        >>> from examples.tau_airline.task import Task
        >>> from guerdon import Message
        >>> data = AirlineData(users={}, flights={}, reservations={})
        >>> messages = [Message(role="assistant", content="That makes $1,327."),
        ...             Message(role="user", content="Thanks! ###STOP###")]
        >>> replay(messages, Task.of({"actions": [], "outputs": ["1327"]}), data=data).solved
        True

    Args:
        messages: The conversation.
        task: The task.
        data: The initial database.
    """
    database, target = Database(data), Database(data)
    played = _play(calls_of(messages), database)
    actions = enumerate(task.actions)
    expected = _play((Call(number, each.name, each.arguments) for number, each in actions), target)
    texts = [_normalize(each.text) for each in messages if each.role == "assistant"]
    return Replay(
        played=played,
        expected=expected,
        differences=database.differences(target),
        missing=[each for each in task.outputs if not any(each.lower() in text for text in texts)],
        ended=_ended(messages, played),
    )


def _normalize(text: str) -> str:
    return text.lower().replace(",", "")


def _play(calls: Iterable[Call], database: Database) -> list[Played]:
    played = []
    for call in calls:
        before = database.copy() if call.name in WRITES else None
        answer = database.call(call.name, call.arguments)
        change = effect(before, database) if before is not None else ""
        played.append(Played(call, answer, change))
    return played


def _ended(messages: Sequence[Message], played: Sequence[Played]) -> bool:
    if not messages:
        return False
    if messages[-1].role == "user":
        return STOP in messages[-1].text
    turns = sum(message.role == "assistant" for message in messages)
    last = [each for each in played if each.call.turn == turns - 1]
    return any(each.call.name == END and not each.failed for each in last)


# Comparison with recordings -----------------------------------------------------------------------

# Addresses have a province in the recordings, but a state in the published users.
RENAMED = ('"state": ', '"province": ')


def main(arguments: Sequence[str]) -> int:
    """Replay the recordings in a folder; return 1 if a verdict differs, 2 if a file is missing."""
    try:
        folder = data_path(arguments[0] if arguments else None)
        data = load_data(folder)
    except InvalidArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    recordings = folder / "trajectories.json"
    if not recordings.is_file():
        print(f"error: {recordings} is missing", file=sys.stderr)
        return 2
    records = json.loads(recordings.read_text(encoding="utf-8"))
    played: list[Played] = []
    disagree = []
    start = time.perf_counter()
    for record in records:
        messages = [Message.model_validate(message) for message in record["traj"]]
        done = replay(messages, Task.of(record["info"]["task"]), data=data)
        played += done.played
        if float(done.solved) != record["reward"]:
            disagree.append(f"{record['task_id']}-{record['trial']}")
    seconds = time.perf_counter() - start
    Console(width=None if sys.stdout.isatty() else 110).print(_table(played))
    agree = f"{len(records) - len(disagree)} ({seconds:.2f} s)"
    print(f"conversations: {len(records)}, verdicts that agree: {agree}")
    if disagree:
        print(f"verdicts that differ: {', '.join(disagree)}")
    return 1 if disagree else 0


def _table(played: Sequence[Played]) -> Shown:
    """Return a table of how many answers of each tool equal the recorded ones."""
    calls, exact, renamed = Counter[str](), Counter[str](), Counter[str]()
    for each in played:
        name = each.call.name
        calls[name] += 1
        exact[name] += each.answer == each.call.recorded
        renamed[name] += each.answer.replace(*RENAMED) == each.call.recorded
    out = Shown(box=SIMPLE_HEAD, pad_edge=False)
    out.add_column("tool")
    for heading in ("answers", "identical", "identical, state as province"):
        out.add_column(heading, justify="right")
    for name in sorted(calls):
        out.add_row(name, str(calls[name]), str(exact[name]), str(renamed[name]))
    out.add_section()
    total = calls.total()
    out.add_row("all", str(total), _share(exact, total), _share(renamed, total))
    return out


def _share(counted: Counter[str], total: int) -> str:
    return f"{counted.total()} ({counted.total() / max(1, total):.1%})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
