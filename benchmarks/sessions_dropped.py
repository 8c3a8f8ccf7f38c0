"""100,000 sessions that clients drop in many ways, and 10,000 half-open connections.

The clients (`benchmarks.faulty_clients`) abort, vanish, send partial or invalid data, disconnect
during a step, never read, or never answer a ping; some close properly. After every 10,000 sessions
the benchmark waits for the server; then all sessions and descriptors must be released, and the
memory must be the same as after the first 10,000. The server has shorter timeouts than usual, so
that the benchmark takes minutes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

from benchmarks.contestant import Contestant
from benchmarks.open_files import raise_file_limit
from benchmarks.server_process import ServerProcess, missing, ours
from benchmarks.timing import Counted, Findings
from guerdon import GenericEnvClient

SESSIONS = 100_000
EVERY = 10_000  # sessions between two measurements
GROWTH = 5e6
HALF_OPEN = 10_000
LIMITS = {"keepalive_s": 2, "handshake_timeout_s": 2, "send_timeout_s": 1}
HANDSHAKE_TIMEOUT_S = 10.0
SPARE = 500  # descriptors of a process besides its connections


def run(sessions: int = SESSIONS) -> Findings:
    """Run the benchmark.

    Args:
        sessions: The number of dropped sessions.
    """
    reason = missing()
    if reason:
        return Findings([Counted("sessions dropped", "–", missing=reason)])
    found = _dropped(sessions)
    half_open = _half_open(min(HALF_OPEN, raise_file_limit() - SPARE))
    return Findings(found.lines + half_open.lines, found.notes + half_open.notes)


def _dropped(sessions: int) -> Findings:
    title = f"{sessions:,} sessions dropped"
    used: Counter[str] = Counter()
    unexpected: Counter[str] = Counter()
    curve = []
    start = time.monotonic()
    with ours(**LIMITS) as server, _crowd(server) as crowd:
        descriptors = server.descriptors
        for done in range(0, sessions, EVERY):
            counts = crowd.ask("drop", min(EVERY, sessions - done))
            used.update(counts["used"])
            unexpected.update(counts["unexpected"])
            server.settled(0, descriptors)
            curve.append(server.resident)
        asyncio.run(_play(server))
        server.settled(0, descriptors)
        lines = [
            Counted(f"{title}, still open", "before", 0, server.metric("guerdon_sessions"), 0),
            Counted(f"{title}, descriptors", "before", 0, server.descriptors, descriptors),
            Counted(
                f"{title}, memory",
                f"after {EVERY:,}" if len(curve) > 1 else "–",
                GROWTH if len(curve) > 1 else None,
                curve[-1],
                curve[0] if len(curve) > 1 else None,
                unit="B",
            ),
        ]
        opened = server.metric("guerdon_sessions_opened_total")
    notes = [
        f"{title}: {opened:,.0f} opened and {sum(used.values()):,} connections, in {len(used)} "
        f"ways, in {time.monotonic() - start:.0f} s; memory after each {EVERY:,}: "
        + ", ".join(f"{each / 1e6:.1f}" for each in curve)
        + " MB"
    ]
    if opened < sessions:
        notes.append(f"{title}: only {opened:,.0f} were opened")
    notes += [f"{title}: {count} × {name}" for name, count in unexpected.most_common(5)]
    return Findings(list(lines), notes)


def _half_open(count: int) -> Findings:
    """Open connections that send nothing or half a request, all at the same time."""
    title = f"{count:,} half-open connections"
    with ours(handshake_timeout_s=HANDSHAKE_TIMEOUT_S) as server, _crowd(server) as crowd:
        descriptors = server.descriptors
        start = time.monotonic()
        crowd.ask("open", count)
        opened = time.monotonic() - start
        most = server.descriptors - descriptors
        health, playing, failed = [], [], 0
        while time.monotonic() - start < HANDSHAKE_TIMEOUT_S - 1:
            try:
                health.append(_health(server))
                playing.append(asyncio.run(_play(server)))
            except Exception:
                failed += 1
            time.sleep(0.2)
        server.settled(0, descriptors, 2 * HANDSHAKE_TIMEOUT_S)
        after, closed = server.descriptors, time.monotonic() - start
        crowd.ask("close", 0)
    tried = failed if failed or playing else None  # None if opening them took all the time
    attempts = Counted(f"{title}, others rejected", "–", 0, tried, unit="attempts")
    descriptors_after = Counted(f"{title}, descriptors after", "before", 0, after, descriptors)
    note = (
        f"{title}: opened in {opened:.1f} s, at most {most:,} at the same time, all closed "
        f"{closed:.1f} s after the first, with a timeout of {HANDSHAKE_TIMEOUT_S:g} s; meanwhile "
    )
    if playing:
        note += (
            f"/health took {max(health) * 1e3:.0f} ms at most, a session with a reset and a step "
            f"{max(playing) * 1e3:.0f} ms, of {len(playing)} each"
        )
    else:
        note += "no session could be opened"
    return Findings([attempts, descriptors_after], [note])


def _crowd(server: ServerProcess) -> Contestant:
    return Contestant(sys.executable, "guerdon", "benchmarks.faulty_clients", server.url)


def _health(server: ServerProcess) -> float:
    start = time.perf_counter()
    if server.get("/health", timeout_s=2) is None:
        raise ConnectionError("the server doesn't respond")
    return time.perf_counter() - start


async def _play(server: ServerProcess) -> float:
    """Play a session with a proper close; return the seconds."""
    start = time.perf_counter()
    async with GenericEnvClient(server.url, connect_timeout_s=2, message_timeout_s=2) as client:
        await client.reset()
        result = await client.step({"message": "hello"})
    assert result.reward == 0.5
    return time.perf_counter() - start
