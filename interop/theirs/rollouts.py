"""Our worker, their clients and environments: ``… -m interop.theirs.rollouts THEIRS OURS``.

The arguments are URLs. It runs in the interpreter with ``openenv``, with guerdon's source on its
path.
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
from interop.checks import check, main, same, true
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
from interop.theirs.clients import EchoAction as ClientAction
from interop.theirs.clients import EchoClient
from interop.theirs.server import EchoAction, Echoed, TheirEcho

EPISODES = 10


class AsyncEcho(TheirEcho):
    """Their environment with async methods, which their server prefers."""

    def step(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        """Fail: must not be called."""
        raise NotImplementedError("step_async must be used")

    async def step_async(
        self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any
    ) -> Echoed:
        """Return the text."""
        return super().step(action)

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, level: int = 0, **kwargs: Any
    ) -> Echoed:
        """Begin an episode."""
        return super().reset(seed, episode_id, level)

    def reset(self, *args: Any, **kwargs: Any) -> Echoed:
        """Fail: must not be called."""
        raise NotImplementedError("reset_async must be used")


def _makers(kind: type[EnvClient[Any, Any, Any]], url: str) -> tuple[Any, Any]:
    """Return functions that create their clients: async and sync."""
    return partial(kind, base_url=url), lambda: kind(base_url=url).sync()


def _open_resources() -> int:
    """Return the number of threads and open files of this process."""
    return threading.active_count() + len(os.listdir("/dev/fd"))


@check("their environment in process: done, max_steps, terminate")
def in_process(theirs: str, ours: str) -> None:
    """Play with the class, with dicts and models, and with an instance."""
    check_endings(TheirEcho, THEIR_REWARDS)
    check_endings(TheirEcho, THEIR_REWARDS, make_action=EchoAction)
    check_endings(TheirEcho(), THEIR_REWARDS)


@check("… step_async and reset_async are preferred, as on their server")
def async_in_process(theirs: str, ours: str) -> None:
    """Play with such an environment."""
    check_endings(AsyncEcho, THEIR_REWARDS)


@check("… rewards that are true, false, 2 and null: floats, and None")
def odd_rewards(theirs: str, ours: str) -> None:
    """Play a step for each."""
    for env in (TheirEcho, *_makers(GenericEnvClient, theirs)):
        record = RLRolloutWorker(env, script("true", "false", "two", "none"), max_steps=4)
        got = record.run_sync().env_rewards
        same("rewards", got, [1.0, 0.0, 2.0, None])
        same("types", [type(each) for each in got], [float] * 3 + [type(None)])


@check("… run_group of 4 episodes")
async def group_in_process(theirs: str, ours: str) -> None:
    """Play a group."""
    await check_group(TheirEcho, THEIR_REWARDS)


@check("their GenericEnvClient, their server: done, max_steps, terminate")
def generic(theirs: str, ours: str) -> None:
    """Play with async and sync clients."""
    for maker in _makers(GenericEnvClient, theirs):
        check_endings(maker, THEIR_REWARDS)


@check("… their typed client, with models")
def typed(theirs: str, ours: str) -> None:
    """Play with async and sync clients."""
    for maker in _makers(EchoClient, theirs):
        check_endings(maker, THEIR_REWARDS, make_action=ClientAction)


@check("… their typed client, with dicts, which become its actions")
def typed_of_dicts(theirs: str, ours: str) -> None:
    """Play with async and sync clients."""
    for maker in _makers(EchoClient, theirs):
        check_endings(maker, THEIR_REWARDS)


@check("… a connected client stays open, in the same session")
async def connected(theirs: str, ours: str) -> None:
    """Play two episodes."""
    async with GenericEnvClient(base_url=theirs) as client:
        worker = RLRolloutWorker(client, script(*WORDS), max_steps=STEPS)
        for name in ("ep-1", "ep-2"):
            record = await worker.run(seed=SEED, rollout_id=name)
            check_record(record, ended="done", rewards=list(THEIR_REWARDS))
            state = await client.state()
            same("state", (state["episode_id"], state["step_count"]), (name, len(WORDS)))


@check("… the same in sync code, with .sync(), without it, and with a client that isn't connected")
def connected_sync(theirs: str, ours: str) -> None:
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


@check("… run_group of 4 episodes")
async def group(theirs: str, ours: str) -> None:
    """Play with async and sync clients."""
    for maker in _makers(GenericEnvClient, theirs):
        await check_group(maker, THEIR_REWARDS)


@check("… a failing step: the record has the error and the previous steps")
def failing(theirs: str, ours: str) -> None:
    """Play an episode with a failing step, on the server and in process."""
    for env in (TheirEcho, *_makers(GenericEnvClient, theirs)):
        check_error(env, "broken on request")


@check(f"… {EPISODES} episodes leave no thread and no socket behind")
def nothing_left(theirs: str, ours: str) -> None:
    """Play with async and sync clients."""
    for maker in _makers(GenericEnvClient, theirs):
        worker = RLRolloutWorker(maker, script("bye"), max_steps=1)
        worker.run_sync()
        before = _open_resources()
        for _ in range(EPISODES):
            same("ended", worker.run_sync().ended, "done")
        true(
            "additional threads and files",
            _open_resources() - before,
            _open_resources() < before + EPISODES,
        )


@check("their clients, our server: done, max_steps, terminate")
def on_ours(theirs: str, ours: str) -> None:
    """Play with untyped and typed clients, async and sync."""
    for maker in _makers(GenericEnvClient, ours):
        check_endings(maker, OUR_REWARDS)
    for maker in _makers(EchoClient, ours):
        check_endings(maker, OUR_REWARDS, make_action=ClientAction)


@check("… run_group of 4 episodes")
async def group_on_ours(theirs: str, ours: str) -> None:
    """Play a group."""
    await check_group(_makers(GenericEnvClient, ours)[0], OUR_REWARDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
