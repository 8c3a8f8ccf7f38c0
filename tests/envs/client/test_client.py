"""Episodes over the wire: what is sent, what is made of the answers, and what is lost with a
connection."""

import asyncio
import contextlib
import gc
import threading
import warnings

import pytest
from pydantic import BaseModel

from guerdon import Action, EnvClient, GenericEnvClient, Observation, State, StepResult
from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidObservationError,
    ServerError,
)
from guerdon.types import GenericObservation
from tests.envs.client.servers import (
    COMPONENTS,
    Echo,
    Echoed,
    EchoState,
    Say,
    Scripted,
    answering,
    failed,
    observed,
    questions,
    run,
)


class EchoClient(EnvClient[Say, Echoed, EchoState]):
    pass


def playing(play, server, kind=GenericEnvClient, **options):
    """Play with a client that is connected to an address, or to an application."""
    arguments = {"base_url": server} if isinstance(server, str) else server

    async def playing():
        async with kind(**arguments, **options) as client:
            return await play(client)

    return run(playing())


def scripted(play, server, kind=GenericEnvClient, **options):
    """Play with a client of a scripted server."""

    async def playing():
        async with server, kind(server.url, **options) as client:
            return await play(client)

    return run(playing())


# An episode


def test_env_client_plays_an_episode(echo):
    async def play(client):
        first = await client.reset(seed=7, episode_id="ep-1", level=3)
        assert first == StepResult(Echoed(seed=7, level=3), None, False, {})
        result = await client.step(Say(message="hi please"))
        assert result.reward == 1.0
        assert not result.done
        assert result.metadata["reward_components"] == COMPONENTS
        assert result.observation.echoed == "hi please"
        assert result.observation.reward == 1.0
        assert result.observation.metadata == result.metadata
        assert await client.state() == EchoState(episode_id="ep-1", step_count=1, level=3)
        last = await client.step(Say(message="bye"))
        assert (last.reward, last.done, last.observation.done) == (0.0, True, True)
        assert (await client.reset()).observation == Echoed()
        assert (await client.state()).step_count == 0

    playing(play, echo, EchoClient)


def test_generic_env_client_plays_an_episode(echo):
    async def play(client):
        first = await client.reset(seed=7)
        assert first.observation["seed"] == 7
        result = await client.step({"message": "please"})
        assert (result.reward, result.done) == (1.0, False)
        assert result.observation["echoed"] == "please"
        assert result.metadata["reward_components"] == COMPONENTS
        assert (await client.state())["step_count"] == 1

    playing(play, echo)


def test_env_client_reset_passes_any_argument(echo):
    async def play(client):
        assert (await client.reset(level=2, unheard_of={"a": [1]})).observation["level"] == 2

    playing(play, echo)


def test_env_client_connects_when_it_is_first_used(echo):
    async def play():
        client = GenericEnvClient(**echo)
        try:
            assert (await client.reset()).observation["echoed"] == ""
        finally:
            await client.close()
        other = await GenericEnvClient(**echo)
        await other.close()

    run(play())


def test_env_clients_have_sessions_of_their_own(echo):
    async def play():
        async def one(number):
            async with EchoClient(**echo) as client:
                await client.reset(episode_id=f"ep-{number}")
                for _ in range(number):
                    await client.step(Say(message="hi"))
                return await client.state()

        states = await asyncio.gather(*map(one, range(12)))
        assert states == [EchoState(episode_id=f"ep-{n}", step_count=n) for n in range(12)]

    run(play())


def test_env_client_can_be_used_again_after_close(echo):
    async def play(client):
        await client.reset()
        await client.close()
        await client.close()
        with pytest.raises(ConnectionLostError, match=r"reset\(\) begins a new session"):
            await client.step({"message": "hi"})
        await client.reset()
        assert (await client.step({"message": "hi"})).observation["echoed"] == "hi"

    playing(play, echo)


def test_env_client_shares_one_session_between_concurrent_calls():
    async def speak(socket, number):
        async for message in questions(socket):
            kind = message["type"]
            await socket.send(observed() if kind != "state" else '{"type":"state","data":{}}')

    async def play():
        async with Scripted(speak) as server:
            client = GenericEnvClient(server.url)
            await asyncio.gather(client.reset(), client.reset(), client.state(), client.connect())
            await asyncio.gather(client.step({}), client.reset(), client.step({}))
            assert len(server.sockets) == 1
            await client.close()

    run(play())


# Types


class Move(Action):
    column: int


class Board(Observation):
    cells: list[int]


class Place(State):
    level: int


BOARD = observed({"cells": [1, 2]}, 0.5)


def test_env_client_takes_types_from_its_class_parameters():
    class Client(EnvClient[Move, Board, Place]):
        pass

    class Further(Client):
        pass

    for kind in (Client, Further):
        assert (kind.action_type, kind.observation_type, kind.state_type) == (Move, Board, Place)
        result = scripted(lambda c: c.reset(), answering(BOARD), kind)
        assert result.observation == Board(cells=[1, 2], reward=0.5)
    assert EnvClient.observation_type is GenericObservation


def test_env_client_takes_types_from_arguments():
    async def play(client):
        assert (await client.reset()).observation == Board(cells=[1, 2], reward=0.5)
        assert await client.state() == Place(level=3)

    answers = BOARD, '{"type":"state","data":{"level":3}}'
    types = {"observation_type": Board, "state_type": Place}
    scripted(play, answering(*answers), EnvClient, **types)
    assert EnvClient.observation_type is GenericObservation


def test_env_client_without_types_accepts_any_field():
    result = scripted(lambda c: c.reset(), answering(BOARD), EnvClient)
    assert isinstance(result.observation, GenericObservation)
    assert result.observation.cells == [1, 2]
    assert result.observation.reward == 0.5


def test_env_client_accepts_pydantic_models_of_another_base():
    class Seen(BaseModel):
        cells: list[int]
        reward: float | None
        done: bool
        metadata: dict

    result = scripted(lambda c: c.reset(), answering(BOARD), EnvClient, observation_type=Seen)
    assert result.observation == Seen(cells=[1, 2], reward=0.5, done=False, metadata={})
    assert result.reward == 0.5


def test_env_client_rejects_an_observation_of_another_type():
    async def play(client):
        with pytest.raises(InvalidObservationError, match=r"is not a Board.*cells") as raised:
            await client.reset()
        assert client.base_url in str(raised.value)
        assert (await client.reset()).observation.cells == [1, 2]

    types = {"observation_type": Board}
    scripted(play, answering(observed({"cells": "none"}), BOARD), EnvClient, **types)


def test_env_client_rejects_an_unknown_field_if_the_model_forbids_it():
    async def play(client):
        with pytest.raises(InvalidObservationError, match="colour"):
            await client.reset()

    scripted(play, answering(observed({"colour": 1})), EnvClient, observation_type=Board)


def test_env_client_rejects_a_state_of_another_type():
    async def play(client):
        with pytest.raises(InvalidObservationError, match=r"state that is not a Place.*level"):
            await client.state()

    scripted(play, answering('{"type":"state","data":{}}'), EnvClient, state_type=Place)


def test_env_client_uses_overridden_methods():
    class Client(EnvClient):
        def _step_payload(self, action):
            return {"move": action}

        def _parse_result(self, payload):
            return StepResult(payload["observation"]["move"] * 2, payload["reward"])

        def _parse_state(self, payload):
            return payload["level"]

    async def speak(socket, number):
        async for message in questions(socket):
            if message["type"] == "state":
                await socket.send('{"type":"state","data":{"level":5}}')
            else:
                await socket.send(observed({"move": message["data"]["move"]}, 1))

    async def play(client):
        assert await client.step(21) == StepResult(42, 1)
        assert await client.state() == 5

    scripted(play, Scripted(speak), Client)


@pytest.mark.parametrize("action", ["north", 3, None, ["north"]])
def test_env_client_step_rejects_an_invalid_action_before_sending(echo, action):
    async def play(client):
        await client.reset()
        with pytest.raises(InvalidArgumentError, match="is a model or a dict"):
            await client.step(action)
        assert (await client.step({"message": "hi"})).observation["echoed"] == "hi"

    playing(play, echo)


def test_env_client_rejects_unserializable_values_before_sending(echo):
    async def play(client):
        await client.reset()
        with pytest.raises(InvalidArgumentError, match="JSON"):
            await client.step({"message": object()})
        with pytest.raises(InvalidArgumentError, match="JSON"):
            await client.reset(level=object())
        assert (await client.step({"message": "hi"})).observation["echoed"] == "hi"

    playing(play, echo)


# What older and newer servers say


@pytest.mark.parametrize("kind", [GenericEnvClient, EnvClient])
@pytest.mark.parametrize(
    ("answer", "metadata"),
    [
        (observed({"text": "hi"}), {}),
        (observed({"text": "hi", "metadata": {"a": 1}}), {"a": 1}),
        (observed({"text": "hi"}, metadata={"a": 1}), {"a": 1}),
        (observed({"text": "hi", "metadata": {"a": 1}}, metadata={"a": 1}), {"a": 1}),
        (observed({"text": "hi", "metadata": {"a": 1}}, metadata=None), {"a": 1}),
        (observed({"text": "hi", "metadata": {}}, metadata=None), {}),
    ],
)
def test_env_client_finds_metadata_in_either_place(kind, answer, metadata):
    result = scripted(lambda client: client.reset(), answering(answer), kind)
    assert result.metadata == metadata
    if kind is EnvClient:
        assert result.observation.metadata == metadata
        assert result.observation.text == "hi"


@pytest.mark.parametrize("kind", [GenericEnvClient, EnvClient])
@pytest.mark.parametrize(
    ("sent", "reward"),
    [("true", 1.0), ("false", 0.0), ("2", 2.0), ("-1", -1.0), ("0.5", 0.5), ("null", None)],
)
def test_env_client_reward_is_a_float_or_none(kind, sent, reward):
    data = f'{{"observation":{{}},"reward":{sent},"done":false}}'
    answer = f'{{"type":"observation","data":{data}}}'
    result = scripted(lambda client: client.reset(), answering(answer), kind)
    assert result.reward == reward
    assert type(result.reward) is type(reward)
    if kind is EnvClient:
        assert type(result.observation.reward) is type(reward)


@pytest.mark.parametrize("kind", [GenericEnvClient, EnvClient])
def test_env_client_accepts_an_answer_without_reward_and_done(kind):
    answer = '{"type":"observation","data":{"observation":{}}}'
    result = scripted(lambda client: client.reset(), answering(answer), kind)
    assert (result.reward, result.done, result.metadata) == (None, False, {})


@pytest.mark.parametrize("kind", [GenericEnvClient, EnvClient])
@pytest.mark.parametrize(
    "data",
    ["{}", "null", "[1]", '"text"', '{"observation":null}', '{"observation":[1]}',
     '{"observation":{},"reward":"high"}', '{"observation":{},"reward":NaN}',
     '{"observation":{},"reward":Infinity}', '{"observation":{},"reward":[1]}',
     '{"observation":{},"reward":{}}', '{"observation":{},"reward":1,"metadata":[1]}',
     '{"observation":{"metadata":"text"},"reward":1}',
     '{"observation":{},"reward":' + "9" * 400 + "}"],
)  # fmt: skip
def test_env_client_rejects_what_the_protocol_does_not_allow(kind, data):
    async def play(client):
        with pytest.raises((ConnectionLostError, InvalidObservationError)):
            await client.reset()

    scripted(play, answering(f'{{"type":"observation","data":{data}}}'), kind)


@pytest.mark.parametrize("kind", [GenericEnvClient, EnvClient])
def test_env_client_rejects_a_reward_that_no_float_can_represent(kind):
    async def play(client):
        with pytest.raises(
            InvalidObservationError, match=r"server's `reward` must be a finite number, got 999"
        ):
            await client.reset()

    data = f'{{"observation":{{}},"reward":{"9" * 400}}}'
    scripted(play, answering(f'{{"type":"observation","data":{data}}}'), kind)


@pytest.mark.parametrize("data", ["null", "[1]", '"text"'])
def test_env_client_state_rejects_what_is_not_an_object(data):
    async def play(client):
        with pytest.raises((ConnectionLostError, InvalidObservationError)):
            await client.state()

    for kind in (EnvClient, GenericEnvClient):
        scripted(play, answering(f'{{"type":"state","data":{data}}}'), kind)


# Errors


def test_env_client_raises_server_error_if_the_environment_raises(echo):
    async def play(client):
        await client.reset(episode_id="goes on")
        with pytest.raises(ServerError, match=r"Server error: .*asked to break.*EXECUTION_ERROR"):
            await client.step({"message": "break"})
        with pytest.raises(ServerError, match="asked to break"):
            await client.reset(level=-1)
        assert (await client.state())["episode_id"] == "goes on"

    playing(play, echo)


def test_env_client_raises_server_error_for_an_invalid_action(echo):
    async def play(client):
        await client.reset()
        with pytest.raises(ServerError, match="message") as raised:
            await client.step({"colour": 1})
        assert raised.value.code == "VALIDATION_ERROR"
        assert {each["loc"][0] for each in raised.value.errors} == {"message", "colour"}
        assert (await client.step({"message": "please"})).reward == 1.0

    playing(play, echo)


def test_env_client_returns_no_reward_if_the_rubric_fails(echo):
    async def play(client):
        await client.reset()
        result = await client.step(Say(message="break the rubric"))
        assert result.reward is None
        assert result.observation.reward is None
        assert "no manners" in str(result.metadata["reward_error"])

    playing(play, echo, EchoClient)


def test_env_client_raises_at_capacity_and_may_try_again(serve):
    closed = threading.Event()

    class Closing(Echo):
        def close(self):
            closed.set()

    url = serve(Closing, max_sessions=1).url

    async def play():
        async with GenericEnvClient(url) as first, GenericEnvClient(url) as second:
            await first.reset()
            closed.clear()
            with pytest.raises(ServerError, match="1 sessions are taken") as raised:
                await second.reset()
            assert raised.value.code == "CAPACITY_REACHED"
            await first.close()
            assert await asyncio.to_thread(closed.wait, 5)
            await until_taken(second)
            assert (await second.step({"message": "please"})).reward == 1.0

    async def until_taken(client):
        """The place is free a moment after the environment is closed."""
        while True:
            with contextlib.suppress(ServerError):
                return await client.reset()

    run(play())


def test_env_client_raises_if_the_environment_cannot_be_made(serve):
    made = []

    class Once(Echo):
        def __init__(self):
            if made:  # the first is made when the server starts
                raise ArithmeticError("no more of these")
            made.append(self)
            super().__init__()

    async def play(client):
        with pytest.raises(ServerError, match="no more of these") as raised:
            await client.reset()
        assert raised.value.code == "FACTORY_ERROR"

    playing(play, serve(Once).url)


def test_env_client_raises_after_an_idle_timeout(serve):
    async def play(client):
        await client.reset()
        await client._session._socket.wait_closed()
        with pytest.raises(ServerError, match="sent nothing for") as raised:
            await client.step({"message": "hi"})
        assert raised.value.code == "SESSION_ERROR"
        with pytest.raises(ConnectionLostError, match=r"reset\(\)"):
            await client.step({"message": "hi"})
        assert (await client.reset()).observation["echoed"] == ""

    playing(play, serve(idle_timeout_s=0.05).url)


def test_env_client_discards_the_answer_to_a_step_that_timed_out(serve):
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Echo):
        def step(self, action, timeout_s=None, **kwargs):
            if action.message == "slow":
                begun.set()
                assert go_on.wait(5)
            return super().step(action)

    async def play(client):
        await client.reset()
        with pytest.raises(ClientTimeoutError, match=r"within 0\.02 s"):
            await client.step({"message": "slow"}, timeout_s=0.02)
        go_on.set()
        assert (await client.step({"message": "quick"})).observation["echoed"] == "quick"
        assert (await client.state())["step_count"] == 2

    playing(play, serve(Slow).url)


def test_env_client_message_timeout(echo):
    async def play(client):
        with pytest.raises(ClientTimeoutError, match=r"within 0\.02 s"):
            await client.reset()

    scripted(play, answering(), message_timeout_s=0.02)


def test_env_client_discards_the_answer_to_a_cancelled_step():
    heard, go_on = asyncio.Event(), asyncio.Event()

    async def speak(socket, number):
        async for message in questions(socket):
            heard.set()
            await go_on.wait()
            await socket.send(observed({"text": message["data"]["text"]}))

    async def play(client):
        step = asyncio.create_task(client.step({"text": 1}))
        await heard.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        go_on.set()
        assert (await client.step({"text": 2})).observation == {"text": 2}

    scripted(play, Scripted(speak))


# Lost connections


def test_env_client_step_raises_on_a_lost_connection():
    async def speak(socket, number):
        async for message in questions(socket):
            if message["type"] == "step" and number == 1:
                socket.transport.abort()
                return
            await socket.send(observed({"session": number}))

    async def play(client):
        assert (await client.reset()).observation == {"session": 1}
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match=r"reset\(\)"):
                await client.step({})
        with pytest.raises(ConnectionLostError, match=r"reset\(\)"):
            await client.state()
        assert (await client.reset()).observation == {"session": 2}
        assert (await client.step({})).observation == {"session": 2}

    scripted(play, Scripted(speak))


def test_env_client_reset_reconnects_after_an_unnoticed_loss():
    async def speak(socket, number):
        async for _ in questions(socket):
            await socket.send(observed({"session": number}))
            return

    async def play(client):
        assert (await client.reset()).observation == {"session": 1}
        await client._session._socket.wait_closed()
        assert (await client.reset()).observation == {"session": 2}

    scripted(play, Scripted(speak))


def test_env_client_reset_leaves_a_session_that_owes_an_answer():
    async def speak(socket, number):
        async for message in questions(socket):
            if message["type"] != "step":
                await socket.send(observed({"session": number}))

    async def play(client):
        await client.reset()
        with pytest.raises(ClientTimeoutError):
            await client.step({}, timeout_s=0.02)
        assert (await client.reset()).observation == {"session": 2}

    scripted(play, Scripted(speak))


def test_env_client_reconnects_to_a_restarted_server(serve):
    first = serve()

    async def play(client):
        await client.reset()
        await asyncio.to_thread(first.stop)
        with pytest.raises((ConnectionLostError, ServerError)):
            await client.step({"message": "hi"})
        await asyncio.to_thread(serve, port=first.port)
        await client.reset()
        assert (await client.step({"message": "please"})).reward == 1.0

    playing(play, first.url)


def test_env_client_raises_if_nothing_listens(serve):
    server = serve()
    server.stop()

    async def play():
        client = GenericEnvClient(server.url)
        for call in (client.connect, client.reset, lambda: client.step({}), client.state):
            with pytest.raises(ConnectionLostError):
                await call()
        await client.close()
        with pytest.raises(ConnectionLostError, match="can't connect"):
            async with client:
                raise AssertionError("it is not connected")

    run(play())


@pytest.fixture
def left_behind():
    """Connections whose event loop has ended are closed as garbage is, with asyncio's warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def test_env_client_reconnects_in_another_event_loop(echo_url, left_behind):
    client = GenericEnvClient(echo_url)

    async def reset_and_step():
        await client.reset()
        return (await client.step({"message": "hi"})).observation["echoed"]

    async def step():
        with pytest.raises(ConnectionLostError, match=r"reset\(\)"):
            await client.step({"message": "hi"})

    assert run(reset_and_step()) == "hi"
    run(step())
    assert run(reset_and_step()) == "hi"
    assert client.sync().reset().observation["echoed"] == ""
    assert run(reset_and_step()) == "hi"
    run(client.close())


def test_env_client_can_be_closed_in_another_event_loop(echo_url, left_behind):
    client = GenericEnvClient(echo_url)
    run(client.reset())
    run(client.close())
    client.sync().reset()
    run(client.close())


# Names, tokens, addresses


def test_env_client_environment_id_is_the_servers_name(echo_url):
    client = GenericEnvClient(echo_url)
    assert client.environment_id == echo_url

    async def play():
        async with client:
            assert client.environment_id == "the echo"

    run(play())


def test_env_client_environment_id_argument(echo):
    async def play(client):
        await client.reset()
        return client.environment_id

    assert GenericEnvClient(**echo, environment_id="mine").environment_id == "mine"
    assert playing(play, echo, environment_id="mine") == "mine"


def test_env_client_environment_id_is_the_address_if_the_server_has_no_name():
    async def play(client):
        return client.environment_id, client.base_url

    name, url = scripted(play, answering())
    assert name == url


@pytest.mark.parametrize("name", ["Tür 1", "a%20b: c\r\nd", "x" * 20_000])
def test_env_client_environment_id_is_any_name_of_a_server(serve, name):
    async def play(client):
        return client.environment_id

    assert playing(play, serve(name=name).url) == name


def test_env_client_connects_without_a_request_if_the_handshake_has_the_servers_name():
    def named(connection, request, response):
        response.headers["guerdon-environment"] = "T%C3%BCr%201"

    async def speak(socket, number):
        await socket.wait_closed()

    async def play(client):
        return client.environment_id

    assert scripted(play, Scripted(speak, process_response=named)) == "Tür 1"


def test_env_client_token(serve):
    url = serve(token="secret", name="guarded").url

    async def play(client):
        await client.reset()
        return client.environment_id

    assert playing(play, url, token="secret") == "guarded"
    for token, problem in ((None, "no token"), ("wrong", "wrong token")):
        with pytest.raises(ServerError, match=problem) as raised:
            playing(play, url, token=token)
        assert raised.value.code == "401"


def test_env_client_normalizes_its_address():
    assert EnvClient("localhost:8000/").base_url == "http://localhost:8000"
    assert EnvClient.from_url("wss://host/env").base_url == "https://host/env"


@pytest.mark.parametrize("bad", ["ftp://host", "http://", "host:port"])
def test_env_client_rejects_an_invalid_address(bad):
    with pytest.raises(InvalidArgumentError, match="http://localhost:8000"):
        EnvClient(bad)
    with pytest.raises(InvalidArgumentError, match="http://localhost:8000"):
        GenericEnvClient.from_url(bad)


def test_env_client_raises_at_capacity_before_anything_is_sent():
    async def speak(socket, number):
        await socket.send(failed("CAPACITY_REACHED", "full", active_sessions=1, max_sessions=1))

    async def play(client):
        for _ in range(2):
            with pytest.raises(ServerError, match="full"):
                await client.reset()

    scripted(play, Scripted(speak))
