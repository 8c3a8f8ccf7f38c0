"""Our clients on their server: ``python -m interop.ours URL``, run by our interpreter."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Any

from guerdon import (
    Action,
    EnvClient,
    EnvPool,
    GenericEnvClient,
    HTTPEnvClient,
    Observation,
    State,
)
from guerdon.errors import EpisodeError, ServerError
from interop.checks import check, main, raises, same, true

SESSIONS = 8
COMPONENTS = {"length": 0.5}


class EchoAction(Action):
    """Their action as one of our models, which forbid extra fields."""

    message: str


class Echoed(Observation):
    """Their observation."""

    echoed: str = ""
    seed: int | None = None
    level: int = 0


class EchoState(State):
    """Their state."""

    level: int = 0


class EchoClient(EnvClient[EchoAction, Echoed, EchoState]):
    """A typed client."""


@check("GenericEnvClient, sync: an episode, its rewards and its metadata")
def sync_episode(url: str) -> None:
    """Play an episode."""
    with GenericEnvClient.from_url(url).sync() as client:
        first = client.reset()
        same("first", (first.reward, first.done, first.observation["echoed"]), (None, False, ""))
        result = client.step({"message": "hello"})
        same("reward", (result.reward, result.done), (0.5, False))
        same("echoed", result.observation["echoed"], "hello")
        same("metadata", result.metadata, {"turn": 1, "reward_components": COMPONENTS})
        last = client.step({"message": "bye"})
        same("last", (last.reward, last.done, last.metadata["turn"]), (0.3, True, 2))


@check("EnvClient with types, async: an episode, its rewards and its metadata")
async def typed_episode(url: str) -> None:
    """Play an episode."""
    async with EchoClient(url) as client:
        first = await client.reset(seed=7, level=2)
        same("first", first.observation, Echoed(seed=7, level=2))
        result = await client.step(EchoAction(message="hello"))
        expected = {"turn": 1, "reward_components": COMPONENTS}
        same("observation", result.observation, Echoed(
            echoed="hello", level=2, reward=0.5, metadata=expected
        ))  # fmt: skip
        same("result", (result.reward, result.done, result.metadata), (0.5, False, expected))
        same("done", (await client.step(EchoAction(message="bye"))).observation.done, True)


@check("rewards that are true, false, 2 and null: floats, and None")
def odd_rewards(url: str) -> None:
    """Play a step for each."""
    expected = {"true": 1.0, "false": 0.0, "two": 2.0, "none": None}
    for kind in (GenericEnvClient, EchoClient):
        with kind.from_url(url).sync() as client:
            client.reset()
            got = {word: client.step({"message": word}).reward for word in expected}
            same(kind.__name__, got, expected)
            same("types", [type(each) for each in got.values()], [float] * 3 + [type(None)])


@check("reset's seed, episode_id and extra arguments arrive; so does the state")
async def arguments(url: str) -> None:
    """Reset twice."""
    async with EchoClient(url) as client:
        first = await client.reset(seed=3, episode_id="ep-1", level=4, unheard_of=[1])
        same("first", (first.observation.seed, first.observation.level), (3, 4))
        await client.step(EchoAction(message="hello"))
        same("state", await client.state(), EchoState(episode_id="ep-1", step_count=1, level=4))
        await client.reset()
        same("state after a second reset", (await client.state()).step_count, 0)


@check("an environment that raises: ServerError, a RuntimeError; the session continues")
async def failing(url: str) -> None:
    """Make it raise."""
    async with GenericEnvClient(url) as client:
        await client.reset(episode_id="continues")
        with raises("step", RuntimeError, "Server error: ", "broken on request", "EXECUTION_ERROR"):
            await client.step({"message": "break"})
        try:
            await client.step({"colour": 1})
        except ServerError as error:
            same("code", error.code, "VALIDATION_ERROR")
            true("errors", error.errors, error.errors)
        else:
            raise AssertionError("an invalid action was accepted")
        same("reward", (await client.step({"message": "hello"})).reward, 0.5)
        same("episode_id", (await client.state())["episode_id"], "continues")


@check(f"{SESSIONS} concurrent sessions are independent; one more: CAPACITY_REACHED")
async def many(url: str) -> None:
    """Open as many sessions as the server allows, and one more."""

    async def play(number: int) -> Any:
        client = await stack.enter_async_context(GenericEnvClient(url))
        await client.reset(episode_id=f"ep-{number}")
        for _ in range(number):
            await client.step({"message": f"{number}"})
        return await client.state()

    async with AsyncExitStack() as stack:
        states = await asyncio.gather(*map(play, range(SESSIONS)))
        expected = [{"episode_id": f"ep-{n}", "step_count": n, "level": 0} for n in range(SESSIONS)]
        same("states", states, expected)
        with raises("one more", ServerError, "CAPACITY_REACHED"):
            async with GenericEnvClient(url) as client:
                await client.reset()


@check("EnvPool of 4 sessions on it: rewards in the order of the actions")
async def pool(url: str) -> None:
    """Play four sessions."""
    async with EnvPool(url, n=4) as pool:
        await pool.reset_batch(seeds=[1, 2, 3, 4])
        seen = await pool.step_batch([{"message": "x" * n} for n in range(1, 5)])
        same("rewards", [each.reward for each in seen], [0.1, 0.2, 0.3, 0.4])
        same("metadata", seen[0].metadata["reward_components"], COMPONENTS)


@check("HTTPEnvClient: get, step, state, an invalid action, reset, the environment's name")
async def http(url: str) -> None:
    """Send the requests."""
    async with HTTPEnvClient(url) as client:
        same("environment_id", client.environment_id, "TheirEcho")
        same("health", await client.get("/health"), {"status": "healthy"})
        fields = (await client.get("/schema"))["action"]["properties"]
        same("the action's fields", sorted(fields), ["message", "metadata"])
        result = await client.step(EchoAction(message="hello"))
        same("step", (result.reward, result.metadata["turn"]), (0.5, 1))
        same("state", (await client.state())["step_count"], 0)
        with raises("an invalid action", ServerError, "422"):
            await client.step({"colour": 1})
        same("reset", (await client.reset(seed=7)).observation["seed"], 7)
        with raises("a step after a reset", EpisodeError, "EnvClient"):
            await client.step(EchoAction(message="hello"))


@check("environment_id is the name of their environment")
def named(url: str) -> None:
    """Send the requests."""
    with GenericEnvClient.from_url(url).sync() as client:
        same("environment_id", client.environment_id, "TheirEcho")


if __name__ == "__main__":
    main(sys.argv[1])
