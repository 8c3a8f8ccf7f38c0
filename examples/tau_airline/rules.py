"""Rules of the agent's policy that a program can check, and that the tools don't.

Not checked is what depends on the conversation, such as the user's consent and the reason of a
cancellation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from examples.tau_airline.bookings import NOW
from examples.tau_airline.data import Record
from examples.tau_airline.tables import Tables

__all__ = ["violations"]

Arguments = Mapping[str, Any]

YESTERDAY = "2024-05-14T15:00:00"  # 24 hours before `NOW`
MOST_PASSENGERS = 5
MOST_PAYMENTS = {"certificate": 1, "credit_card": 1, "gift_card": 3}
CABINS = ("basic_economy", "economy", "business")
FREE_BAGS = {"regular": (0, 1, 2), "silver": (1, 2, 3), "gold": (2, 3, 3)}  # by cabin


def violations(tables: Tables, name: str, arguments: Arguments) -> list[str]:
    """Return the rules that a write breaks.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.rules import violations
        >>> from examples.tau_airline.tables import Tables
        >>> trip = {"cabin": "economy", "insurance": "no", "flights": [], "created_at": "2024"}
        >>> tables = Tables(AirlineData(users={}, flights={}, reservations={"ZFA04Y": trip}))
        >>> violations(tables, "cancel_reservation", {"reservation_id": "ZFA04Y"})
        ['the reservation must not be cancelled']

    Args:
        tables: The database before the write.
        name: The tool.
        arguments: Its valid arguments.
    """
    table, key = tables.reservations, arguments.get("reservation_id")
    if key is None:
        table, key = tables.users, arguments["user_id"]
    return list(RULES[name](tables, table[key], arguments)) if key in table else []


def _booking(tables: Tables, user: Record, booking: Arguments) -> Iterator[str]:
    if len(booking["passengers"]) > MOST_PASSENGERS:
        yield f"a reservation may have at most {MOST_PASSENGERS} passengers"
    methods = user["payment_methods"]
    names = [each["payment_id"] for each in booking["payment_methods"]]
    used = Counter(methods[name]["source"] for name in names if name in methods)
    for source, most in MOST_PAYMENTS.items():
        if used[source] > most:
            yield f"a reservation may be paid with at most {most} {source}"
    yield from _bags(user, booking)


def _bags(user: Record, booking: Arguments) -> Iterator[str]:
    each = FREE_BAGS[user["membership"]][CABINS.index(booking["cabin"])]
    paid = max(0, booking["total_baggages"] - each * len(booking["passengers"]))
    if booking["nonfree_baggages"] != paid:
        yield f"{paid} of the bags must be paid"


def _certificate(tables: Tables, user: Record, arguments: Arguments) -> Iterator[str]:
    allowed = set[int]()
    for trip in (tables.reservations[each] for each in user["reservations"]):
        is_member = user["membership"] != "regular"
        if is_member or trip["insurance"] == "yes" or trip["cabin"] == "business":
            allowed |= {50 * len(trip["passengers"]), 100 * len(trip["passengers"])}
    if arguments["amount"] not in allowed:
        yield "the user must not get a certificate of this amount"


def _cancellation(tables: Tables, trip: Record, arguments: Arguments) -> Iterator[str]:
    days = [(each["date"], tables.flights[each["flight_number"]]) for each in trip["flights"]]
    statuses = {flight["dates"].get(date, {}).get("status") for date, flight in days}
    if {"flying", "landed"} & statuses or any(date < NOW[:10] for date, _ in days):
        yield "a trip that has begun must not be cancelled"
    elif not (
        trip["created_at"] >= YESTERDAY
        or "cancelled" in statuses
        or trip["cabin"] == "business"
        or trip["insurance"] == "yes"
    ):
        yield "the reservation must not be cancelled"


def _flights(tables: Tables, trip: Record, arguments: Arguments) -> Iterator[str]:
    old, new = (
        [(each["flight_number"], each["date"]) for each in flights]
        for flights in (trip["flights"], arguments["flights"])
    )
    if new == old:
        return
    if trip["cabin"] == "basic_economy":
        yield "flights in basic economy must not be changed"
    legs = [tables.flights[number] for number, _ in new if number in tables.flights]
    end = trip["destination" if trip["flight_type"] == "one_way" else "origin"]
    if not legs or (legs[0]["origin"], legs[-1]["destination"]) != (trip["origin"], end):
        yield "the origin and the destination must not be changed"


def _baggages(tables: Tables, trip: Record, arguments: Arguments) -> Iterator[str]:
    if arguments["total_baggages"] < trip["total_baggages"]:
        yield "bags must not be removed"
    yield from _bags(tables.users[trip["user_id"]], {**trip, **arguments})


RULES: Mapping[str, Callable[[Tables, Record, Arguments], Iterator[str]]] = {
    "book_reservation": _booking,
    "cancel_reservation": _cancellation,
    "send_certificate": _certificate,
    "update_reservation_baggages": _baggages,
    "update_reservation_flights": _flights,
    "update_reservation_passengers": lambda tables, trip, arguments: iter(()),
}
