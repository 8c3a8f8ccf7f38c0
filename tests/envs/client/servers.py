"""Servers for the tests of clients: an echo, and scripted ones."""

import asyncio
import contextlib
import json
import threading

from websockets.asyncio.server import serve as websocket_server
from websockets.exceptions import ConnectionClosed

from guerdon import Action, Environment, Observation, Rubric, State
from guerdon._http import bound_socket, url_of
from guerdon.envs.server.uvicorn_server import _Server

SOON = 30  # seconds after which what should happen is taken not to happen


def run(coroutine):
    """Run what a test awaits; a test that hangs fails."""
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


# A server of ours ------------------------------------------------------------------------------


class Say(Action):
    message: str


class Echoed(Observation):
    echoed: str = ""
    seed: int | None = None
    level: int = 0


class EchoState(State):
    level: int = 0


class Polite(Rubric):
    """Scores whether the text contains "please"."""

    def forward(self, action, observation):
        if action.message == "break the rubric":
            raise ArithmeticError("no manners")
        return float("please" in action.message)


class Manners(Rubric):
    """A tree of one."""

    def __init__(self):
        super().__init__()
        self.polite = Polite()

    def forward(self, action, observation):
        return self.polite(action, observation)


COMPONENTS = {"polite": 1.0}  # of what scores "please"


class Echo(Environment[Say, Echoed, EchoState]):
    """Repeats a text."""

    def __init__(self):
        super().__init__(rubric=Manners())
        self.episode = EchoState()

    def reset(self, seed=None, episode_id=None, level=0, **kwargs):
        if level < 0:
            raise ArithmeticError("asked to break")
        self.episode = EchoState(episode_id=episode_id, level=level)
        return Echoed(seed=seed, level=level)

    def step(self, action, timeout_s=None, **kwargs):
        if action.message == "break":
            raise ArithmeticError("asked to break")
        self.episode.step_count += 1
        done = action.message == "bye"
        return self.score(action, Echoed(echoed=action.message, done=done))

    @property
    def state(self):
        return self.episode


class Served:
    """A server of ours on a real socket, in a thread of its own."""

    def __init__(self, app, port=0):
        self.app = app
        self._started = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._live, args=(port,), name="served")
        self._thread.start()
        assert self._started.wait(SOON)
        if self._failure is not None:
            raise self._failure

    def _live(self, port):
        try:
            with bound_socket("127.0.0.1", port) as listener:
                self.url = url_of(listener)
                self.port = listener.getsockname()[1]
                self._server = _Server(
                    self.app, 1.0, url=self.url, ready=lambda url: self._started.set()
                )
                self._server.run(sockets=[listener])
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    def stop(self):
        """Stop it, and wait until its port is free."""
        self._server.should_exit = True
        self._thread.join(SOON)
        assert not self._thread.is_alive(), "the server doesn't stop"


# A scripted server ------------------------------------------------------------------------------


def observed(observation=None, reward=None, done=False, **beside):
    """The answer to a reset or a step."""
    data = {"observation": observation or {}, "reward": reward, "done": done, **beside}
    return json.dumps({"type": "observation", "data": data})


def failed(code, message="something", **more):
    """An error."""
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})


class Scripted:
    """A server that a test's function speaks for: ``async def speak(socket, number)``."""

    def __init__(self, speak, port=0, **options):
        self._speak = speak
        self.port = port
        self._options = options
        self.sockets = []

    async def _handle(self, socket):
        self.sockets.append(socket)
        with contextlib.suppress(ConnectionClosed):
            await self._speak(socket, len(self.sockets))

    async def __aenter__(self):
        self._server = await websocket_server(self._handle, "127.0.0.1", self.port, **self._options)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *error):
        self._server.close()
        await self._server.wait_closed()


async def questions(socket):
    """The messages of a client until ``close``."""
    async for text in socket:
        message = json.loads(text)
        if message["type"] == "close":
            return
        yield message


def answering(*answers):
    """A server with these answers, one per request, and no more."""

    async def speak(socket, number):
        left = iter(answers)
        async for _ in questions(socket):
            answer = next(left, None)
            if answer is not None:
                await socket.send(answer)

    return Scripted(speak)


def counting(port=0):
    """A server that answers each question with the number that it was asked with."""

    async def speak(socket, number):
        async for message in questions(socket):
            await socket.send(numbered(message))

    return Scripted(speak, port)


def numbered(message):
    """The answer to a question that has a number."""
    return observed({"number": message["data"]["number"]})
