"""How many cores, how much memory and network: the tables of docs/how-big.md.

``python -m benchmarks.sizing`` measures what each layer costs on this machine, steps pools whose
environments take random times, predicts the same with `benchmarks.scheduling`, and prints the
page's tables; ``--write`` writes them into the page.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median

import numpy as np

from benchmarks.echo_guerdon import Echo, EchoAction
from benchmarks.scheduling import Pool, Steps, as_completed, exponential, lognormal, step_batch
from benchmarks.server_process import ServerProcess, ours
from guerdon import (
    Action,
    Environment,
    EnvPool,
    GenericEnvClient,
    Observation,
    RegexMatch,
    State,
    create_app,
    serve,
)
from guerdon.envs import ProcessBackend
from guerdon.envs.wire import MsgpackCodec

PAGE = Path(__file__).parents[1] / "docs" / "how-big.md"
MARKERS = "<!-- {} of {}: python -m benchmarks.sizing -->"
FEW, MANY = 4, 256  # slots of the two measurements that a cost is computed from
STEPS, ROUNDS = 16_384, 5
SESSIONS = 512
ACTION = {"message": "hello"}
CORES = os.cpu_count() or 1


# What each layer costs ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    """What a way of running environments costs, in seconds of CPU time, besides their steps.

    Attributes:
        step_s: The caller's for a step.
        batch_s: The caller's for a batch to one worker or server.
        far_step_s: The worker's or the server's for a step.
        far_batch_s: Theirs for a batch.
    """

    step_s: float
    batch_s: float
    far_step_s: float = 0.0
    far_batch_s: float = 0.0

    def pool(self, workers: int, lanes: int, slots: int, *, batches: bool) -> Pool:
        """Return the same for the simulation."""
        share = workers / slots if batches else 1.0  # messages to workers for each step
        return Pool(
            workers,
            lanes,
            worker_s=self.far_step_s + self.far_batch_s * share,
            send_s=self.step_s / 2,
            receive_s=self.step_s / 2,
            batch_s=self.batch_s * (workers if batches else 1),
        )

    @property
    def alone_s(self) -> float:
        """The caller's for a step with a message of its own."""
        return self.step_s + self.batch_s

    @property
    def far_alone_s(self) -> float:
        """The worker's or the server's for such a step."""
        return self.far_step_s + self.far_batch_s


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured on this machine: seconds and bytes."""

    step_s: float
    layers: dict[str, Layer]
    sleep_s: float
    start_s: float
    worker_bytes: float
    slot_bytes: float
    session_bytes: float
    action_bytes: float
    observation_bytes: float


def cpu_s(processes: Iterable[int]) -> float:
    """Return the CPU time of processes and their threads."""
    tasks = [task for each in processes for task in Path(f"/proc/{each}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def children(process: int | str = "self") -> list[int]:
    """Return the processes that one has started."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(each) for task in tasks for each in (task / "children").read_text().split()]


def private_bytes(process: int) -> int:
    """Return the memory that this process alone uses."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def environment_s() -> float:
    """Return the seconds of a step of the echo environment, from the dict of its action."""
    environment, rounds = Echo(), []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(STEPS):
            environment.step(EchoAction.model_validate(ACTION))
        rounds.append((time.process_time() - start) / STEPS)
    return min(rounds)


async def layer(
    new_pool: Callable[[int], EnvPool],
    far: Callable[[], list[int]] = list,
    *,
    has_steps: bool = True,
) -> Layer:
    """Measure a layer.

    Args:
        new_pool: Returns a pool of so many slots.
        far: Returns the other processes whose time counts.
        has_steps: Whether their time includes the environments' steps.
    """
    found = []
    for slots in (FEW, MANY):
        async with new_pool(slots) as pool:
            await pool.reset_batch()
            actions, processes, rounds = [ACTION] * slots, far(), []
            for _ in range(ROUNDS):
                before = time.process_time(), cpu_s(processes)
                for _ in range(STEPS // slots):
                    await pool.step_batch(actions)
                after = time.process_time(), cpu_s(processes)
                rounds.append(np.subtract(after, before) * slots / STEPS)
        found.append(np.min(rounds, axis=0))
    steps = (found[1] - found[0]) / (MANY - FEW)
    batches = np.maximum(found[0] - FEW * steps, 0.0)
    if has_steps:
        steps[1 if processes else 0] -= environment_s()
    return Layer(steps[0], batches[0], max(steps[1], 0.0), batches[1])


async def workers() -> tuple[float, float, float]:
    """Return the CPU time, the memory and the memory per slot of a worker process."""
    found = []
    for slots in (1, SESSIONS + 1):
        pool = EnvPool(backend=ProcessBackend(Echo, slots, workers=1), n=slots)
        async with pool:
            process = max(children(), key=private_bytes)  # not the small one that guards it
            start = cpu_s([process])
            await pool.reset_batch()
            await pool.step_batch([ACTION] * slots)
            found.append((start, private_bytes(process)))
    (start, few), (_, many) = found
    return start, few, (many - few) / SESSIONS


async def session_bytes(server: ServerProcess) -> float:
    """Return the memory of an idle session on a server."""
    before, clients = server.resident, []
    for _ in range(SESSIONS):
        clients.append(GenericEnvClient(server.url))
        await clients[-1].reset()
        await clients[-1].step(ACTION)
    used = server.resident - before
    for client in clients:
        await client.close()
    return used / SESSIONS


async def measure() -> Costs:
    """Measure all costs."""
    with ours(max_sessions=2 * SESSIONS) as server:
        async with GenericEnvClient(server.url) as client:
            await client.reset()  # loads what the first session needs
        of_session = await session_bytes(server)
        remote = await layer(lambda n: EnvPool(server.url, n=n), lambda: [server.process])
    layers = {
        "threads": await layer(partial(EnvPool, Echo)),
        "processes": await layer(
            lambda n: EnvPool(backend=ProcessBackend(Echo, n, workers=1), n=n),
            children,
        ),
        "server": remote,
    }
    with ServerProcess(sys.executable, "benchmarks.sizing", "--serve-in-processes") as server:
        new_pool = partial(EnvPool, server.url)
        layers["front"] = await layer(new_pool, lambda: [server.process], has_steps=False)
        layers["behind"] = await layer(new_pool, lambda: children(server.process))
    naps = []
    for _ in range(200):
        start = time.perf_counter()
        time.sleep(0.002)
        naps.append(time.perf_counter() - start - 0.002)
    codec, environment = MsgpackCodec(), Echo()
    seen = environment.step(EchoAction.model_validate(ACTION))
    messages = ("step", ACTION), ("observation", seen)
    sizes = [len(codec.frame([codec.encode(1, *each)] * 64)) / 64 for each in messages]
    return Costs(environment_s(), layers, mean(naps), *await workers(), of_session, *sizes)


# The simulation beside pools that are stepped ----------------------------------------------------


class TimedAction(Action):
    """How long a step takes, in seconds, and whether it computes."""

    seconds: float
    computes: bool


class Timed(Environment[TimedAction, Observation, State]):
    """Takes as long as its action demands."""

    state = State()

    def __init__(self) -> None:
        super().__init__(rubric=RegexMatch("."))

    def reset(self, seed: int | None = None) -> Observation:
        return Observation()

    def step(self, action: TimedAction) -> Observation:
        if action.computes:
            end = time.thread_time() + action.seconds
            while time.thread_time() < end:
                pass
        else:
            time.sleep(action.seconds)
        return Observation()


@dataclass(frozen=True, slots=True)
class Point:
    """A pool to step, and to simulate.

    Attributes:
        name: What its slots do.
        layer: The name of its layer.
        workers: How many workers or servers it has.
        lanes: How many steps run at the same time in each.
        steps: The seconds of all steps.
        computes: Whether they compute, or wait.
    """

    name: str
    layer: str
    workers: int
    lanes: int
    steps: Steps
    computes: bool = False

    def predict(self, costs: Costs, *, batches: bool) -> float:
        """Return the seconds that all steps should take."""
        layer, slots = costs.layers[self.layer], self.steps.shape[1]
        steps = self.steps + (0.0 if self.computes else costs.sleep_s)
        simulate = step_batch if batches else as_completed
        seconds = simulate(layer.pool(self.workers, self.lanes, slots, batches=batches), steps)
        if self.computes:
            used = self.steps.sum() + self.steps.size * (layer.step_s + layer.far_step_s)
            seconds = max(seconds, used / CORES)
        return seconds

    def new_pool(self, url: str) -> EnvPool:
        """Return the pool."""
        slots = self.steps.shape[1]
        if self.layer == "processes":
            return EnvPool(backend=ProcessBackend(Timed, slots, workers=self.workers), n=slots)
        return EnvPool(url if self.layer == "server" else Timed, n=slots)

    async def play(self, pool: EnvPool, *, batches: bool) -> float:
        """Take all steps; return the seconds."""
        table = [
            [{"seconds": each, "computes": self.computes} for each in row]
            for row in self.steps.tolist()
        ]
        await pool.reset_batch()
        start = time.perf_counter()
        if batches:
            for row in table:
                await pool.step_batch(row)
        else:
            taken = [1] * pool.n
            async for slot, _ in pool.as_completed(table[0]):
                if taken[slot] < len(table):
                    pool.send(slot, table[taken[slot]][slot])
                    taken[slot] += 1
        return time.perf_counter() - start


COMPUTING, WAITING = (100, 16), (40, 64)  # batches, and slots
POINTS = [
    Point("threads, waits 5 ms, σ = 1", "threads", 1, 64, lognormal(5e-3, 1, WAITING)),
    Point("4 processes, waits 2 ms, σ = 1", "processes", 4, 1, lognormal(2e-3, 1, WAITING)),
    Point("2 processes, computes 1 ms", "processes", 2, 1, lognormal(1e-3, 0, COMPUTING), True),
    Point("the same, σ = 1", "processes", 2, 1, lognormal(1e-3, 1, COMPUTING), True),
    Point("a server, waits 5 ms, exponential", "server", 1, 64, exponential(5e-3, WAITING)),
]


async def compare(costs: Costs) -> list[list[str]]:
    """Step each point; return rows with what was predicted and measured."""
    rows = []
    with ServerProcess(sys.executable, "benchmarks.sizing", "--serve") as server:
        for point in POINTS:
            for batches in (True, False):
                async with point.new_pool(server.url) as pool:
                    rounds = [await point.play(pool, batches=batches) for _ in range(4)]
                seconds, predicted = median(rounds[1:]), point.predict(costs, batches=batches)
                rows.append(
                    [
                        f"{point.steps.shape[1]} slots, {point.name}",
                        "`step_batch`" if batches else "`as_completed`",
                        f"{point.steps.size / predicted:,.0f}",
                        f"{point.steps.size / seconds:,.0f}",
                        f"{seconds / predicted - 1:+.0%}",
                    ]
                )
    return rows


# The page ----------------------------------------------------------------------------------------

OWN_S = 1e-3  # CPU time of an environment's step, in the examples
MACHINE, USED = 32, 0.7  # cores of a machine, and the share of their time that is planned
SLOTS, SLOW_RATE = 1_000_000, 0.1  # on a cluster, with the steps per second of each
PLAYED, RATE = 16_384, 1.0  # on one machine


def us(seconds: float) -> str:
    """Format microseconds."""
    return f"{1e6 * seconds:.1f} µs"


def size(number: float) -> str:
    """Format bytes in a suitable unit."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1))
    unit, factor = next(each for each in units if number >= each[1])
    return f"{number / factor:.3g} {unit}"


def cost_rows(costs: Costs) -> list[list[str]]:
    """Return the costs of each layer."""
    threads, processes, server, front, behind = costs.layers.values()
    return [
        ["`Environment.step`: validation, one leaf rubric", us(costs.step_s), ""],
        ["a pool in threads", us(threads.step_s), us(threads.batch_s)],
        ["a pool in processes: the caller", us(processes.step_s), us(processes.batch_s)],
        ["… a worker", us(processes.far_step_s), us(processes.far_batch_s)],
        ["a pool on a server: the caller", us(server.step_s), us(server.batch_s)],
        ["… the server", us(server.far_step_s), us(server.far_batch_s)],
        ["… a server with processes: its own", us(front.far_step_s), us(front.far_batch_s)],
        ["… the other two together", us(behind.far_step_s), us(behind.far_batch_s)],
    ]


def memory_rows(costs: Costs) -> list[list[str]]:
    """Return memory, start-up and traffic."""
    return [
        ["memory of a worker process", size(costs.worker_bytes)],
        ["memory of a slot in it", size(costs.slot_bytes)],
        ["memory of an idle session on a server", size(costs.session_bytes)],
        ["CPU time to start a worker process", f"{costs.start_s:.2f} s"],
        ["an action on the wire, in a batch of 64", size(costs.action_bytes)],
        ["an observation on the wire", size(costs.observation_bytes)],
    ]


def memory(costs: Costs, workers: int, slots: int) -> tuple[str, float]:
    """Return the memory of worker processes and their slots, and how it is computed."""
    text = f"{workers} × {size(costs.worker_bytes)} + {slots:,} × {size(costs.slot_bytes)}"
    return text, workers * costs.worker_bytes + slots * costs.slot_bytes


def traffic(costs: Costs, steps: float) -> list[str]:
    """Return the row of the network."""
    step = costs.action_bytes + costs.observation_bytes
    text = f"{steps:,.0f} × ({size(costs.action_bytes)} + {size(costs.observation_bytes)}) × 8"
    return ["network", text, f"{8 * steps * step / 1e6:,.0f} Mbit/s"]


def machine_rows(costs: Costs) -> list[list[str]]:
    """Return what sessions on one machine take."""
    steps, workers = PLAYED * RATE, MACHINE - 1
    pool, server, front = (costs.layers[each] for each in ("processes", "server", "front"))
    rate, sessions = f"{steps:,.0f}", f"{PLAYED:,}"
    text, used = memory(costs, workers, PLAYED)
    step = OWN_S + costs.step_s + pool.far_step_s
    limits = f"min({workers} / {us(step)}, 1 / {us(pool.step_s)})"

    def cores(name: str, seconds: float) -> list[str]:
        return [name, f"{rate} × {us(seconds)}", f"{steps * seconds:.2f}"]

    return [
        ["steps per second", f"{sessions} × {RATE:g}", rate],
        cores("cores for environments", OWN_S),
        cores("cores for validation and rubrics", costs.step_s),
        cores("**in processes**: cores for the workers' messages", pool.far_step_s),
        cores("… with a message for each step", pool.far_alone_s),
        cores("… of the caller's core", pool.step_s),
        cores("… with a message for each step", pool.alone_s),
        ["… memory", text, size(used)],
        ["… most steps per second", limits, f"{min(workers / step, 1 / pool.step_s):,.0f}"],
        cores("**on servers**: cores for the servers' messages", server.far_step_s),
        cores("… with a message for each step", server.far_alone_s),
        cores("… of the core of one server with processes", front.far_step_s),
        cores("… with a message for each step", front.far_alone_s),
        cores("… of the caller's core", server.step_s),
        cores("… with a message for each step", server.alone_s),
        [
            "… memory of sessions",
            f"{sessions} × {size(costs.session_bytes)}",
            size(PLAYED * costs.session_bytes),
        ],
        traffic(costs, steps),
    ]


def cluster_rows(costs: Costs) -> list[list[str]]:
    """Return what slots on a cluster take."""
    steps, pool = SLOTS * SLOW_RATE, costs.layers["processes"]
    step = OWN_S + costs.step_s + pool.far_alone_s
    machines = math.ceil(steps * step / (USED * MACHINE))
    callers, rate = math.ceil(steps * pool.alone_s / USED), f"{steps:,.0f}"
    text, used = memory(costs, machines * MACHINE, SLOTS)
    return [
        ["steps per second", f"{SLOTS:,} × {SLOW_RATE:g}", rate],
        ["cores", f"{rate} × {us(step)}", f"{steps * step:,.0f}"],
        ["machines", f"⌈{steps * step:,.0f} / ({USED:g} × {MACHINE})⌉", f"{machines}"],
        ["processes that call", f"⌈{rate} × {us(pool.alone_s)} / {USED:g}⌉", f"{callers}"],
        ["memory", text, size(used)],
        ["memory of each machine", f"{size(used)} / {machines}", size(used / machines)],
        traffic(costs, steps),
    ]


def used_share(costs: Costs, workers: int, steps: Steps) -> str:
    """Return which share of the workers' time `step_batch` and `as_completed` use."""
    layer, slots = costs.layers["processes"], steps.shape[1]
    shares = []
    for simulate in (step_batch, as_completed):
        pool = layer.pool(workers, 1, slots, batches=simulate is step_batch)
        shares.append(f"{steps.sum() / workers / simulate(pool, steps):.0%}")
    return " / ".join(shares)


def scheduling_rows(costs: Costs) -> list[list[str]]:
    """Return the shares for distributions and batch sizes."""
    draws: dict[str, Callable[[tuple[int, int]], Steps]] = {
        "all take 10 ms": partial(lognormal, 0.01, 0.0),
        "lognormal, σ = 0.5": partial(lognormal, 0.01, 0.5),
        "lognormal, σ = 1": partial(lognormal, 0.01, 1.0),
        "exponential": partial(exponential, 0.01),
    }
    return [
        [name, *(used_share(costs, 31, draw((50, slots))) for slots in (31, 62, 248, 992))]
        for name, draw in draws.items()
    ]


def worker_rows(costs: Costs) -> list[list[str]]:
    """Return the shares for numbers of workers and lengths of steps."""
    rows = []
    for seconds in (0.0001, 0.001, 0.01, 0.1):
        steps = lognormal(seconds, 1.0, (50, 256))
        shares = [used_share(costs, workers, steps) for workers in (4, 8, 16, 31, 63)]
        rows.append([f"{1000 * seconds:g} ms", *shares])
    return rows


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables() -> dict[str, str]:
    """Measure, and return the page's tables by name."""
    costs = asyncio.run(measure())
    compared = asyncio.run(compare(costs))
    needs = ["", "computed as", "takes"]
    calls = ["pool", "call", "predicted steps/s", "measured", "difference"]
    processes = ["mean step, σ = 1", "4 processes", "8", "16", "31", "63"]
    return {
        "costs": markdown(["CPU time of", "each step", "each message"], cost_rows(costs)),
        "memory": markdown(["", ""], memory_rows(costs)),
        "machine": markdown(needs, machine_rows(costs)),
        "cluster": markdown(needs, cluster_rows(costs)),
        "scheduling": markdown(["", "31 slots", "62", "248", "992"], scheduling_rows(costs)),
        "workers": markdown(processes, worker_rows(costs)),
        "compared": markdown(calls, compared),
    }


def main() -> None:
    """Print the tables, or write them into the page."""
    served = {
        "--serve": lambda: create_app(Timed),
        "--serve-in-processes": lambda: create_app(Echo, processes=2),
    }
    if sys.argv[1:] and sys.argv[1] in served:
        serve(served[sys.argv[1]](), port=0, ready=lambda url: print(url, flush=True))
        return
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        start, end = (MARKERS.format(which, name) for which in ("start", "end"))
        print(start, table, end, sep="\n", end="\n\n")
        before, rest = page.split(f"{start}\n", 1)
        page = f"{before}{start}\n{table}\n{end}{rest.split(end, 1)[1]}"
    if "--write" in sys.argv:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
