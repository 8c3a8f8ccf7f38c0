"""Threads and memory of the server for 512 idle sessions.

Sessions are opened one after another; each is reset, takes one step, and is then idle. One session
was opened and closed before, so that the server has loaded everything. In a second part, sessions
are opened at the same time: their environments are created in many threads, which end after some
idle time.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.server_process import ServerProcess, missing, ours
from benchmarks.timing import Counted, Findings
from guerdon import GenericEnvClient
from guerdon.envs.runner import IDLE_S

SESSIONS = 512


def run() -> Findings:
    """Run the benchmark."""
    threads = Counted(f"{SESSIONS} idle sessions, threads", "before", 0, unit="threads")
    memory = Counted(f"{SESSIONS} idle sessions, memory per session", "–", unit="B")
    found = Findings([threads, memory])
    threads.missing = memory.missing = missing()
    if not threads.missing:
        with ours(max_sessions=SESSIONS) as server:
            asyncio.run(_count(server, threads, memory))
        with ours(max_sessions=SESSIONS) as server:
            found.notes.append(asyncio.run(_at_once(server)))
    return found


async def _count(server: ServerProcess, threads: Counted, memory: Counted) -> None:
    descriptors = server.descriptors
    await (await _session(server)).close()
    server.settled(0, descriptors)
    threads.theirs, before = server.threads, server.resident
    sessions = [await _session(server) for _ in range(SESSIONS)]
    threads.ours = server.threads
    memory.ours = (server.resident - before) / SESSIONS
    await _close(sessions)


async def _at_once(server: ServerProcess) -> str:
    before = server.threads
    sessions = await asyncio.gather(*[_session(server) for _ in range(SESSIONS)])
    most = server.threads
    end = time.monotonic() + 2 * IDLE_S
    while server.threads > before and time.monotonic() < end:
        await asyncio.sleep(0.5)
    after = server.threads
    await _close(sessions)
    return (
        f"{SESSIONS} idle sessions, opened all at once: {before} threads before, {most} while the "
        f"environments were created, {after} after {IDLE_S:g} s without work"
    )


async def _session(server: ServerProcess) -> GenericEnvClient:
    client = GenericEnvClient(server.url)
    await client.connect()
    await client.reset()
    await client.step({"message": "hello"})
    return client


async def _close(sessions: list[GenericEnvClient]) -> None:
    await asyncio.gather(*[session.close() for session in sessions])
