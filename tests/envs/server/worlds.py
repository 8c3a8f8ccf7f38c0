"""Environments that are served in these tests, and two clients that talk to them."""

import json
import os
import socket
import struct
import threading

from websockets.sync.client import connect

from guerdon import (
    Action,
    Environment,
    Observation,
    Rubric,
    State,
    ToolEnvironment,
    as_rubric,
    tool,
)
from guerdon.errors import EnvError

SOON = 30  # seconds after which what should happen is taken not to happen


class Say(Action):
    text: str
    loud: bool = False


class Said(Observation):
    text: str = ""


class Length(Rubric):
    def forward(self, action, observation):
        return len(action.text) / 10


class Echo(Environment[Say, Said, State]):
    """Repeats a text.

    And nothing else.
    """

    def __init__(self):
        super().__init__(rubric=Length())
        self.episode = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.episode = State(episode_id=episode_id)
        arguments = {"seed": seed, **kwargs}
        return Said(text="begin", metadata={"arguments": arguments})

    def step(self, action, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        arguments = {"timeout_s": timeout_s, **kwargs}
        observation = Said(
            text=action.text, metadata={"arguments": arguments}, done=action.text == "end"
        )
        return self.score(action, observation)

    @property
    def state(self):
        return self.episode


class Counted(Echo):
    """Counts how many are made, closed, and what they were asked; subclassed anew by each test."""

    made = closed = 0
    lock = threading.Lock()

    def __init__(self):
        super().__init__()
        with self.lock:
            type(self).made += 1

    def close(self):
        with self.lock:
            type(self).closed += 1


def counted(**methods):
    """A class of its own, whose numbers begin at 0."""
    return type("Fresh", (Counted,), {"__doc__": Counted.__doc__, **methods})


class Counter(ToolEnvironment):
    """Adds numbers, with tools."""

    def __init__(self):
        super().__init__(rubric=as_rubric(lambda action, observation: 1.0))
        self.total = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.total = 0
        return self.begin("Add.", system="Be brief.", episode_id=episode_id)

    def work(self):
        """What `wait` does first."""

    @tool
    def add(self, number: int) -> int:
        """Add a number."""
        self.total += number
        return self.total

    @tool
    def wait(self) -> int:
        """Add 100, after some work."""
        self.work()
        return self.add(100)

    @tool
    def plain(self) -> str:
        return "plain"

    @tool
    def fail(self) -> str:
        raise ValueError("kaboom")

    @tool
    def break_down(self) -> str:
        raise EnvError("the database is down")

    @tool
    def return_nan(self) -> float:
        return float("nan")


class AsyncCounter(Counter):
    """The same with an async tool."""

    @tool
    async def add(self, number: int) -> int:
        """Add a number."""
        self.total += number
        return self.total


def step(text="hello", **more):
    return {"type": "step", "data": {"text": text, **more}}


RESET = {"type": "reset"}
STATE = {"type": "state"}
CLOSE = {"type": "close"}


class Client:
    """A WebSocket of the `websockets` library, which sends and receives JSON."""

    def __init__(self, url, **options):
        options = {"compression": None, "proxy": None, "max_size": None} | options
        self._open = connect(url, open_timeout=SOON, close_timeout=SOON, **options)
        self.socket = self._open.__enter__()

    def say(self, message):
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def hear(self, timeout=SOON):
        return json.loads(self.socket.recv(timeout=timeout))

    def ask(self, message):
        self.say(message)
        return self.hear()

    def error(self, message):
        """The code of the error that a message is answered with."""
        answer = self.ask(message)
        assert answer["type"] == "error", answer
        return answer["data"]["code"]

    def ended(self):
        """The code with which the server closes, before any other message."""
        try:
            reply = self.socket.recv(timeout=SOON)
        except TimeoutError:
            raise
        except Exception:
            return self.socket.close_code
        raise AssertionError(f"the server sent {reply!r:.200}")

    def close(self):
        self._open.__exit__(None, None, None)


class Raw:
    """A TCP connection, that does what no library would."""

    def __init__(self, port, *, receive_buffer=None):
        self.socket = socket.socket()
        self.socket.settimeout(SOON)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.left = b""

    def send(self, data):
        self.socket.sendall(data)

    def upgrade(self, path="/ws", host="localhost", **headers):
        """Request a WebSocket, and return the status of the answer."""
        named = {
            "Host": host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
        } | headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self.send(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        return self.status()

    def status(self):
        while b"\r\n\r\n" not in self.left:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError(self.left)
            self.left += more
        head, _, self.left = self.left.partition(b"\r\n\r\n")
        return int(head.split()[1])

    def frame(self, payload, opcode=1, fin=True, length=None):
        """Send a frame, masked with zeros; `length` announces more than is sent."""
        if isinstance(payload, (dict, list)):
            payload = json.dumps(payload)
        if isinstance(payload, str):
            payload = payload.encode()
        size = len(payload) if length is None else length
        head = struct.pack("!B", opcode | (0x80 if fin else 0))
        if size < 126:
            head += struct.pack("!B", 0x80 | size)
        elif size < 65536:
            head += struct.pack("!BH", 0x80 | 126, size)
        else:
            head += struct.pack("!BQ", 0x80 | 127, size)
        self.send(head + bytes(4) + payload)

    def _exactly(self, count):
        while len(self.left) < count:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError(self.left)
            self.left += more
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def read_frame(self):
        """The next frame that isn't a ping: opcode and payload."""
        while True:
            first, size = self._exactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", self._exactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._exactly(8))
            payload = self._exactly(size)
            if first & 15 != 9:
                return first & 15, payload

    def hear(self):
        opcode, payload = self.read_frame()
        assert opcode == 1, (opcode, payload)
        return json.loads(payload)

    def close_code(self):
        """Read until the server closes the WebSocket, and return the code."""
        while True:
            opcode, payload = self.read_frame()
            if opcode == 8:
                return struct.unpack("!H", payload[:2])[0]

    def dropped(self, timeout=SOON):
        """Whether the server ends the TCP connection, perhaps after an answer."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def reset(self):
        """Vanish at once, without a goodbye (RST)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


def open_files():
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))
