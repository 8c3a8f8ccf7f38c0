"""Our worker with what is theirs: ``python -m interop.theirs.rollouts THEIR_URL OUR_URL``.

It runs under the interpreter that has ``openenv``, with guerdon's source on its path.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing
from functools import partial
from typing import Any

from openenv.core import EnvClient, GenericEnvClient

from guerdon import RLRolloutWorker
from interop.checks import check, holds, main, same
from interop.episodes import (
    OUR_REWARDS,
    SEED,
    STEPS,
    THEIR_REWARDS,
    WORDS,
    check_endings,
    check_error,
    check_group,
    check_record,
    script,
)
from interop.theirs.clients import EchoClient
from interop.theirs.clients import Say as TypedSay
from interop.theirs.server import Echoed, Say, TheirEcho

EPISODES = 10


class AsyncEcho(TheirEcho):
    """Theirs, with async methods, which their server takes where they are written."""

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        """Never."""
        raise NotImplementedError("step_async is written")

    async def step_async(
        self, action: Say, timeout_s: float | None = None, **kwargs: Any
    ) -> Echoed:
        """Say it."""
        return super().step(action)

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, level: int = 0, **kwargs: Any
    ) -> Echoed:
        """Begin."""
        return super().reset(seed, episode_id, level)

    def reset(self, *args: Any, **kwargs: Any) -> Echoed:
        """Never."""
        raise NotImplementedError("reset_async is written")


def _makers(kind: type[EnvClient[Any, Any, Any]], url: str) -> tuple[Any, Any]:
    """Returns their clients: async and sync."""
    return partial(kind, base_url=url), lambda: kind(base_url=url).sync()


def _held() -> int:
    """How many threads and files this process has."""
    return threading.active_count() + len(os.listdir("/dev/fd"))


@check("their environment in process: done, max_steps, terminate")
def in_process(theirs: str, ours: str) -> None:
    """Play in its class, of dicts and of models, and in one that is there already."""
    check_endings(TheirEcho, THEIR_REWARDS)
    check_endings(TheirEcho, THEIR_REWARDS, say=Say)
    check_endings(TheirEcho(), THEIR_REWARDS)


@check("… one that writes step_async and reset_async: they are taken, as their server does")
def async_in_process(theirs: str, ours: str) -> None:
    """Play in it."""
    check_endings(AsyncEcho, THEIR_REWARDS)


@check("… rewards that are true, false, 2 and null: floats, and None")
def odd_rewards(theirs: str, ours: str) -> None:
    """Ask for them."""
    for env in (TheirEcho, *_makers(GenericEnvClient, theirs)):
        record = RLRolloutWorker(env, script("true", "false", "two", "none"), max_steps=4)
        got = record.run_sync().env_rewards
        same("rewards", got, [1.0, 0.0, 2.0, None])
        same("types", [type(each) for each in got], [float] * 3 + [type(None)])


@check("… run_group of 4 at once")
async def group_in_process(theirs: str, ours: str) -> None:
    """Play them."""
    await check_group(TheirEcho, THEIR_REWARDS)


@check("their GenericEnvClient, their server: done, max_steps, terminate")
def generic(theirs: str, ours: str) -> None:
    """Play with it, async and sync."""
    for maker in _makers(GenericEnvClient, theirs):
        check_endings(maker, THEIR_REWARDS)


@check("… their typed client, of models")
def typed(theirs: str, ours: str) -> None:
    """Play with it, async and sync."""
    for maker in _makers(EchoClient, theirs):
        check_endings(maker, THEIR_REWARDS, say=TypedSay)


@check("… their typed client, of dicts: they become its actions")
def typed_of_dicts(theirs: str, ours: str) -> None:
    """Play with it, async and sync."""
    for maker in _makers(EchoClient, theirs):
        check_endings(maker, THEIR_REWARDS)


@check("… a client that the caller connected: it stays open, in the same session")
async def lent(theirs: str, ours: str) -> None:
    """Play two episodes with it."""
    async with GenericEnvClient(base_url=theirs) as client:
        worker = RLRolloutWorker(client, script(*WORDS), max_steps=STEPS)
        for name in ("ep-1", "ep-2"):
            record = await worker.run(seed=SEED, rollout_id=name)
            check_record(record, ended="done", rewards=list(THEIR_REWARDS))
            state = await client.state()
            same("state", (state["episode_id"], state["step_count"]), (name, len(WORDS)))


@check("… the same in sync code, by .sync() or without it, and by one that connects itself")
def lent_sync(theirs: str, ours: str) -> None:
    """Play an episode with each."""
    with (
        GenericEnvClient(base_url=theirs).sync() as one,
        GenericEnvClient(base_url=theirs) as another,
        closing(GenericEnvClient(base_url=theirs)) as third,
    ):
        for client in (one, another, third):
            worker = RLRolloutWorker(client, script(*WORDS), max_steps=STEPS)
            record = worker.run_sync(seed=SEED, rollout_id="ep-1")
            check_record(record, ended="done", rewards=list(THEIR_REWARDS))
            same("state", client.state()["episode_id"], "ep-1")


@check("… run_group of 4 at once")
async def group(theirs: str, ours: str) -> None:
    """Plays them with sync and async clients."""
    for maker in _makers(GenericEnvClient, theirs):
        await check_group(maker, THEIR_REWARDS)


@check("… a step that fails there: the record contains the error and the steps before")
def failing(theirs: str, ours: str) -> None:
    """Break it, on the server and in process."""
    for env in (TheirEcho, *_makers(GenericEnvClient, theirs)):
        check_error(env, "told to break")


@check(f"… {EPISODES} episodes leave no thread and no socket behind")
def nothing_left(theirs: str, ours: str) -> None:
    """Plays them with sync and async clients."""
    for maker in _makers(GenericEnvClient, theirs):
        worker = RLRolloutWorker(maker, script("bye"), max_steps=1)
        worker.run_sync()
        before = _held()
        for _ in range(EPISODES):
            same("ended", worker.run_sync().ended, "done")
        holds("threads and files more than before", _held() - before, _held() < before + EPISODES)


@check("their clients, our server: done, max_steps, terminate")
def on_ours(theirs: str, ours: str) -> None:
    """Play with both kinds, async and sync."""
    for maker in _makers(GenericEnvClient, ours):
        check_endings(maker, OUR_REWARDS)
    for maker in _makers(EchoClient, ours):
        check_endings(maker, OUR_REWARDS, say=TypedSay)


@check("… run_group of 4 at once")
async def group_on_ours(theirs: str, ours: str) -> None:
    """Play them."""
    await check_group(_makers(GenericEnvClient, ours)[0], OUR_REWARDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
