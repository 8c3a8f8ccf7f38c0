"""The read-only tools: look up, search, calculate, think, transfer."""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterator
from datetime import date as day
from datetime import timedelta
from typing import Any

from examples.tau_airline.data import Record
from examples.tau_airline.tables import Tables, ToolError

__all__ = [
    "calculate",
    "get_reservation_details",
    "get_user_details",
    "list_all_airports",
    "reservation_of",
    "search_direct_flight",
    "search_onestop_flight",
    "think",
    "transfer_to_human_agents",
    "user_of",
]

AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago",
    "DFW": "Dallas", "DEN": "Denver", "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami",
    "BOS": "Boston", "PHX": "Phoenix", "IAH": "Houston", "LAS": "Las Vegas", "MCO": "Orlando",
    "EWR": "Newark", "CLT": "Charlotte", "MSP": "Minneapolis", "DTW": "Detroit",
    "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
LONGEST_EXPRESSION = 500
NEXT_DAY = "+1"  # the suffix of an arrival time on the next day


def user_of(tables: Tables, user_id: str) -> Record:
    """Return a user, which must not be changed.

    Raises:
        ToolError: The user is unknown.
    """
    if user_id not in tables.users:
        raise ToolError("user not found")
    return tables.users[user_id]


def reservation_of(tables: Tables, reservation_id: str) -> Record:
    """Return a reservation, which must not be changed.

    Raises:
        ToolError: The reservation is unknown.
    """
    if reservation_id not in tables.reservations:
        raise ToolError("reservation not found")
    return tables.reservations[reservation_id]


def get_user_details(tables: Tables, user_id: str) -> str:
    """Return the user's record."""
    return json.dumps(user_of(tables, user_id))


def get_reservation_details(tables: Tables, reservation_id: str) -> str:
    """Return the reservation's record."""
    return json.dumps(reservation_of(tables, reservation_id))


def list_all_airports(tables: Tables) -> str:
    """Return the airport codes with their cities."""
    return json.dumps(AIRPORTS)


def search_direct_flight(tables: Tables, origin: str, *, destination: str, date: str) -> str:
    """Return the available flights of a date, in the order of the database."""
    return json.dumps(list(_direct(tables, origin, destination=destination, date=date)))


def search_onestop_flight(tables: Tables, origin: str, *, destination: str, date: str) -> str:
    """Return pairs of connecting flights.

    As in the recordings, after a landing on the next day the second flight has that day's date, but
    the seats and prices of the requested date.
    """
    pairs = []
    for first in _direct(tables, origin, date=date):
        lands = first["scheduled_arrival_time_est"]
        second_date = _next_day(date) if lands.endswith(NEXT_DAY) else date
        for second in _direct(tables, first["destination"], destination=destination, date=date):
            if second["scheduled_departure_time_est"] >= lands.removesuffix(NEXT_DAY):
                pairs.append([{**first, "date": date}, {**second, "date": second_date}])
    return json.dumps(pairs)


def _direct(
    tables: Tables, origin: str, *, date: str, destination: str | None = None
) -> Iterator[Record]:
    for flight in tables.flights.values():
        if flight["origin"] != origin or destination not in (None, flight["destination"]):
            continue
        on_date = flight["dates"].get(date, {})
        if on_date.get("status") == "available":
            yield {**{key: flight[key] for key in flight if key != "dates"}, **on_date}


def _next_day(date: str) -> str:
    return (day.fromisoformat(date) + timedelta(days=1)).isoformat()


def calculate(tables: Tables, expression: str) -> str:
    """Evaluate an expression of numbers, ``+ - * /`` and parentheses, to two decimals."""
    if len(expression) > LONGEST_EXPRESSION:
        raise ToolError(f"expression is longer than {LONGEST_EXPRESSION} characters")
    if set(expression) - set("0123456789+-*/(). "):
        raise ToolError("invalid characters in expression")
    try:
        return str(round(float(_value(ast.parse(expression.strip(), mode="eval").body)), 2))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("invalid expression") from error
    except ArithmeticError as error:
        raise ToolError(str(error)) from error


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand))
    raise ValueError(f"not arithmetic: {type(node).__name__}")


def think(tables: Tables, thought: str) -> str:
    """Do nothing; the thought is part of the conversation."""
    return ""


def transfer_to_human_agents(tables: Tables, summary: str) -> str:
    """End the conversation: a human takes over."""
    return "Transfer successful"
