"""create_app(web=True): the files of its page, and the cookie of that page."""

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient, WebSocketDenialResponse

from guerdon import create_app
from tests.envs.server.worlds import Echo

TOKEN = "s3cret/token"
ENTRANCE = "/web/?token=s3cret%2Ftoken"
OWN = {"origin": "http://127.0.0.1:8000"}
# Requests that a browser sends with the cookie, but not for the page of this server.
OTHER_PAGES = {
    "another site": {"origin": "https://evil.example"},
    "another port": {"origin": "http://127.0.0.1:9000"},
    "another name of the loopback": {"origin": "http://localhost:8000"},
    "no origin": {},
    "an opaque origin": {"origin": "null"},
    "a cross-site request": {**OWN, "sec-fetch-site": "cross-site"},
    "a same-site request": {**OWN, "sec-fetch-site": "same-site"},
}


@pytest.fixture
def connect():
    """Connects to an application on the loopback, without following redirects."""
    opened = []

    def connect(web=True, token=TOKEN, app=None, **options):
        app = app or create_app(Echo, token=token, web=web, **options)
        app.on_loopback = True
        client = TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)
        opened.append(client.__enter__())
        return client

    yield connect
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def entered(connect):
    """A client with the cookie of the page."""
    client = connect()
    assert client.get(ENTRANCE).status_code == 303
    return client


def connected(client, **headers):
    """The status of a WebSocket's handshake; a session has answered if it is 101."""
    try:
        with client.websocket_connect("ws://127.0.0.1:8000/ws", headers=headers) as socket:
            socket.send_json({"type": "reset", "data": {}})
            assert socket.receive_json()["type"] == "observation"
            return 101
    except WebSocketDenialResponse as answer:
        return answer.status_code


# The page


def test_create_app_serves_no_page_by_default(connect):
    client = connect(web=False, token=None)
    for path in ("/web", "/web/", "/web/play.js", "/web/style.css"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize("mode", ["simulation", "production"])
def test_create_app_web_serves_the_page(connect, mode):
    client = connect(token=None, mode=mode)
    answer = client.get("/web")
    assert (answer.status_code, answer.headers["location"]) == (307, "./web/")
    for name, kind in [("", "html"), ("play.js", "javascript"), ("style.css", "css")]:
        answer = client.get(f"/web/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(f"text/{kind}")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "content-security-policy" not in client.get("/schema").headers
    assert client.get("/web/../app.py").status_code == 404
    assert client.get("/web/nothing.js").status_code == 404


def test_create_app_web_serves_the_modules_of_the_page_as_one(connect):
    script = connect(token=None).get("/web/play.js").text
    assert 'customElements.define("g-play"' in script
    assert "import {" not in script


def test_create_app_web_in_a_mounted_application(connect):
    app = create_app(Echo, token=TOKEN, web=True)
    app.on_loopback = True
    site = Starlette(routes=[Mount("/maze", app)], lifespan=app.router.lifespan_context)
    client = connect(app=site)
    assert client.get("/maze/web/").status_code == 401
    answer = client.get(f"/maze{ENTRANCE}")
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    assert client.get("/maze/web/").text.startswith("<!doctype html>")
    assert client.get("/maze/schema").status_code == 200


# The cookie


def test_access_makes_a_cookie_of_the_token_in_the_address_of_the_page(connect):
    client = connect()
    assert client.get("/web/").status_code == 401
    answer = client.get(ENTRANCE)
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert "s3cret" not in cookie  # servers on other ports of the host receive it, too
    assert client.get("/web/").text.startswith("<!doctype html>")
    assert client.get("/config").status_code == 200
    assert client.post("/config", json={}, headers=OWN).status_code == 200
    assert connected(client, **OWN) == 101


def test_access_makes_a_secure_cookie_over_https(connect):
    answer = connect().get(f"https://127.0.0.1:8000{ENTRANCE}")
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
def test_access_requires_the_token_for_each_method(connect, method):
    for path in ("/web/", "/config", "/schema"):
        assert connect().request(method, path).status_code == 401


def test_access_accepts_the_cookie_in_the_navigation_of_a_user(entered):
    headers = {"sec-fetch-site": "none"}
    assert entered.get("/web/", headers=headers).status_code == 200
    assert entered.post("/config", json={}, headers=headers).status_code == 403
    assert connected(entered, **headers) == 403


@pytest.mark.parametrize(
    "path", ["/web/?token=wrong", "/web/?token=", "/schema?token=s3cret%2Ftoken"]
)
def test_access_requires_the_token_in_the_address_of_the_page(connect, path):
    client = connect()
    answer = client.get(path)
    assert answer.status_code == 401
    assert "address of the page" in answer.json()["detail"]
    assert "set-cookie" not in answer.headers


def test_access_refuses_the_cookie_of_another_token(entered, connect):
    other = connect(token="other")
    other.cookies = entered.cookies
    assert other.get("/config").status_code == 401


def test_access_accepts_no_cookie_without_a_page(entered, connect):
    client = connect(web=False)
    client.cookies = entered.cookies
    assert client.get(ENTRANCE).status_code == 401
    assert client.get("/config").status_code == 401
    assert client.post("/config", json={}, headers=OWN).status_code == 401
    assert connected(client, **OWN) == 401


@pytest.mark.parametrize("headers", OTHER_PAGES.values(), ids=list(OTHER_PAGES))
def test_access_refuses_the_cookie_in_requests_of_other_pages(entered, headers):
    assert entered.post("/config", json={}, headers=headers).status_code == 403
    assert connected(entered, **headers) == 403
    if headers:
        assert entered.get("/config", headers=headers).status_code == 403


def test_access_accepts_the_cookie_in_requests_of_allowed_hosts(connect):
    client = connect(allowed_hosts=["lab.example"])  # whose proxy may send another host
    assert client.get(ENTRANCE).status_code == 303
    headers = {"origin": "https://lab.example"}
    assert client.post("/config", json={}, headers=headers).status_code == 200
    assert connected(client, **headers) == 101


def test_access_refuses_other_sites_even_at_the_entrance(connect):
    client = connect()
    assert client.get(ENTRANCE, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get(ENTRANCE, headers={"host": "evil.example"}).status_code == 421


def test_access_with_the_header_ignores_the_cookie(entered):
    headers = {"authorization": f"Bearer {TOKEN}", "sec-fetch-site": "same-site"}
    assert entered.get("/config", headers=headers).status_code == 200
