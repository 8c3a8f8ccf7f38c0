"""The tools that write: book, cancel, update, send a certificate.

They make only the checks that the recordings show; the agent must follow the rest of the policy.
Some behaviour looks like a mistake but matches the recordings: an update of the flights charges
the prices of the new cabin but doesn't change the reservation's ``cabin``, and a booking accepts
several certificates. Other changes to the database match the published digests: gift cards are
charged and refunded at once, certificates are used up, cancellations are refunded later, and no
write changes the number of free seats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WrapValidator, with_config
from typing_extensions import TypedDict

from examples.tau_airline.data import Record
from examples.tau_airline.queries import reservation_of, user_of
from examples.tau_airline.tables import Tables, ToolError

__all__ = [
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
]

NOW = "2024-05-15T15:00:00"
BAG_PRICE = 50  # dollars per bag that isn't free
INSURANCE_PRICE = 30  # dollars per passenger
LARGEST = 10**9  # larger numbers are rejected before they can overflow

# Validates without conversion: answers repeat what the agent wrote, in its order.
AS_GIVEN = WrapValidator(lambda given, check: (check(given), given)[1])

Cabin = Literal["basic_economy", "economy", "business"]
Count = Annotated[int, Field(ge=-LARGEST, le=LARGEST, strict=True)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, strict=True), AS_GIVEN]
STRICT = ConfigDict(strict=True, extra="allow")


@with_config(STRICT)
class Segment(TypedDict):
    """One flight of a reservation."""

    flight_number: str
    date: str


@with_config(STRICT)
class Passenger(TypedDict):
    """A passenger of a reservation."""

    first_name: str
    last_name: str
    dob: str


@with_config(STRICT)
class Payment(TypedDict):
    """An amount paid with one payment method."""

    payment_id: str
    amount: Number


Segments = Annotated[list[Segment], AS_GIVEN]
Passengers = Annotated[list[Passenger], AS_GIVEN]
Payments = Annotated[list[Payment], AS_GIVEN]


def book_reservation(
    tables: Tables,
    user_id: str,
    *,
    origin: str,
    destination: str,
    flight_type: Literal["one_way", "round_trip"],
    cabin: Cabin,
    flights: Segments,
    passengers: Passengers,
    payment_methods: Payments,
    total_baggages: Count,
    nonfree_baggages: Count,
    insurance: Literal["yes", "no"],
) -> str:
    """Book the flights if there are seats, and the payments are covered and add up."""
    user_of(tables, user_id)
    people = len(passengers)
    booked = [_priced(tables, segment, cabin=cabin, people=people) for segment in flights]
    each = sum(flight["price"] for flight in booked)
    each += INSURANCE_PRICE if insurance == "yes" else 0
    _pay(
        tables,
        user_id,
        payments=payment_methods,
        total=each * people + BAG_PRICE * nonfree_baggages,
    )
    reservation_id = tables.new_reservation_id()
    reservation = {
        "reservation_id": reservation_id,
        "user_id": user_id,
        "origin": origin,
        "destination": destination,
        "flight_type": flight_type,
        "cabin": cabin,
        "flights": booked,
        "passengers": [{**passenger} for passenger in passengers],
        "payment_history": [{**payment} for payment in payment_methods],
        "created_at": NOW,
        "total_baggages": total_baggages,
        "nonfree_baggages": nonfree_baggages,
        "insurance": insurance,
    }
    tables.reservations.add(reservation_id, reservation)
    tables.users.edit(user_id)["reservations"].append(reservation_id)
    return json.dumps(reservation)


def _priced(tables: Tables, segment: Segment, *, cabin: Cabin, people: int) -> Record:
    """Return a flight of a reservation with its price; raise if it has too few seats."""
    number, date = segment["flight_number"], segment["date"]
    flight = tables.flights.get(number)
    if flight is None:
        raise ToolError(f"flight {number} not found")
    on_date = flight["dates"].get(date, {})
    if on_date.get("status") != "available":
        raise ToolError(f"flight {number} not available on date {date}")
    if on_date["available_seats"][cabin] < people:
        raise ToolError(f"not enough seats on flight {number}")
    return _with_price(segment, flight, price=on_date["prices"][cabin])


def _with_price(segment: Segment, route: Record, *, price: Number) -> Record:
    between = {"origin": route["origin"], "destination": route["destination"]}
    return {**segment, "price": price, **between}


def _pay(tables: Tables, user_id: str, *, payments: Sequence[Payment], total: Number) -> None:
    """Charge the price of a booking to gift cards and cards; certificates are used up."""
    methods = tables.users[user_id]["payment_methods"]
    spent: dict[str, Number] = {}
    for payment in payments:
        name = payment["payment_id"]
        if name not in methods:
            raise ToolError(f"payment method {name} not found")
        spent[name] = spent.get(name, 0) + payment["amount"]
        if methods[name]["source"] != "credit_card" and methods[name]["amount"] < spent[name]:
            raise ToolError(f"not enough balance in payment method {name}")
    paid = sum(payment["amount"] for payment in payments)
    if paid != total:
        raise ToolError(f"payment amount does not add up, total price is {total}, but paid {paid}")
    methods = tables.users.edit(user_id)["payment_methods"]
    for name, amount in spent.items():
        if methods[name]["source"] == "gift_card":
            methods[name]["amount"] -= amount
        elif methods[name]["source"] == "certificate":
            del methods[name]


def cancel_reservation(tables: Tables, reservation_id: str) -> str:
    """Cancel the whole reservation, and schedule a refund of each payment."""
    reservation_of(tables, reservation_id)
    reservation = tables.reservations.edit(reservation_id)
    reservation["payment_history"] += [
        {"payment_id": payment["payment_id"], "amount": -payment["amount"]}
        for payment in reservation["payment_history"]
    ]
    reservation["status"] = "cancelled"
    return json.dumps(reservation)


def update_reservation_flights(
    tables: Tables,
    reservation_id: str,
    *,
    cabin: Cabin,
    flights: Segments,
    payment_id: str,
) -> str:
    """Replace all flights, and charge or refund the difference in price.

    A flight that stays the same, in the same cabin, keeps its price and needs no seats.
    """
    reservation = reservation_of(tables, reservation_id)
    people = len(reservation["passengers"])
    kept = {}
    if cabin == reservation["cabin"]:
        kept = {(old["flight_number"], old["date"]): old for old in reservation["flights"]}
    new = []
    for segment in flights:
        old = kept.get((segment["flight_number"], segment["date"]))
        if old is None:
            new.append(_priced(tables, segment, cabin=cabin, people=people))
        else:
            new.append(_with_price(segment, old, price=old["price"]))
    before, after = (sum(each["price"] for each in all_) for all_ in (reservation["flights"], new))
    _settle(tables, reservation_id, payment_id=payment_id, due=(after - before) * people)
    tables.reservations.edit(reservation_id)["flights"] = new
    return json.dumps(tables.reservations[reservation_id])


def update_reservation_baggages(
    tables: Tables,
    reservation_id: str,
    *,
    total_baggages: Count,
    nonfree_baggages: Count,
    payment_id: str,
) -> str:
    """Set the numbers of bags, and charge the additional ones that aren't free."""
    more = nonfree_baggages - reservation_of(tables, reservation_id)["nonfree_baggages"]
    _settle(tables, reservation_id, payment_id=payment_id, due=BAG_PRICE * max(0, more))
    reservation = tables.reservations.edit(reservation_id)
    reservation["total_baggages"] = total_baggages
    reservation["nonfree_baggages"] = nonfree_baggages
    return json.dumps(reservation)


def _settle(tables: Tables, reservation_id: str, *, payment_id: str, due: Number) -> None:
    """Charge the price of an update, or refund it if it is negative."""
    user_id = tables.reservations[reservation_id]["user_id"]
    method = user_of(tables, user_id)["payment_methods"].get(payment_id)
    if method is None:
        raise ToolError("payment method not found")
    if method["source"] == "certificate":
        raise ToolError("certificate cannot be used to update reservation")
    if method["source"] == "gift_card" and method["amount"] < due:
        raise ToolError("gift card balance is not enough")
    if due == 0:
        return
    if method["source"] == "gift_card":
        tables.users.edit(user_id)["payment_methods"][payment_id]["amount"] -= due
    history = tables.reservations.edit(reservation_id)["payment_history"]
    history.append({"payment_id": payment_id, "amount": due})


def update_reservation_passengers(
    tables: Tables, reservation_id: str, *, passengers: Passengers
) -> str:
    """Replace the passengers by the same number of passengers."""
    if len(passengers) != len(reservation_of(tables, reservation_id)["passengers"]):
        raise ToolError("number of passengers does not match")
    reservation = tables.reservations.edit(reservation_id)
    reservation["passengers"] = [{**passenger} for passenger in passengers]
    return json.dumps(reservation)


def send_certificate(tables: Tables, user_id: str, *, amount: Number) -> str:
    """Add a certificate to the user's payment methods."""
    user_of(tables, user_id)
    name = tables.new_certificate_id()
    certificate = {"source": "certificate", "amount": amount, "id": name}
    tables.users.edit(user_id)["payment_methods"][name] = certificate
    return f"Certificate {name} added to user {user_id} with amount {amount}."
