"""Who may talk to a server."""

import asyncio

import httpx
import pytest

from guerdon import create_app
from guerdon.errors import InvalidArgumentError
from tests.envs.server.worlds import RESET, Echo

PATHS = [
    ("GET", "/metadata"),
    ("GET", "/schema"),
    ("GET", "/state"),
    ("GET", "/config"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/list_environments"),
    ("POST", "/reset"),
    ("POST", "/step"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/echo/splits"),
    ("POST", "/echo/tasks"),
    ("GET", "/nowhere"),
    ("GET", "/health/"),
    ("GET", "/health/../metrics"),
]


@pytest.fixture(scope="module")
def token():
    return "geheim-ünïcode"


# Tokens


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(path))
@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "secret"},
        {"Authorization": "Basic secret"},
        {"Authorization": "Bearer secret2"},
        {"Authorization": "Bearer Secret"},
    ],
    ids=str,
)
def test_access_requires_the_token(guarded, path, header):
    answer = guarded(*path, headers=header)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "token" in answer.json()["detail"]


@pytest.fixture
def guarded():
    """Asks an application with a token, without a socket."""
    return asking(create_app(Echo, token="secret"))


def asking(app, server=("127.0.0.1", 8000)):
    async def asked(method, path, **more):
        class Named(httpx.ASGITransport):
            async def handle_async_request(self, request):
                self.app = named
                return await super().handle_async_request(request)

        async def named(scope, receive, send):
            await app(scope | {"server": server}, receive, send)

        async with httpx.AsyncClient(
            transport=Named(app=app), base_url="http://localhost:8000"
        ) as client:
            return await client.request(method, path, **more)

    return lambda *args, **more: asyncio.run(asked(*args, **more))


def test_access_to_health_requires_no_token(guarded):
    answer = guarded("GET", "/health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "healthy"}


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret", "BEARER  secret"])
def test_access_with_the_token(guarded, header):
    answer = guarded("GET", "/schema", headers={"Authorization": header})
    assert answer.status_code == 200


def test_access_requires_the_token_over_http_and_websocket(serve):
    served = serve(token="secret")
    assert served.raw().upgrade() == 401
    assert served.raw().upgrade(Authorization="Bearer wrong") == 401
    assert served.http.get("/metadata").status_code == 401
    assert served.http.get("/health").status_code == 200
    headers = {"Authorization": "Bearer secret"}
    assert served.http.post("/reset", headers=headers).status_code == 200
    client = served.client(additional_headers=headers)
    assert client.ask(RESET)["type"] == "observation"


def test_access_never_reports_a_token(serve, caplog):
    served = serve(token="very-secret")
    with caplog.at_level("DEBUG"):
        answer = served.http.get("/metadata", headers={"Authorization": "Bearer nearly-secret"})
    for text in (answer.text, caplog.text):
        assert "very-secret" not in text
        assert "nearly-secret" not in text


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_create_app_rejects_an_empty_token(token):
    with pytest.raises(InvalidArgumentError, match="token"):
        create_app(Echo, token=token)


# Hosts

OURS = [
    "localhost",
    "localhost:8000",
    "LOCALHOST:1",
    "localhost.",
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.3.2.1",
    "[::1]:8000",
]
NOT_OURS = [
    "",
    "example.com",
    "example.com:8000",
    "localhost.example.com",
    "127.0.0.1.nip.io",
    "10.0.0.1",
    "0.0.0.0",
    "[::2]",
    "[::1",
    "evil localhost",
    "127.1",
    "2130706433",
]


@pytest.mark.parametrize("host", OURS)
def test_access_accepts_loopback_hosts(host):
    answer = asking(create_app(Echo))("GET", "/health", headers={"Host": host})
    assert answer.status_code == 200


@pytest.mark.parametrize("host", NOT_OURS)
def test_access_rejects_other_hosts_on_the_loopback(host):
    answer = asking(create_app(Echo))("GET", "/health", headers={"Host": host})
    assert answer.status_code == 421
    assert "loopback" in answer.json()["detail"]


def test_access_checks_the_host_over_http_and_websocket(serve):
    served = serve(allowed_hosts=["My.Name"])
    assert served.raw().upgrade(host="example.com") == 421
    assert served.raw().upgrade(host="my.name:80") == 101
    assert served.raw().upgrade(host=f"127.0.0.1:{served.port}") == 101
    assert served.http.get("/health", headers={"Host": "example.com"}).status_code == 421
    assert served.http.get("/health", headers={"Host": "MY.NAME"}).status_code == 200
    assert served.number("guerdon_sessions_opened_total") == 2


def test_access_accepts_every_host_on_a_public_address():
    ask = asking(create_app(Echo), server=("192.0.2.7", 80))
    assert ask("GET", "/health", headers={"Host": "example.com"}).status_code == 200


def test_access_rejects_a_request_without_a_host(play):
    raw = play().raw()
    raw.send(b"GET /health HTTP/1.0\r\n\r\n")
    assert raw.status() == 421


# Origins


@pytest.mark.parametrize(
    "origin",
    ["https://example.com", "http://localhost.example.com", "null", "file://", "http://[::1", ""],
)
def test_access_rejects_pages_of_other_sites(play, origin):
    served = play()
    answer = served.http.get("/metadata", headers={"Origin": origin})
    assert answer.status_code == 403
    assert "other sites" in answer.json()["detail"]
    assert served.raw().upgrade(Origin=origin) == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]"])
def test_access_accepts_pages_of_the_loopback(play, origin):
    served = play()
    assert served.http.get("/metadata", headers={"Origin": origin}).status_code == 200
    assert served.raw().upgrade(Origin=origin) == 101


def test_access_accepts_pages_of_allowed_hosts():
    ask = asking(create_app(Echo, allowed_hosts=["lab.example"]))
    headers = {"Origin": "https://lab.example"}
    assert ask("GET", "/health", headers=headers).status_code == 200


def test_access_accepts_pages_of_the_servers_own_name_with_a_token():
    ask = asking(create_app(Echo, token="secret"), server=("192.0.2.7", 80))
    own = {"Host": "env.example:8000", "Origin": "https://env.example"}
    other = {"Host": "env.example", "Origin": "https://other.example"}
    assert ask("GET", "/health", headers=own).status_code == 200
    assert ask("GET", "/health", headers=other).status_code == 403
    no_origin = {"Host": "", "Origin": "null"}
    assert ask("GET", "/health", headers=no_origin).status_code == 403


@pytest.mark.parametrize(
    ("name", "allowed", "status"),
    [
        ("rebound.example", [], 403),  # its page may have resolved its name to this server
        ("rebound.example", ["env.example"], 403),
        ("env.example", ["env.example"], 200),
        ("192.0.2.7", [], 200),
        ("[2001:db8::7]", [], 200),
        ("localhost", [], 200),
    ],
)
def test_access_without_a_token_rejects_pages_under_names_that_are_not_allowed(
    name, allowed, status
):
    ask = asking(create_app(Echo, allowed_hosts=allowed), server=("192.0.2.7", 80))
    headers = {"Host": f"{name}:8000", "Origin": f"http://{name}:8000"}
    assert ask("POST", "/config", headers=headers, content="{}").status_code == status
    assert ask("GET", "/config", headers={"Host": f"{name}:8000"}).status_code == 200


def test_access_rejects_images_and_links_on_pages_of_other_sites(serve):
    served = serve(allowed_hosts=["lab.example"])
    get = served.http.get
    assert get("/state", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert get("/state", headers={"Sec-Fetch-Site": "none"}).status_code == 200
    assert get("/state", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    allowed = {"Sec-Fetch-Site": "cross-site", "Origin": "https://lab.example"}
    assert get("/state", headers=allowed).status_code == 200


# Framing


@pytest.mark.parametrize("path", ["/reset", "/health", "/nowhere"])
def test_access_rejects_two_lengths_of_a_body_and_closes_the_connection(play, path):
    raw = play().raw()
    smuggled = b"GET /metadata HTTP/1.1\r\nHost: localhost\r\n\r\n"
    raw.send(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
        + smuggled
    )
    assert raw.status() == 400
    rest = raw.left
    while received := raw.socket.recv(65536):
        rest += received
    assert b"Content-Length and Transfer-Encoding" in rest
    assert b"HTTP/1.1" not in rest
