"""Our worker and clients on their server: ``python -m interop.rollouts URL``."""

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
from interop.ours import EchoAction, EchoClient


@check("our GenericEnvClient, their server: done, max_steps, terminate")
def generic(url: str) -> None:
    """Play with async and sync clients."""
    check_endings(lambda: GenericEnvClient(url), THEIR_REWARDS)
    check_endings(lambda: GenericEnvClient(url).sync(), THEIR_REWARDS)


@check("… our typed client, with dicts and with models")
def typed(url: str) -> None:
    """Play with both kinds of actions."""
    check_endings(lambda: EchoClient(url), THEIR_REWARDS)
    check_endings(lambda: EchoClient(url), THEIR_REWARDS, make_action=EchoAction)


@check("… a connected client stays open, in the same session")
async def connected(url: str) -> None:
    """Play two episodes."""
    async with GenericEnvClient(url) as client:
        worker = RLRolloutWorker(client, script(*WORDS), max_steps=STEPS)
        for name in ("ep-1", "ep-2"):
            record = await worker.run(seed=SEED, rollout_id=name)
            check_record(record, ended="done", rewards=list(THEIR_REWARDS))
            state = await client.state()
            same("state", (state["episode_id"], state["step_count"]), (name, len(WORDS)))


@check("… run_group of 4 episodes")
async def group(url: str) -> None:
    """Play a group."""
    await check_group(lambda: GenericEnvClient(url), THEIR_REWARDS)


@check("… a failing step: the record has the error and the previous steps")
def failing(url: str) -> None:
    """Play an episode with a failing step."""
    check_error(lambda: GenericEnvClient(url), "broken on request")


if __name__ == "__main__":
    main(sys.argv[1])
