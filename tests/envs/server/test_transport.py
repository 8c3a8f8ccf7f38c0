"""Connections: too many, too slow, too large, too silent."""

import json
import struct
import threading
from contextlib import suppress

import pytest
from starlette.routing import WebSocketRoute
from websockets.exceptions import ConnectionClosed

from tests.envs.server.worlds import CLOSE, RESET, SOON, STATE, Echo, Raw, Said, open_files, step

pytestmark = pytest.mark.edge  # real servers, with clients that are slow or silent

MEGABYTE = 2**20


class Talkative(Echo):
    """Answers more than any buffer on the way can hold."""

    def reset(self, seed=None, **kwargs):
        return Said(text="x" * (32 * MEGABYTE if seed == 1 else 0))


# Size


def test_websocket_rejects_a_large_frame_when_it_is_announced(serve, eventually):
    served = serve(max_sessions=1)
    raw = served.raw()
    raw.upgrade()
    raw.frame(RESET)
    raw.hear()
    raw.frame(b"", length=200 * MEGABYTE)  # nothing of it has been sent yet
    assert raw.close_code() == 1009
    served.empty()
    assert served.client().ask(RESET)["type"] == "observation"


def test_websocket_rejects_a_large_message_in_fragments(serve):
    served = serve()
    raw = served.raw()
    raw.upgrade()
    piece, sent = b"x" * MEGABYTE, 0
    raw.frame(piece, opcode=1, fin=False)
    try:
        for sent in range(1, 200):  # noqa: B007
            raw.frame(piece, opcode=0, fin=False)
    except OSError:  # it hears no more
        pass
    else:
        raise AssertionError("it took it all")
    assert sent < 40  # 16 MB, and what the sockets hold
    served.empty()


HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frames(opcode, payload, count, fin=True):
    """Many masked frames, as bytes."""
    head = bytes([opcode | (0x80 if fin else 0), 0x80 | len(payload)])
    return (head + bytes(4) + payload) * count


@pytest.mark.parametrize("payload", [b"", b"x"])
def test_websocket_closes_a_client_that_sends_a_message_in_tiny_fragments(serve, payload):
    raw = serve().raw()
    raw.upgrade()
    raw.frame(b"{", fin=False)
    raw.send(frames(0, payload, 5000, fin=False))
    assert raw.close_code() == 1002


def test_websocket_counts_tiny_fragments_of_all_messages(serve):
    raw = serve().raw()
    raw.upgrade()
    message = frames(1, b"", 1, fin=False) + frames(0, b"", 1000, fin=False) + frames(0, b"", 1)
    raw.send(message * 5)
    assert raw.close_code() == 1002


@pytest.mark.parametrize("opcode", [9, 10])
def test_websocket_closes_a_client_that_sends_pings_or_pongs_without_pause(serve, opcode):
    raw = serve().raw()
    raw.upgrade()
    raw.send(frames(opcode, b"x", 5000))
    while True:
        code, payload = raw.read_frame()
        assert code in (8, 10)
        if code == 8:
            assert payload[:2] == struct.pack("!H", 1002)
            break


def test_websocket_accepts_a_message_in_thousands_of_fragments(serve):
    raw = serve().raw()
    raw.upgrade()
    text = json.dumps(step("x" * 6 * MEGABYTE)).encode()
    pieces = [text[start : start + 1024] for start in range(0, len(text), 1024)]
    assert len(pieces) > 6000
    raw.frame(pieces[0], fin=False)
    for piece in pieces[1:-1]:
        raw.frame(piece, opcode=0, fin=False)
    raw.frame(pieces[-1], opcode=0)
    assert len(raw.hear()["data"]["observation"]["text"]) == 6 * MEGABYTE


def test_websocket_accepts_pings_again_after_each_of_its_own(serve):
    raw = serve(keepalive_s=0.2).raw()
    raw.upgrade()
    for _ in range(3):
        raw.send(frames(9, b"x", 3000))
        while True:
            first, size = raw._exactly(2)
            payload = raw._exactly(size)
            if first & 15 == 9:
                raw.frame(payload, opcode=10)
                break
            assert first & 15 == 10
    raw.frame(STATE)
    while (answer := raw.read_frame())[0] == 10:
        pass
    assert json.loads(answer[1])["type"] == "state"


def test_websocket_closes_a_client_whose_message_stays_incomplete(serve):
    served = serve(send_timeout_s=0.3)
    raw = served.raw()
    raw.upgrade()
    raw.frame(b"{", fin=False)
    assert raw.close_code() == 1008
    served.empty()


def test_websocket_keeps_a_client_whose_message_waits_for_an_answer(serve, hold):
    class Holds(Echo):
        def step(self, action, **kwargs):
            assert hold.wait(SOON)
            return super().step(action)

    raw = serve(Holds, send_timeout_s=0.2).raw()
    raw.upgrade()
    raw.frame(RESET)
    raw.hear()
    text = json.dumps(STATE).encode()
    waiting = frames(1, json.dumps(step("wait")).encode(), 1) + frames(1, text, 40)
    raw.send(waiting + frames(1, text[:5], 1, fin=False))
    assert not hold.wait(0.7)
    hold.set()
    answers = [raw.hear()["type"] for _ in range(41)]
    assert answers == ["observation"] + ["state"] * 40
    raw.frame(text[5:], opcode=0)
    assert raw.hear()["type"] == "state"


def test_websocket_stops_reading_a_client_that_sends_on_during_a_step(serve, hold):
    class Holds(Echo):
        def step(self, action, **kwargs):
            assert hold.wait(SOON)
            return super().step(action)

    raw = serve(Holds).raw()
    raw.upgrade()
    raw.frame(RESET)
    raw.hear()
    raw.frame(step("wait"))
    more = frames(1, b"x" * 100, 100_000)
    raw.socket.settimeout(0.5)
    sent = 0
    with suppress(TimeoutError):
        while sent < 100 * MEGABYTE:
            sent += raw.socket.send(more)
    assert sent < 50 * MEGABYTE  # what the system's buffers take
    raw.socket.settimeout(SOON)
    hold.set()
    assert raw.hear()["type"] == "observation"


def test_websocket_answers_others_while_a_client_sends_without_pause(serve):
    served = serve()
    raw, count = served.raw(), 9000  # what is read at once
    raw.upgrade()
    raw.send(frames(1, b"x", count))
    raw.hear()
    assert served.http.get("/health").status_code == 200
    raw.socket.setblocking(False)
    try:
        while received := raw.socket.recv(2**20):
            raw.left += received
    except BlockingIOError:
        pass
    assert raw.left.count(b"INVALID_JSON") < count - 1


def test_websocket_message_limit_is_exact(serve):
    served = serve(max_message_bytes=1000)
    fits = json.dumps(step("x"))
    fits = fits.replace('"x"', '"' + "x" * (1000 - len(fits) + 1) + '"')
    assert len(fits) == 1000
    client = served.client()
    assert client.ask(fits)["data"]["observation"]["text"].startswith("xxx")
    client.say(fits + " ")
    assert client.ended() == 1009


def test_websocket_message_limit_does_not_apply_to_answers(serve):
    client = serve(Talkative, max_message_bytes=1000).client()
    answer = client.ask({"type": "reset", "data": {"seed": 1}})
    assert len(answer["data"]["observation"]["text"]) == 32 * MEGABYTE


@pytest.mark.parametrize(
    ("bytes_", "code"),
    [
        (b"\xc1\x80\0\0\0\0", 1002),  # a reserved bit
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode there isn't
        (b"\x81\x02{}", 1002),  # not masked
        (b"\x80\x80\0\0\0\0", 1002),  # the continuation of nothing
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),  # not UTF-8
    ],
    ids=["reserved bit", "opcode", "mask", "continuation", "utf-8"],
)
def test_websocket_closes_on_an_invalid_frame(serve, bytes_, code):
    served = serve()
    raw = served.raw()
    raw.upgrade()
    raw.frame(RESET)
    raw.hear()
    raw.send(bytes_)
    assert raw.close_code() == code
    served.empty()


# Silence


@pytest.mark.parametrize("answers", [1, 2])
def test_websocket_closes_a_client_that_never_reads(serve, eventually, answers):
    served = serve(
        Talkative, send_timeout_s=0.2, keepalive_s=1000, max_sessions=1, max_connections=2
    )
    before = served.connections
    raw = served.raw(receive_buffer=4096)
    raw.upgrade()
    for _ in range(answers):
        raw.frame({"type": "reset", "data": {"seed": 1}})
    served.empty()
    assert served.number("guerdon_sessions_closed_total", reason="client does not read") == 1
    assert served.client().ask(RESET)["type"] == "observation"
    eventually(lambda: served.connections <= before + 2)


def test_websocket_frees_the_connection_of_a_client_that_never_reads(alone, serve, eventually):
    served = serve(Talkative, send_timeout_s=0.2, keepalive_s=1000)
    served.http.get("/health")
    before, files = served.connections, open_files()
    raws = [served.raw(receive_buffer=4096) for _ in range(3)]
    for raw in raws:
        raw.upgrade()
        raw.frame({"type": "reset", "data": {"seed": 1}})
        raw.frame({"type": "reset", "data": {"seed": 1}})
    served.empty()
    eventually(lambda: served.connections <= before, within=4)
    eventually(lambda: open_files() <= files + 3, within=4)  # our own ends


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
def test_http_closes_a_client_that_never_reads(serve, eventually, connection):
    served = serve(Talkative, send_timeout_s=0.2, handshake_timeout_s=0.2, max_sessions=1)
    raw = served.raw(receive_buffer=4096)
    raw.send(
        b"POST /reset HTTP/1.1\r\nHost: localhost\r\nConnection: " + connection + b"\r\n"
        b'Content-Length: 10\r\n\r\n{"seed":1}'
    )
    eventually(lambda: served.app.sessions.metrics.calls.labels("reset")._value.get())
    eventually(lambda: served.connections == 0, within=4)
    assert served.http.post("/reset").status_code == 200


def test_websocket_closes_a_client_that_answers_no_ping(serve):
    served = serve(keepalive_s=0.15, max_sessions=1)
    raw = served.raw()
    raw.upgrade()
    raw.frame(RESET)
    raw.hear()
    assert raw.close_code() == 1011
    served.empty()


def test_websocket_keeps_a_client_that_answers_pings(serve):
    served = serve(keepalive_s=0.1)
    client = served.client()
    client.ask(RESET)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            client.hear(timeout=0.1)
    assert client.ask(STATE)["type"] == "state"


def test_websocket_keeps_a_client_during_a_step_longer_than_the_keepalive(serve, hold):
    class Slow(Echo):
        def step(self, action, **kwargs):
            if action.text == "wait":
                hold.wait(10)
            return super().step(action)

    client = serve(Slow, keepalive_s=0.15).client()
    client.say(step("wait"))
    for _ in range(3):
        client.say(STATE)
    with pytest.raises(TimeoutError):
        client.hear(timeout=0.8)
    hold.set()
    assert client.hear()["data"]["observation"]["text"] == "wait"
    assert [client.hear()["type"] for _ in range(3)] == ["state"] * 3


# Half-open connections


HALVES = {
    "nothing": b"",
    "a word": b"GET",
    "half a head": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "half a handshake": b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n",
}


@pytest.mark.parametrize("half", HALVES)
def test_http_drops_a_connection_without_a_request(serve, half):
    raw = serve(handshake_timeout_s=0.1).raw()
    raw.send(HALVES[half])
    assert raw.dropped()


def test_http_drops_a_connection_with_half_a_second_request(serve):
    raw = serve(handshake_timeout_s=0.1).raw()
    raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert raw.status() == 200
    raw.send(HALVES["half a head"])
    assert raw.dropped(timeout=3)


@pytest.mark.parametrize("length", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_http_drops_a_connection_whose_body_never_comes(serve, length):
    served = serve(handshake_timeout_s=0.1, max_sessions=1)
    raw = served.raw()
    raw.send(b"POST /step HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n")
    assert served.http.post("/reset").status_code == 200  # it takes no place
    assert raw.dropped(timeout=3)


def chunked(method, path):
    """The head of a request whose body comes in chunks."""
    lines = f"{method} {path} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", "", ""
    return "\r\n".join(lines).encode()


def test_http_rejects_a_body_in_tiny_chunks(serve):
    raw = serve().raw()
    raw.send(chunked("POST", "/step") + b"1\r\nx\r\n" * 5000)
    assert raw.status() == 400


def test_http_accepts_a_body_in_thousands_of_chunks(serve):
    raw = serve().raw()
    pieces = [b'{"action": {"text": "', *[b"x" * 1024] * 6000, b'"}}']
    body = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces)
    raw.send(chunked("POST", "/step") + body + b"0\r\n\r\n")
    assert raw.status() == 200


@pytest.mark.parametrize("body", [b"1\r\nx\r\n" * 5000, b"no size\r\n"], ids=["tiny", "invalid"])
def test_http_drops_a_connection_with_an_invalid_body_after_the_answer(serve, caplog, body):
    raw = serve().raw()
    raw.send(chunked("GET", "/health"))
    assert raw.status() == 200
    with suppress(ConnectionError):
        raw.send(body)
        while raw.socket.recv(65536):
            pass
    assert not [each for each in caplog.records if "Fatal error" in each.getMessage()]


def test_http_does_not_drop_a_connection_with_a_slow_answer(serve):
    class Slow(Echo):
        def reset(self, **kwargs):
            threading.Event().wait(0.4)
            return Said(text="begin")

    served = serve(Slow, handshake_timeout_s=0.1)
    assert served.http.post("/reset", json={}).status_code == 200
    client = served.client()
    assert client.ask(RESET)["type"] == "observation"


def test_http_survives_hundreds_of_half_open_connections(serve, eventually):
    served = serve(handshake_timeout_s=0.3)
    client = served.client()
    client.ask(RESET)
    # One that is kept may be closed for being idle just when it is used again.
    once = {"Connection": "close"}
    served.http.get("/health", headers=once)
    before = served.connections
    raws = [Raw(served.port) for _ in range(300)]
    try:
        for n, raw in enumerate(raws):
            raw.send(list(HALVES.values())[n % len(HALVES)])
        assert client.ask(step())["data"]["reward"] == 0.5
        assert served.http.get("/health", headers=once).status_code == 200
        eventually(lambda: served.connections <= before)
        assert all(raw.dropped() for raw in raws)
        assert client.ask(step())["data"]["reward"] == 0.5
    finally:
        for raw in raws:
            raw.close()


def test_http_drops_connections_above_the_limit(serve, eventually):
    served = serve(max_connections=10, handshake_timeout_s=60)
    client = served.client()
    raws = [Raw(served.port) for _ in range(50)]
    try:
        eventually(lambda: served.connections == 10)
        kept = [raw for raw in raws if not raw.dropped(timeout=0.02)]
        assert len(kept) == 9  # and the client
        assert client.ask(RESET)["type"] == "observation"
    finally:
        for raw in raws:
            raw.close()
    eventually(lambda: served.connections == 1)
    assert served.http.get("/health").status_code == 200


def test_websocket_leaves_nothing_behind_however_it_is_dropped(alone, serve, eventually):
    served = serve(max_sessions=5)
    served.http.get("/health")
    client = served.client()
    client.ask(RESET)
    client.close()
    served.empty()
    files, threads, connections = open_files(), threading.active_count(), served.connections
    for n in range(60):
        raw = Raw(served.port)
        if n % 6 == 5:
            raw.send(b"GET /ws HTTP/1.1\r\n")
        else:
            assert raw.upgrade() == 101
        if n % 6 == 1:
            raw.frame(RESET)
        if n % 6 == 2:
            raw.frame(CLOSE)
        if n % 6 == 3:
            raw.frame(b"", length=2**40)
        if n % 6 == 4:
            raw.send(b"\x81\xfe\x10")
        (raw.reset if n % 4 else raw.close)()
    served.empty()
    eventually(lambda: served.connections <= connections)
    eventually(lambda: open_files() <= files)
    assert threading.active_count() <= threads + 5


def test_http_answers_and_drops_what_is_not_http(play):
    raw = play().raw()
    raw.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n")
    assert raw.status() == 400
    assert raw.dropped()


def test_websocket_rejects_an_invalid_handshake(serve):
    served = serve()
    assert served.raw().upgrade(**{"Sec-WebSocket-Key": "short"}) == 400
    assert served.raw().upgrade(**{"Sec-WebSocket-Version": "8"}) == 400
    assert served.raw().upgrade("/nowhere") in (403, 404)
    assert served.http.get("/ws").status_code in (404, 405, 426)
    assert served.sessions() == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "5"}, 400),
        ({"Content-Length": "5", "Transfer-Encoding": "chunked"}, 400),
        ({"Transfer-Encoding": "chunked"}, 400),
        ({"X-Long": "x" * 9000}, 431),
        ({f"X-{number}": "x" for number in range(200)}, 431),
    ],
    ids=["length", "two lengths", "chunks", "long header", "many headers"],
)
def test_websocket_rejects_a_handshake_that_it_cannot_parse(serve, eventually, headers, status):
    served = serve()
    raw = served.raw()
    assert raw.upgrade(**headers) == status
    assert raw.dropped()
    eventually(lambda: served.connections == 0)


def test_websocket_drops_a_client_whose_invalid_frame_comes_before_the_answer(serve, caplog):
    called = threading.Event()

    async def unanswered(websocket):
        called.set()
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass

    served = serve()
    served.app.router.routes.append(WebSocketRoute("/unanswered", unanswered))
    raw = served.raw()
    raw.send(HANDSHAKE.replace(b"/ws", b"/unanswered"))
    assert called.wait(SOON)
    raw.send(b"\xff" * 20)
    assert raw.dropped()
    assert not [each for each in caplog.records if "Fatal error" in each.getMessage()]


def test_websocket_agrees_on_no_compression(play):
    served = play()
    client = served.client(compression="deflate")
    assert client.socket.response.headers.get("Sec-WebSocket-Extensions") is None
    assert client.ask(RESET)["type"] == "observation"


def test_websocket_close_without_a_close_message(serve):
    served = serve()
    client = served.client()
    client.ask(RESET)
    client.close()
    assert client.socket.close_code == 1000
    served.empty()
    with pytest.raises(ConnectionClosed):
        client.ask(RESET)
