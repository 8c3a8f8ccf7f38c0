"""Batches over the wire: 64 remote slots, small observations, and frames of 84 × 84 bytes.

`EnvPool` steps 64 sessions of the echo environment (`benchmarks.echo_guerdon`) with one message
for all; beside it are 64 clients with a message each, of guerdon and of openenv. Frames travel as
bytes in MessagePack and as lists in JSON. Each server and each client is a process; rounds
alternate.

``python -m benchmarks.wire guerdon URL`` is the client of the frames; `Contestant` controls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from benchmarks.contestant import Contestant
from benchmarks.echo_client import SESSIONS
from benchmarks.openenv_home import VERSION
from benchmarks.server_process import ServerProcess
from benchmarks.timing import Findings, Measured, take_turns
from guerdon import EnvPool, Observation
from guerdon.envs.pool import remote
from guerdon.envs.wire import JSON, JsonCodec, MsgpackCodec, codecs
from guerdon.types import ArrayField

ROUNDS = 15
STEPS = 3_200
FRAME_STEPS = 640
CODEC_ROUNDS = 20


def run(openenv: str, missing: str) -> Findings:
    """Run the benchmark. For the arguments see `benchmarks.rubric_calls`."""
    slots = f"{SESSIONS} remote slots in batches, a step"
    lines = [
        Measured(slots, f"openenv {VERSION}, {SESSIONS} sessions", 1 / 5, per=STEPS, unit="step"),
        Measured(slots, "a message for each step", 1 / 2, per=STEPS, unit="step"),
        Measured("64 frames, written and read as bytes", "as JSON", 1 / 20, unit="batch"),
        Measured("64 remote slots with frames, a batch", "as JSON", 1 / 10, unit="batch"),
    ]
    lines[0].missing = missing
    lines[3].per = FRAME_STEPS // SESSIONS
    with contextlib.ExitStack() as stack:
        ours = _client(stack, sys.executable, "guerdon", "benchmarks.echo_guerdon")
        theirs = None
        if not missing:
            theirs = _client(stack, openenv, "openenv", "benchmarks.echo_openenv")
        batched = ours.seconds("pool", STEPS)
        other = theirs.seconds("many", STEPS) if theirs is not None else lambda: 0.0
        single = ours.seconds("many", STEPS)
        for each in (batched, other, single):
            each()  # the first calls open the sessions
        lines[0].pairs = take_turns(batched, other, ROUNDS)
        lines[1].pairs = take_turns(batched, single, ROUNDS)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ServerProcess(sys.executable, "benchmarks.frames_server"))
        client = Contestant(sys.executable, "guerdon", "benchmarks.wire", server.url)
        stack.enter_context(client)
        as_bytes, as_json = (client.seconds(task, FRAME_STEPS) for task in ("bytes", "json"))
        as_bytes(), as_json()
        lines[3].pairs = take_turns(as_bytes, as_json, ROUNDS)
    lines[2].pairs = take_turns(_codec(MsgpackCodec()), _codec(JsonCodec()), CODEC_ROUNDS)
    notes = [
        f"{SESSIONS} remote slots: {1 / line.ours:,.0f} steps/s" for line in lines[:1] if line.ours
    ]
    return Findings(list(lines), notes)


def _client(stack: contextlib.ExitStack, python: str, library: str, module: str) -> Contestant:
    server = stack.enter_context(ServerProcess(python, module))
    client = Contestant(python, library, "benchmarks.echo_client", server.url)
    return stack.enter_context(client)


class Screen(Observation):
    frame: Annotated[np.ndarray[Any, Any], ArrayField("uint8", (84, 84))]


def _codec(codec: Any) -> Callable[[], float]:
    frames = np.random.default_rng(0).integers(0, 256, (SESSIONS, 84, 84), dtype=np.uint8)
    screens = [Screen(frame=frame, reward=0.5) for frame in frames]

    def seconds() -> float:
        start = perf_counter()
        frame = codec.frame([codec.encode(0, "observation", each) for each in screens])
        read = [Screen.model_validate(each[2]) for each in codec.decode(frame, is_trusted=True)]
        taken = perf_counter() - start
        assert np.array_equal(read[-1].frame, screens[-1].frame)
        return taken

    return seconds


# In the process of a client ----------------------------------------------------------------------


async def _play(url: str) -> None:
    known = codecs()
    pools = {}
    for name, offered in {"bytes": known, "json": {JSON: known[JSON]}}.items():
        remote.codecs = lambda offered=offered: offered  # type: ignore[attr-defined, misc]
        pool = EnvPool(url, n=SESSIONS, observation_type=Screen)
        pools[name] = await pool.__aenter__()
        await pool.reset_batch()
    actions: list[dict[str, Any]] = [{}] * SESSIONS
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        start = perf_counter()
        for _ in range(order["number"] // SESSIONS):
            seen = await pools[order["task"]].step_batch(actions)
        seconds = perf_counter() - start
        assert all(each is not None and each.frame.shape == (84, 84) for each in seen)
        print(json.dumps({"seconds": seconds}), flush=True)
    for pool in pools.values():
        await pool.close()


if __name__ == "__main__":
    asyncio.run(_play(sys.argv[2]))
