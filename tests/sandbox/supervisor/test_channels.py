"""Messages between processes: what is sent arrives, and nothing else is believed."""

import contextlib
import json
import os
import select
import socket
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.sandbox.supervisor.channels import LONGEST, receive, send

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
messages = st.dictionaries(st.text(), values, max_size=5)


@contextlib.contextmanager
def channel():
    one, other = socket.socketpair()
    other.settimeout(5)
    with one, other:
        yield one, other


def framed(text):
    return struct.pack("!I", len(text)) + text


@given(message=messages)
def test_receive_returns_what_was_sent(message):
    with channel() as (one, other):
        send(one, message)
        assert receive(other) == (message, [])


@given(several=st.lists(st.tuples(messages, st.integers(0, 16)), max_size=4))
@settings(max_examples=40)
def test_receive_returns_messages_in_order_with_descriptors(several):
    opened = [os.memfd_create(str(number)) for number in range(16)]
    try:
        with channel() as (one, other):
            for message, count in several:
                send(one, message, opened[:count])
            for message, count in several:
                received, fds = receive(other)
                assert received == message
                assert [os.fstat(fd).st_ino for fd in fds] == [
                    os.fstat(fd).st_ino for fd in opened[:count]
                ]
                for fd in fds:
                    os.close(fd)
    finally:
        for fd in opened:
            os.close(fd)


@given(data=st.binary(max_size=200))
def test_receive_raises_for_arbitrary_bytes(data):
    with channel() as (one, other):
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        try:
            got = receive(other)
        except (EOFError, ValueError):
            return
        assert json.loads(data[4:][: struct.unpack("!I", data[:4])[0]]) == got[0]


@given(message=messages, data=st.data())
@settings(max_examples=40)
def test_receive_raises_eof_error_for_a_partial_message(message, data):
    whole = framed(json.dumps(message).encode())
    with channel() as (one, other):
        one.sendall(whole[: data.draw(st.integers(0, len(whole) - 1))])
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            receive(other)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"1", b"null", b'"x"', b"{", b"\xff", b"{}{}", b"[" * 100_000, b"1" * 5000],
    ids=["empty", "list", "number", "null", "text", "half", "bytes", "two", "deep", "long number"],
)
def test_receive_raises_for_a_frame_without_an_object(text):
    with channel() as (one, other):
        one.sendall(framed(text))
        with pytest.raises(ValueError, match=r"."):
            receive(other)


@pytest.mark.parametrize("length", [LONGEST + 1, (1 << 32) - 1])
def test_receive_raises_at_once_for_a_long_frame(length):
    with channel() as (one, other):
        one.sendall(struct.pack("!I", length))
        with pytest.raises(ValueError, match=f"{length:,} bytes"):
            receive(other)


def test_receive_joins_the_parts_of_a_message():
    with channel() as (one, other):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        message = {"text": "x" * 500_000}
        sending = threading.Thread(target=send, args=(one, message))
        sending.start()
        assert receive(other) == (message, [])
        sending.join()


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"\0\0", EOFError), (framed(b"{}")[:-1], EOFError), (framed(b"[]"), ValueError),
     (struct.pack("!I", LONGEST + 1), ValueError)],
    ids=["half a header", "half a text", "no object", "too long"],
)  # fmt: skip
def test_receive_closes_the_descriptors_of_a_broken_message(data, error):
    reading, writing = os.pipe()
    with channel() as (one, other):
        socket.send_fds(one, [data], [writing])
        os.close(writing)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(error):
            receive(other)
        poller = select.poll()
        poller.register(reading, select.POLLIN)
        assert poller.poll(0) == [(reading, select.POLLHUP)]  # no end for writing is open
    os.close(reading)


def test_send_raises_if_the_other_end_is_closed():
    with channel() as (one, other):
        other.close()
        with pytest.raises(OSError, match="Broken pipe"):
            send(one, {})
