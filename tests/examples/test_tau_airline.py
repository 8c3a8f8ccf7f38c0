import doctest
import hashlib
import importlib
import json
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
from examples.tau_airline.reward import FAILED, UNASKED, judge, resolved
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
AS_IT_WAS = json.dumps([DATA.users, DATA.flights, DATA.reservations])


@pytest.fixture(autouse=True)
def shared_records_stay_as_they_are():
    yield
    assert json.dumps([DATA.users, DATA.flights, DATA.reservations]) == AS_IT_WAS


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


def test_details_are_the_record_as_json(database):
    assert database.call("get_user_details", {"user_id": "ana_lopez_1"}) == json.dumps(ANA)
    answer = database.call("get_reservation_details", '{"reservation_id": "AAAAAA"}')
    assert answer == json.dumps(TRIP)


def test_direct_flights_are_those_that_can_be_booked(database):
    found = json.loads(
        database.call(
            "search_direct_flight", {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"}
        )
    )
    assert [each["flight_number"] for each in found] == ["HAT001", "HAT002"]
    assert list(found[0]) == [*list(FLIGHTS[0])[:-1], *OPEN]


@pytest.mark.parametrize("date", ["2024-05-15", "2030-01-01", "soon"])
def test_no_flight_is_found_on_a_date_that_cannot_be_booked(database, date):
    trip = {"origin": "SFO", "destination": "JFK", "date": date}
    assert database.call("search_direct_flight", trip) == "[]"
    assert database.call("search_onestop_flight", trip) == "[]"


def test_a_second_flight_leaves_no_earlier_than_the_first_lands(database):
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


def test_all_airports_are_listed(database):
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
def test_calculate_gives_two_decimals(database, expression, value):
    assert database.call("calculate", {"expression": expression}) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2 ** 9", "7 // 2", "1 +", "(2)(3)", "1 / 0", "x + 1", "9" * 501, "()", "0" * 2 + "7"],
    ids=range(10),
)
def test_calculate_refuses_what_is_no_sum(database, expression):
    answer = database.call("calculate", {"expression": expression})
    assert answer.startswith("Error: ")


def test_a_thought_has_no_answer_and_a_transfer_succeeds(database):
    assert database.call("think", {"thought": "Hm."}) == ""
    assert database.call("transfer_to_human_agents", {"summary": "-"}) == "Transfer successful"


# Writes -------------------------------------------------------------------------------------------


def test_a_booking_has_prices_and_a_payment_history(database):
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


def test_bookings_are_numbered_in_letters(database):
    answers = [json.loads(database.call("book_reservation", booking())) for _ in range(8)]
    names = [answer["reservation_id"] for answer in answers]
    assert names == ["HATHA" + letter for letter in "TUVWXYZ"] + ["HATHBA"]


def test_insurance_is_for_each_passenger_and_bags_are_for_all(database):
    payments = paid(gift_card_2=300, certificate_1=90)
    more = {"passengers": PASSENGERS, "insurance": "yes", "nonfree_baggages": 2}
    answer = database.call("book_reservation", booking(**more, payment_methods=payments))
    assert answer.endswith("total price is 400, but paid 390")
    payments[1]["amount"] = 100
    assert "HATHAT" in database.call("book_reservation", booking(**more, payment_methods=payments))


def test_a_booking_uses_up_certificates_and_charges_gift_cards(database):
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
def test_a_booking_that_cannot_be_is_refused(database, changes, error):
    assert database.call("book_reservation", booking(**changes)) == f"Error: {error}"
    assert database.differences(Database(DATA)) == []


def test_a_cancellation_refunds_every_payment(database):
    answer = json.loads(database.call("cancel_reservation", {"reservation_id": "AAAAAA"}))
    assert answer["payment_history"] == paid(credit_card_1=180) + paid(credit_card_1=-180)
    assert list(answer)[-1] == "status"
    assert answer["status"] == "cancelled"


def test_an_update_of_flights_pays_the_difference_and_leaves_the_cabin(database):
    change = changed_flights(cabin="business", payment_id="gift_card_2")
    answer = json.loads(database.call("update_reservation_flights", change))
    assert answer["cabin"] == "economy"
    assert answer["flights"][0]["price"] == 300
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_2", "amount": 420}
    assert database.users["ana_lopez_1"]["payment_methods"]["gift_card_2"]["amount"] == 580


def test_an_update_to_cheaper_flights_refunds(database):
    answer = json.loads(
        database.call("update_reservation_flights", changed_flights(cabin="basic_economy"))
    )
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": -80}
    assert database.users["ana_lopez_1"]["payment_methods"]["gift_card_1"]["amount"] == 180


def test_a_kept_flight_keeps_its_price_and_is_not_paid_again(database):
    kept = [{"flight_number": "HAT001", "date": "2024-05-20"}]
    answer = json.loads(database.call("update_reservation_flights", changed_flights(flights=kept)))
    assert answer["flights"][0]["price"] == 90
    assert answer["payment_history"] == TRIP["payment_history"]
    assert database.differences(Database(DATA)) == []


def test_bags_that_are_not_free_are_paid_once(database):
    answer = json.loads(database.call("update_reservation_baggages", bags()))
    assert (answer["total_baggages"], answer["nonfree_baggages"]) == (3, 2)
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": 100}
    answer = json.loads(database.call("update_reservation_baggages", bags(total_baggages=4)))
    assert len(answer["payment_history"]) == 2


def test_passengers_are_replaced_by_as_many(database):
    others = [{**PASSENGERS[0], "first_name": "Eva"}, PASSENGERS[1]]
    change = {"reservation_id": "AAAAAA", "passengers": others}
    assert json.loads(database.call("update_reservation_passengers", change)) == {
        **TRIP,
        "passengers": others,
    }


def test_certificates_are_numbered(database):
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
def test_what_cannot_be_is_refused_and_changes_nothing(database, name, arguments, error):
    assert database.call(name, arguments) == f"Error: {error}"
    assert database.differences(Database(DATA)) == []


def test_seats_are_counted_for_all_passengers():
    data = deepcopy(DATA)
    data.flights["HAT002"]["dates"]["2024-05-20"]["available_seats"]["economy"] = 1
    answer = Database(data).call("update_reservation_flights", changed_flights())
    assert answer == "Error: not enough seats on flight HAT002"


# Calls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("fly", "{}", "unknown tool 'fly'"),
        ("think", '{"thought": ', "arguments of think are no JSON object"),
        ("think", "[" * 100_000, "arguments of think are no JSON object"),
        ("think", "[]", "arguments of think are no JSON object"),
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
def test_a_call_that_cannot_be_read_is_answered(database, name, arguments, error):
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
def test_every_call_has_an_answer(name, value, at):
    arguments = dict(FULL[name])
    arguments[list(arguments)[at % len(arguments)]] = value
    database = Database(DATA)
    for given_ in (arguments, json.dumps(arguments), json.dumps(value)):
        assert isinstance(database.call(name, given_), str)


@given(expression=st.text("0123456789+-*/(). ", max_size=30))
def test_every_expression_has_an_answer(expression):
    assert Database(DATA).call("calculate", {"expression": expression})


def test_there_are_fourteen_tools_of_which_six_write():
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
def test_changes_compare_as_the_whole_databases_do(first, second):
    one, other = Database(DATA), Database(DATA)
    for call in first:
        one.call(*call)
    for call in second:
        other.call(*call)
    assert (one.differences(other) == []) == (whole(one) == whole(other))
    assert (one.differences(Database(deepcopy(DATA))) == []) == (
        whole(one) == whole(Database(DATA))
    )
    assert json.dumps([DATA.users, DATA.flights, DATA.reservations]) == AS_IT_WAS


@given(calls=st.lists(writes, max_size=4), last=writes)
def test_a_copy_goes_on_apart(calls, last):
    database = Database(DATA)
    for call in calls:
        database.call(*call)
    before, copy = deepcopy(whole(database)), database.copy()
    answer = copy.call(*last)
    assert whole(database) == before
    assert database.call(*last) == answer
    assert database.differences(copy) == []


def test_a_table_is_a_mapping_of_all_its_records(database):
    database.call("book_reservation", booking())
    assert list(database.reservations) == ["AAAAAA", "HATHAT"]
    assert len(database.reservations) == 2


# Effects ------------------------------------------------------------------------------------------


def effect_of(database, name, arguments):
    before = database.copy()
    database.call(name, arguments)
    return effect(before, database)


def test_an_effect_is_the_same_whatever_was_written_before():
    plain, later = Database(DATA), Database(DATA)
    later.call("book_reservation", booking(payment_methods=paid(gift_card_1=20, gift_card_2=100)))
    later.call("send_certificate", {"user_id": "ana_lopez_1", "amount": 7})
    for write in (
        ("book_reservation", booking(payment_methods=paid(gift_card_2=120))),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": 5}),
        ("update_reservation_flights", changed_flights()),
    ):
        assert effect_of(plain, *write) == effect_of(later, *write) != ""


def test_amounts_are_the_same_as_integers_and_floats():
    as_float = booking(payment_methods=paid(credit_card_1=120.0))
    assert effect_of(Database(DATA), "book_reservation", as_float) == effect_of(
        Database(DATA), "book_reservation", booking()
    )


def test_what_differs_has_another_effect_and_nothing_has_none():
    business = changed_flights(cabin="business", payment_id="gift_card_2")
    one = effect_of(Database(DATA), "update_reservation_flights", business)
    other = effect_of(Database(DATA), "update_reservation_flights", changed_flights())
    assert len({one, other, ""}) == 3
    same = {"reservation_id": "AAAAAA", "passengers": PASSENGERS}
    assert effect_of(Database(DATA), "update_reservation_passengers", same) == ""


# Conversations ------------------------------------------------------------------------------------


def say(content):
    return {"role": "assistant", "content": content}


def ask(*calls, answered=True):
    """An assistant turn that calls, and what the tools answered."""
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
    asked = [{"name": name, "kwargs": kwargs} for name, kwargs in actions]
    return {"user_id": "ana_lopez_1", "actions": asked, "outputs": list(outputs)}


def judged(messages, asked):
    return judge(messages, asked, data=DATA)


def steps(result):
    return [(step.step_index, round(step.base_reward, 6)) for step in result.step_outputs or ()]


def test_what_was_asked_for_resolves_the_task():
    result = judged([say("Hi"), *ask(LOOK), *ask(CANCEL), STOPPED], task(LOOK, CANCEL))
    assert result.score == 1.0
    assert steps(result) == [(2, 1.0)]
    assert result.step_outputs[0].reason == "cancel_reservation AAAAAA: as asked"
    assert result.metrics == {
        "asked_writes": 1,
        "database_equal": 1,
        "ended": 1,
        "outputs": 0,
        "outputs_said": 0,
        "writes": 1,
    }


def test_a_conversation_without_writes_has_no_step_outputs():
    result = judged([*ask(LOOK), say("No."), STOPPED], task())
    assert (result.score, result.step_outputs) == (1.0, None)


def test_writes_that_nobody_asked_for_cost():
    result = judged([*ask(CANCEL), *ask(SEND), STOPPED], task(SEND))
    assert result.score == 0.0
    assert steps(result) == [(0, UNASKED), (1, 1.0)]
    assert result.step_outputs[0].reason == "cancel_reservation AAAAAA: not asked for"
    assert result.reason == ("the database differs from the one asked for in reservation AAAAAA")


def test_the_right_tool_to_another_effect_is_told_apart():
    result = judged([*ask(("send_certificate", {**SEND[1], "amount": 6})), STOPPED], task(SEND))
    assert steps(result) == [(0, UNASKED)]
    assert result.step_outputs[0].reason == "send_certificate ana_lopez_1: other than asked for"


def test_asked_writes_share_the_reward_and_a_repeat_is_not_paid_again():
    result = judged([*ask(BOOK), *ask(SEND), *ask(SEND), STOPPED], task(SEND, BOOK))
    assert result.score == 0.0
    assert steps(result) == [(0, 0.5), (1, 0.5), (2, UNASKED)]
    assert result.step_outputs[2].reason.endswith(": once more than asked for")


def test_a_write_that_is_asked_for_twice_is_paid_twice():
    result = judged([*ask(SEND), *ask(SEND), STOPPED], task(SEND, SEND))
    assert (result.score, steps(result)) == (1.0, [(0, 0.5), (1, 0.5)])


def test_a_payment_method_that_is_never_charged_makes_no_difference():
    asked = ("update_reservation_baggages", bags(nonfree_baggages=0))
    done = ("update_reservation_baggages", bags(nonfree_baggages=0, payment_id="credit_card_1"))
    result = judged([*ask(done), STOPPED], task(asked))
    assert (result.score, steps(result)) == (1.0, [(0, 1.0)])


def test_a_write_that_fails_costs_a_little_and_one_without_effect_nothing():
    wrong = ("cancel_reservation", {"reservation_id": "B"})
    same = (
        "update_reservation_passengers",
        {"reservation_id": "AAAAAA", "passengers": PASSENGERS},
    )
    result = judged([*ask(wrong), *ask(same), *ask(wrong), STOPPED], task(CANCEL))
    assert (result.score, steps(result)) == (0.0, [(0, FAILED), (1, 0.0), (2, FAILED)])
    assert result.step_outputs[0].reason == "cancel_reservation B: Error: reservation not found"


def test_a_resolved_conversation_without_asked_writes_earns_at_its_end_where_time_was_lost():
    wrong = ("cancel_reservation", {"reservation_id": "B"})
    result = judged([*ask(wrong), say("I can't do that."), STOPPED], task())
    assert (result.score, steps(result)) == (1.0, [(0, FAILED), (1, 1.0)])
    assert result.step_outputs[1].reason == "resolved, with nothing to write"
    assert judged([say("I can't do that."), STOPPED], task()).step_outputs is None


@pytest.mark.parametrize("name", ["cancel_reservation", "get_user_details", "fly"])
def test_a_call_that_cannot_be_read_has_a_reason_on_its_step(name):
    result = judged([say("Hi"), *ask((name, '{"reservation_id": ')), STOPPED], task(CANCEL))
    assert (result.score, steps(result)) == (0.0, [(1, FAILED)])
    assert result.step_outputs[0].reason.startswith(f"{name}: Error: ")


def test_a_turn_of_several_calls_has_one_step_output():
    result = judged([*ask(BOOK, LOOK, SEND, CANCEL), STOPPED], task(BOOK, SEND))
    assert steps(result) == [(0, 0.5 + 0.5 + UNASKED)]
    assert result.step_outputs[0].reason.count("; ") == 2


def test_outputs_are_said_in_any_case_and_with_commas():
    chat = [say("It is $1,327.50, with Wi-Fi."), STOPPED]
    result = judged(chat, task(outputs=["1327.5", "wi-fi"]))
    assert (result.score, result.metrics["outputs_said"]) == (1.0, 2)
    assert result.reason == "the database is as the task asks; all 2 outputs were said"
    result = judged(chat, task(outputs=["1327.5", "42"]))
    assert (result.score, result.reason) == (0.0, "not said: 42")


def test_what_the_user_says_is_no_output():
    chat = [say("How much?"), {"role": "user", "content": "42 ###STOP###"}]
    assert judged(chat, task(outputs=["42"])).score == 0.0


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ([STOPPED], True),
        (ask(MOVE), True),
        (ask(MOVE, answered=False), True),
        ([*ask(MOVE), say("Bye")], False),
        (ask(("transfer_to_human_agents", "{")), False),
        (ask(LOOK), False),
        ([say("Bye")], False),
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
def test_an_episode_ends_with_the_user_or_with_a_transfer(end, ended):
    result = judged([say("Hi"), *end], task())
    assert (result.score, result.metrics["ended"]) == (float(ended), int(ended))
    assert ("never ended" in result.reason) == (not ended)


def test_nothing_has_not_ended():
    assert judged([], task()).score == 0.0


def names(messages):
    calls = calls_of([Message.model_validate(each) for each in messages])
    return [(call.turn, call.name, call.recorded) for call in calls]


def test_a_call_nobody_answered_is_executed_only_at_the_very_end():
    last = ask(CANCEL, answered=False)
    assert names([*ask(LOOK), *last]) == [
        (0, "get_user_details", "recorded"),
        (1, "cancel_reservation", None),
    ]
    assert names([*last, STOPPED]) == []
    assert names([*ask(LOOK, CANCEL)[:-1], STOPPED]) == [(0, "get_user_details", "recorded")]


def test_answers_are_matched_by_id_and_without_ids_by_place():
    turn, first, second = ask(LOOK, CANCEL)
    first, second = {**first, "content": "one"}, {**second, "content": "two"}
    wanted = [(0, "get_user_details", "one"), (0, "cancel_reservation", "two")]
    assert names([turn, first, second]) == names([turn, second, first]) == wanted
    for answer in (first, second):
        del answer["tool_call_id"]
    assert names([turn, first, second]) == wanted


@pytest.mark.parametrize("call", [{}, {"function": "think"}, {"function": {"name": "think"}}])
def test_a_call_without_a_function_is_no_tool(call):
    result = judged([{"role": "assistant", "tool_calls": [call]}], task())
    assert steps(result) == [(0, FAILED)]


# The reward function ------------------------------------------------------------------------------


def test_resolved_gives_a_result_and_takes_the_columns_of_a_row():
    row = {"id": "0-0", "task_id": 0, "trial": 0, "reward": 0.0, "group": 0}
    chat = [*ask(CANCEL), STOPPED]
    result = resolved(messages=chat, ground_truth=task(CANCEL), data=DATA, **row)
    assert isinstance(result, EvaluateResult)
    assert result.score == 1.0
    assert as_rubric(resolved) is not None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (None, "ground_truth is None"),
        ("{}", "ground_truth is '{}'"),
        ({"outputs": []}, "ground_truth.actions is None"),
        ({"actions": {}}, "ground_truth.actions is {}"),
        ({"actions": ["cancel"]}, "ground_truth.actions[0] is 'cancel'"),
        ({"actions": [{"name": "fly", "kwargs": {}}]}, "ground_truth.actions[0] is {'name': 'fly'"),
        ({"actions": [{"name": "think"}]}, "ground_truth.actions[0] is {'name': 'think'}"),
        ({"actions": [], "outputs": [4]}, "ground_truth.outputs is [4]"),
    ],
    ids=range(8),
)
def test_what_is_no_task_gives_no_score(asked, said):
    with pytest.raises(ValueError, match="ground_truth") as raised:
        judged([STOPPED], asked)
    assert str(raised.value).startswith(said)
    result = resolved(messages=[STOPPED], ground_truth=asked, data=DATA)
    assert (result.score, result.is_score_valid) == (None, False)
    assert said in result.error


# The data's folder --------------------------------------------------------------------------------


def write_data(folder, *, tools=None):
    folder.mkdir(parents=True, exist_ok=True)
    for table in ("users", "flights", "reservations"):
        (folder / f"{table}.json").write_text(json.dumps(getattr(DATA, table)))
    if tools is not None:
        (folder / "tools.json").write_text(json.dumps(tools))
    return folder


def test_a_folder_is_read_once(tmp_path):
    folder = write_data(tmp_path / "airline", tools=[{"type": "function"}])
    data = load_data(folder)
    assert data.users == DATA.users
    assert data is load_data(str(folder))
    assert Database(data).tools == [{"type": "function"}]


def test_a_checkout_is_a_folder_too(tmp_path):
    write_data(tmp_path / "tau_bench" / "envs" / "airline" / "data")
    assert load_data(tmp_path).reservations == DATA.reservations
    assert load_data(tmp_path).tools == []


def test_the_environment_says_where_the_data_is(tmp_path, monkeypatch):
    monkeypatch.delenv("TAU_AIRLINE_DATA", raising=False)
    monkeypatch.setenv("GUERDON_DATA", str(tmp_path))
    shared = write_data(tmp_path / "tau_airline")
    assert data_path() == shared
    own = write_data(tmp_path / "own")
    monkeypatch.setenv("TAU_AIRLINE_DATA", str(own))
    assert data_path() == own
    assert data_path(shared) == shared


def test_a_folder_without_the_data_is_an_error_that_says_what_was_looked_for(tmp_path, monkeypatch):
    for place in (tmp_path, None):
        monkeypatch.setenv("TAU_AIRLINE_DATA", str(tmp_path))
        with pytest.raises(InvalidArgumentError, match=r"users\.json, flights\.json") as raised:
            load_data(place)
        assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(("text", "said"), [("{", "read as JSON"), ("[]", "must contain")])
def test_files_that_hold_something_else_are_an_error(tmp_path, text, said):
    folder = write_data(tmp_path)
    (folder / "users.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match=said):
        load_data(folder)


@pytest.mark.parametrize(
    "name", ["calls", "data", "effects", "replay", "reward", "tables", "task", "tools"]
)
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(f"examples.tau_airline.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_folder_without_recordings_cannot_be_measured(tmp_path, capsys):
    assert main([str(write_data(tmp_path))]) == 2
    assert "trajectories.json is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("published", "code"), [(1.0, 0), (0.0, 1)])
def test_recordings_are_measured(tmp_path, capsys, published, code):
    turn, answer = ask(CANCEL)
    record = {
        "task_id": 7,
        "trial": 1,
        "reward": published,
        "info": {"task": task(CANCEL)},
        "traj": [turn, answer, STOPPED],
    }
    (write_data(tmp_path) / "trajectories.json").write_text(json.dumps([record]))
    assert main([str(tmp_path)]) == code
    out = capsys.readouterr().out
    assert f"conversations: 1, verdicts that agree: {1 - code}" in out
    assert ("verdicts that don't: 7-1" in out) == bool(code)
    assert "0 (0.0%)" in out


# The recordings -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recordings():
    try:
        folder = data_path()
    except InvalidArgumentError as error:
        pytest.skip(f"the recordings are not here: {error}")
    if not (folder / "trajectories.json").is_file():
        pytest.skip(f"{folder} has no trajectories.json")
    records = json.loads((folder / "trajectories.json").read_text(encoding="utf-8"))
    return load_data(folder), records


def test_verdicts_agree_with_the_published_ones(recordings):
    data, records = recordings
    start = time.perf_counter()
    results = [resolved(r["traj"], ground_truth=r["info"]["task"], data=data) for r in records]
    seconds = time.perf_counter() - start
    assert len(results) == 100
    agree = sum(result.score == r["reward"] for result, r in zip(results, records, strict=True))
    assert agree == 100
    assert seconds < 3


def test_tool_answers_are_reproduced(recordings):
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


def test_a_database_is_as_asked_where_all_asked_writes_were_made_and_no_other(recordings):
    data, records = recordings
    for record in records:
        result = resolved(record["traj"], ground_truth=record["info"]["task"], data=data)
        reasons = [step.reason for step in result.step_outputs or ()]
        asked = sum(reason.endswith(": as asked") for reason in reasons)
        right = asked == result.metrics["asked_writes"] and not any(
            reason.endswith("asked for") for reason in reasons
        )
        assert right == bool(result.metrics["database_equal"]), (record["task_id"], result)


def nested(value):
    """A record as tuples, sorted by their keys, as the published digests are taken of it."""
    if isinstance(value, dict):
        return tuple((key, nested(value[key])) for key in sorted(value))
    return tuple(map(nested, value)) if isinstance(value, list) else value


def test_the_databases_asked_for_have_the_published_digests(recordings):
    data, records = recordings
    users = json.loads(json.dumps(data.users).replace(*RENAMED))
    data = AirlineData(users=users, flights=data.flights, reservations=data.reservations)
    names = ("flights", "reservations", "users")
    texts = {id(row): str(nested(row)) for name in names for row in getattr(data, name).values()}
    published = {
        record["task_id"]: (record["info"]["task"], record["info"]["reward_info"]["info"])
        for record in records
        if record["info"]["reward_info"] is not None  # it is None where the episode never ended
    }
    compared = 0
    for number, (asked, info) in published.items():
        if "gt_data_hash" not in info:  # outputs are told of instead
            continue
        database = Database(data)
        for action in asked["actions"]:
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


def test_the_table_of_the_recordings_is_printed(recordings):
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
