"""tau-bench's airline: the database, its tools, and the folder of the data."""

import doctest
import importlib
import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.tau_airline.data import AirlineData, data_path, load_data
from examples.tau_airline.effects import effect
from examples.tau_airline.tools import TOOLS, WRITES, Database, InvalidCallError
from guerdon.errors import InvalidArgumentError
from tests.examples.tau_airline import (
    ANA,
    DATA,
    FLIGHTS,
    OPEN,
    PASSENGERS,
    TASKS,
    TRIP,
    answer_of,
    bags,
    booking,
    changed_flights,
    paid,
    write_data,
)

NAN = float("nan")
INITIAL = json.dumps([DATA.users, DATA.flights, DATA.reservations])


@pytest.fixture(autouse=True)
def initial_data_is_unchanged():
    yield
    assert json.dumps([DATA.users, DATA.flights, DATA.reservations]) == INITIAL


def unshared():
    return AirlineData(*map(deepcopy, (DATA.users, DATA.flights, DATA.reservations)))


@pytest.fixture
def database():
    return Database(DATA)


# Queries ------------------------------------------------------------------------------------------


def test_get_details_returns_the_record_as_json(database):
    assert answer_of(database, "get_user_details", {"user_id": "ana_lopez_1"}) == json.dumps(ANA)
    answer = answer_of(database, "get_reservation_details", {"reservation_id": "AAAAAA"})
    assert answer == json.dumps(TRIP)


def test_search_direct_flight_returns_available_flights(database):
    found = json.loads(
        answer_of(
            database,
            "search_direct_flight",
            {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"},
        )
    )
    assert [each["flight_number"] for each in found] == ["HAT001", "HAT002"]
    assert list(found[0]) == [*list(FLIGHTS[0])[:-1], *OPEN]


@pytest.mark.parametrize("date", ["2024-05-15", "2030-01-01", "soon"])
def test_search_flight_on_an_unavailable_date_returns_nothing(database, date):
    trip = {"origin": "SFO", "destination": "JFK", "date": date}
    assert answer_of(database, "search_direct_flight", trip) == "[]"
    assert answer_of(database, "search_onestop_flight", trip) == "[]"


def test_search_onestop_flight_returns_connecting_flights(database):
    found = json.loads(
        answer_of(
            database,
            "search_onestop_flight",
            {"origin": "SFO", "destination": "JFK", "date": "2024-05-20"},
        )
    )
    legs = [[(leg["flight_number"], leg["date"]) for leg in pair] for pair in found]
    assert legs == [
        [("HAT003", "2024-05-20"), ("HAT005", "2024-05-21")],
        [("HAT004", "2024-05-20"), ("HAT005", "2024-05-20")],
    ]


def test_list_all_airports_returns_20_cities_by_code(database):
    assert json.loads(answer_of(database, "list_all_airports", {}))["SFO"] == "San Francisco"
    assert len(json.loads(answer_of(database, "list_all_airports", {}))) == 20


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
    assert answer_of(database, "calculate", {"expression": expression}) == value


@pytest.mark.parametrize(
    "expression",
    ["", "2 ** 9", "7 // 2", "1 +", "(2)(3)", "1 / 0", "x + 1", "9" * 501, "()", "0" * 2 + "7"],
    ids=range(10),
)
def test_calculate_rejects_other_expressions(database, expression):
    answer = answer_of(database, "calculate", {"expression": expression})
    assert answer.startswith("Error: ")


def test_think_returns_nothing_and_transfer_succeeds(database):
    assert answer_of(database, "think", {"thought": "Hm."}) == ""
    assert (
        answer_of(database, "transfer_to_human_agents", {"summary": "-"}) == "Transfer successful"
    )


# Writes -------------------------------------------------------------------------------------------


def test_book_reservation_adds_prices_and_a_payment_history(database):
    flights = [{"date": "2024-05-20", "flight_number": "HAT002"}]
    booked = json.loads(answer_of(database, "book_reservation", booking(flights=flights)))
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
    answers = [json.loads(answer_of(database, "book_reservation", booking())) for _ in range(8)]
    names = [answer["reservation_id"] for answer in answers]
    assert names == ["HATHA" + letter for letter in "TUVWXYZ"] + ["HATHBA"]


def test_book_reservation_charges_insurance_per_passenger_and_bags_once(database):
    payments = paid(gift_card_2=300, certificate_1=90)
    more = {"passengers": PASSENGERS, "insurance": "yes", "nonfree_baggages": 2}
    answer = answer_of(database, "book_reservation", booking(**more, payment_methods=payments))
    assert answer.endswith("total price is 400, but paid 390")
    payments[1]["amount"] = 100
    assert "HATHAT" in answer_of(
        database, "book_reservation", booking(**more, payment_methods=payments)
    )


def test_book_reservation_uses_up_certificates_and_charges_gift_cards(database):
    payments = paid(gift_card_1=20, certificate_1=100)
    answer_of(database, "book_reservation", booking(payment_methods=payments))
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
    assert answer_of(database, "book_reservation", booking(**changes)) == f"Error: {error}"
    assert database.differences(Database(DATA)) == []


def test_cancel_reservation_refunds_every_payment(database):
    answer = json.loads(answer_of(database, "cancel_reservation", {"reservation_id": "AAAAAA"}))
    assert answer["payment_history"] == paid(credit_card_1=180) + paid(credit_card_1=-180)
    assert list(answer)[-1] == "status"
    assert answer["status"] == "cancelled"


def test_update_flights_charges_the_difference_and_keeps_the_cabin(database):
    change = changed_flights(cabin="business", payment_id="gift_card_2")
    answer = json.loads(answer_of(database, "update_reservation_flights", change))
    assert answer["cabin"] == "economy"
    assert answer["flights"][0]["price"] == 300
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_2", "amount": 420}
    assert database.users["ana_lopez_1"]["payment_methods"]["gift_card_2"]["amount"] == 580


def test_update_flights_refunds_a_lower_price(database):
    answer = json.loads(
        answer_of(database, "update_reservation_flights", changed_flights(cabin="basic_economy"))
    )
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": -80}
    assert database.users["ana_lopez_1"]["payment_methods"]["gift_card_1"]["amount"] == 180


def test_update_flights_keeps_the_price_of_an_unchanged_flight(database):
    kept = [{"flight_number": "HAT001", "date": "2024-05-20"}]
    answer = json.loads(
        answer_of(database, "update_reservation_flights", changed_flights(flights=kept))
    )
    assert answer["flights"][0]["price"] == 90
    assert answer["payment_history"] == TRIP["payment_history"]
    assert database.differences(Database(DATA)) == []


def test_update_baggages_charges_additional_bags_once(database):
    answer = json.loads(answer_of(database, "update_reservation_baggages", bags()))
    assert (answer["total_baggages"], answer["nonfree_baggages"]) == (3, 2)
    assert answer["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": 100}
    answer = json.loads(answer_of(database, "update_reservation_baggages", bags(total_baggages=4)))
    assert len(answer["payment_history"]) == 2


def test_update_passengers_replaces_all_passengers(database):
    others = [{**PASSENGERS[0], "first_name": "Eva"}, PASSENGERS[1]]
    change = {"reservation_id": "AAAAAA", "passengers": others}
    assert json.loads(answer_of(database, "update_reservation_passengers", change)) == {
        **TRIP,
        "passengers": others,
    }


def test_send_certificate_numbers_certificates(database):
    change = {"user_id": "ana_lopez_1", "amount": 50}
    answers = [answer_of(database, "send_certificate", change) for _ in range(2)]
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
    assert answer_of(database, name, arguments) == f"Error: {error}"
    assert database.differences(Database(DATA)) == []


def test_update_flights_requires_seats_for_all_passengers():
    data = unshared()
    data.flights["HAT002"]["dates"]["2024-05-20"]["available_seats"]["economy"] = 1
    answer = answer_of(Database(data), "update_reservation_flights", changed_flights())
    assert answer == "Error: not enough seats on flight HAT002"


# Calls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("fly", {}, "unknown tool 'fly'"),
        ("think", {}, "invalid argument of think: thought: Missing required"),
        ("think", {"thought": 4}, "invalid argument of think: thought: Input should be a"),
        ("list_all_airports", {"of": "USA"}, "invalid argument of list_all_airports: of: Unexp"),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": NAN}, "invalid argument of"),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": 1e999}, "invalid argument of"),
        ("send_certificate", {"user_id": "ana_lopez_1", "amount": True}, "invalid argument of"),
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
        ("update_reservation_baggages", bags(nonfree_baggages=1.0), "invalid argument of"),
    ],
    ids=range(13),
)
def test_database_call_rejects_an_invalid_call(database, name, arguments, error):
    with pytest.raises(InvalidCallError) as raised:
        database.call(name, arguments)
    assert str(raised.value).startswith(f"Error: {error}")
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
def test_database_call_returns_a_text_or_raises_tool_error(name, value, at):
    arguments = dict(FULL[name])
    arguments[list(arguments)[at % len(arguments)]] = value
    assert isinstance(answer_of(Database(DATA), name, arguments), str)


@given(expression=st.text("0123456789+-*/(). ", max_size=30))
def test_calculate_always_returns_a_text(expression):
    assert answer_of(Database(DATA), "calculate", {"expression": expression})


def test_tools_has_14_tools_of_which_6_write():
    assert len(TOOLS) == 14
    assert len(WRITES) == 6
    assert set(TOOLS) >= WRITES


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
        answer_of(one, *call)
    for call in second:
        answer_of(other, *call)
    assert (one.differences(other) == []) == (whole(one) == whole(other))
    assert (one.differences(Database(unshared())) == []) == (whole(one) == whole(Database(DATA)))
    assert json.dumps([DATA.users, DATA.flights, DATA.reservations]) == INITIAL


@given(calls=st.lists(writes, max_size=4), last=writes)
def test_database_copy_is_independent(calls, last):
    database = Database(DATA)
    for call in calls:
        answer_of(database, *call)
    before, copy = deepcopy(whole(database)), database.copy()
    answer = answer_of(copy, *last)
    assert whole(database) == before
    assert answer_of(database, *last) == answer
    assert database.differences(copy) == []


def test_table_is_a_mapping_of_all_records(database):
    answer_of(database, "book_reservation", booking())
    assert list(database.reservations) == ["AAAAAA", "HATHAT"]
    assert len(database.reservations) == 2


# Effects ------------------------------------------------------------------------------------------


def effect_of(database, name, arguments):
    before = database.copy()
    answer_of(database, name, arguments)
    return effect(before, database)


def test_effect_is_independent_of_earlier_writes():
    plain, later = Database(DATA), Database(DATA)
    answer_of(
        later, "book_reservation", booking(payment_methods=paid(gift_card_1=20, gift_card_2=100))
    )
    answer_of(later, "send_certificate", {"user_id": "ana_lopez_1", "amount": 7})
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


# The data's folder --------------------------------------------------------------------------------


def test_load_data_reads_a_folder_once(tmp_path):
    folder = write_data(tmp_path / "airline", tools=[{"type": "function"}], tasks=TASKS)
    (folder / "policy.md").write_text("Be brief.")
    data = load_data(folder)
    assert data.users == DATA.users
    assert (data.tools, data.tasks, data.policy) == ([{"type": "function"}], TASKS, "Be brief.")
    assert data is load_data(str(folder))


def test_load_data_reads_a_checkout_of_tau_bench(tmp_path):
    folder = write_data(tmp_path / "tau_bench" / "envs" / "airline" / "data")
    (folder.parent / "wiki.md").write_text("Be brief.")
    data = load_data(tmp_path)
    assert data.reservations == DATA.reservations
    assert (data.tools, data.tasks, data.policy) == ([], [], "Be brief.")


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


MODULES = (
    "audit", "data", "effects", "environment", "play", "reward", "rules", "tables", "task",
    "tools", "users",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"examples.tau_airline.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)
