"""A process that steps an echo server with one library's client; `Contestant` controls it.

``python -m benchmarks.echo_client guerdon|openenv URL [tool]`` uses the ``GenericEnvClient`` of
either library in asyncio's event loop; with ``tool``, each step calls a tool. Sessions stay open
between rounds. Wall time is measured, because a client mostly waits for its server.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import Any

SESSIONS = 64
ACTION = {"message": "hello"}
CALL = {"type": "call_tool", "tool_name": "echo", "arguments": {"text": "hello"}}


class _Player:
    def __init__(self, library: str, url: str, *, calls_tool: bool) -> None:
        self._play = _call if calls_tool else _play
        self._url = url
        self._clients: list[Any] = []
        self._pool: Any = None
        if library == "guerdon":
            from guerdon import GenericEnvClient
        else:
            from openenv.core.generic_client import GenericEnvClient
        self._client = GenericEnvClient

    async def one(self, number: int) -> float:
        """Step one session; return the seconds."""
        (client,) = await self._sessions(1)
        start = perf_counter()
        await self._play(client, number)
        return perf_counter() - start

    async def many(self, number: int) -> float:
        """Step 64 sessions in a task each; return the seconds."""
        clients = await self._sessions(SESSIONS)
        start = perf_counter()
        await asyncio.gather(*[self._play(client, number // SESSIONS) for client in clients])
        return perf_counter() - start

    async def pool(self, number: int) -> float:
        """Step 64 sessions with `EnvPool.step_batch`; return the seconds."""
        from guerdon import EnvPool

        if self._pool is None:
            self._pool = EnvPool(self._url, n=SESSIONS)
            await self._pool.__aenter__()
            await self._pool.reset_batch()
        actions = [ACTION] * SESSIONS
        start = perf_counter()
        for _ in range(number // SESSIONS):
            observations = await self._pool.step_batch(actions)
        seconds = perf_counter() - start
        assert all(each.reward == 0.5 for each in observations), observations[0]
        return seconds

    async def close(self) -> None:
        await asyncio.gather(*[client.close() for client in self._clients])
        if self._pool is not None:
            await self._pool.close()

    async def _sessions(self, count: int) -> list[Any]:
        while len(self._clients) < count:
            client = self._client(base_url=self._url)
            await client.connect()
            await client.reset()
            self._clients.append(client)
        return self._clients[:count]


async def _play(client: Any, steps: int) -> None:
    for _ in range(steps):
        result = await client.step(ACTION)
    assert result.reward == 0.5, result
    assert result.observation["echoed"] == "hello", result


async def _call(client: Any, calls: int) -> None:
    for _ in range(calls):
        result = await client.step(CALL)
    assert result.observation["result"]["data"] == "hello", result


def main() -> None:
    _, library, url, *more = sys.argv
    player = _Player(library, url, calls_tool="tool" in more)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            order = json.loads(line)
            seconds = runner.run(getattr(player, order["task"])(order["number"]))
            print(json.dumps({"seconds": seconds}), flush=True)
        runner.run(player.close())


if __name__ == "__main__":
    main()
