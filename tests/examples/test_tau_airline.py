import doctest
import hashlib
import importlib
import json
import re
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.tau_airline import reward as reward_module
from examples.tau_airline.calls import calls_of
from examples.tau_airline.data import AirlineData, data_path, load_data
from examples.tau_airline.effects import effect
from examples.tau_airline.replay import RENAMED, main, replay
from examples.tau_airline.reward import FAILED, UNEXPECTED, judge, resolved
from examples.tau_airline.task import Task
from examples.tau_airline.tools import TOOLS, WRITES, Database
from guerdon import EvaluateResult, Message, as_rubric
from guerdon.errors import InvalidArgumentError

ROOT = Path(reward_module.__file__).parents[2]

# A tiny airline, in tau-bench's format ------------------------------------------------------------

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
DATA = AirlineData(
    users={"ana_lopez_1": ANA},
    flights={each["flight_number"]: each for each in FLIGHTS},
    reservations={"AAAAAA": TRIP},
)
INITIAL = json.dumps([DATA.users, DATA.flights, DATA.reservations])


@pytest.fixture(autouse=True)
def initial_data_is_unchanged():
    yield
    assert json.dumps([DATA.users, DATA.flights, DATA.reservations]) == INITIAL


@pytest.fixture
def database():
    return Database(DATA)


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


# Queries ------------------------------------------------------------------------------------------


def test_get_details_returns_the_record_as_json(database):
    assert database.call("get_user_details", {"user_id": "ana_lopez_1"}) == json.dumps(ANA)
    answer = database.call("get_reservation_details", '{"reservation_id": "AAAAAA"}')
    assert answer == json.dumps(TRIP)


def test_search_direct_flight_returns_available_flights(database):
    found = json.loads(
        database.call(
            "search_direct_flight", {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"}
        )
    )
    assert [each["flight_number"] for each in found] == ["HAT001", "HAT002"]
    assert list(found[0]) == [*list(FLIGHTS[0])[:-1], *OPEN]


@pytest.mark.parametrize("date", ["2024-05-15", "2030-01-01", "soon"])
def test_search_flight_on_an_unavailable_date_returns_nothing(database, date):
    trip = {"origin": "SFO", "destination": "JFK", "date": date}
    assert database.call("search_direct_flight", trip) == "[]"
    assert database.call("search_onestop_flight", trip) == "[]"


def test_search_onestop_flight_returns_connecting_flights(database):
    found = json.loads(
        database.call(
            "search_onestop_flight", {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"}
        )
    )
    legs = [[(leg["flight_number"], leg["date"]) for leg in pair] for pair in found]
    assert legs == [
        [("HAT003", "2024-05-20"), ("HAT005", "2024-05-21")],
        [("HAT004", "2024-05-20"), ("HAT005", "2024-05-20")],
    ]


def test_list_all_airports_returns_20_cities_by_code(database):
    assert json.loads(database.call("list_all_airports", {}))["SFO"] == "San Francisco"
    assert len(json.loads(database.call("list_all_airports", "{}"))) == 20


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 2", "4.0"),
        ("(1 - 4) * -2.5", "7.5"),
        ("10 / 3", "3.33"),
        ("-(2)", "-2.0"),
        ("---2", "-2.0"),
    ],
    ids=["sum", "product", "rounded", "negative", "more negative"],
)
def test_calculate_returns_two_decimals(database, expression, value):
    assert database.call("calculate", {"expression": expression}) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2 ** 9", "7 // 2", "1 +", "(2)(3)", "1 / 0", "x + 1", "9" * 501, "()", "0" * 2 + "7"],
    ids=range(10),
)
def test_calculate_rejects_other_expressions(database, expression):
    answer = database.call("calculate", {"expression": expression})
    assert answer.startswith("Error: ")


def test_think_returns_nothing_and_transfer_succeeds(database):
    assert database.call("think", {"thought": "Hm."}) == ""
    assert database.call("transfer_to_human_agents", {"summary": "-"}) == "Transfer successful"


# Writes -------------------------------------------------------------------------------------------


def test_book_reservation_adds_prices_and_a_payment_history(database):
    flights = [{"date": "2024-05-20", "flight_number": "HAT002"}]
    booked = json.loads(database.call("book_reservation", booking(flights=flights)))
    assert booked["reservation_id"] == "HATHAT"
    assert list(booked) == list(TRIP)
    assert json.dumps(booked["flights"]) == json.dumps(
        [{**flights[0], "price": 120, "origin": "SFO", "destination": "JFK"}]
    )
    assert booked["payment_history"] == paid(credit_card_1=120)
    assert booked["created_at"] == "2024-05-15T15:00:00"
    assert database.users["ana_lopez_1"]["reservations"] == ["AAAAAA", "HATHAT"]
    assert database.reservations["HATHAT"] == booked
    assert not database.flights.differences(Database(DATA).flights)


def test_book_reservation_numbers_reservations_in_letters(database):
    answers = [json.loads(database.call("book_reservation", booking())) for _ in range(8)]
    names = [answer["reservation_id"] for answer in answers]
    assert names == ["HATHA" + letter for letter in "TUVWXYZ"] + ["HATHBA"]


def test_book_reservation_charges_insurance_per_passenger_and_bags_once(database):
    payments = paid(gift_card_2=300, certificate_1=90)
    more = {"passengers": PASSENGERS, "insurance": "yes", "nonfree_baggages": 2}
    answer = database.call("book_reservation", booking(**more, payment_methods=payments))
    assert answer.endswith("total price is 400, but paid 390")
    payments[1]["amount"] = 100
    assert "HATHAT" in database.call("book_reservation", booking(**more, payment_methods=payments))


def test_book_reservation_uses_up_certificates_and_charges_gift_cards(database):
    payments = paid(gift_card_1=20, certificate_1=100)
    database.call("book_reservation", booking(payment_methods=payments))
    methods = database.users["ana_lopez_1"]["payment_methods"]
    assert "certificate_1" not in methods
    assert methods["gift_card_1"]["amount"] == 80


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"user_id": "nobody"}, "user not found"),
        ({"flights": [{"flight_number": "X", "date": "2024-05-20"}]}, "flight X not found"),
        (
            {"flights": [{"flight_number": "HAT001", "date": "2024-05-15"}]},
            "flight HAT001 not available on date 2024-05-15",
        ),
        (
            {"flights": [{"flight_number": "HAT001", "date": "May 20"}]},
            "flight HAT001 not available on date May 20",
        ),
        ({"passengers": PASSENGERS * 2}, "not enough seats on flight HAT002"),
        ({"payment_methods": paid(gift_card_9=120)}, "payment method gift_card_9 not found"),
        (
            {"payment_methods": paid(gift_card_1=120)},
            "not enough balance in payment method gift_card_1",
        ),
        (
            {"payment_methods": paid(gift_card_1=60) * 2},
            "not enough balance in payment method gift_card_1",
        ),
        (
            {"payment_methods": paid(certificate_1=251)},
            "not enough balance in payment method certificate_1",
        ),
        (
            {"payment_methods": paid(credit_card_1=100)},
            "payment amount does not add up, total price is 120, but paid 100",
        ),
    ],
    ids=[
        "user",
        "flight",
        "status",
        "date",
        "seats",
        "method",
        "gift-card",
        "gift-card-twice",
        "certificate",
        "sum",
    ],
)
def test_book_reservation_rejects_invalid_bookings(database, changes, error):
    assert database.call("book_reservation", booking(**changes)) == f"Error: {error}"
    assert database.differences(Database(DATA)) == []


def test_cancel_reservation_refunds_every_payment(database):
    answer = json.loads(database.call("cancel_reservation", {"reservation_id": "AAAAAA"}))
    assert answer["payment_history"] == paid(credit_card_1=180) + paid(credit_card_1=-180)
    assert list(answer)[-1] == "status"
    assert answer["status"] == "cancelled"


def test_update_flights_charges_the_difference_and_keeps_the_cabin(database):
    change = changed_flights(cabin="business", payment_id="gift_card_2")
    answer = json.loads(database.call("update_reservation_flights", change))
    assert answer["cabin"] == "economy"
    assert answer["flights"][0]["price"] == 300
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_2", "amount": 420}
    assert database.users["ana_lopez_1"]["payment_methods"]["gift_card_2"]["amount"] == 580


def test_update_flights_refunds_a_lower_price(database):
    answer = json.loads(
        database.call("update_reservation_flights", changed_flights(cabin="basic_economy"))
    )
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": -80}
    assert database.users["ana_lopez_1"]["payment_methods"]["gift_card_1"]["amount"] == 180


def test_update_flights_keeps_the_price_of_an_unchanged_flight(database):
    kept = [{"flight_number": "HAT001", "date": "2024-05-20"}]
    answer = json.loads(database.call("update_reservation_flights", changed_flights(flights=kept)))
    assert answer["flights"][0]["price"] == 90
    assert answer["payment_history"] == TRIP["payment_history"]
    assert database.differences(Database(DATA)) == []


def test_update_baggages_charges_additional_bags_once(database):
    answer = json.loads(database.call("update_reservation_baggages", bags()))
    assert (answer["total_baggages"], answer["nonfree_baggages"]) == (3, 2)
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": 100}
    answer = json.loads(database.call("update_reservation_baggages", bags(total_baggages=4)))
    assert len(answer["payment_history"]) == 2


def test_update_passengers_replaces_all_passengers(database):
    others = [{**PASSENGERS[0], "first_name": "Eva"}, PASSENGERS[1]]
    change = {"reservation_id": "AAAAAA", "passengers": others}
    assert json.loads(database.call("update_reservation_passengers", change)) == {
        **TRIP,
        "passengers": others,
    }


def test_send_certificate_numbers_certificates(database):
    change = {"user_id": "ana_lopez_1", "amount": 50}
    answers = [database.call("send_certificate", change) for _ in range(2)]
    assert answers == [
        f"Certificate certificate_{number} added to user ana_lopez_1 with amount 50."
        for number in (3221322, 3221323)
    ]
    methods = database.users["ana_lopez_1"]["payment_methods"]
    assert methods["certificate_3221323"] == {
        "source": "certificate",
        "amount": 50,
        "id": "certificate_3221323",
    }


NO_SEATS = {"flights": [{"flight_number": "HAT002", "date": "2024-05-21"}]}


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("get_user_details", {"user_id": "nobody"}, "user not found"),
        ("get_reservation_details", {"reservation_id": "B"}, "reservation not found"),
        ("cancel_reservation", {"reservation_id": "B"}, "reservation not found"),
        ("send_certificate", {"user_id": "nobody", "amount": 1}, "user not found"),
        (
            "update_reservation_passengers",
            {"reservation_id": "B", "passengers": []},
            "reservation not found",
        ),
        (
            "update_reservation_passengers",
            {"reservation_id": "AAAAAA", "passengers": PASSENGERS[:1]},
            "number of passengers does not match",
        ),
        (
            "update_reservation_flights",
            changed_flights(reservation_id="B"),
            "reservation not found",
        ),
        (
            "update_reservation_flights",
            changed_flights(**NO_SEATS),
            "flight HAT002 not available on date 2024-05-21",
        ),
        (
            "update_reservation_flights",
            changed_flights(payment_id="gift_card_9"),
            "payment method not found",
        ),
        (
            "update_reservation_flights",
            changed_flights(payment_id="certificate_1"),
            "certificate cannot be used to update reservation",
        ),
        (
            "update_reservation_flights",
            changed_flights(cabin="business"),
            "gift card balance is not enough",
        ),
        ("update_reservation_baggages", bags(reservation_id="B"), "reservation not found"),
        ("update_reservation_baggages", bags(payment_id="-"), "payment method not found"),
        (
            "update_reservation_baggages",
            bags(payment_id="certificate_1"),
            "certificate cannot be used to update reservation",
        ),
        (
            "update_reservation_baggages",
            bags(nonfree_baggages=3),
            "gift card balance is not enough",
        ),
    ],
    ids=range(15),
)
def test_database_call_rejects_invalid_changes_and_changes_nothing(
    database, name, arguments, error
):
    assert database.call(name, arguments) == f"Error: {error}"
    assert database.differences(Database(DATA)) == []


def test_update_flights_requires_seats_for_all_passengers():
    data = deepcopy(DATA)
    data.flights["HAT002"]["dates"]["2024-05-20"]["available_seats"]["economy"] = 1
    answer = Database(data).call("update_reservation_flights", changed_flights())
    assert answer == "Error: not enough seats on flight HAT002"


# Calls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("fly", "{}", "unknown tool 'fly'"),
        ("think", '{"thought": ', "arguments of think must be a JSON object"),
        ("think", "[" * 100_000, "arguments of think must be a JSON object"),
        ("think", "[]", "arguments of think must be a JSON object"),
        ("think", "{}", "invalid argument of think: thought: Field required"),
        ("think", '{"thought": 4}', "invalid argument of think: thought: Input should be a"),
        ("list_all_airports", '{"of": "USA"}', "invalid argument of list_all_airports: of: Extra"),
        ("send_certificate", '{"user_id": "ana_lopez_1", "amount": NaN}', "arguments of send_cer"),
        ("send_certificate", '{"user_id": "ana_lopez_1", "amount": 1e999}', "invalid argument of"),
        ("send_certificate", '{"user_id": "ana_lopez_1", "amount": true}', "invalid argument of"),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": "5"}, "invalid argument of"),
        ("book_reservation", booking(cabin="first"), "invalid argument of book_reservation: cabin"),
        (
            "book_reservation",
            booking(payment_methods=[{"payment_id": "credit_card_1", "amount": "120"}]),
            "invalid argument of book_reservation: payment_methods.0.amount",
        ),
        (
            "book_reservation",
            booking(flights=[{"flight_number": "HAT001"}]),
            "invalid argument of book_reservation: flights.0.date: Field required",
        ),
        ("update_reservation_baggages", bags(nonfree_baggages=10**400), "invalid argument of"),
    ],
    ids=range(15),
)
def test_database_call_answers_an_invalid_call_with_an_error(database, name, arguments, error):
    assert database.call(name, arguments).startswith(f"Error: {error}")
    assert database.differences(Database(DATA)) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
FULL = {
    "book_reservation": booking(),
    "update_reservation_flights": changed_flights(),
    "update_reservation_baggages": bags(),
    "update_reservation_passengers": {"reservation_id": "AAAAAA", "passengers": PASSENGERS},
    "send_certificate": {"user_id": "ana_lopez_1", "amount": 5},
    "cancel_reservation": {"reservation_id": "AAAAAA"},
    "search_onestop_flight": {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"},
    "calculate": {"expression": "1"},
}


@given(name=st.sampled_from(sorted(FULL)), value=json_values, at=st.integers(0, 10))
def test_database_call_always_returns_a_text(name, value, at):
    arguments = dict(FULL[name])
    arguments[list(arguments)[at % len(arguments)]] = value
    database = Database(DATA)
    for given_ in (arguments, json.dumps(arguments), json.dumps(value)):
        assert isinstance(database.call(name, given_), str)


@given(expression=st.text("0123456789+-*/(). ", max_size=30))
def test_calculate_always_returns_a_text(expression):
    assert Database(DATA).call("calculate", {"expression": expression})


def test_tools_has_14_tools_of_which_6_write():
    assert len(TOOLS) == 14
    assert len(WRITES) == 6
    assert set(TOOLS) >= WRITES
    assert Database(DATA).tools == []


# Copy on write ------------------------------------------------------------------------------------

writes = st.sampled_from(
    [
        ("book_reservation", booking()),
        ("book_reservation", booking(payment_methods=paid(certificate_1=120))),
        ("cancel_reservation", {"reservation_id": "AAAAAA"}),
        ("cancel_reservation", {"reservation_id": "HATHAT"}),
        ("update_reservation_flights", changed_flights()),
        ("update_reservation_flights", changed_flights(cabin="basic_economy")),
        ("update_reservation_baggages", bags()),
        (
            "update_reservation_passengers",
            {"reservation_id": "AAAAAA", "passengers": PASSENGERS[::-1]},
        ),
        ("update_reservation_passengers", {"reservation_id": "AAAAAA", "passengers": PASSENGERS}),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": 5}),
    ]
)


def whole(database):
    tables = (database.users, database.flights, database.reservations)
    return [dict(table) for table in tables]


@given(first=st.lists(writes, max_size=4), second=st.lists(writes, max_size=4))
def test_differences_is_empty_if_and_only_if_the_databases_are_equal(first, second):
    one, other = Database(DATA), Database(DATA)
    for call in first:
        one.call(*call)
    for call in second:
        other.call(*call)
    assert (one.differences(other) == []) == (whole(one) == whole(other))
    assert (one.differences(Database(deepcopy(DATA))) == []) == (
        whole(one) == whole(Database(DATA))
    )
    assert json.dumps([DATA.users, DATA.flights, DATA.reservations]) == INITIAL


@given(calls=st.lists(writes, max_size=4), last=writes)
def test_database_copy_is_independent(calls, last):
    database = Database(DATA)
    for call in calls:
        database.call(*call)
    before, copy = deepcopy(whole(database)), database.copy()
    answer = copy.call(*last)
    assert whole(database) == before
    assert database.call(*last) == answer
    assert database.differences(copy) == []


def test_table_is_a_mapping_of_all_records(database):
    database.call("book_reservation", booking())
    assert list(database.reservations) == ["AAAAAA", "HATHAT"]
    assert len(database.reservations) == 2


# Effects ------------------------------------------------------------------------------------------


def effect_of(database, name, arguments):
    before = database.copy()
    database.call(name, arguments)
    return effect(before, database)


def test_effect_is_independent_of_earlier_writes():
    plain, later = Database(DATA), Database(DATA)
    later.call("book_reservation", booking(payment_methods=paid(gift_card_1=20, gift_card_2=100)))
    later.call("send_certificate", {"user_id": "ana_lopez_1", "amount": 7})
    for write in (
        ("book_reservation", booking(payment_methods=paid(gift_card_2=120))),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": 5}),
        ("update_reservation_flights", changed_flights()),
    ):
        assert effect_of(plain, *write) == effect_of(later, *write) != ""


def test_effect_is_the_same_for_integers_and_floats():
    as_float = booking(payment_methods=paid(credit_card_1=120.0))
    assert effect_of(Database(DATA), "book_reservation", as_float) == effect_of(
        Database(DATA), "book_reservation", booking()
    )


def test_effect_differs_between_writes_and_is_empty_without_changes():
    business = changed_flights(cabin="business", payment_id="gift_card_2")
    one = effect_of(Database(DATA), "update_reservation_flights", business)
    other = effect_of(Database(DATA), "update_reservation_flights", changed_flights())
    assert len({one, other, ""}) == 3
    same = {"reservation_id": "AAAAAA", "passengers": PASSENGERS}
    assert effect_of(Database(DATA), "update_reservation_passengers", same) == ""


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


def judged(messages, ground_truth):
    return judge(messages, ground_truth, data=DATA)


def steps(result):
    return [(step.step_index, round(step.base_reward, 6)) for step in result.step_outputs or ()]


def test_judge_scores_a_resolved_conversation_1():
    result = judged([assistant("Hi"), *turn(LOOK), *turn(CANCEL), STOPPED], task(LOOK, CANCEL))
    assert result.score == 1.0
    assert steps(result) == [(2, 1.0)]
    assert result.step_outputs[0].reason == "cancel_reservation AAAAAA: as expected"
    assert result.metrics == {
        "expected_writes": 1,
        "database_equal": 1,
        "ended": 1,
        "outputs": 0,
        "outputs_stated": 0,
        "writes": 1,
    }


def test_judge_without_writes_has_no_step_outputs():
    result = judged([*turn(LOOK), assistant("No."), STOPPED], task())
    assert (result.score, result.step_outputs) == (1.0, None)


def test_judge_penalizes_unexpected_writes():
    result = judged([*turn(CANCEL), *turn(SEND), STOPPED], task(SEND))
    assert result.score == 0.0
    assert steps(result) == [(0, UNEXPECTED), (1, 1.0)]
    assert result.step_outputs[0].reason == "cancel_reservation AAAAAA: not expected"
    assert result.reason == "the database differs from the expected one in reservation AAAAAA"


def test_judge_distinguishes_the_expected_tool_with_another_effect():
    result = judged([*turn(("send_certificate", {**SEND[1], "amount": 6})), STOPPED], task(SEND))
    assert steps(result) == [(0, UNEXPECTED)]
    assert result.step_outputs[0].reason == "send_certificate ana_lopez_1: other than expected"


def test_judge_divides_the_reward_and_penalizes_a_repeated_write():
    result = judged([*turn(BOOK), *turn(SEND), *turn(SEND), STOPPED], task(SEND, BOOK))
    assert result.score == 0.0
    assert steps(result) == [(0, 0.5), (1, 0.5), (2, UNEXPECTED)]
    assert result.step_outputs[2].reason.endswith(": more often than expected")


def test_judge_rewards_a_write_that_is_expected_twice_twice():
    result = judged([*turn(SEND), *turn(SEND), STOPPED], task(SEND, SEND))
    assert (result.score, steps(result)) == (1.0, [(0, 0.5), (1, 0.5)])


def test_judge_ignores_a_payment_method_that_is_never_charged():
    expected = ("update_reservation_baggages", bags(nonfree_baggages=0))
    done = ("update_reservation_baggages", bags(nonfree_baggages=0, payment_id="credit_card_1"))
    result = judged([*turn(done), STOPPED], task(expected))
    assert (result.score, steps(result)) == (1.0, [(0, 1.0)])


def test_judge_penalizes_failed_writes_slightly_and_ignores_ineffective_ones():
    wrong = ("cancel_reservation", {"reservation_id": "B"})
    same = (
        "update_reservation_passengers",
        {"reservation_id": "AAAAAA", "passengers": PASSENGERS},
    )
    result = judged([*turn(wrong), *turn(same), *turn(wrong), STOPPED], task(CANCEL))
    assert (result.score, steps(result)) == (0.0, [(0, FAILED), (1, 0.0), (2, FAILED)])
    assert result.step_outputs[0].reason == "cancel_reservation B: Error: reservation not found"


def test_judge_rewards_the_last_turn_if_no_writes_are_expected():
    wrong = ("cancel_reservation", {"reservation_id": "B"})
    result = judged([*turn(wrong), assistant("I can't do that."), STOPPED], task())
    assert (result.score, steps(result)) == (1.0, [(0, FAILED), (1, 1.0)])
    assert result.step_outputs[1].reason == "resolved without writes"
    assert judged([assistant("I can't do that."), STOPPED], task()).step_outputs is None


@pytest.mark.parametrize("name", ["cancel_reservation", "get_user_details", "fly"])
def test_judge_penalizes_an_invalid_call_with_a_reason(name):
    result = judged([assistant("Hi"), *turn((name, '{"reservation_id": ')), STOPPED], task(CANCEL))
    assert (result.score, steps(result)) == (0.0, [(1, FAILED)])
    assert result.step_outputs[0].reason.startswith(f"{name}: Error: ")


def test_judge_gives_a_turn_with_several_calls_one_step_output():
    result = judged([*turn(BOOK, LOOK, SEND, CANCEL), STOPPED], task(BOOK, SEND))
    assert steps(result) == [(0, 0.5 + 0.5 + UNEXPECTED)]
    assert result.step_outputs[0].reason.count("; ") == 2


def test_judge_finds_outputs_in_any_case_and_with_commas():
    chat = [assistant("It is $1,327.50, with Wi-Fi."), STOPPED]
    result = judged(chat, task(outputs=["1327.5", "wi-fi"]))
    assert (result.score, result.metrics["outputs_stated"]) == (1.0, 2)
    assert result.reason == "the database is as expected; all 2 outputs are stated"
    result = judged(chat, task(outputs=["1327.5", "42"]))
    assert (result.score, result.reason) == (0.0, "missing outputs: 42")


def test_judge_ignores_outputs_in_user_messages():
    chat = [assistant("How much?"), {"role": "user", "content": "42 ###STOP###"}]
    assert judged(chat, task(outputs=["42"])).score == 0.0


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ([STOPPED], True),
        (turn(MOVE), True),
        (turn(MOVE, answered=False), True),
        ([*turn(MOVE), assistant("Bye")], False),
        (turn(("transfer_to_human_agents", "{")), False),
        (turn(LOOK), False),
        ([assistant("Bye")], False),
        ([{"role": "user", "content": "Thanks"}], False),
    ],
    ids=[
        "stop",
        "transfer",
        "unanswered transfer",
        "transfer not last",
        "broken transfer",
        "look",
        "assistant",
        "user",
    ],
)
def test_judge_requires_an_end_by_the_user_or_a_transfer(end, ended):
    result = judged([assistant("Hi"), *end], task())
    assert (result.score, result.metrics["ended"]) == (float(ended), int(ended))
    assert ("did not end" in result.reason) == (not ended)


def test_judge_scores_an_empty_conversation_0():
    assert judged([], task()).score == 0.0


def names(messages):
    calls = calls_of([Message.model_validate(each) for each in messages])
    return [(call.turn, call.name, call.recorded) for call in calls]


def test_calls_of_yields_an_unanswered_call_only_at_the_end():
    last = turn(CANCEL, answered=False)
    assert names([*turn(LOOK), *last]) == [
        (0, "get_user_details", "recorded"),
        (1, "cancel_reservation", None),
    ]
    assert names([*last, STOPPED]) == []
    assert names([*turn(LOOK, CANCEL)[:-1], STOPPED]) == [(0, "get_user_details", "recorded")]


def test_calls_of_matches_answers_by_id_or_position():
    calling, first, second = turn(LOOK, CANCEL)
    first, second = {**first, "content": "one"}, {**second, "content": "two"}
    wanted = [(0, "get_user_details", "one"), (0, "cancel_reservation", "two")]
    assert names([calling, first, second]) == names([calling, second, first]) == wanted
    for answer in (first, second):
        del answer["tool_call_id"]
    assert names([calling, first, second]) == wanted


@pytest.mark.parametrize("call", [{}, {"function": "think"}, {"function": {"name": "think"}}])
def test_judge_penalizes_a_call_without_a_function(call):
    result = judged([{"role": "assistant", "tool_calls": [call]}], task())
    assert steps(result) == [(0, FAILED)]


# The reward function ------------------------------------------------------------------------------


def test_resolved_accepts_the_columns_of_a_row():
    row = {"id": "0-0", "task_id": 0, "trial": 0, "reward": 0.0, "group": 0}
    chat = [*turn(CANCEL), STOPPED]
    result = resolved(messages=chat, ground_truth=task(CANCEL), data=DATA, **row)
    assert isinstance(result, EvaluateResult)
    assert result.score == 1.0
    assert as_rubric(resolved) is not None


@pytest.mark.parametrize(
    ("ground_truth", "message"),
    [
        (None, "ground_truth must be a task .* got None"),
        ("{}", "ground_truth must be a task .* got '{}'"),
        ({"outputs": []}, r"ground_truth\.actions must be a list .* got None"),
        ({"actions": {}}, r"ground_truth\.actions must be a list .* got {}"),
        ({"actions": ["cancel"]}, r"ground_truth\.actions\[0\] must be .* got 'cancel'"),
        (
            {"actions": [{"name": "fly", "kwargs": {}}]},
            r"actions\[0\] must be .* got {'name': 'fly'",
        ),
        ({"actions": [{"name": "think"}]}, r"actions\[0\] must be .* got {'name': 'think'}"),
        (
            {"actions": [], "outputs": [4]},
            r"ground_truth\.outputs must be a list of strings, got \[4\]",
        ),
    ],
    ids=range(8),
)
def test_resolved_of_an_invalid_task_has_no_score(ground_truth, message):
    with pytest.raises(ValueError, match=message):
        judged([STOPPED], ground_truth)
    result = resolved(messages=[STOPPED], ground_truth=ground_truth, data=DATA)
    assert (result.score, result.is_score_valid) == (None, False)
    assert re.search(message, result.error)


# The data's folder --------------------------------------------------------------------------------


def write_data(folder, *, tools=None):
    folder.mkdir(parents=True, exist_ok=True)
    for table in ("users", "flights", "reservations"):
        (folder / f"{table}.json").write_text(json.dumps(getattr(DATA, table)))
    if tools is not None:
        (folder / "tools.json").write_text(json.dumps(tools))
    return folder


def test_load_data_reads_a_folder_once(tmp_path):
    folder = write_data(tmp_path / "airline", tools=[{"type": "function"}])
    data = load_data(folder)
    assert data.users == DATA.users
    assert data is load_data(str(folder))
    assert Database(data).tools == [{"type": "function"}]


def test_load_data_reads_a_checkout_of_tau_bench(tmp_path):
    write_data(tmp_path / "tau_bench" / "envs" / "airline" / "data")
    assert load_data(tmp_path).reservations == DATA.reservations
    assert load_data(tmp_path).tools == []


def test_data_path_reads_environment_variables(tmp_path, monkeypatch):
    monkeypatch.delenv("TAU_AIRLINE_DATA", raising=False)
    monkeypatch.setenv("GUERDON_DATA", str(tmp_path))
    shared = write_data(tmp_path / "tau_airline")
    assert data_path() == shared
    own = write_data(tmp_path / "own")
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(own))
    assert data_path() == own
    assert data_path(shared) == shared


def test_load_data_without_files_raises_and_names_them(tmp_path, monkeypatch):
    for place in (tmp_path, None):
        monkeypatch.setenv("TAU_AIRLINE_DATA", str(tmp_path))
        with pytest.raises(InvalidArgumentError, match=r"users\.json, flights\.json") as raised:
            load_data(place)
        assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(("text", "message"), [("{", "read as JSON"), ("[]", "must contain")])
def test_load_data_rejects_invalid_files(tmp_path, text, message):
    folder = write_data(tmp_path)
    (folder / "users.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match=message):
        load_data(folder)


@pytest.mark.parametrize(
    "name", ["calls", "data", "effects", "replay", "reward", "tables", "task", "tools"]
)
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"examples.tau_airline.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_replay_main_without_recordings_returns_2(tmp_path, capsys):
    assert main([str(write_data(tmp_path))]) == 2
    assert "trajectories.json is missing" in capsys.readouterr().err


def test_replay_main_without_data_prints_what_is_missing_and_returns_2(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(tmp_path / "nowhere"))
    assert main([]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no tau-bench airline data (users.json, flights.json, ")
    assert str(tmp_path / "nowhere") in line
    assert "set TAU_AIRLINE_DATA" in line


def test_replay_main_prints_which_file_is_invalid_and_returns_2(tmp_path, capsys):
    (write_data(tmp_path) / "trajectories.json").write_text("[]")
    (tmp_path / "users.json").write_text("{")
    assert main([str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "users.json can't be read as JSON" in line


@pytest.mark.parametrize(("published", "code"), [(1.0, 0), (0.0, 1)])
def test_replay_main_prints_the_agreement_with_recordings(tmp_path, capsys, published, code):
    calling, answer = turn(CANCEL)
    record = {
        "task_id": 7,
        "trial": 1,
        "reward": published,
        "info": {"task": task(CANCEL)},
        "traj": [calling, answer, STOPPED],
    }
    (write_data(tmp_path) / "trajectories.json").write_text(json.dumps([record]))
    assert main([str(tmp_path)]) == code
    out = capsys.readouterr().out
    assert f"conversations: 1, verdicts that agree: {1 - code}" in out
    assert ("verdicts that differ: 7-1" in out) == bool(code)
    assert "0 (0.0%)" in out


# The recordings -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recordings():
    try:
        folder = data_path()
    except InvalidArgumentError as error:
        pytest.skip(f"the recordings are missing: {error}")
    if not (folder / "trajectories.json").is_file():
        pytest.skip(f"{folder} has no trajectories.json")
    records = json.loads((folder / "trajectories.json").read_text(encoding="utf-8"))
    return load_data(folder), records


def test_resolved_agrees_with_the_published_verdicts(recordings):
    data, records = recordings
    start = time.perf_counter()
    results = [resolved(r["traj"], ground_truth=r["info"]["task"], data=data) for r in records]
    seconds = time.perf_counter() - start
    assert len(results) == 100
    agree = sum(result.score == r["reward"] for result, r in zip(results, records, strict=True))
    assert agree == 100
    assert seconds < 3


def test_replay_reproduces_the_recorded_answers(recordings):
    data, records = recordings
    exact, renamed = [], []
    for record in records:
        messages = [Message.model_validate(each) for each in record["traj"]]
        for played in replay(messages, Task.of(record["info"]["task"]), data=data).played:
            exact.append(played.answer == played.call.recorded)
            renamed.append(played.answer.replace(*RENAMED) == played.call.recorded)
    assert len(exact) == 572
    assert sum(exact) / len(exact) >= 0.88
    assert all(renamed)


def test_database_equals_the_expected_one_if_exactly_the_expected_writes_were_made(recordings):
    data, records = recordings
    for record in records:
        result = resolved(record["traj"], ground_truth=record["info"]["task"], data=data)
        reasons = [step.reason for step in result.step_outputs or ()]
        made = sum(reason.endswith(": as expected") for reason in reasons)
        right = made == result.metrics["expected_writes"] and not any(
            reason.endswith((": not expected", "than expected")) for reason in reasons
        )
        assert right == bool(result.metrics["database_equal"]), (record["task_id"], result)


def nested(value):
    """Return a record as tuples sorted by key, the layout that the published digests hash."""
    if isinstance(value, dict):
        return tuple((key, nested(value[key])) for key in sorted(value))
    return tuple(map(nested, value)) if isinstance(value, list) else value


def test_expected_databases_have_the_published_digests(recordings):
    data, records = recordings
    users = json.loads(json.dumps(data.users).replace(*RENAMED))
    data = AirlineData(users=users, flights=data.flights, reservations=data.reservations)
    names = ("flights", "reservations", "users")
    texts = {id(row): str(nested(row)) for name in names for row in getattr(data, name).values()}
    published = {
        record["task_id"]: (record["info"]["task"], record["info"]["reward_info"]["info"])
        for record in records
        if record["info"]["reward_info"] is not None  # None if the episode did not end
    }
    compared = 0
    for number, (ground_truth, info) in published.items():
        if "gt_data_hash" not in info:  # it has the outputs instead
            continue
        database = Database(data)
        for action in ground_truth["actions"]:
            database.call(action["name"], action["kwargs"])
        tables = []
        for name in names:
            table = getattr(database, name)
            rows = (texts.get(id(table[key])) or str(nested(table[key])) for key in sorted(table))
            pairs = (f"({key!r}, {row})" for key, row in zip(sorted(table), rows, strict=True))
            tables.append(f"({name!r}, ({', '.join(pairs)}))")
        digest = hashlib.sha256(f"({', '.join(tables)})".encode()).hexdigest()
        assert digest == info["gt_data_hash"], number
        compared += 1
    assert compared == 46


@pytest.mark.edge
def test_replay_main_prints_the_published_agreement(recordings):
    done = subprocess.run(
        [sys.executable, "-m", "examples.tau_airline.replay", str(data_path())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "conversations: 100, verdicts that agree: 100" in done.stdout
    assert "513 (89.7%)" in done.stdout
