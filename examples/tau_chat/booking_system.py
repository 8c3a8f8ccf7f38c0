"""`BookingSystem`: flights, bookings, and the tools with which an agent reads and changes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

__all__ = ["Booking", "BookingError", "BookingSystem", "CHANGE_FEE", "Flight", "TOOLS"]

CHANGE_FEE = 40  # euros


class BookingError(Exception):
    """A tool call failed; the message is sent to the agent."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight on a day.

    Attributes:
        number: The flight number.
        route: The origin and the destination, such as ``"Graz-Bari"``.
        date: The day of departure.
        departs: The time of departure.
        fare: The fare in euros.
        seats: The number of free seats.
    """

    number: str
    route: str
    date: str
    departs: str
    fare: int
    seats: int = 9


@dataclass(frozen=True, slots=True)
class Booking:
    """A traveller's booking of a flight.

    Attributes:
        code: The booking code.
        traveller: The traveller's name.
        flight: The flight number.
        paid: The amount paid in euros, fees included.
    """

    code: str
    traveller: str
    flight: str
    paid: int


@dataclass
class BookingSystem:
    """The flights and bookings of one episode, and the tools that an agent may call.

    Example:
        >>> from examples.tau_chat.booking_system import Booking, BookingSystem, Flight
        >>> system = BookingSystem(
        ...     [Flight("EW 7", "Graz-Bari", "3 May", "09:10", 60),
        ...      Flight("EW 9", "Graz-Bari", "4 May", "07:30", 75)],
        ...     {"K4TQ": Booking("K4TQ", "Ida Moll", "EW 7", 60)},
        ... )
        >>> system.call("change_flight", {"code": "K4TQ", "number": "EW 9"})
        '{"code": "K4TQ", "traveller": "Ida Moll", "flight": "EW 9", "paid": 115}'
        >>> system.call("change_flight", {"code": "K4TQ"})
        Traceback (most recent call last):
        examples.tau_chat.booking_system.BookingError: change_flight takes code, number

    Args:
        flights: All flights.
        bookings: The bookings by code.
    """

    flights: list[Flight]
    bookings: dict[str, Booking] = field(default_factory=dict)

    def call(self, name: str, arguments: Any) -> str:
        """Call a tool.

        Args:
            name: The tool's name.
            arguments: The tool's arguments by name.

        Returns:
            The result as JSON.

        Raises:
            BookingError: The tool is unknown, the arguments are wrong, or the call failed. Nothing
                was changed.
        """
        if name not in PARAMETERS:
            raise BookingError(f"unknown tool {name!r:.80}; the tools are {', '.join(PARAMETERS)}")
        try:
            given = TEXTS.validate_python(arguments)
        except ValidationError:
            given = {}
        if given.keys() != PARAMETERS[name].keys():
            raise BookingError(f"{name} takes {', '.join(PARAMETERS[name])}")
        tool: Callable[..., Any] = getattr(self, name)
        return json.dumps(tool(**given))

    def read_booking(self, code: str) -> dict[str, Any]:
        """Return a booking with its flight."""
        booking = self._booking(code)
        return asdict(booking) | {"flight": asdict(self._flight(booking.flight))}

    def search_flights(self, route: str, date: str) -> list[dict[str, Any]]:
        """Return the flights on a route on a day."""
        return [asdict(each) for each in self.flights if (each.route, each.date) == (route, date)]

    def change_flight(self, code: str, number: str) -> dict[str, Any]:
        """Move a booking to another flight, for the fare difference and a fee."""
        booking, flight = self._booking(code), self._flight(number)
        old = self._flight(booking.flight)
        if flight.number == old.number:
            raise BookingError(f"{code} is already booked on {number}")
        if flight.route != old.route:
            raise BookingError(f"{number} doesn't fly {old.route}")
        if not flight.seats:
            raise BookingError(f"{number} has no seats left")
        paid = booking.paid + max(0, flight.fare - old.fare) + CHANGE_FEE
        self.bookings[code] = replace(booking, flight=number, paid=paid)
        return asdict(self.bookings[code])

    def _booking(self, code: str) -> Booking:
        if code not in self.bookings:
            raise BookingError(f"unknown booking {code!r:.80}")
        return self.bookings[code]

    def _flight(self, number: str) -> Flight:
        for each in self.flights:
            if each.number == number:
                return each
        raise BookingError(f"unknown flight {number!r:.80}")


TEXTS = TypeAdapter(dict[str, str])

PARAMETERS = {
    "read_booking": {"code": "the booking code"},
    "search_flights": {"route": "such as Graz-Bari", "date": "such as 3 May"},
    "change_flight": {"code": "the booking code", "number": "the new flight's number"},
}

#: The specifications of the tools, in OpenAI's format.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": getattr(BookingSystem, name).__doc__,
            "parameters": {
                "type": "object",
                "properties": {
                    each: {"type": "string", "description": text}
                    for each, text in parameters.items()
                },
                "required": list(parameters),
                "additionalProperties": False,
            },
        },
    }
    for name, parameters in PARAMETERS.items()
]
