"""Steps of 64 sessions while their reward is changed ten times per second, and without changes.

The server is a separate process (`benchmarks.echo_guerdon`); the pool and the client that posts
changes run in threads. Each change sets a tunable field, and is validated, fingerprinted and
logged. Sessions reset before every round, so that the changes apply to them.
"""

from __future__ import annotations

import threading
from time import perf_counter

from benchmarks.server_process import ours
from benchmarks.timing import Findings, Measured
from guerdon import EnvPool, HTTPEnvClient

SESSIONS = 64
STEPS = 600  # batches of one round
ROUNDS = 6
PER_SECOND = 10
BAR = 1 / 0.9


class _Changing:
    """A context manager that changes the configuration ten times per second."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes = 0

    def _run(self) -> None:
        with HTTPEnvClient(self._url).sync() as client:
            while not self._stop.wait(1 / PER_SECOND):
                value = 0.1 + 0.001 * (self.changes % 100)
                entry = {"name": "reward", "config": {"each": value}}
                client.update_config({"per_turn": [entry]})
                self.changes += 1

    def __enter__(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def run() -> Findings:
    """Run the benchmark."""
    line = Measured(
        f"{SESSIONS} sessions, {PER_SECOND} POST /config per second, a step",
        "without changes",
        BAR,
        per=SESSIONS * STEPS,
        unit="step",
    )
    actions = [{"message": "hello"}] * SESSIONS
    with ours(max_sessions=SESSIONS + 2) as server, EnvPool(server.url, n=SESSIONS).sync() as pool:
        changing = _Changing(server.url)

        def steps() -> float:
            pool.reset_batch()
            start = perf_counter()
            for _ in range(STEPS):
                pool.step_batch(actions)
            return perf_counter() - start

        def changed() -> float:
            with changing:
                return steps()

        steps()
        line.pairs = [(changed(), steps()) for _ in range(ROUNDS)]
    per_round = changing.changes / ROUNDS
    return Findings(
        [line], [f"configuration: {changing.changes} changes, {per_round:.1f} per round"]
    )
