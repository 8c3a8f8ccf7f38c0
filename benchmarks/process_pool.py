"""`EnvPool` in processes: Python that computes, and its overhead on an empty step.

16 environments that compute for 1 ms are compared with a plain loop over them; the note below the
table says what bare processes reach, which send no messages: cores may not be independent. 64 with
an empty step are compared with `multiprocessing.Pool.map`, and with Gymnasium's `AsyncVectorEnv` of
as many. A process of `Pool.map` takes whichever task is next, so that each environment travels
there and back, as an episode must go on where it was. The note also says what the map takes if
they stay, which is right only for environments without a state.

A server with two processes, whose 64 sessions compute for 1 ms, is compared with a server of one
process; the client is this process, on the same cores.

``python -m benchmarks.process_pool N`` is the server with N processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from benchmarks.environment_pool import Empty
from benchmarks.server_process import ServerProcess
from benchmarks.timing import Findings, Measured, take_turns
from guerdon import Action, Environment, EnvPool, Observation, create_app, serve
from guerdon.envs import PoolBackend, ProcessBackend, SyncEnvPool

WORKERS = 2
COMPUTING = 16
COMPUTE_S = 0.001
SLOTS = 64
ROUNDS = 7
BATCHES = 50
SERVED_BATCHES = 10


class Computing(Empty):
    """An environment with a step that computes for 1 ms, without the time in which others run."""

    seconds = COMPUTE_S

    def step(self, action: Action) -> Observation:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return self.observation


class EmptyGym(gymnasium.Env[Any, Any]):
    """Gymnasium's environment with an empty step."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {}


def run() -> Findings:
    """Run the benchmark."""
    computing = Measured(
        f"EnvPool of {COMPUTING} in {WORKERS} processes, 1 ms of Python",
        "plain loop",
        1 / 1.8,
        per=COMPUTING * BATCHES,
        unit="slot",
    )
    bare = Measured("bare processes", "plain loop", 1.0)
    name = f"EnvPool of {SLOTS} in {WORKERS} processes, empty step"
    per = {"per": SLOTS * BATCHES, "unit": "slot"}
    mapped = Measured(name, "multiprocessing.Pool.map", 1 / 3, **per)
    stateless = Measured(name, "the same without a state", 1.0, **per)
    vector = Measured(name, "gymnasium AsyncVectorEnv", 1.0, **per)
    served = Measured(
        f"server with {WORKERS} processes, {SLOTS} sessions, 1 ms of Python",
        "one process",
        1 / 1.7,
        per=SLOTS * SERVED_BATCHES,
        unit="step",
    )
    with asyncio.Runner() as runner:
        pool = stepping(runner, lambda: processes(Computing, COMPUTING), COMPUTING)
        computing.pairs = take_turns(pool, _plain_loop(), ROUNDS)
        bare.pairs = take_turns(_bare, _plain_loop(), ROUNDS)
        empty = stepping(runner, lambda: processes(Empty, SLOTS), SLOTS)
        mapped.pairs = take_turns(empty, _mapped(_travel), ROUNDS)
        stateless.pairs = take_turns(empty, _mapped(_stay), ROUNDS)
        with contextlib.closing(_vector_env()) as environments:
            vector.pairs = take_turns(empty, lambda: _vector(environments), ROUNDS)
    with _server(WORKERS) as several, _server(1) as one:
        served.pairs = take_turns(_served(several), _served(one), ROUNDS)
    assert computing.ratio
    assert bare.ratio
    assert mapped.ours
    assert stateless.theirs
    return Findings(
        [computing, mapped, vector, served],
        [
            f"EnvPool of {COMPUTING} in {WORKERS} processes: {1 / computing.ratio:.2f}× of a plain "
            f"loop's steps/s of 1 ms, and bare processes {1 / bare.ratio:.2f}×; of {SLOTS}: "
            f"{1 / mapped.ours:,.0f} empty steps/s, where "
            f"Pool.map of environments without a state makes {1 / stateless.theirs:,.0f}"
        ],
    )


def processes(environment: type[Environment[Any, Any, Any]], slots: int) -> ProcessBackend:
    """A backend in as many processes as the benchmark has."""
    return ProcessBackend(environment, slots, workers=WORKERS)


def stepping(
    runner: asyncio.Runner,
    new_backend: Callable[[], PoolBackend],
    slots: int,
    batches: int = BATCHES,
) -> Callable[[], float]:
    """What times the batches of a new pool."""
    actions = [Action()] * slots

    async def stepped() -> float:
        async with EnvPool(backend=new_backend(), n=slots) as pool:
            await pool.reset_batch()
            await pool.step_batch(actions)
            start = time.perf_counter()
            for _ in range(batches):
                observations = await pool.step_batch(actions)
            seconds = time.perf_counter() - start
            assert not any(each is None or each.metadata for each in observations)
        return seconds

    return lambda: runner.run(stepped())


def _plain_loop(slots: int = COMPUTING) -> Callable[[], float]:
    environments = [Computing() for _ in range(slots)]
    action = Action()

    def stepped() -> float:
        start = time.perf_counter()
        for _ in range(BATCHES):
            for environment in environments:
                environment.step(action)
        return time.perf_counter() - start

    return stepped


def _bare() -> float:
    """Step the environments in processes that don't communicate; return the slowest's seconds."""
    slots = [COMPUTING // WORKERS] * WORKERS
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(_loop_of, slots, chunksize=1)
        return max(pool.map(_loop_of, slots, chunksize=1))


def _loop_of(slots: int) -> float:
    return _plain_loop(slots)()


_environments: list[Empty] = []


def _travel(task: tuple[int, Empty, Action]) -> tuple[Empty, Observation]:
    _, environment, action = task
    return environment, environment.step(action)


def _stay(task: tuple[int, Empty, Action]) -> tuple[None, Observation]:
    while len(_environments) < SLOTS:
        _environments.append(Empty())
    slot, _, action = task
    return None, _environments[slot].step(action)


def _mapped(step: Callable[[Any], Any]) -> Callable[[], float]:
    def stepped() -> float:
        environments: list[Any] = [Empty() if step is _travel else None for _ in range(SLOTS)]
        actions = [Action()] * SLOTS
        with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
            pool.map(step, list(zip(range(SLOTS), environments, actions, strict=True)))
            start = time.perf_counter()
            for _ in range(BATCHES):
                tasks = list(zip(range(SLOTS), environments, actions, strict=True))
                environments = [environment for environment, _ in pool.map(step, tasks)]
            return time.perf_counter() - start

    return stepped


def _vector_env() -> Any:
    environments = gymnasium.vector.AsyncVectorEnv([EmptyGym] * SLOTS)
    environments.reset()
    return environments


def _vector(environments: Any) -> float:
    actions = np.zeros(SLOTS, np.int64)
    environments.step(actions)
    start = time.perf_counter()
    for _ in range(BATCHES):
        environments.step(actions)
    return time.perf_counter() - start


@contextlib.contextmanager
def _server(processes: int) -> Iterator[SyncEnvPool]:
    arguments = sys.executable, "benchmarks.process_pool", str(processes)
    with ServerProcess(*arguments) as server, EnvPool(server.url, n=SLOTS).sync() as pool:
        pool.reset_batch()
        yield pool


def _served(pool: SyncEnvPool) -> Callable[[], float]:
    actions: list[dict[str, Any]] = [{}] * SLOTS

    def stepped() -> float:
        start = time.perf_counter()
        for _ in range(SERVED_BATCHES):
            observations = pool.step_batch(actions)
        seconds = time.perf_counter() - start
        assert not any(each is None or each.done for each in observations)
        return seconds

    return stepped


def main() -> None:
    from benchmarks import process_pool  # its classes have an import path

    app = create_app(process_pool.Computing, processes=int(sys.argv[1]))
    serve(app, port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
