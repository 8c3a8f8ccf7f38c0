"""What the turns of an episode did, compared with what its task expects.

A write matches an expected one if it has the same effect on the database, because the verdict
compares databases only. A payment method that is never charged, 348.0 for 348, or another order of
two writes makes no difference. (New reservations are numbered in order: two bookings in the wrong
order are both expected, but the verdict is 0.) Each expected write counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from examples.tau_airline.data import AirlineData
from examples.tau_airline.effects import effect
from examples.tau_airline.rules import violations
from examples.tau_airline.tables import ToolError
from examples.tau_airline.task import Task
from examples.tau_airline.tools import END, TOOLS, WRITES, Database, InvalidCallError
from guerdon import Message
from guerdon.rubrics.checks.calls import StepCall, calls_of_step
from guerdon.rubrics.checks.inputs import text_of
from guerdon.types import SayObservation

__all__ = ["Audit", "Finding"]

STOP = "###STOP###"  # in the user's last message
MOST_NAMED = 5  # differences in a reason

Kind: TypeAlias = Literal[
    "expected_write", "wrong_write", "missing_write", "failed_call", "missing_read",
    "missing_output", "forbidden",
]  # fmt: skip


class Finding(NamedTuple):
    """What was found about a turn."""

    kind: Kind
    reason: str


class Audit:
    """Follows an episode turn by turn, live or recorded: it makes the writes on a database again.

    Example:
        >>> from examples.tau_airline.audit import Audit
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.task import Task
        >>> from guerdon.types import SayAction, SayObservation
        >>> audit = Audit(Task(actions=[]), AirlineData({}, {}, {}))
        >>> audit.take(SayAction(content="No."), SayObservation.of("Well then. ###STOP###"))
        []
        >>> audit.verdict()
        (True, 'the database is as expected; no outputs are required')

    Args:
        task: What is expected.
        data: The initial database.

    Attributes:
        database: The database after the turns so far.
        target: The database that the task expects.
    """

    def __init__(self, task: Task, data: AirlineData) -> None:
        self.database, self.target = Database(data), Database(data)
        self._task = task
        self._missing = list(task.outputs)  # those that the agent hasn't stated
        self._ended = False  # by the last turn: the user left or was transferred
        self._remaining = Counter[str]()  # the effects of expected writes
        self._titles: dict[str, str] = {}  # of expected writes, by effect
        self._seen = {""}  # users and reservations that the agent has looked up
        for action in task.actions:
            before = self.target.copy()
            try:
                self.target.call(action.name, action.kwargs)
            except ToolError:
                continue  # it changes nothing
            if change := effect(before, self.target):
                self._remaining[change] += 1
                self._titles[change] = _title(action.name, action.kwargs)

    def verdict(self) -> tuple[bool, str]:
        """Return whether the episode has ended as expected, and why."""
        reasons = [] if self._ended else ["the episode did not end"]
        if differences := self.database.differences(self.target):
            named = ", ".join(differences[:MOST_NAMED])
            more = f" and {len(differences) - MOST_NAMED} more" * (len(differences) > MOST_NAMED)
            reasons.append(f"the database differs from the expected one in {named}{more}")
        if self._missing:
            reasons.append(f"missing outputs: {', '.join(self._missing)}")
        if reasons:
            return False, "; ".join(reasons)
        count = len(self._task.outputs)
        stated = f"all {count} outputs are stated" if count else "no outputs are required"
        return True, f"the database is as expected; {stated}"

    def take(self, action: Any, observation: Any) -> list[Finding]:
        """Follow a turn, and return what was found.

        Args:
            action: A `ToolAction`, or the `MessageAction` of a recorded turn.
            observation: The observation that it led to.
        """
        calls = calls_of_step(action, observation)
        self._ended = STOP in _heard(observation)
        findings = []
        if not calls:
            said = text_of(action).lower().replace(",", "")
            self._missing = [each for each in self._missing if each.lower() not in said]
        if len(calls) > 1:
            findings.append(Finding("forbidden", f"{len(calls)} calls in one turn"))
        for call in calls:
            if call.error != "transport_error" and not call.text.startswith("not called: "):
                findings += self._call(call)
        return [*findings, *self._at_end()] if observation.done else findings

    def _call(self, call: StepCall) -> Iterator[Finding]:
        title = _title(call.name, call.arguments)
        if call.name in WRITES and call.error != "invalid_args":
            yield from self._write(call, title)
        elif call.error or call.name not in TOOLS or call.text.startswith("Error: "):
            yield Finding("failed_call", f"{title}: {call.text}")
        else:
            self._seen.add(_subject(call.arguments))
            self._ended = self._ended or call.name == END

    def _write(self, call: StepCall, title: str) -> Iterator[Finding]:
        before = self.database.copy()
        try:
            self.database.call(call.name, call.arguments)
        except ToolError as error:
            yield Finding("failed_call", f"{title}: {error}")
            if isinstance(error, InvalidCallError):
                return
        change, subject = effect(before, self.database), _subject(call.arguments)
        if self._remaining[change] > 0:
            self._remaining[change] -= 1
            yield Finding("expected_write", title)
        else:
            if change:
                yield Finding("wrong_write", f"{title}: {self._difference(change, title)}")
            for rule in violations(before, call.name, call.arguments):
                yield Finding("forbidden", f"{title}: {rule}")
        if change:
            if subject not in self._seen:
                yield Finding("missing_read", f"{title}: changed without a look-up")
            self._seen |= {subject, *self.database.issued}

    def _difference(self, change: str, title: str) -> str:
        if change in self._titles:
            return "more often than expected"
        return "other than expected" if title in self._titles.values() else "not expected"

    def _at_end(self) -> Iterator[Finding]:
        for change in self._remaining.elements():
            yield Finding("missing_write", self._titles[change])
        for subject in sorted({_subject(each.kwargs) for each in self._task.actions} - self._seen):
            yield Finding("missing_read", f"{subject} was never looked up")
        for output in self._missing:
            yield Finding("missing_output", output)


def _subject(arguments: Mapping[str, Any]) -> str:
    """The reservation or the user that a call is about."""
    return str(arguments.get("reservation_id") or arguments.get("user_id") or "")


def _title(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {_subject(arguments)}".strip()


def _heard(observation: Any) -> str:
    """What the user answered."""
    live = isinstance(observation, SayObservation)
    given = observation.messages if live else observation.metadata.get("messages", ())
    messages = [Message.model_validate(each) for each in given]
    return "\n".join(each.text for each in messages if each.role == "user")
