"""Our worker with our clients on their server: ``python -m interop.rollouts URL``."""

from __future__ import annotations

import sys

from guerdon import GenericEnvClient, RLRolloutWorker
from interop.checks import check, main, same
from interop.episodes import (
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
from interop.ours import EchoClient, Say


@check("our GenericEnvClient, their server: done, max_steps, terminate")
def generic(url: str) -> None:
    """Play with it, async and sync."""
    check_endings(lambda: GenericEnvClient(url), THEIR_REWARDS)
    check_endings(lambda: GenericEnvClient(url).sync(), THEIR_REWARDS)


@check("… our typed client, of dicts and of models")
def typed(url: str) -> None:
    """Play with it."""
    check_endings(lambda: EchoClient(url), THEIR_REWARDS)
    check_endings(lambda: EchoClient(url), THEIR_REWARDS, say=Say)


@check("… a client that the caller connected: it stays open, in the same session")
async def lent(url: str) -> None:
    """Play two episodes with it."""
    async with GenericEnvClient(url) as client:
        worker = RLRolloutWorker(client, script(*WORDS), max_steps=STEPS)
        for name in ("ep-1", "ep-2"):
            record = await worker.run(seed=SEED, rollout_id=name)
            check_record(record, ended="done", rewards=list(THEIR_REWARDS))
            state = await client.state()
            same("state", (state["episode_id"], state["step_count"]), (name, len(WORDS)))


@check("… run_group of 4 at once")
async def group(url: str) -> None:
    """Play them."""
    await check_group(lambda: GenericEnvClient(url), THEIR_REWARDS)


@check("… a step that fails there: the record contains the error and the steps before")
def failing(url: str) -> None:
    """Break it."""
    check_error(lambda: GenericEnvClient(url), "told to break")


if __name__ == "__main__":
    main(sys.argv[1])
