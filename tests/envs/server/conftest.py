"""A server on a real socket, in a thread of its own."""

import asyncio
import threading
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from guerdon import create_app
from guerdon._http import bound_socket, url_of
from guerdon.envs import ServerLimits
from guerdon.envs.server.uvicorn_server import _Server
from tests.envs.server.worlds import SOON, Client, Echo, Raw, Said, Say

GRACE = 5.0


def eventually(true, *, within=SOON):
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < deadline, f"{true} is not true after {within} s: {found!r}"
        time.sleep(0.005)
    return found


class Quick(_Server):
    """Notices sooner than ten times a second that it is to stop."""

    async def main_loop(self):
        await self.on_tick(0)
        while not self.should_exit:
            await asyncio.sleep(0.002)


class Served:
    """A server that runs, and what there is to see of it from outside."""

    def __init__(self, app, *, grace_s=GRACE):
        self.app = app
        self._started = threading.Event()
        self._failure = None
        self._clients = []
        self._thread = threading.Thread(target=self._run, args=(grace_s,), name="served")
        self._thread.start()
        assert self._started.wait(SOON)
        if self._failure is not None:
            raise self._failure

    def _run(self, grace_s):
        try:
            with bound_socket("127.0.0.1", 0) as listener:
                self.url = url_of(listener)
                self.port = listener.getsockname()[1]
                self.server = Quick(self.app, grace_s, url=self.url, ready=self._ready)
                self.server.run(sockets=[listener])
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    def _ready(self, url):
        self._started.set()

    @property
    def running(self):
        return self._thread.is_alive()

    def stop(self):
        """Request a stop, as a signal does, without waiting."""
        self.server.should_exit = True

    def join(self):
        self.stop()
        self._thread.join(SOON * 2)
        self.release()
        self.http.close()
        assert not self.running, "the server doesn't stop"

    def release(self):
        """Close what has been opened."""
        while self._clients:
            self._clients.pop().close()

    def client(self, path="/ws", **options):
        """A WebSocket client, connected; closed when the test ends."""
        client = Client(self.url.replace("http", "ws") + path, **options)
        self._clients.append(client)
        return client

    def raw(self, **options):
        """A TCP connection."""
        raw = Raw(self.port, **options)
        self._clients.append(raw)
        return raw

    @property
    def http(self):
        if not hasattr(self, "_http"):
            self._http = httpx.Client(
                base_url=self.url, trust_env=False, verify=False, timeout=SOON
            )
        return self._http

    @property
    def connections(self):
        """The number of open connections."""
        return len(self.server.server_state.connections)

    def number(self, name, **labels):
        """A number of /metrics; None where it isn't there."""
        text = self.http.get("/metrics").text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def sessions(self):
        return self.number("guerdon_sessions")

    def empty(self):
        """Wait until no session is open."""
        eventually(lambda: self.sessions() == 0)


@pytest.fixture
def serve(ending):
    """Serves an environment; limits go by their name."""
    running = []

    def serve(factory=Echo, *types, grace_s=GRACE, app=None, **options):
        names = set(ServerLimits.__dataclass_fields__) & set(options)
        limits = ServerLimits(**{name: options.pop(name) for name in names})
        made = app or create_app(factory, *types, limits=limits, **options)
        served = Served(made, grace_s=grace_s)
        running.append(served)
        return served

    yield serve
    for served in running:
        served.release()
        served.stop()
    ending.extend(running)  # while the next tests begin


@pytest.fixture(scope="session")
def ending():
    """Servers that are stopping; each is joined at the end."""
    ending = []
    yield ending
    for served in ending:
        served.join()


@pytest.fixture
def alone(ending):
    """No other server is about any more, with its threads and its files."""
    for served in ending:
        served.join()
    ending.clear()


@pytest.fixture(scope="session")
def stage():
    """One server for all tests that want nothing special, and what it plays."""
    playing, running = [Echo], []

    def stage(factory):
        playing[0] = factory
        if not running or not running[-1].running:
            app = create_app(lambda: playing[0](), Say, Said, env_name="stage")
            running.append(Served(app))
        return running[-1]

    yield stage
    for served in running:
        served.join()


@pytest.fixture
def play(stage):
    """Serves an environment on the shared server; afterwards no session is left on it."""
    used = []

    def play(factory=Echo):
        used.append(stage(factory))
        return used[-1]

    yield play
    for served in set(used):
        served.release()
        assert served.running
        served.empty()


@pytest.fixture
def hold(serve):
    """An event on which an environment hangs, until the test ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(name="eventually")
def eventually_fixture():
    return eventually
