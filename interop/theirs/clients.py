"""Their clients on our server: ``python -m interop.theirs.clients URL``."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from openenv.core import EnvClient, GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import Action, Observation, State

from interop.checks import check, main, raises, same, true

SESSIONS = 8
# The scores of our rubric for "hi please", which has 9 characters.
COMPONENTS = {"": 0.75 + 0.25 * 7 / 16, "polite": 1.0, "brief": 7 / 16}


class EchoAction(Action):
    """Our action as one of their models, which forbid extra fields."""

    message: str


class Echoed(Observation):
    """Our observation."""

    echoed: str = ""
    seed: int | None = None
    level: int = 0


class EchoState(State):
    """Our state."""

    level: int = 0


class EchoClient(EnvClient[EchoAction, Echoed, EchoState]):
    """A typed client like theirs, which passes the observation's fields to the model."""

    def _step_payload(self, action: EchoAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Echoed]:
        observation = Echoed(
            **payload["observation"], reward=payload["reward"], done=payload["done"]
        )
        return StepResult(observation, payload["reward"], payload["done"], payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> EchoState:
        return EchoState(**payload)


@contextmanager
def _sync(url: str) -> Iterator[Any]:
    with GenericEnvClient(base_url=url).sync() as client:
        yield client


def _check_first(result: Any, seed: int | None, level: int) -> None:
    same("the first reward", result.reward, None)
    same("the first done", result.done, False)
    fields = {key: result.observation[key] for key in ("echoed", "seed", "level")}
    same("the first observation", fields, {"echoed": "", "seed": seed, "level": level})


def _check_polite(result: Any, turn: int) -> None:
    """Check the result of "hi please"."""
    same("reward", result.reward, COMPONENTS[""])
    same("done", result.done, False)
    same("echoed", result.observation["echoed"], "hi please")
    metadata = result.metadata or {}
    for name in ("polite", "brief"):
        components = metadata.get("reward_components", {})
        same(f"reward_components[{name!r}]", components.get(name), COMPONENTS[name])
    same("metadata['turn']", metadata.get("turn"), turn)
    same("metadata, inside the observation", result.observation.get("metadata"), metadata)


@check("GenericEnvClient, sync: an episode, its rewards and its metadata")
def sync_episode(url: str) -> None:
    """Play an episode."""
    with _sync(url) as client:
        _check_first(client.reset(), None, 0)
        _check_polite(client.step({"message": "hi please"}), 1)
        _check_polite(client.step({"message": "hi please", "metadata": {"tag": 1}}), 2)
        last = client.step({"message": "bye"})
        same("done, at the end", last.done, True)
        same("the last reward", last.reward, 0.25 * 13 / 16)


@check("GenericEnvClient, async: an episode, its rewards and its metadata")
async def async_episode(url: str) -> None:
    """Play an episode."""
    async with GenericEnvClient(base_url=url) as client:
        _check_first(await client.reset(), None, 0)
        _check_polite(await client.step({"message": "hi please"}), 1)
        same("done, at the end", (await client.step({"message": "bye"})).done, True)


@check("reset's seed, episode_id and extra arguments arrive; so does the state")
def arguments(url: str) -> None:
    """Reset twice."""
    with _sync(url) as client:
        _check_first(client.reset(seed=7, episode_id="ep-1", level=3, unheard_of=True), 7, 3)
        client.step({"message": "hi"})
        expected = {"episode_id": "ep-1", "step_count": 1, "level": 3}
        same("state", client.state(), expected)
        _check_first(client.reset(seed=0), 0, 0)
        same("step_count after a second reset", client.state()["step_count"], 0)


@check("typed client, whose models forbid extra fields, sync")
def typed(url: str) -> None:
    """Play an episode."""
    with EchoClient(base_url=url).sync() as client:
        first = client.reset(seed=7, episode_id="ep-2", level=2)
        same("first", first.observation, Echoed(seed=7, level=2))
        result = client.step(EchoAction(message="hi please"))
        observation = result.observation
        same("echoed", observation.echoed, "hi please")
        same("reward", (result.reward, observation.reward), (COMPONENTS[""],) * 2)
        same("polite", observation.metadata["reward_components"]["polite"], 1.0)
        same("state", client.state(), EchoState(episode_id="ep-2", step_count=1, level=2))


@check("typed client, async")
async def typed_async(url: str) -> None:
    """Play an episode."""
    async with EchoClient(base_url=url) as client:
        await client.reset(level=2)
        result = await client.step(EchoAction(message="bye please"))
        same("done", (result.done, result.observation.done), (True, True))
        same("metadata", result.metadata, result.observation.metadata)
        same("state", await client.state(), EchoState(step_count=1, level=2))


@check("an environment that raises: their RuntimeError with its text; the session continues")
def failing(url: str) -> None:
    """Make it raise."""
    with _sync(url) as client:
        client.reset(episode_id="continues")
        with raises(
            "a step that fails", RuntimeError, "Server error: ", "broken on request",
            "(code: EXECUTION_ERROR)",
        ):  # fmt: skip
            client.step({"message": "break"})
        _check_polite(client.step({"message": "hi please"}), 1)
        same("episode_id", client.state()["episode_id"], "continues")


@check("an action that isn't valid: VALIDATION_ERROR that names the field; the session continues")
def invalid(url: str) -> None:
    """Send invalid actions."""
    with _sync(url) as client:
        client.reset()
        for action, named in (({}, "message"), ({"message": "hi", "colour": 1}, "colour")):
            with raises("step", RuntimeError, "Server error: ", named, "(code: VALIDATION_ERROR)"):
                client.step(action)
        with raises("a seed below 0", RuntimeError, "seed", "(code: VALIDATION_ERROR)"):
            client.reset(seed=-1)
        _check_polite(client.step({"message": "hi please"}), 1)


@check("a rubric that fails: reward null, and metadata['reward_error'] contains the error")
def broken_rubric(url: str) -> None:
    """Make the rubric fail."""
    with _sync(url) as client:
        client.reset()
        result = client.step({"message": "break the rubric"})
        same("reward", result.reward, None)
        message = result.metadata.get("reward_error")
        true("reward_error", message, "no manners" in str(message))
        _check_polite(client.step({"message": "hi please"}), 2)


@check(f"{SESSIONS} concurrent sessions are independent, async")
async def many(url: str) -> None:
    """Open as many sessions as the server allows."""

    async def play(number: int) -> Any:
        async with GenericEnvClient(base_url=url) as client:
            await client.reset(episode_id=f"ep-{number}", level=number)
            ready.append(number)
            if len(ready) == SESSIONS:
                all_ready.set()
            await all_ready.wait()
            results = [await client.step({"message": f"{number}"}) for _ in range(number)]
            same("echoed", [each.observation["echoed"] for each in results], [f"{number}"] * number)
            return await client.state()

    ready: list[int] = []
    all_ready = asyncio.Event()
    states = await asyncio.gather(*map(play, range(SESSIONS)))
    expected = [{"episode_id": f"ep-{n}", "step_count": n, "level": n} for n in range(SESSIONS)]
    same("states", states, expected)


@check("concurrent sessions, sync, in threads")
def many_sync(url: str) -> None:
    """Play four interleaved sessions."""

    def play(client: Any) -> Any:
        return [client.step({"message": "hi please"}).metadata["turn"] for _ in range(5)]

    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        clients = [stack.enter_context(_sync(url)) for _ in range(4)]
        for client in clients:
            client.reset()
        same("turns", list(threads.map(play, clients)), [[1, 2, 3, 4, 5]] * 4)


@check("a session too many: CAPACITY_REACHED; closing a session makes room for another")
def full(url: str) -> None:
    """Open all sessions, and one more."""
    with ExitStack() as stack:
        clients = [stack.enter_context(_sync(url)) for _ in range(SESSIONS)]
        for client in clients:
            client.reset()
        with raises("one more", RuntimeError, "(code: CAPACITY_REACHED)"), _sync(url) as client:
            client.reset()
        clients[0].close()
        deadline = time.monotonic() + 5
        while True:  # the server closes the environment before it accepts another session
            try:
                with _sync(url) as client:
                    client.reset()
                    return _check_polite(client.step({"message": "hi please"}), 1)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise


if __name__ == "__main__":
    main(sys.argv[1])
