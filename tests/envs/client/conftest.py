"""Servers for the clients of these tests."""

import pytest

from guerdon import create_app
from guerdon.envs import ASGITransport, ServerLimits
from tests.envs.client.servers import Echo, Served


@pytest.fixture
def serve():
    """Serves an echo, as long as the test lasts; limits go by their names."""
    running = []

    def serve(factory=Echo, *, port=0, token=None, name=None, **limits):
        app = create_app(factory, env_name=name, token=token, limits=ServerLimits(**limits))
        running.append(Served(app, port))
        return running[-1]

    yield serve
    for served in running:
        served.stop()


@pytest.fixture
def echo():
    """The arguments of a client of an echo in the same process, without a port."""
    app = create_app(Echo, env_name="the echo")
    return {"base_url": "http://localhost", "transport": ASGITransport(app)}


@pytest.fixture(scope="session")
def echo_url():
    """The address of an echo that every test may use."""
    served = Served(create_app(Echo, env_name="the echo"))
    yield served.url
    served.stop()
