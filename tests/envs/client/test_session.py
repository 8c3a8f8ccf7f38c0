"""Addresses, questions and their answers, and every way in which a connection goes wrong."""

import asyncio
import contextlib
import json
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.server import ServerProtocol

from guerdon.envs.client.session import Connector, RemoteSession
from guerdon.envs.client.transport import NetworkTransport, http_url, websocket_url
from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    ServerError,
)
from tests.envs.client.servers import (
    Scripted,
    answering,
    counting,
    failed,
    numbered,
    observed,
    questions,
    run,
)

LONG, SHORT = 5.0, 0.02


def new_session(url, **options):
    return RemoteSession(Connector(url, **options))


def question(number=0):
    return json.dumps({"type": "step", "data": {"number": number}}).encode()


async def asked(session, number=0, timeout_s=LONG):
    """The number in the answer to a question."""
    answer = await session.request(question(number), "observation", timeout_s)
    return answer["observation"]["number"]


class opened:
    """A session to a server, connected."""

    def __init__(self, server, **options):
        self._session = new_session(websocket_url(server.url), **options)

    async def __aenter__(self):
        await self._session.open()
        return self._session

    async def __aexit__(self, *error):
        await self._session.close()


# Addresses


@pytest.mark.parametrize(
    ("given", "http", "websocket"),
    [
        ("http://localhost:8000", "http://localhost:8000", "ws://localhost:8000/ws"),
        ("https://host", "https://host", "wss://host/ws"),
        ("ws://host:1", "http://host:1", "ws://host:1/ws"),
        ("wss://host:1", "https://host:1", "wss://host:1/ws"),
        ("HTTP://Host:1", "http://Host:1", "ws://Host:1/ws"),
        ("localhost:8000", "http://localhost:8000", "ws://localhost:8000/ws"),
        ("host", "http://host", "ws://host/ws"),
        ("http://host:1/", "http://host:1", "ws://host:1/ws"),
        ("http://host:1//", "http://host:1", "ws://host:1/ws"),
        ("https://host/my/env/", "https://host/my/env", "wss://host/my/env/ws"),
        ("  http://host:1\n", "http://host:1", "ws://host:1/ws"),
        ("http://[::1]:8000/", "http://[::1]:8000", "ws://[::1]:8000/ws"),
        ("[::1]:8000", "http://[::1]:8000", "ws://[::1]:8000/ws"),
        ("127.0.0.1:65535", "http://127.0.0.1:65535", "ws://127.0.0.1:65535/ws"),
    ],
)
def test_http_url_and_websocket_url(given, http, websocket):
    assert http_url(given) == http
    assert websocket_url(given) == websocket


@pytest.mark.parametrize(
    "bad",
    ["", "   ", "/", "http://", "http:///", "ftp://host", "file:///etc/passwd", "http://:8000",
     "host:port", "http://host:70000", "http://host:0", "http://host:-1", "[::1:8000"],
)  # fmt: skip
def test_http_url_rejects_what_is_not_an_address(bad):
    for read in (http_url, websocket_url):
        with pytest.raises(InvalidArgumentError, match="http://localhost:8000"):
            read(bad)


@given(st.text(max_size=30))
def test_http_url_accepts_or_rejects_any_text(text):
    try:
        url = http_url(text)
    except InvalidArgumentError:
        return
    assert url.startswith(("http://", "https://"))
    assert http_url(url) == url


# Connecting


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_remote_session_raises_if_nothing_listens():
    async def play():
        session = new_session(f"ws://127.0.0.1:{unused_port()}/ws", connect_timeout_s=LONG)
        for _ in range(2):  # the second time as quickly as the first
            async with asyncio.timeout(LONG / 2):
                with pytest.raises(ConnectionLostError, match="can't connect to ws://127"):
                    await session.open()
        assert not session.is_open

    run(play())


def test_remote_session_raises_for_an_unknown_host():
    async def play():
        with pytest.raises(ConnectionLostError, match="can't connect"):
            await new_session("ws://unknown.invalid/ws").open()

    run(play())


def test_remote_session_raises_timeout_if_the_server_is_silent():
    async def play():
        async def silent(reader, writer):
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            session = new_session(f"ws://127.0.0.1:{port}/ws", connect_timeout_s=SHORT)
            with pytest.raises(ClientTimeoutError, match=r"within 0\.02 s") as raised:
                await session.open()
            assert raised.value.seconds == SHORT
            assert isinstance(raised.value, TimeoutError)

    run(play())


@pytest.mark.parametrize("reply", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_remote_session_raises_if_the_server_speaks_another_protocol(reply):
    async def play():
        async def speak(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            writer.close()

        async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises((ConnectionLostError, ServerError)):
                await new_session(f"ws://127.0.0.1:{port}/ws").open()

    run(play())


def test_remote_session_reports_why_the_server_refuses():
    async def play():
        def refuse(connection, request):
            return connection.respond(401, "wrong token\n")

        async def speak(socket, number):
            raise AssertionError("it was refused")

        async with Scripted(speak, process_request=refuse) as server:
            with pytest.raises(ServerError, match="wrong token") as raised:
                await new_session(websocket_url(server.url)).open()
            assert raised.value.code == "401"

    run(play())


def test_remote_session_uses_no_proxy_for_the_loopback(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def play():
        async with counting() as server, opened(server) as session:
            assert await asked(session, 1) == 1

    run(play())


def test_remote_session_retries_a_server_that_was_reached_before():
    class Notices(NetworkTransport):
        async def connect(self, url, headers):
            try:
                return await super().connect(url, headers)
            except OSError:
                refused.set()
                raise

    refused = asyncio.Event()

    async def play():
        async with counting() as first, opened(first, transport=Notices()) as session:
            await first.__aexit__()
            with pytest.raises(ConnectionLostError):
                await asked(session, 1)
            ready = asyncio.create_task(session.open())
            await refused.wait()
            async with counting(first.port):
                await ready
                assert await asked(session, 2) == 2

    run(play())


def test_remote_session_retries_no_longer_than_the_connect_timeout():
    async def play():
        async with counting() as server, opened(server, connect_timeout_s=0.15) as session:
            await server.__aexit__()
            with pytest.raises(ConnectionLostError):
                await asked(session, 1)
            with pytest.raises(ConnectionLostError, match=r"can't connect .* for 0\.15 s"):
                await session.open()

    run(play())


# Questions and answers


def test_remote_session_request_returns_its_answer():
    async def play():
        async with counting() as server, opened(server) as session:
            assert [await asked(session, number) for number in range(5)] == list(range(5))

    run(play())


def test_remote_session_sends_concurrent_requests_in_order():
    async def play():
        async with counting() as server, opened(server) as session:
            tasks = [asked(session, number) for number in range(20)]
            assert await asyncio.gather(*tasks) == list(range(20))

    run(play())


class Gated:
    """A server that answers on request, in the order of the messages."""

    def __init__(self):
        self.received = asyncio.Semaphore(0)
        self.allowed = asyncio.Semaphore(0)
        self.sent = asyncio.Semaphore(0)

    async def __call__(self, socket, number):
        waiting = asyncio.Queue()

        async def answer():
            while True:
                message = await waiting.get()
                await self.allowed.acquire()
                await socket.send(numbered(message))
                self.sent.release()

        answering = asyncio.create_task(answer())
        async for message in questions(socket):
            waiting.put_nowait(message)
            self.received.release()
        answering.cancel()


def test_remote_session_discards_late_answers():
    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            with pytest.raises(ClientTimeoutError, match=r"within 0\.02 s") as raised:
                await asked(session, 1, timeout_s=SHORT)
            assert raised.value.seconds == SHORT
            with pytest.raises(ClientTimeoutError):
                await asked(session, 2, timeout_s=SHORT)
            for _ in range(3):
                gate.allowed.release()
            assert await asked(session, 3) == 3
            gate.allowed.release()
            assert await asked(session, 4) == 4
            assert len(server.sockets) == 1

    run(play())


def test_remote_session_times_out_while_an_answer_is_owed():
    async def play():
        async with answering() as server, opened(server) as session:
            for number in range(3):
                with pytest.raises(ClientTimeoutError):
                    await asked(session, number, timeout_s=SHORT)

    run(play())


@pytest.mark.parametrize("before", [SHORT / 2, SHORT, LONG])
def test_remote_session_applies_to_each_request_its_own_limit(before):
    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            gate.allowed.release()
            with contextlib.suppress(ClientTimeoutError):
                await asked(session, 0, timeout_s=before)
            start = asyncio.get_running_loop().time()
            with pytest.raises(ClientTimeoutError):
                await asked(session, 1, timeout_s=2 * SHORT)
            assert asyncio.get_running_loop().time() - start >= 2 * SHORT
            gate.allowed.release()
            gate.allowed.release()
            assert await asked(session, 2, timeout_s=LONG) == 2

    run(play())


def test_remote_session_leaves_a_timeout_around_a_request_to_its_caller():
    async def play():
        async with Scripted(Gated()) as server, opened(server) as session:
            with pytest.raises(TimeoutError) as raised:
                async with asyncio.timeout(SHORT):
                    await asked(session, 1, timeout_s=LONG)
            assert not isinstance(raised.value, ClientTimeoutError)
            assert asyncio.current_task().cancelling() == 0

    run(play())


def test_remote_session_discards_the_answer_to_a_cancelled_request():
    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            given_up = asyncio.create_task(asked(session, 1))
            await gate.received.acquire()
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            gate.allowed.release()
            gate.allowed.release()
            assert await asked(session, 2) == 2

    run(play())


def test_remote_session_discards_late_errors():
    async def play():
        gate = asyncio.Event()

        async def speak(socket, number):
            async for message in questions(socket):
                if message["data"]["number"] == 1:
                    await gate.wait()
                    await socket.send(failed("EXECUTION_ERROR"))
                else:
                    await socket.send(numbered(message))

        async with Scripted(speak) as server, opened(server) as session:
            with pytest.raises(ClientTimeoutError):
                await asked(session, 1, timeout_s=SHORT)
            gate.set()
            assert await asked(session, 2) == 2

    run(play())


@pytest.mark.parametrize("code", ["CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR"])
def test_remote_session_raises_a_late_fatal_error(code):
    async def play():
        gate = asyncio.Event()

        async def speak(socket, number):
            async for _ in questions(socket):
                await gate.wait()
                await socket.send(failed(code, "that was it"))
                return

        async with Scripted(speak) as server, opened(server) as session:
            with pytest.raises(ClientTimeoutError):
                await asked(session, 1, timeout_s=SHORT)
            gate.set()
            with pytest.raises(ServerError, match="that was it"):
                await asked(session, 2)
            assert not session.is_open

    run(play())


def test_remote_session_open_leaves_a_connection_that_owes_an_answer():
    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            with pytest.raises(ClientTimeoutError):
                await asked(session, 1, timeout_s=SHORT)
            await session.open()
            assert len(server.sockets) == 2
            gate.allowed.release()
            assert await asked(session, 2) == 2

    run(play())


def test_remote_session_open_waits_for_the_running_request():
    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            asking = asyncio.create_task(asked(session, 1))
            await gate.received.acquire()
            ready = asyncio.create_task(session.open())
            await asyncio.sleep(0)
            gate.allowed.release()
            assert await asking == 1
            await ready
            assert len(server.sockets) == 1

    run(play())


ENDS = st.sampled_from(
    ["answered", "timed out", "cancelled when received", "cancelled when answered"]
)


@settings(max_examples=60)
@given(st.lists(ENDS | st.integers(0, 12), min_size=1, max_size=8))
def test_remote_session_never_mixes_up_answers(ends):  # noqa: C901
    """A number among the ends is how often the event loop goes round before it is cancelled."""

    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            for number, end in enumerate(ends):
                if not session.is_open:
                    await session.open()
                if end == "timed out":
                    with pytest.raises(ClientTimeoutError):
                        await asked(session, number, timeout_s=0.001)
                    continue
                if end == "answered":
                    for _ in range(number + 1):
                        gate.allowed.release()
                    assert await asked(session, number) == number
                    gate.allowed, gate.sent = asyncio.Semaphore(0), asyncio.Semaphore(0)
                    continue
                asking = asyncio.create_task(asked(session, number))
                if isinstance(end, int):
                    for _ in range(end):
                        await asyncio.sleep(0)
                elif session._unanswered == 0:  # else it isn't sent before what is owed has come
                    await gate.received.acquire()
                    if end == "cancelled when answered":
                        gate.allowed.release()
                        await gate.sent.acquire()
                asking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    assert await asking == number
            await session.open()
            gate.allowed.release()
            assert await asked(session, 1000) == 1000

    run(play())


# What servers say


@pytest.mark.parametrize("code", ["INVALID_JSON", "UNKNOWN_TYPE", "EXECUTION_ERROR", "NEW_CODE"])
def test_remote_session_continues_after_an_error(code):
    async def play():
        answers = failed(code, "oh no"), observed({"number": 7})
        async with answering(*answers) as server, opened(server) as session:
            with pytest.raises(ServerError) as raised:
                await asked(session)
            assert str(raised.value) == f"Server error: oh no (code: {code})"
            assert raised.value.code == code
            assert isinstance(raised.value, RuntimeError)
            assert await asked(session) == 7

    run(play())


def test_remote_session_error_lists_the_fields():
    async def play():
        errors = [{"loc": ["message"], "msg": "Field required", "type": "missing"}]
        answer = failed("VALIDATION_ERROR", "no good", errors=errors)
        async with answering(answer) as server, opened(server) as session:
            with pytest.raises(ServerError, match="no good") as raised:
                await asked(session)
            assert list(raised.value.errors) == errors

    run(play())


@pytest.mark.parametrize("code", ["CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR"])
@pytest.mark.parametrize("first", [True, False], ids=["closed before asked", "while asked"])
def test_remote_session_raises_an_unasked_fatal_error(code, first):
    async def play():
        async def speak(socket, number):
            if not first:
                await socket.recv()
            await socket.send(failed(code, "no more"))

        async with Scripted(speak) as server, opened(server) as session:
            if first:
                await session._socket.wait_closed()
            with pytest.raises(ServerError, match=rf"no more \(code: {code}\)"):
                await asked(session)
            assert not session.is_open
            with pytest.raises(ConnectionLostError, match=r"reset\(\) opens one"):
                await asked(session)

    run(play())


@pytest.mark.parametrize("code", [1000, 1001, 1009, 1011])
def test_remote_session_raises_if_the_server_closes(code):
    async def play():
        async def speak(socket, number):
            await socket.recv()
            await socket.close(code, "bye")

        async with Scripted(speak) as server, opened(server) as session:
            with pytest.raises(ConnectionLostError, match=r"reset\(\) begins a new one") as raised:
                await asked(session)
            assert isinstance(raised.value, ConnectionError)
            assert not session.is_open

    run(play())


def test_remote_session_raises_if_the_connection_breaks():
    async def play():
        async def speak(socket, number):
            await socket.recv()
            socket.transport.abort()

        async with Scripted(speak) as server, opened(server) as session:
            with pytest.raises(ConnectionLostError, match=r"reset\(\) begins a new one"):
                await asked(session)

    run(play())


@pytest.mark.parametrize(
    "reply",
    ["nonsense", "", "[1]", "7", "null", "{}", '{"type":"observation"}', '{"data":{}}',
     '{"type":"error","data":"boom"}', '{"type":"error","data":null}',
     '{"type":"error","data":[1]}', '{"type":"state","data":{}}', '{"type":"mcp","data":{}}',
     '{"type":5,"data":{}}', '{"type":null,"data":null}', '{"type":["observation"],"data":{}}',
     b"\xff\xfe", b"\x00" * 100, '{"type":"observation","data":{}', "[" * 5000],
)  # fmt: skip
def test_remote_session_drops_the_connection_on_an_invalid_answer(reply):
    async def play():
        async with answering(reply) as server, opened(server) as session:
            with pytest.raises(ConnectionLostError):
                await asked(session)
            assert not session.is_open
            await session.open()
            assert session.is_open

    run(play())


@pytest.mark.parametrize(
    "data",
    ["{}", '{"code":["SESSION_ERROR"]}', '{"code":{},"message":[1]}', '{"code":null,"errors":7}'],
)
def test_remote_session_accepts_an_incomplete_error(data):
    async def play():
        reply = f'{{"type":"error","data":{data}}}'
        async with answering(reply) as server, opened(server) as session:
            with pytest.raises((ServerError, ConnectionLostError)):
                await asked(session)

    run(play())


@given(st.binary(max_size=40) | st.text(max_size=40))
@settings(max_examples=40)
def test_remote_session_raises_own_errors_for_any_answer(reply):
    async def play():
        async with answering(reply) as server, opened(server) as session:
            with pytest.raises((ConnectionLostError, ServerError)):
                await asked(session)

    run(play())


def test_remote_session_accepts_a_binary_answer():
    async def play():
        async with answering(observed({"number": 3}).encode()) as server, opened(server) as session:
            assert await asked(session) == 3

    run(play())


def test_remote_session_drops_the_connection_on_a_large_message():
    async def play():
        answer = observed({"number": "x" * 2000})
        async with (
            answering(answer) as server,
            opened(server, transport=NetworkTransport(max_message_bytes=1000)) as session,
        ):
            with pytest.raises(ConnectionLostError, match="1009"):
                await asked(session)

    run(play())


async def shaken_hands(reader, writer):
    """Accept a WebSocket without a server, and return the protocol."""
    protocol = ServerProtocol()
    protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
    request = protocol.events_received()[0]
    protocol.send_response(protocol.accept(request))
    writer.writelines(protocol.data_to_send())
    return protocol


def test_remote_session_raises_if_the_server_answers_no_ping():
    async def play():
        async def silent(reader, writer):
            protocol = await shaken_hands(reader, writer)
            while protocol.close_rcvd is None:
                protocol.receive_data(await reader.read(1000))
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            session = new_session(
                f"ws://127.0.0.1:{port}/ws", transport=NetworkTransport(keepalive_s=SHORT)
            )
            await session.open()
            with pytest.raises(ConnectionLostError, match="keepalive"):
                await asked(session)

    run(play())


def test_remote_session_aborts_a_request_that_is_cancelled_while_sending():
    async def play():
        cancelled, gone = asyncio.Event(), asyncio.Event()

        async def stuck(reader, writer):
            await shaken_hands(reader, writer)
            await cancelled.wait()
            with contextlib.suppress(ConnectionError):
                while await reader.read(2**20):
                    pass
            writer.close()
            gone.set()

        async with await asyncio.start_server(stuck, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            session = new_session(f"ws://127.0.0.1:{port}/ws")
            await session.open()
            socket = session._socket
            sending = asyncio.create_task(session.request(b"x" * 50_000_000, "observation", LONG))
            while not socket.transport.get_write_buffer_size():
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            cancelled.set()
            await gone.wait()
            with pytest.raises(ConnectionLostError, match=r"reset\(\)"):
                await asked(session)

    run(play())


# The end


def test_remote_session_close_sends_close_and_can_be_repeated():
    async def play():
        received = []
        left = asyncio.Event()

        async def speak(socket, number):
            async for text in socket:
                received.append(json.loads(text))
            left.set()

        async with Scripted(speak) as server:
            async with opened(server) as session:
                pass
            await left.wait()
            await session.close()
        assert received == [{"type": "close"}]

    run(play())


def test_remote_session_close_ends_a_running_request():
    async def play():
        gate = Gated()
        async with Scripted(gate) as server, opened(server) as session:
            asking = asyncio.create_task(asked(session, 1))
            await gate.received.acquire()
            await session.close()
            with pytest.raises(ConnectionLostError):
                await asking

    run(play())


def test_remote_session_close_after_the_server_has_left():
    async def play():
        async with counting() as server:
            async with opened(server) as session:
                server.sockets[0].transport.abort()
            assert not session.is_open

    run(play())
