"""The reward of tau-bench's airline: the audit of an episode, the rules, and the rubrics."""

import hashlib
import json
from copy import deepcopy
from pathlib import Path

import pytest

from examples.tau_airline import audit as audit_module
from examples.tau_airline.audit import Audit
from examples.tau_airline.data import AirlineData, data_path, load_data
from examples.tau_airline.replay import RENAMED
from examples.tau_airline.reward import KINDS, Count, Resolved, airline_reward
from examples.tau_airline.rules import violations
from examples.tau_airline.tables import Tables
from examples.tau_airline.task import Task, task_of
from guerdon import RewardPipeline, Rollout, score_rollouts
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rollouts.scoring.reading import read_tau_bench
from tests.examples.tau_airline import (
    BOOK,
    CANCEL,
    DATA,
    LOOK,
    MOVE,
    PASSENGERS,
    SEND,
    STOPPED,
    TRIP,
    assistant,
    bags,
    booking,
    changed_flights,
    paid,
    task,
    turn,
)

REWARD_FILE = Path(audit_module.__file__).with_name("reward.yaml")


def rollout(messages, ground_truth):
    row = {"id": "0-0", "group": 0, "trial": 0, "messages": messages, "ground_truth": ground_truth}
    return Rollout.from_row(row)


def judged(messages, ground_truth):
    """Return the verdict with its reason."""
    rubric = Resolved(DATA)
    scores = [rubric.score(*step) for step in rollout(messages, ground_truth).steps]
    assert [each.value for each in scores[:-1]] == [0.0] * (len(scores) - 1)
    return scores[-1].value, scores[-1].reason


def found(messages, ground_truth, *, but=("missing_read", "forbidden")):
    """Return what was found, as kind and reason, by turn."""
    audit, at = Audit(Task.model_validate(ground_truth), DATA), {}
    for action, observation in rollout(messages, ground_truth).steps:
        findings = [each for each in audit.take(action, observation) if each.kind not in but]
        if findings:
            at[action.turn] = findings
    return at


# The verdict --------------------------------------------------------------------------------------


def test_resolved_scores_an_episode_that_ended_as_expected_1():
    chat = [assistant("Hi"), *turn(LOOK), *turn(CANCEL), STOPPED]
    reason = "the database is as expected; no outputs are required"
    assert judged(chat, task(LOOK, CANCEL)) == (1.0, reason)


def test_resolved_scores_another_database_0():
    reason = "the database differs from the expected one in reservation AAAAAA"
    assert judged([*turn(CANCEL), *turn(SEND), STOPPED], task(SEND)) == (0.0, reason)


def test_resolved_ignores_a_payment_method_that_is_never_charged():
    expected = ("update_reservation_baggages", bags(nonfree_baggages=0))
    done = ("update_reservation_baggages", bags(nonfree_baggages=0, payment_id="credit_card_1"))
    assert judged([*turn(done), STOPPED], task(expected))[0] == 1.0


def test_resolved_finds_outputs_in_any_case_and_with_commas():
    chat = [assistant("It is $1,327.50, with Wi-Fi."), STOPPED]
    reason = "the database is as expected; all 2 outputs are stated"
    assert judged(chat, task(outputs=["1327.5", "wi-fi"])) == (1.0, reason)
    assert judged(chat, task(outputs=["1327.5", "42"])) == (0.0, "missing outputs: 42")


def test_resolved_ignores_outputs_in_messages_of_the_user_and_with_calls():
    chat = [assistant("How much?"), {"role": "user", "content": "42 ###STOP###"}]
    assert judged(chat, task(outputs=["42"]))[0] == 0.0
    calling, answer = turn(MOVE)
    assert judged([{**calling, "content": "42"}, answer], task(outputs=["42"]))[0] == 0.0


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
def test_resolved_requires_an_end_by_the_user_or_a_transfer(end, ended):
    score, reason = judged([assistant("Hi"), *end], task())
    assert (score, "did not end" in reason) == (float(ended), not ended)


def test_resolved_names_at_most_5_differences():
    users = {f"u{number}": {"payment_methods": {}} for number in range(7)}
    data = AirlineData(users, {}, {})
    sent = [("send_certificate", {"user_id": name, "amount": 5}) for name in users]
    audit = Audit(Task.model_validate(task(*sent)), data)
    assert "user u4 and 2 more" in audit.verdict()[1]


def test_resolved_begins_a_new_audit_after_reset():
    rubric = Resolved(DATA)
    rows = score_rollouts(rubric, [rollout([*turn(CANCEL), STOPPED], task(CANCEL))] * 2)
    assert [row["score"] for row in rows] == [1.0, 1.0]


# Findings -----------------------------------------------------------------------------------------


def test_audit_finds_expected_and_wrong_writes():
    assert found([*turn(CANCEL), *turn(SEND), STOPPED], task(SEND)) == {
        0: [("wrong_write", "cancel_reservation AAAAAA: not expected")],
        1: [("expected_write", "send_certificate ana_lopez_1")],
    }


def test_audit_distinguishes_the_expected_tool_with_another_effect():
    other = ("send_certificate", {**SEND[1], "amount": 6})
    assert found([*turn(other), STOPPED], task(SEND)) == {
        0: [
            ("wrong_write", "send_certificate ana_lopez_1: other than expected"),
            ("missing_write", "send_certificate ana_lopez_1"),
        ]
    }


def test_audit_finds_a_write_that_is_repeated():
    at = found([*turn(BOOK), *turn(SEND), *turn(SEND), STOPPED], task(SEND, BOOK))
    assert at[2] == [("wrong_write", "send_certificate ana_lopez_1: more often than expected")]
    at = found([*turn(SEND), *turn(SEND), STOPPED], task(SEND, SEND))
    assert [each.kind for turn_ in at.values() for each in turn_] == ["expected_write"] * 2


def test_audit_finds_failed_writes_and_ignores_ineffective_ones():
    wrong = ("cancel_reservation", {"reservation_id": "B"})
    same = (
        "update_reservation_passengers",
        {"reservation_id": "AAAAAA", "passengers": PASSENGERS},
    )
    at = found([*turn(wrong), *turn(same), assistant("Bye"), STOPPED], task(CANCEL))
    assert at == {
        0: [("failed_call", "cancel_reservation B: Error: reservation not found")],
        2: [("missing_write", "cancel_reservation AAAAAA")],
    }


@pytest.mark.parametrize("name", ["cancel_reservation", "get_user_details", "fly"])
@pytest.mark.parametrize("arguments", ['{"reservation_id": ', '{"reservation_id": 4}'])
def test_audit_finds_invalid_calls(name, arguments):
    at = found([assistant("Hi"), *turn((name, arguments)), STOPPED], task())
    if name == "get_user_details" and arguments.endswith("}"):
        assert at == {}  # the recorded answer is no error
    else:
        assert [each.kind for each in at[1]] == ["failed_call"]


def test_audit_finds_recorded_errors_of_reads():
    calling, answer = turn(LOOK)
    at = found([calling, {**answer, "content": "Error: user not found"}, STOPPED], task())
    assert at == {0: [("failed_call", "get_user_details ana_lopez_1: Error: user not found")]}


def test_audit_finds_missing_outputs_at_the_end():
    assert found([assistant("It is 7."), STOPPED], task(outputs=["7", "8"])) == {
        0: [("missing_output", "8")]
    }


def test_audit_finds_records_that_were_changed_or_expected_without_a_look_up():
    at = found([*turn(CANCEL), assistant("Bye"), STOPPED], task(LOOK, CANCEL), but=())
    assert at == {
        0: [
            ("expected_write", "cancel_reservation AAAAAA"),
            ("missing_read", "cancel_reservation AAAAAA: changed without a look-up"),
        ],
        1: [("missing_read", "ana_lopez_1 was never looked up")],
    }
    read = ("get_reservation_details", {"reservation_id": "AAAAAA"})
    at = found([*turn(LOOK), *turn(read), *turn(CANCEL), STOPPED], task(LOOK, CANCEL), but=())
    assert at == {2: [("expected_write", "cancel_reservation AAAAAA")]}


def test_audit_finds_forbidden_writes_unless_the_task_expects_them():
    assert found([*turn(CANCEL), STOPPED], task(), but=("missing_read", "wrong_write")) == {
        0: [("forbidden", "cancel_reservation AAAAAA: the reservation must not be cancelled")]
    }
    at = found([*turn(CANCEL), STOPPED], task(CANCEL), but=("missing_read",))
    assert [each.kind for each in at[0]] == ["expected_write"]


def test_audit_finds_several_calls_in_a_turn():
    at = found([*turn(LOOK, SEND), STOPPED], task(SEND), but=("missing_read",))
    assert at == {
        0: [
            ("forbidden", "2 calls in one turn"),
            ("expected_write", "send_certificate ana_lopez_1"),
        ]
    }


def test_audit_ignores_calls_that_were_not_made():
    calling, answer, refused = turn(LOOK, CANCEL)
    refused = {**refused, "content": "not called: a turn may have at most 1 calls"}
    assert judged([calling, answer, refused, STOPPED], task())[0] == 1.0
    chat = [*turn(CANCEL, answered=False), assistant("Bye"), STOPPED]
    assert judged(chat, task())[0] == 1.0


def test_audit_takes_a_call_without_arguments():
    call = {"function": {"name": "think"}}
    assert judged([{"role": "assistant", "tool_calls": [call]}], task())[0] == 0.0


@pytest.mark.parametrize("call", [{}, {"function": "think"}])
def test_audit_of_a_call_that_cannot_be_read_is_refused(call):
    [step] = rollout([{"role": "assistant", "tool_calls": [call]}], task()).steps
    score = Resolved(DATA).score(*step)
    assert score.value is None
    assert "a tool call in a format that isn't read" in score.error


# The rules ----------------------------------------------------------------------------------------


def broken(name, arguments, *, membership="gold", trip=()):
    users = {"ana_lopez_1": {**DATA.users["ana_lopez_1"], "membership": membership}}
    trips = {"AAAAAA": {**TRIP, **dict(trip)}}
    return violations(Tables(AirlineData(users, DATA.flights, trips)), name, arguments)


MANY = [*paid(certificate_1=1, gift_card_1=1), *paid(certificate_1=1)]


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({}, []),
        ({"passengers": PASSENGERS * 3}, ["a reservation may have at most 5 passengers"]),
        (
            {"payment_methods": MANY},
            ["a reservation may be paid with at most 1 certificate"],
        ),
        ({"total_baggages": 3}, []),
        ({"total_baggages": 5}, ["2 of the bags must be paid"]),
        ({"nonfree_baggages": 1}, ["0 of the bags must be paid"]),
        ({"user_id": "nobody", "total_baggages": 5}, []),
    ],
    ids=range(7),
)
def test_violations_of_a_booking(changes, rules):
    assert broken("book_reservation", booking(**changes)) == rules


@pytest.mark.parametrize(
    ("trip", "rules"),
    [
        ({}, ["the reservation must not be cancelled"]),
        ({"created_at": "2024-05-15T01:00:00"}, []),
        ({"cabin": "business"}, []),
        ({"insurance": "yes"}, []),
        (
            {"insurance": "yes", "flights": [{"flight_number": "HAT001", "date": "2024-05-14"}]},
            ["a trip that has begun must not be cancelled"],
        ),
    ],
    ids=range(5),
)
def test_violations_of_a_cancellation(trip, rules):
    assert broken("cancel_reservation", {"reservation_id": "AAAAAA"}, trip=trip) == rules


@pytest.mark.parametrize(
    ("trip", "numbers", "rules"),
    [
        ({}, ["HAT002"], []),
        ({}, ["HAT004", "HAT005"], []),
        ({}, ["HAT004"], ["the origin and the destination must not be changed"]),
        ({}, [], ["the origin and the destination must not be changed"]),
        ({"flight_type": "round_trip"}, ["HAT001"], []),
        (
            {"flight_type": "round_trip"},
            ["HAT002"],
            ["the origin and the destination must not be changed"],
        ),
        (
            {"cabin": "basic_economy"},
            ["HAT002"],
            ["flights in basic economy must not be changed"],
        ),
        ({"cabin": "basic_economy"}, ["HAT001"], []),
    ],
    ids=range(8),
)
def test_violations_of_a_change_of_flights(trip, numbers, rules):
    flights = [{"flight_number": number, "date": "2024-05-20"} for number in numbers]
    change = changed_flights(flights=flights)
    assert broken("update_reservation_flights", change, trip=trip) == rules


def test_violations_of_a_change_of_bags_and_passengers():
    change = bags(total_baggages=0, nonfree_baggages=0)
    assert broken("update_reservation_baggages", change) == ["bags must not be removed"]
    assert broken("update_reservation_baggages", bags()) == ["0 of the bags must be paid"]
    assert broken("update_reservation_passengers", {"reservation_id": "AAAAAA"}) == []
    assert broken("update_reservation_passengers", {"reservation_id": "B"}) == []


@pytest.mark.parametrize(
    ("amount", "membership", "trip", "allowed"),
    [
        (100, "gold", {}, True),
        (200, "silver", {}, True),
        (150, "gold", {}, False),
        (100, "regular", {}, False),
        (100, "regular", {"insurance": "yes"}, True),
        (100, "regular", {"cabin": "business"}, True),
    ],
)
def test_violations_of_a_certificate(amount, membership, trip, allowed):
    sent = {"user_id": "ana_lopez_1", "amount": amount}
    rules = broken("send_certificate", sent, membership=membership, trip=trip)
    assert (rules == []) == allowed


# The tree -----------------------------------------------------------------------------------------


def test_airline_reward_counts_findings_at_their_steps_and_rewards_only_the_verdict():
    chat = rollout([*turn(CANCEL), assistant("Done."), STOPPED], task(SEND))
    reward = airline_reward(DATA)
    scores = [reward.score(*step).components() for step in chat.steps]
    assert [{name for name, value in each.items() if value} for each in scores] == [
        {"wrong_write", "missing_read", "forbidden"},
        {"missing_write", "missing_read"},
    ]
    [row] = score_rollouts(reward, [rollout([*turn(SEND), STOPPED], task(SEND))])
    assert (row["score"], row["step_rewards"]) == (1.0, [1.0])


def test_reward_file_has_the_tree_and_the_weights_of_airline_reward():
    made, own = RewardPipeline.of(REWARD_FILE).make(), airline_reward()
    assert made.weights == own.weights == {"resolved": 1.0, **dict.fromkeys(KINDS, 0.0)}
    assert made.state_dict() == own.state_dict()


def test_count_refuses_an_unknown_kind():
    with pytest.raises(InvalidArgumentError, match=r"`kind` must be .*wrong_write.* got 'wrong'"):
        Count("wrong")


def test_airline_reward_copies_share_the_data():
    copied = deepcopy(airline_reward(DATA))
    assert copied.get_rubric("resolved")._data is DATA
    assert copied.fingerprint() == airline_reward(DATA).fingerprint()


@pytest.mark.parametrize(
    ("ground_truth", "message"),
    [
        ("{}", r"a task must have actions and outputs, .*: Input should be a valid dictionary"),
        ({"outputs": []}, "actions: Field required"),
        ({"actions": {}}, "actions: Input should be a valid list"),
        ({"actions": ["cancel"]}, r"actions\.0: Input should be"),
        ({"actions": [{"name": "fly", "kwargs": {}}]}, r"actions\.0\.name: .*must be one of book_"),
        ({"actions": [{"name": "think"}]}, r"actions\.0\.kwargs: Field required"),
        ({"actions": [], "outputs": [4]}, r"outputs\.0: Input should be a valid string"),
    ],
    ids=range(7),
)
def test_task_of_refuses_an_invalid_task(ground_truth, message):
    with pytest.raises(InvalidArgumentError, match=message):
        task_of({"ground_truth": ground_truth}, DATA)
    [row] = score_rollouts(Resolved(DATA), [rollout([assistant("Hi")], ground_truth)])
    assert (row["score"], row["is_score_valid"]) == (None, False)


def test_task_of_finds_a_task_by_its_number():
    assert task_of({"task": 1}, DATA).outputs == ["1327.5"]
    for number in (3, -1, "1", True):
        with pytest.raises(InvalidArgumentError, match=r"`task` must be an integer"):
            task_of({"task": number}, DATA)
    with pytest.raises(InvalidArgumentError, match=r"tasks\.json is missing"):
        task_of({"task": 0}, AirlineData({}, {}, {}))
    with pytest.raises(MissingInputError, match="must have `ground_truth`"):
        task_of({}, DATA)


# The recordings -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recordings():
    try:
        folder = data_path()
    except InvalidArgumentError as error:
        pytest.skip(f"the recordings are missing: {error}")
    if not (folder / "trajectories.json").is_file():
        pytest.skip(f"{folder} has no trajectories.json")
    with (folder / "trajectories.json").open("rb") as file:
        rollouts = [Rollout.from_row(json.loads(line)) for _, line in read_tau_bench(file)]
    return load_data(folder), rollouts


def test_airline_reward_of_the_recordings_is_the_published_one(recordings):
    data, rollouts = recordings
    assert len(rollouts) == 100
    for row, each in zip(score_rollouts(airline_reward(data), rollouts), rollouts, strict=True):
        assert row["score"] == each.columns["reward"], (row["id"], row["error"])


def test_airline_reward_finds_why_each_recording_failed(recordings):
    data, rollouts = recordings
    causes = {"wrong_write", "missing_write", "missing_output"}
    for each in rollouts:
        audit = Audit(task_of(each.columns, data), data)
        kinds = {found.kind for step in each.steps for found in audit.take(*step)}
        solved = bool(each.columns["reward"])
        ended = "did not end" not in audit.verdict()[1]
        assert solved == (ended and not kinds & causes), each.id


def nested(value):
    """Return a record as tuples sorted by key, the layout that the published digests hash."""
    if isinstance(value, dict):
        return tuple((key, nested(value[key])) for key in sorted(value))
    return tuple(map(nested, value)) if isinstance(value, list) else value


def test_audit_target_has_the_published_digest(recordings):
    data, rollouts = recordings
    users = json.loads(json.dumps(data.users).replace(*RENAMED))
    data = AirlineData(users=users, flights=data.flights, reservations=data.reservations)
    names = ("flights", "reservations", "users")
    texts = {id(row): str(nested(row)) for name in names for row in getattr(data, name).values()}
    published = {
        each.group: (each.columns, each.columns["info"]["reward_info"]["info"])
        for each in rollouts
        if each.columns["info"]["reward_info"] is not None  # None if the episode did not end
    }
    compared = 0
    for number, (columns, info) in published.items():
        if "gt_data_hash" not in info:  # it has the outputs instead
            continue
        database = Audit(task_of(columns, data), data).target
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
