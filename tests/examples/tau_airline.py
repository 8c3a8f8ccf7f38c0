"""A tiny airline in tau-bench's format, with calls and conversations, for the tests."""

import json

from examples.tau_airline.data import AirlineData
from examples.tau_airline.tables import ToolError

SEATS = {"basic_economy": 9, "economy": 2, "business": 4}
PRICES = {"basic_economy": 50, "economy": 120, "business": 300}
OPEN = {"status": "available", "available_seats": SEATS, "prices": PRICES}
DELAYED = {
    "status": "delayed",
    "estimated_departure_time_est": "2024-05-15T09:00:00",
    "estimated_arrival_time_est": "2024-05-15T17:00:00",
}


def flight(number, *, origin, to, leaves, lands, dates):
    return {
        "flight_number": number,
        "origin": origin,
        "destination": to,
        "scheduled_departure_time_est": leaves,
        "scheduled_arrival_time_est": lands,
        "dates": dates,
    }


def card(name, source, **more):
    return {name: {"source": source, **more, "id": name}}


ANA = {
    "name": {"first_name": "Ana", "last_name": "Lopez"},
    "address": {"city": "Reno", "country": "USA", "state": "NV"},
    "email": "ana@example.com",
    "dob": "1990-01-01",
    "payment_methods": {
        **card("credit_card_1", "credit_card", brand="visa", last_four="1111"),
        **card("gift_card_1", "gift_card", amount=100),
        **card("gift_card_2", "gift_card", amount=1000),
        **card("certificate_1", "certificate", amount=250),
    },
    "saved_passengers": [],
    "membership": "gold",
    "reservations": ["AAAAAA"],
}
PASSENGERS = [
    {"first_name": "Ana", "last_name": "Lopez", "dob": "1990-01-01"},
    {"first_name": "Bo", "last_name": "Lopez", "dob": "1991-01-01"},
]
TRIP = {
    "reservation_id": "AAAAAA",
    "user_id": "ana_lopez_1",
    "origin": "SFO",
    "destination": "JFK",
    "flight_type": "one_way",
    "cabin": "economy",
    "flights": [
        {
            "origin": "SFO",
            "destination": "JFK",
            "flight_number": "HAT001",
            "date": "2024-05-20",
            "price": 90,
        }
    ],
    "passengers": PASSENGERS,
    "payment_history": [{"payment_id": "credit_card_1", "amount": 180}],
    "created_at": "2024-05-01T00:00:00",
    "total_baggages": 1,
    "nonfree_baggages": 0,
    "insurance": "no",
}
DATES = {"2024-05-20": OPEN, "2024-05-15": DELAYED}
FLIGHTS = [
    flight("HAT001", origin="SFO", to="JFK", leaves="08:00:00", lands="16:00:00", dates=DATES),
    flight("HAT002", origin="SFO", to="JFK", leaves="09:00:00", lands="17:00:00", dates=DATES),
    flight("HAT003", origin="SFO", to="LAS", leaves="22:00:00", lands="01:00:00+1", dates=DATES),
    flight("HAT004", origin="SFO", to="LAS", leaves="10:00:00", lands="12:00:00", dates=DATES),
    flight("HAT005", origin="LAS", to="JFK", leaves="12:00:00", lands="19:00:00", dates=DATES),
    flight("HAT006", origin="LAS", to="JFK", leaves="00:30:00", lands="07:30:00", dates=DATES),
]


def booking(**changes):
    return {
        "user_id": "ana_lopez_1",
        "origin": "SFO",
        "destination": "JFK",
        "flight_type": "one_way",
        "cabin": "economy",
        "flights": [{"flight_number": "HAT002", "date": "2024-05-20"}],
        "passengers": PASSENGERS[:1],
        "payment_methods": [{"payment_id": "credit_card_1", "amount": 120}],
        "total_baggages": 0,
        "nonfree_baggages": 0,
        "insurance": "no",
        **changes,
    }


def paid(**amounts):
    return [{"payment_id": name, "amount": amount} for name, amount in amounts.items()]


def changed_flights(**changes):
    return {
        "reservation_id": "AAAAAA",
        "cabin": "economy",
        "flights": [{"flight_number": "HAT002", "date": "2024-05-20"}],
        "payment_id": "gift_card_1",
        **changes,
    }


def bags(**changes):
    return {
        "reservation_id": "AAAAAA",
        "total_baggages": 3,
        "nonfree_baggages": 2,
        "payment_id": "gift_card_1",
        **changes,
    }


def answer_of(database, name, arguments):
    """Return what the agent reads."""
    try:
        return database.call(name, arguments)
    except ToolError as error:
        return str(error)


# Conversations ------------------------------------------------------------------------------------


def assistant(content):
    return {"role": "assistant", "content": content}


def turn(*calls, answered=True):
    """Return an assistant turn with tool calls, and the tools' answers."""
    made = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": given_ if isinstance(given_, str) else json.dumps(given_),
            },
        }
        for number, (name, given_) in enumerate(calls)
    ]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "recorded"} for call in made]
    return [
        {"role": "assistant", "content": None, "tool_calls": made},
        *(answers if answered else []),
    ]


STOPPED = {"role": "user", "content": "Thanks! ###STOP###"}
CANCEL = ("cancel_reservation", {"reservation_id": "AAAAAA"})
BOOK = ("book_reservation", booking())
SEND = ("send_certificate", {"user_id": "ana_lopez_1", "amount": 5})
LOOK = ("get_user_details", {"user_id": "ana_lopez_1"})
MOVE = ("transfer_to_human_agents", {"summary": "-"})


def task(*actions, outputs=()):
    calls = [{"name": name, "kwargs": kwargs} for name, kwargs in actions]
    return {"user_id": "ana_lopez_1", "actions": calls, "outputs": list(outputs)}


TASKS = [
    {**task(LOOK, CANCEL), "instruction": "You are ana_lopez_1. You want to cancel AAAAAA."},
    {**task(outputs=["1327.5"]), "instruction": "You want to know what it costs."},
    {**task(), "instruction": "You want a refund."},
]
DATA = AirlineData(
    users={"ana_lopez_1": ANA},
    flights={each["flight_number"]: each for each in FLIGHTS},
    reservations={"AAAAAA": TRIP},
    tasks=TASKS,
    policy="Be helpful.",
)


def write_data(folder, **lists):
    """Write the tiny airline to a folder, with further files of lists, such as tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in ("users", "flights", "reservations"):
        (folder / f"{table}.json").write_text(json.dumps(getattr(DATA, table)))
    for name, content in lists.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
