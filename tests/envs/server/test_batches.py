"""`guerdon.batch.v1` on a server: many sessions on one WebSocket."""

import asyncio
import json
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from guerdon import Observation
from guerdon.envs import ServerLimits
from guerdon.envs.server.batches import WebSockets
from guerdon.envs.server.sessions import SessionManager
from guerdon.envs.wire import JSON, MSGPACK, codecs
from guerdon.types import ArrayField
from tests.envs.server.test_protocol import CODES, messages, values
from tests.envs.server.worlds import SOON, Client, Echo, Said, Say, counted

pytestmark = pytest.mark.edge  # real servers, some with clients that don't read


class Batches(Client):
    """A client that sends calls and hears answers."""

    def __init__(self, served, subprotocol=JSON):
        super().__init__(served.url.replace("http", "ws") + "/ws", subprotocols=[subprotocol])
        assert self.socket.subprotocol == subprotocol
        self.codec = codecs()[subprotocol]
        [[_, kind, self.ready]] = self.frame()
        assert kind == "ready"

    def call(self, *calls):
        encoded = [self.codec.encode(*call, *[None] * (3 - len(call))) for call in calls]
        self.say(self.codec.frame(encoded))

    def frame(self, timeout=SOON):
        return self.codec.decode(self.socket.recv(timeout=timeout))

    def answers(self, count):
        """So many answers, by session."""
        heard = []
        while len(heard) < count:
            heard += self.frame()
        assert len(heard) == count
        return {number: (kind, data) for number, kind, data in heard}

    def asked(self, *calls):
        self.call(*calls)
        return self.answers(len(calls))

    def refused(self, text):
        """The error of a frame."""
        self.say(text)
        [[number, kind, data]] = self.frame()
        assert (number, kind) == (None, "error")
        return data["code"], data["message"]


@pytest.fixture
def batches():
    """Connects clients, and closes them when the test ends."""
    made = []

    def connect(*arguments):
        made.append(Batches(*arguments))
        return made[-1]

    yield connect
    for each in made:
        each.close()


@pytest.mark.parametrize("subprotocol", [JSON, MSGPACK])
def test_batch_connection_plays_episodes_in_many_sessions(play, batches, subprotocol):
    client = batches(play(), subprotocol)
    first = client.asked(*((number, "reset", {"seed": number}) for number in range(3)))
    assert first[2] == (
        "observation",
        {
            "text": "begin",
            "reward": None,
            "done": False,
            "metadata": {"arguments": {"seed": 2}},
        },
    )
    stepped = client.asked((0, "step", {"text": "hello"}), (2, "step", {"text": "end"}))
    assert {n: data["reward"] for n, (_, data) in stepped.items()} == {0: 0.5, 2: 0.3}
    assert stepped[2][1]["done"] is True
    states = client.asked(*((number, "state") for number in range(3)))
    assert [states[number][1]["step_count"] for number in range(3)] == [1, 0, 1]


def test_batch_connection_announces_the_limits_of_the_server(serve, batches):
    served = serve(max_sessions=3, max_message_bytes=5000)
    one = batches(served)
    assert one.ready == {"free_sessions": 3, "max_calls": 6, "max_message_bytes": 5000}
    one.asked((1, "reset"), (2, "reset"))
    assert batches(served).ready["free_sessions"] == 1


def test_batch_connection_counts_steps_sessions_and_failures(serve, batches):
    served = serve()
    client = batches(served)
    client.asked((1, "reset"), (2, "reset"))
    client.asked((1, "step", {"text": "a"}), (2, "step", {"txt": 1}))
    assert served.number("guerdon_sessions") == 2
    assert served.number("guerdon_sessions_opened_total") == 2
    assert served.number("guerdon_calls_total", method="reset") == 2
    assert served.number("guerdon_step_seconds_count") == 1
    assert served.number("guerdon_failures_total", kind="validation_error") == 1
    client.call((1, "close"), (2, "close"), (5, "close"))
    served.empty()
    assert served.number("guerdon_sessions_closed_total", reason="client closed") == 2


class Troubled(Echo):
    """Does what its action says."""

    def step(self, action, timeout_s=None, **kwargs):
        if action.text == "raise":
            raise OSError("the game is down")
        if action.text == "exit":
            raise SystemExit(3)
        if action.text == "rubbish":
            return 5
        if action.text == "nan":
            return Said(metadata={"x": float("nan")})
        return super().step(action)


@pytest.mark.parametrize("subprotocol", [JSON, MSGPACK])
@pytest.mark.parametrize(
    ("data", "code", "problem"),
    [
        ({"text": "raise"}, "EXECUTION_ERROR", "OSError: the game is down"),
        ({"text": "exit"}, "EXECUTION_ERROR", "sys.exit(3)"),
        ({"text": "rubbish"}, "EXECUTION_ERROR", "must return an Observation"),
        ({"text": "nan"}, "EXECUTION_ERROR", "Said has nan at metadata.x"),
        ({"text": 5}, "VALIDATION_ERROR", "the action is not valid: text"),
        (None, "VALIDATION_ERROR", "the action is not valid"),
    ],
)
def test_batch_connection_an_error_is_of_its_session_alone(
    play, batches, subprotocol, data, code, problem
):
    client = batches(play(Troubled), subprotocol)
    client.asked((1, "reset"), (2, "reset"))
    answers = client.asked((1, "step", data), (2, "step", {"text": "hello"}))
    kind, error = answers[1]
    assert (kind, error["code"]) == ("error", code)
    assert problem in error["message"]
    assert answers[2][1]["reward"] == 0.5
    assert client.asked((1, "step", {"text": "hello"}))[1][1]["reward"] == 0.5


class Deep(Echo):
    """Its observations are nested more deeply than JSON in a frame may be."""

    def step(self, action, timeout_s=None, **kwargs):
        history = []
        for _ in range(240 if action.text == "deep" else 2):
            history = [history]
        return Said(text=action.text, reward=0.5, metadata={"history": history})


def test_batch_connection_an_observation_that_is_nested_too_deeply_is_an_error_of_its_session(
    play, batches
):
    client = batches(play(Deep))
    client.asked((1, "reset"), (2, "reset"))
    for _ in range(2):
        answers = client.asked((1, "step", {"text": "deep"}), (2, "step", {"text": "hello"}))
        kind, error = answers[1]
        assert (kind, error["code"]) == ("error", "EXECUTION_ERROR")
        assert "recursion limit" in error["message"]
        assert answers[2][1]["reward"] == 0.5
    assert client.asked((1, "step", {"text": "hello"}))[1][1]["reward"] == 0.5


@pytest.mark.parametrize("subprotocol", [JSON, MSGPACK])
def test_batch_connection_counts_the_errors_of_an_action_with_many(play, batches, subprotocol):
    client = batches(play(), subprotocol)
    client.asked((1, "reset"))
    kind, error = client.asked((1, "step", {f"name {n}": 0 for n in range(5000)}))[1]
    assert (kind, error["code"]) == ("error", "VALIDATION_ERROR")
    assert "5,001 errors; they are listed if there are at most 100" in error["message"]
    assert len(error["errors"]) == 1
    assert client.asked((1, "step", {"text": "hello"}))[1][1]["reward"] == 0.5


def test_batch_connection_a_step_before_a_reset_is_an_error(play, batches):
    client = batches(play(counted(step=lambda self, action: self.score(action, None))))
    kind, error = client.asked((7, "step", {"text": "hello"}))[7]
    assert (kind, error["code"]) == ("error", "EXECUTION_ERROR")


def test_batch_connection_async_environments_are_stepped_as_well(play, batches):
    class Async(Echo):
        async def step_async(self, action, timeout_s=None, **kwargs):
            await asyncio.sleep(0)
            return Said(text="async", reward=1.0)

    client = batches(play(Async))
    client.asked((1, "reset"))
    assert client.asked((1, "step", {"text": "a"}))[1][1]["text"] == "async"


def test_batch_connection_carries_arrays_as_bytes_with_msgpack_and_as_lists_with_json(
    play, batches
):
    class Seen(Observation):
        frame: Annotated[np.ndarray, ArrayField("uint8", (2, 2))]

    class Screens(Echo):
        def reset(self, seed=None, **kwargs):
            return Seen(frame=np.eye(2, dtype="uint8"))

    frames = {}
    for subprotocol in (JSON, MSGPACK):
        client = batches(play(Screens), subprotocol)
        frames[subprotocol] = client.asked((1, "reset"))[1][1]["frame"]
    assert frames[JSON] == [[1, 0], [0, 1]]
    assert isinstance(frames[MSGPACK], np.ndarray)
    assert frames[MSGPACK].tolist() == frames[JSON]


def test_batch_connection_takes_the_first_subprotocol_that_is_known(play):
    url = play().url.replace("http", "ws") + "/ws"
    for offered, chosen in [(["x", JSON, MSGPACK], JSON), (["guerdon.batch.v9"], None)]:
        client = Client(url, subprotocols=offered)
        assert client.socket.subprotocol == chosen
        client.close()


# Time


class Holds(Echo):
    """Waits in a step until the test ends."""

    gate = None

    def step(self, action, timeout_s=None, **kwargs):
        if action.text == "wait":
            self.gate.wait(SOON)
        return super().step(action)


def test_batch_connection_a_slow_step_does_not_hold_the_others(play, batches, hold):
    client = batches(play(type("Held", (Holds,), {"gate": hold, "__doc__": "Waits."})))
    client.asked(*((number, "reset") for number in range(4)))
    client.call((0, "step", {"text": "wait"}), *((n, "step", {"text": "go"}) for n in (1, 2, 3)))
    assert sorted(client.answers(3)) == [1, 2, 3]
    assert client.asked((1, "step", {"text": "again"}))[1][1]["text"] == "again"
    hold.set()
    assert client.answers(1)[0][1]["text"] == "wait"


def test_batch_connection_a_step_that_is_late_is_abandoned_and_its_session_goes_on(
    serve, batches, hold
):
    world = type("Held", (Holds,), {"gate": hold, "__doc__": "Waits."})
    served = serve(world, step_timeout_s=0.2)
    client = batches(served)
    client.asked((1, "reset"), (2, "reset"))
    answers = client.asked((1, "step", {"text": "wait"}), (2, "step", {"text": "go"}))
    assert answers[2][0] == "observation"
    assert "step took longer than 0.2 s" in answers[1][1]["message"]
    assert served.number("guerdon_hanging_environments") == 1
    _, error = client.asked((1, "step", {"text": "go"}))[1]
    assert "reset it to make a new one" in error["message"]
    client.asked((1, "reset"))
    assert client.asked((1, "step", {"text": "go"}))[1][1]["text"] == "go"


def test_batch_connection_a_close_abandons_the_call_and_frees_the_place(serve, batches, hold):
    world = type("Held", (Holds,), {"gate": hold, "__doc__": "Waits."})
    served = serve(world, max_sessions=1)
    client = batches(served)
    client.asked((1, "reset"))
    client.call((1, "step", {"text": "wait"}))
    client.call((1, "close"), (2, "reset"))
    answers = client.answers(1)
    assert answers[2][0] == "observation"
    hold.set()
    assert client.asked((2, "step", {"text": "go"}))[2][1]["text"] == "go"


def test_batch_connection_idle_sessions_and_then_the_connection_end(serve, batches):
    served = serve(idle_timeout_s=0.2)
    client = batches(served)
    client.asked((1, "reset"))
    kind, error = client.answers(1)[1]
    assert (kind, error["code"]) == ("error", "SESSION_ERROR")
    served.empty()
    with pytest.raises(ConnectionClosed):
        client.frame()
    assert client.socket.close_code == 1000


def test_batch_connection_sessions_end_with_the_connection(serve, batches):
    world = counted()
    served = serve(world)
    client = batches(served)
    client.asked(*((number, "reset") for number in range(8)))
    client.close()
    served.empty()
    assert world.made == world.closed


def test_batch_connection_a_stopping_server_lets_running_steps_end(serve, batches, hold):
    served = serve(type("Held", (Holds,), {"gate": hold, "__doc__": "Waits."}))
    client = batches(served)
    client.asked((1, "reset"), (2, "reset"))
    client.call((1, "step", {"text": "wait"}))
    served.stop()
    assert client.answers(1)[2][1]["code"] == "SESSION_ERROR"
    hold.set()
    first, second = client.frame()
    assert first[1:] == ["observation", first[2]]
    assert (second[1], second[2]["code"]) == ("error", "SESSION_ERROR")
    with pytest.raises(ConnectionClosed):
        client.frame()
    assert client.socket.close_code == 1001


def test_batch_connection_without_sessions_is_closed_by_a_stopping_server(serve, batches):
    served = serve()
    client = batches(served)
    served.stop()
    with pytest.raises(ConnectionClosed):
        client.frame()
    assert client.socket.close_code == 1012


# Bounds


def test_batch_connection_sessions_above_the_limit_are_refused_each(serve, batches):
    client = batches(serve(max_sessions=2))
    answers = client.asked(*((number, "reset") for number in range(3)))
    (refused,) = [data for kind, data in answers.values() if kind == "error"]
    assert refused["code"] == "CAPACITY_REACHED"
    assert client.asked((0, "step", {"text": "go"}), (1, "step", {"text": "go"}))


@pytest.fixture
def slow_to_close(hold):
    """A class of environments that are closed when the test ends."""

    class SlowToClose(Echo):
        was_reset = False

        def reset(self, seed=None, **kwargs):
            self.was_reset = True
            return Said(text="begin")

        def close(self):
            assert not self.was_reset or hold.wait(SOON)

    return SlowToClose


def test_batch_connection_a_session_that_closes_delays_no_other_one(serve, batches, slow_to_close):
    client = batches(serve(slow_to_close, max_sessions=2))
    client.asked((1, "reset"))
    client.call((1, "close"))
    assert client.asked((2, "reset"))[2][0] == "observation"


def test_batch_connection_has_a_limit_on_sessions_that_wait_for_a_place(
    serve, batches, hold, slow_to_close
):
    client = batches(serve(slow_to_close, max_sessions=2))
    client.asked((1, "reset"), (2, "reset"))
    client.call((1, "close"), (2, "close"))
    client.call((3, "reset"), (4, "reset"), (5, "reset"))  # which wait for the two that close
    code, message = client.refused('[[6,"reset"],[7,"reset"]]')
    assert (code, message) == (
        "VALIDATION_ERROR",
        "a connection must have at most 4 sessions",
    )
    hold.set()
    answers = client.answers(3)
    assert sorted(kind for kind, _ in answers.values()) == ["error", "observation", "observation"]


@pytest.mark.parametrize(
    ("frame", "code", "problem"),
    [
        ("hello", "INVALID_JSON", "not a frame of guerdon.batch.v1"),
        (b"\x90", "INVALID_JSON", "not a frame of guerdon.batch.v1"),
        ('[[1,"reset"],[2,"reset",{"x":1e999}]]', "INVALID_JSON", "inf at [1][2].x"),
        ("[" + "[]," * 200_000 + "1]", "INVALID_JSON", "it has too many values"),
        ("5", "VALIDATION_ERROR", "a list of at most 8 calls"),
        (json.dumps([[1, "reset"]] * 9), "VALIDATION_ERROR", "a list of at most 8 calls"),
        ('[[1,"reset"],[1,"state"]]', "VALIDATION_ERROR", "session 1 is in a call"),
        ('[[1,"reset"],[2]]', "VALIDATION_ERROR", "must be [session, kind, data]"),
        ('[[1,"reset"],{}]', "VALIDATION_ERROR", "must be [session, kind, data]"),
        ('[[-1,"reset"]]', "VALIDATION_ERROR", "an integer in [0, 2^53)"),
        ('[[true,"reset"]]', "VALIDATION_ERROR", "an integer in [0, 2^53)"),
        ('[["1","reset"]]', "VALIDATION_ERROR", "an integer in [0, 2^53)"),
        ('[[1,"reset"],[2,"jump"]]', "UNKNOWN_TYPE", "close, config, reset, state, step"),
        ('[[1,["reset"]]]', "UNKNOWN_TYPE", "must be one of"),
    ],
)
def test_batch_connection_refuses_a_bad_frame_whole(serve, batches, frame, code, problem):
    served = serve(max_sessions=4)
    client = batches(served)
    got, message = client.refused(frame)
    assert got == code
    assert problem in message
    assert served.sessions() == 0
    assert client.asked((1, "reset"))[1][0] == "observation"


def test_batch_connection_with_msgpack_refuses_text(play, batches):
    code, message = batches(play(), MSGPACK).refused("[]")
    assert (code, "it is text" in message) == ("INVALID_JSON", True)


def test_batch_connection_refuses_a_call_of_a_session_that_is_in_one(play, batches, hold):
    client = batches(play(type("Held", (Holds,), {"gate": hold, "__doc__": "Waits."})))
    client.asked((1, "reset"), (2, "reset"))
    client.call((1, "step", {"text": "wait"}))
    code, message = client.refused('[[2,"state"],[1,"state"]]')
    assert (code, message) == (
        "VALIDATION_ERROR",
        "session 1 is in a call; it has one at a time",
    )
    hold.set()
    assert client.answers(1)[1][0] == "observation"


def test_batch_connection_a_frame_has_at_most_so_many_bytes(serve, batches):
    client = batches(serve(max_message_bytes=1000))
    client.say(json.dumps([[1, "reset", {"x": "x" * 1000}]]))
    with pytest.raises(ConnectionClosed):
        client.frame()
    assert client.socket.close_code == 1009


def test_batch_connection_a_change_of_configuration_has_its_own_limit(serve, batches):
    client = batches(serve(max_config_bytes=100))
    code, message = client.refused(json.dumps([[1, "config", {"x": "x" * 100}]]))
    assert (code, "at most 100 bytes" in message) == ("VALIDATION_ERROR", True)


class Large(Echo):
    """Its observations fill any buffer on the way."""

    def step(self, action, timeout_s=None, **kwargs):
        type(self).steps += 1
        return Said(text="x" * 2**22)


def test_batch_connection_a_client_that_does_not_read_is_no_longer_served_and_then_closed(
    serve, batches, eventually
):
    world = type("Big", (Large,), {"steps": 0, "__doc__": "Large."})
    served = serve(world, send_timeout_s=1.0, keepalive_s=1000)
    other = batches(served)
    other.asked((1, "reset"))
    raw = served.raw(receive_buffer=4096)
    raw.upgrade(**{"Sec-WebSocket-Protocol": JSON})
    assert raw.hear()[0][1] == "ready"
    raw.frame([[n, "reset"] for n in range(4)])
    heard = 0
    while heard < 4:
        heard += len(raw.hear())
    for _ in range(20):
        raw.frame([[n, "step", {"text": "go"}] for n in range(4)])
    reason = "client does not read"
    eventually(lambda: served.number("guerdon_sessions_closed_total", reason=reason) == 4)
    assert 4 <= world.steps <= 8  # those of the first frame, or the first two
    assert other.asked((1, "step", {"text": "go"}))[1][0] == "observation"


# Configuration


def test_batch_connection_configures_one_session_alone(play, batches):
    client = batches(play())
    client.asked((1, "reset"), (2, "reset"))
    before = client.asked((1, "config"))[1][1]
    kind, error = client.asked((1, "config", {"weights": {"no": 1}}))[1]
    assert (kind, error["code"]) == ("error", "VALIDATION_ERROR")
    kind, answer = client.asked((1, "config", {"version": before["version"]}))[1]
    assert (kind, answer["status"]) == ("config", "ok")


# Any frame


def connection_of(subprotocol, frames):
    """Send frames to a batch connection, and return the answers."""

    async def play():
        world = counted()
        manager = SessionManager(world, Say, ServerLimits(max_sessions=5))
        events = [{"type": "websocket.connect"}]
        events += [
            {"type": "websocket.receive", "text" if isinstance(each, str) else "bytes": each}
            for each in frames
        ]
        incoming, sent = iter(events), []

        async def receive():
            event = next(incoming, None)
            if event is None:
                await asyncio.sleep(0.01)
                return {"type": "websocket.disconnect", "code": 1005}
            return event

        async def send(event):
            sent.append(event)

        async with asyncio.timeout(SOON):
            scope = {"type": "websocket", "subprotocols": [subprotocol]}
            await WebSockets(manager)(scope, receive, send)
        assert not manager.sessions
        manager.close()
        assert world.made == world.closed
        return sent

    accepted, *sent = asyncio.run(play())
    assert accepted == {"type": "websocket.accept", "subprotocol": subprotocol}
    codec = codecs()[subprotocol]
    return [
        answer
        for event in sent
        if event["type"] == "websocket.send"
        for answer in codec.decode(event.get("text") or event.get("bytes"))
    ]


calls = st.lists(
    st.one_of(
        st.tuples(
            st.one_of(st.integers(0, 6), values),
            st.one_of(st.sampled_from(["reset", "step", "state", "close", "config"]), values),
            st.one_of(st.fixed_dictionaries({"text": st.text()}), values),
        ),
        values,
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(calls, messages), max_size=5), st.sampled_from([JSON, MSGPACK]))
def test_batch_connection_answers_any_frames(frames, subprotocol):
    from msgspec import msgpack

    def encoded(frame):
        if subprotocol == JSON:
            return json.dumps(frame)
        return msgpack.encode(json.loads(json.dumps(frame), parse_int=float))

    allowed = CODES | {"CAPACITY_REACHED", "EXECUTION_ERROR"}
    first, *answers = connection_of(subprotocol, [encoded(frame) for frame in frames])
    assert first[:2] == [None, "ready"]
    for number, kind, data in answers:
        assert number is None or number in range(2**53)
        assert kind in ("observation", "state", "config", "error")
        assert kind != "error" or data["code"] in allowed


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=4), st.integers(0, 30), st.binary(max_size=2))
def test_batch_connection_answers_any_bytes(noise, cut, junk):
    codec = codecs()[MSGPACK]
    frame = codec.frame([codec.encode(1, "reset", {"seed": 3}), codec.encode(2, "state", None)])
    first, *answers = connection_of(MSGPACK, [frame[:cut] + junk + frame[cut + 1 :], *noise])
    assert first[:2] == [None, "ready"]
    assert {kind for _, kind, _ in answers} <= {"observation", "state", "error"}
