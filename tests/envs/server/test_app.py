"""`create_app` and the application that it returns, without a socket."""

import asyncio
import contextlib
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from guerdon import State, create_app
from guerdon.envs import ASGITransport, GenericEnvClient, ServerLimits
from guerdon.errors import EnvDefinitionError, InvalidArgumentError
from tests.envs.server.worlds import RESET, SOON, STATE, Echo, Said, Say, counted, step


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((None,), "`factory` must be"),
        (("module:Echo",), "`factory` must be"),
        ((Echo(),), "`factory` must be"),
        ((Echo, dict), "must be a subclass of Action"),
        ((Echo, Said), "must be a subclass of Action"),
        ((Echo, Say, State), "must be a subclass of Observation"),
        ((Echo, Say(text="x")), "must be a subclass of Action"),
    ],
)
def test_create_app_rejects_invalid_arguments(arguments, problem):
    with pytest.raises(InvalidArgumentError, match=problem):
        create_app(*arguments)


def test_create_app_takes_types_from_the_class_or_the_arguments():
    def types(app):
        schemas = asyncio.run(get(app, "/schema")).json()
        return [schemas[name]["title"] for name in ("action", "observation", "state")]

    class Other(Say):
        pass

    assert types(create_app(Echo)) == ["Say", "Said", "State"]
    assert types(create_app(lambda: Echo())) == ["Say", "Said", "State"]
    assert types(create_app(lambda: Echo(), Say, Said)) == ["Say", "Said", "State"]
    assert types(create_app(Echo, Other)) == ["Other", "Said", "State"]


def http(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost")


async def get(app, path):
    async with http(app) as client:
        return await client.get(path)


@contextlib.asynccontextmanager
async def started(app):
    """Start and stop an application, as an ASGI server does; raises what its start raised."""
    events, replies = asyncio.Queue(), asyncio.Queue()
    running = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, events.get, replies.put))
    async with asyncio.timeout(SOON):
        await events.put({"type": "lifespan.startup"})
        answer = await replies.get()
        if answer["type"] != "lifespan.startup.complete":
            await running
            raise AssertionError(answer)
        async with http(app) as client:
            yield client
        await events.put({"type": "lifespan.shutdown"})
        assert (await replies.get())["type"] == "lifespan.shutdown.complete"
        await running


async def session(app, *messages):
    """What an application answers to messages over a WebSocket."""
    coming = [{"type": "websocket.connect"}]
    coming += [{"type": "websocket.receive", "text": json.dumps(message)} for message in messages]
    coming.append({"type": "websocket.disconnect", "code": 1000})
    answers = []

    async def receive():
        return coming.pop(0)

    async def send(event):
        if event["type"] == "websocket.send":
            answers.append(json.loads(event["text"]))

    scope = {
        "type": "websocket",
        "path": "/ws",
        "headers": [(b"host", b"localhost")],
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return answers


class NoRubric(Echo):
    def __init__(self):
        super().__init__()
        self.rubric = None


class Failing(Echo):
    def __init__(self):
        raise ValueError("no luck")


class Exiting(Echo):
    def __init__(self):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("factory", "error", "problem"),
    [
        (NoRubric, EnvDefinitionError, "NoRubric has no rubric"),
        (lambda: object(), EnvDefinitionError, "the factory must return"),
        (lambda: None, EnvDefinitionError, "the factory must return .* got None"),
        (Failing, ValueError, "no luck"),
        (Exiting, Exception, r"sys\.exit\(3\)"),
    ],
)
def test_create_app_raises_at_startup_if_the_environment_is_invalid(factory, error, problem):

    async def start():
        async with started(create_app(factory)):
            pass

    with pytest.raises(error, match=problem):
        asyncio.run(start())


def test_create_app_inspects_one_environment_and_closes_it():
    world = counted()

    async def look():
        async with started(create_app(world)) as client:
            assert (world.made, world.closed) == (1, 1)
            await client.get("/metadata")
            await client.get("/config")
            assert world.made == 1

    asyncio.run(look())


def test_env_app_starts_again_after_a_shutdown():
    app = create_app(Echo, limits=ServerLimits(step_timeout_s=2))

    async def life():
        async with started(app) as client:
            answer = await client.post("/reset", json={})
            assert answer.status_code == 200, answer.text
            (state,) = await session(app, STATE)
            assert state["type"] == "state", state

    for _ in range(2):
        asyncio.run(life())


def test_env_app_without_lifespan_works_in_any_event_loop():
    app = create_app(Echo, limits=ServerLimits(step_timeout_s=2))

    async def state():
        async with asyncio.timeout(5):
            return await get(app, "/state")

    for _ in range(2):
        assert asyncio.run(state()).status_code == 200


def test_create_app_accepts_a_function():
    app = create_app(lambda: Echo(), Say, Said, env_name="echo")

    async def life():
        async with started(app) as client:
            answer = await client.post("/step", json={"action": {"text": "12345"}})
            assert answer.json()["reward"] == 0.5
            assert (await client.get("/list_environments")).json() == ["echo"]
            first, second = await session(app, RESET, step("12345"))
            assert first["data"]["reward"] is None
            assert second["data"]["reward"] == 0.5

    asyncio.run(life())


def test_env_app_can_be_mounted_and_given_routes():
    app = create_app(Echo, token="secret", env_name="echo")
    app.add_route("/hello", lambda request: PlainTextResponse("hello"))
    outer = Starlette(routes=[Mount("/maze", app)], lifespan=app.router.lifespan_context)

    async def life():
        async with started(outer) as client:
            assert (await client.get("/maze/health")).json() == {"status": "healthy"}
            assert (await client.get("/maze/hello")).status_code == 401
            client.headers["Authorization"] = "Bearer secret"
            assert (await client.get("/maze/hello")).text == "hello"
            assert (await client.get("/maze/list_environments")).json() == ["echo"]
            answer = await client.post("/maze/step", json={"action": {"text": "12345"}})
            assert answer.json()["reward"] == 0.5
            assert (await client.get("/maze/nowhere")).json() == {"detail": "Not Found"}
            maze = {"base_url": "http://localhost/maze", "token": "secret"}
            async with GenericEnvClient(transport=ASGITransport(outer), **maze) as environment:
                assert environment.environment_id == "echo"
                await environment.reset()
                assert (await environment.step({"text": "12345"})).reward == 0.5

    asyncio.run(life())


def test_env_app_limits_the_bodies_of_further_routes():
    async def size(request):
        return PlainTextResponse(str(len(await request.body())))

    app = create_app(Echo, limits=ServerLimits(max_message_bytes=10))
    app.add_route("/size", size, methods=["POST"])

    async def post():
        async with http(app) as client:
            assert (await client.post("/size", content=b"x" * 10)).text == "10"
            assert (await client.post("/size", content=b"x" * 11)).status_code == 413

    asyncio.run(post())


def test_env_app_limits():
    assert create_app(Echo, limits=ServerLimits(max_sessions=3)).limits.max_sessions == 3
    assert create_app(Echo).limits == ServerLimits()


def test_create_app_raises_at_startup_if_init_requires_arguments():
    class Needs(Echo):
        def __init__(self, size):
            super().__init__()

    async def start():
        async with started(create_app(Needs)):
            pass

    with pytest.raises(TypeError, match="size"):
        asyncio.run(start())
