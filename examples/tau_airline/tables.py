"""The tables of a conversation: shared records, and copies of the changed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Self

from examples.tau_airline.data import AirlineData, Record

__all__ = ["Table", "Tables", "ToolError"]

FIRST_RESERVATION = "HATHAT"
FIRST_CERTIFICATE = 3221322
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ToolError(Exception):
    """A tool call failed; its text, which the agent reads, begins with ``Error: ``."""

    def __str__(self) -> str:
        return f"Error: {super().__str__()}"


class Table(Mapping[str, Record]):
    """Records by ID, which are copied when they change: the shared ones are never changed.

    Example:
        >>> from examples.tau_airline.tables import Table
        >>> shared = {"a": {"bags": 1}, "b": {"bags": 2}}
        >>> table = Table(shared)
        >>> table.edit("a")["bags"] = 3
        >>> table["a"], shared["a"], table.differences(Table(shared))
        ({'bags': 3}, {'bags': 1}, ['a'])

    Args:
        shared: The initial records.
    """

    def __init__(self, shared: dict[str, Record]) -> None:
        self._shared = shared
        self._own: dict[str, Record] = {}

    def __getitem__(self, key: str) -> Record:
        return self._own[key] if key in self._own else self._shared[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield from (key for key in self._own if key not in self._shared)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def edit(self, key: str) -> Record:
        """Return this table's own copy of a record, which may be changed."""
        if key not in self._own:
            self._own[key] = deepcopy(self._shared[key])
        return self._own[key]

    def add(self, key: str, record: Record) -> None:
        """Add a new record."""
        self._own[key] = record

    def copy(self) -> Table:
        """Return an independent copy of the table."""
        table = Table(self._shared)
        table._own = deepcopy(self._own)
        return table

    def differences(self, other: Table) -> list[str]:
        """Return the IDs whose records differ.

        Only records that one of the two tables changed are compared. Records are never removed, so
        two tables with the same shared records are equal if and only if the list is empty.
        """
        same = self._shared is other._shared
        keys = {**self._own, **other._own} if same else {**self, **other}
        return [key for key in keys if self.get(key) != other.get(key)]


class Tables:
    """Users, flights and reservations of one conversation.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.tables import Tables
        >>> tables = Tables(AirlineData(users={}, flights={}, reservations={}))
        >>> tables.new_reservation_id(), tables.new_certificate_id(), tables.issued
        ('HATHAT', 'certificate_3221322', ['HATHAT', 'certificate_3221322'])

    Args:
        data: The initial database.

    Attributes:
        issued: The IDs of new reservations and certificates, in order.
    """

    def __init__(self, data: AirlineData) -> None:
        self.data = data
        self.users = Table(data.users)
        self.flights = Table(data.flights)
        self.reservations = Table(data.reservations)
        self.issued: list[str] = []

    def copy(self) -> Self:
        """Return an independent copy."""
        tables = type(self)(self.data)
        tables.users = self.users.copy()
        tables.flights = self.flights.copy()
        tables.reservations = self.reservations.copy()
        tables.issued = list(self.issued)
        return tables

    def differences(self, other: Tables) -> list[str]:
        """Return the differing records, such as ``"reservation ZFA04Y"``; empty if equal."""
        return [
            *(f"user {key}" for key in self.users.differences(other.users)),
            *(f"flight {key}" for key in self.flights.differences(other.flights)),
            *(f"reservation {key}" for key in self.reservations.differences(other.reservations)),
        ]

    def new_reservation_id(self) -> str:
        """Return ``HATHAT``, then ``HATHAU`` and so on, the same in every replay."""
        name = FIRST_RESERVATION
        while name in self.reservations:
            name = _next(name)
        self.issued.append(name)
        return name

    def new_certificate_id(self) -> str:
        """Return ``certificate_3221322``, then the next number each time."""
        sent = sum(name.startswith("certificate_") for name in self.issued)
        self.issued.append(f"certificate_{FIRST_CERTIFICATE + sent}")
        return self.issued[-1]


def _next(name: str) -> str:
    """Return the next ID in letters: ``HATHAZ`` is followed by ``HATHBA``."""
    head, last = name[:-1], name[-1]
    if last != LETTERS[-1]:
        return head + LETTERS[LETTERS.index(last) + 1]
    return _next(head) + LETTERS[0]
