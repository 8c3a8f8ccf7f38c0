"""Threads and memory of the server for 512 and 4,096 idle sessions.

512 sessions are opened one after another; each is reset, takes one step, and is then idle. One
session was opened and closed before, so that the server has loaded everything. In a second part,
sessions are opened at the same time: their environments are created in many threads, which end
after some idle time. In a third part, 4,096 sessions are opened, 16 at a time, and their memory is
compared with 8 times that of the 512.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.open_files import raise_file_limit
from benchmarks.server_process import ServerProcess, missing, ours
from benchmarks.timing import Counted, Findings, Measured
from guerdon import GenericEnvClient
from guerdon.envs.runner import IDLE_S

SESSIONS = 512
MANY = 4096
# How many of the sessions are being opened at the same time.
AT_ONCE = 16


def run() -> Findings:
    """Run the benchmark."""
    threads = Counted(f"{SESSIONS} idle sessions, threads", "before", 0, unit="threads")
    memory = Counted(f"{SESSIONS} idle sessions, memory per session", "–", unit="B")
    expected = f"{MANY // SESSIONS} × {SESSIONS} sessions"
    many = Counted(f"{MANY:,} idle sessions, memory", expected, 100e6, unit="B")
    opening = Measured(f"{MANY:,} sessions opened, reset and stepped", "–", 10, absolute=True)
    found = Findings([threads, memory, many, opening])
    why = missing()
    for line in found.lines:
        line.missing = why
    if not why:
        with ours(max_sessions=SESSIONS) as server:
            asyncio.run(_count(server, threads, memory))
        with ours(max_sessions=SESSIONS) as server:
            found.notes.append(asyncio.run(_at_once(server)))
        raise_file_limit()
        many.theirs = MANY * (memory.ours or 0)
        with ours(max_sessions=MANY, max_connections=2 * MANY) as server:
            many.ours, seconds = asyncio.run(_many(server))
        opening.pairs = [(seconds, 0.0)]
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


async def _many(server: ServerProcess) -> tuple[float, float]:
    """Open the sessions; return the bytes that the server needs for them, and the seconds."""
    await _close([await _session(server)])
    server.settled(0, server.descriptors)
    before, start = server.resident, time.perf_counter()
    sessions: list[GenericEnvClient] = []

    async def open_some(number: int) -> None:
        for _ in range(number):
            sessions.append(await _session(server))

    await asyncio.gather(*[open_some(MANY // AT_ONCE) for _ in range(AT_ONCE)])
    seconds, used = time.perf_counter() - start, server.resident - before
    assert server.metric("guerdon_sessions") == MANY
    await _close(sessions)
    return used, seconds


async def _session(server: ServerProcess) -> GenericEnvClient:
    client = GenericEnvClient(server.url)
    await client.connect()
    await client.reset()
    await client.step({"message": "hello"})
    return client


async def _close(sessions: list[GenericEnvClient]) -> None:
    await asyncio.gather(*[session.close() for session in sessions])
