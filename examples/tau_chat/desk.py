"""The booking desk: one traveller's booking, the flights there are, and the agent's tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

__all__ = ["Booking", "CHANGE_FEE", "Desk", "DeskError", "Flight", "TOOLS"]

CHANGE_FEE = 40  # euros


class DeskError(Exception):
    """What a tool can't do, in words for the agent."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight on a day.

    Attributes:
        number: What it is known by.
        route: From where to where.
        date: The day.
        departs: The hour.
        fare: Euros.
        seats: How many are free.
    """

    number: str
    route: str
    date: str
    departs: str
    fare: int
    seats: int = 9


@dataclass(frozen=True, slots=True)
class Booking:
    """Who flies with what.

    Attributes:
        code: What it is known by.
        traveller: Who flies.
        flight: The flight's number.
        paid: Euros, fees included.
    """

    code: str
    traveller: str
    flight: str
    paid: int


@dataclass
class Desk:
    """The bookings that an episode is about, and what an agent may do with them.

    Example:
        >>> from examples.tau_chat.desk import Booking, Desk, Flight
        >>> desk = Desk(
        ...     [Flight("EW 7", "Graz-Bari", "3 May", "09:10", 60),
        ...      Flight("EW 9", "Graz-Bari", "4 May", "07:30", 75)],
        ...     {"K4TQ": Booking("K4TQ", "Ida Moll", "EW 7", 60)},
        ... )
        >>> desk.call("change_flight", {"code": "K4TQ", "number": "EW 9"})
        '{"code": "K4TQ", "traveller": "Ida Moll", "flight": "EW 9", "paid": 115}'
        >>> desk.call("change_flight", {"code": "K4TQ"})
        Traceback (most recent call last):
        examples.tau_chat.desk.DeskError: change_flight takes code, number

    Args:
        flights: Those there are.
        bookings: By their codes.
    """

    flights: list[Flight]
    bookings: dict[str, Booking] = field(default_factory=dict)

    def call(self, name: str, arguments: Any) -> str:
        """Call a tool.

        Args:
            name: Which.
            arguments: What it takes, by name.

        Returns:
            Its answer, JSON.

        Raises:
            DeskError: There is no such tool, it doesn't take that, or it can't be done; nothing
                was changed.
        """
        if name not in TAKES:
            raise DeskError(f"there is no tool {name!r:.80}; there are {', '.join(TAKES)}")
        try:
            given = TEXTS.validate_python(arguments)
        except ValidationError:
            given = {}
        if given.keys() != TAKES[name].keys():
            raise DeskError(f"{name} takes {', '.join(TAKES[name])}")
        tool: Callable[..., Any] = getattr(self, name)
        return json.dumps(tool(**given))

    def read_booking(self, code: str) -> dict[str, Any]:
        """A booking with its flight."""
        booking = self._booking(code)
        return asdict(booking) | {"flight": asdict(self._flight(booking.flight))}

    def search_flights(self, route: str, date: str) -> list[dict[str, Any]]:
        """The flights of a route on a day."""
        return [asdict(each) for each in self.flights if (each.route, each.date) == (route, date)]

    def change_flight(self, code: str, number: str) -> dict[str, Any]:
        """Put a traveller on another flight, for the difference in fare and the fee."""
        booking, flight = self._booking(code), self._flight(number)
        old = self._flight(booking.flight)
        if flight.number == old.number:
            raise DeskError(f"{code} is booked on {number} already")
        if flight.route != old.route:
            raise DeskError(f"{number} doesn't fly {old.route}")
        if not flight.seats:
            raise DeskError(f"{number} has no seats left")
        paid = booking.paid + max(0, flight.fare - old.fare) + CHANGE_FEE
        self.bookings[code] = replace(booking, flight=number, paid=paid)
        return asdict(self.bookings[code])

    def _booking(self, code: str) -> Booking:
        if code not in self.bookings:
            raise DeskError(f"there is no booking {code!r:.80}")
        return self.bookings[code]

    def _flight(self, number: str) -> Flight:
        for each in self.flights:
            if each.number == number:
                return each
        raise DeskError(f"there is no flight {number!r:.80}")


TEXTS = TypeAdapter(dict[str, str])

TAKES = {
    "read_booking": {"code": "the booking's code"},
    "search_flights": {"route": "such as Graz-Bari", "date": "such as 3 May"},
    "change_flight": {"code": "the booking's code", "number": "of the new flight"},
}

#: The tools as a model is told of them, in OpenAI's format.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": getattr(Desk, name).__doc__,
            "parameters": {
                "type": "object",
                "properties": {
                    each: {"type": "string", "description": what} for each, what in takes.items()
                },
                "required": list(takes),
                "additionalProperties": False,
            },
        },
    }
    for name, takes in TAKES.items()
]
