"""100,000 sessions, opened and dropped in every ugly way, and 10,000 half-open connections.

The clients (`benchmarks.ugly_clients`) abort, vanish, send halves and garbage, leave in the middle
of a step, never read, never answer a ping; some take their leave as they should. After every
10,000th the server may settle; then its places and its descriptors should be back, and its memory
where it was after the first 10,000. The server is ours as it is, but less patient, so that this
takes minutes: what runs out at a limit runs out sooner.
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
EVERY = 10_000  # sessions after which the server may settle
GROWTH = 5e6
HALF_OPEN = 10_000
LIMITS = {"keepalive_s": 2, "handshake_timeout_s": 2, "send_timeout_s": 1}
HANDSHAKE_TIMEOUT_S = 10.0
SPARE = 500  # descriptors that a process needs besides its connections


def run(sessions: int = SESSIONS) -> Findings:
    """Measure.

    Args:
        sessions: How many are dropped.
    """
    cannot = missing()
    if cannot:
        return Findings([Counted("sessions dropped", "–", missing=cannot)])
    found = _dropped(sessions)
    held = _half_open(min(HALF_OPEN, raise_file_limit() - SPARE))
    return Findings(found.lines + held.lines, found.notes + held.notes)


def _dropped(sessions: int) -> Findings:
    what = f"{sessions:,} sessions dropped"
    came: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    curve = []
    start = time.monotonic()
    with ours(**LIMITS) as server, _crowd(server) as crowd:
        descriptors = server.descriptors
        for done in range(0, sessions, EVERY):
            told = crowd.ask("drop", min(EVERY, sessions - done))
            came.update(told["came"])
            odd.update(told["odd"])
            server.settled(0, descriptors)
            curve.append(server.resident)
        asyncio.run(_play(server))
        server.settled(0, descriptors)
        lines = [
            Counted(f"{what}, still open", "before", 0, server.metric("guerdon_sessions"), 0),
            Counted(f"{what}, descriptors", "before", 0, server.descriptors, descriptors),
            Counted(
                f"{what}, memory",
                f"after {EVERY:,}" if len(curve) > 1 else "–",
                GROWTH if len(curve) > 1 else None,
                curve[-1],
                curve[0] if len(curve) > 1 else None,
                unit="B",
            ),
        ]
        opened = server.metric("guerdon_sessions_opened_total")
    notes = [
        f"{what}: {opened:,.0f} opened and {sum(came.values()):,} connections, in {len(came)} "
        f"ways, in {time.monotonic() - start:.0f} s; memory after each {EVERY:,}: "
        + ", ".join(f"{each / 1e6:.1f}" for each in curve)
        + " MB"
    ]
    if opened < sessions:
        notes.append(f"{what}: only {opened:,.0f} were opened")
    notes += [f"{what}: {count} × {name}" for name, count in odd.most_common(5)]
    return Findings(list(lines), notes)


def _half_open(count: int) -> Findings:
    """Connections that send nothing, or half a request, all at once."""
    what = f"{count:,} half-open connections"
    with ours(handshake_timeout_s=HANDSHAKE_TIMEOUT_S) as server, _crowd(server) as crowd:
        descriptors = server.descriptors
        start = time.monotonic()
        crowd.ask("hold", count)
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
        left, gone = server.descriptors, time.monotonic() - start
        crowd.ask("let_go", 0)
    tried = failed if failed or playing else None  # making them may have taken all the time
    tries = Counted(f"{what}, others turned away", "–", 0, tried, unit="tries")
    after = Counted(f"{what}, descriptors after", "before", 0, left, descriptors)
    note = (
        f"{what}: made in {opened:.1f} s, {most:,} of them held, all gone {gone:.1f} s after the "
        f"first, with {HANDSHAKE_TIMEOUT_S:g} s to ask for something; meanwhile "
    )
    if playing:
        note += (
            f"/health took {max(health) * 1e3:.0f} ms at most, a session with a reset and a step "
            f"{max(playing) * 1e3:.0f} ms, of {len(playing)} each"
        )
    else:
        note += "nobody was let in"
    return Findings([tries, after], [note])


def _crowd(server: ServerProcess) -> Contestant:
    return Contestant(sys.executable, "guerdon", "benchmarks.ugly_clients", server.url)


def _health(server: ServerProcess) -> float:
    start = time.perf_counter()
    if server.get("/health", timeout_s=2) is None:
        raise ConnectionError("the server does not answer")
    return time.perf_counter() - start


async def _play(server: ServerProcess) -> float:
    """A session as it should be."""
    start = time.perf_counter()
    async with GenericEnvClient(server.url, connect_timeout_s=2, message_timeout_s=2) as client:
        await client.reset()
        result = await client.step({"message": "hello"})
    assert result.reward == 0.5
    return time.perf_counter() - start
