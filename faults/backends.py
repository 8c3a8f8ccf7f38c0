"""The backends of a pool, what their environments may do, and what may happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from faults import worlds
from faults.counts import SETTLE_S, Ledger, command, parent
from faults.player import LIMIT_S, Disturbance, Player
from faults.server import STEP_S, Proxy, Server
from guerdon import EnvPool
from guerdon.envs import ProcessBackend

WORKERS = 3
REMOTE_HANG_S = 2.0  # for which an environment on a server hangs, which nobody can end


class Backend:
    """Environments in threads of this process.

    Args:
        ledger: The ledger.

    Attributes:
        alone: Rare faults that only their own slots may notice.
        shared: Rare faults that all slots of the same process may notice.
        harmless: What environments may do without a failure.
        rare: Rare faults, in the order in which they are injected.
        noticed_s: Seconds in which the end of a process is noticed.
        is_disturbed: Whether something may happen to it from outside.
        has_children: Whether its processes are children of this one.
    """

    alone: tuple[str, ...] = (worlds.HANG, worlds.HELD)
    shared: tuple[str, ...] = ()
    harmless: tuple[str, ...] = (*worlds.HARMLESS, worlds.LARGE)
    noticed_s = 0.0
    is_disturbed = False
    has_children = False

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rare = deque([*self.alone, *self.shared])
        ledger.random.shuffle(self.rare)

    @classmethod
    @contextlib.contextmanager
    def surroundings(cls) -> Iterator[None]:
        """Run what isn't the pool's, and may leave things behind."""
        yield

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Run what pools of a world need."""
        yield

    async def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool."""
        return EnvPool(getattr(worlds, world), n=n, timeout_s=LIMIT_S)

    async def disturb(self, player: Player) -> Disturbance:
        """Return what is done next."""
        raise NotImplementedError


class Remote(Backend):
    """Environments on a server, which is killed, and whose connections are cut.

    Attributes:
        servers: How many servers there are.
        options: Further options of `guerdon serve`.
    """

    alone = (worlds.HANG,)
    shared = (worlds.HELD,)
    is_disturbed = True
    servers = 1
    options = ""

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Start the servers, and what cuts connections."""
        self._running = [
            Server(self.ledger, world, self.options, hang_s=REMOTE_HANG_S)
            for _ in range(self.servers)
        ]
        self._lost: list[Server] = []
        async with contextlib.AsyncExitStack() as stack:
            for server in self._running:
                stack.callback(server.kill)
            await asyncio.gather(*(server.start() for server in self._running))
            self._proxies = [Proxy(self.ledger, server.port) for server in self._running]
            for proxy in self._proxies:
                await stack.enter_async_context(proxy)
            yield
            await self._start_lost()
            await asyncio.gather(*(server.settle() for server in self._running))
            await asyncio.gather(*(server.stop() for server in self._running))

    async def _start_lost(self) -> None:
        lost, self._lost = self._lost, []
        await asyncio.gather(*(server.start() for server in lost))

    async def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool that reaches the servers directly, or through the proxies."""
        await self._start_lost()
        self._is_cut = self.ledger.random.random() < 0.5
        ways = self._proxies if self._is_cut else self._running
        urls = [way.url for way in ways]
        return EnvPool(urls if self.servers > 1 else urls[0], n=n, timeout_s=LIMIT_S)

    async def disturb(self, player: Player) -> Disturbance:
        """Kill a server, or cut connections in the middle of a frame."""
        await self._start_lost()
        number = self.ledger.random.randrange(self.servers)
        server, proxy = self._running[number], self._proxies[number]
        mine = set(range(player.pool.n))
        if self.servers > 1:
            mine = {slot for slot in mine if player.processes[slot] == server.process}

        async def cut() -> None:
            proxy.cut()

        async def kill() -> None:
            await server.stop(kills=True)
            server.kill()
            self._lost.append(server)
            if self.servers == 1 or self.ledger.random.random() < 0.5:
                await self._start_lost()

        moves = self.servers > 1
        if self._is_cut and self.ledger.random.random() < 0.8:
            return Disturbance("connections cut", mine, cut, proxy.drop, moves)
        return Disturbance("server killed", mine, kill, moves=moves)


class Servers(Remote):
    """Environments on several servers, one of which is killed or can't be reached."""

    servers = 3


class ServerProcesses(Remote):
    """Environments on a server with several processes, which are killed as well."""

    shared = (worlds.HELD, *worlds.LETHAL)
    # Without processes, which outlive a server that is killed.
    harmless = (*Backend.harmless, *sorted(worlds.LEAKS.keys() - {worlds.PROCESS, worlds.FORK}))
    options = f"--processes {WORKERS}"
    noticed_s = STEP_S + 1.0  # one that is stopped

    async def disturb(self, player: Player) -> Disturbance:
        """Kill one of its processes, or what may happen to any server."""
        if self.ledger.random.random() < 0.5:
            return await super().disturb(player)
        return kill_process(player)


class Processes(Backend):
    """Environments in processes of this machine, which are killed."""

    alone = (worlds.FORK,)
    shared = (*worlds.HANGS, *worlds.LETHAL)
    harmless = (*Backend.harmless, *sorted(worlds.LEAKS.keys() - {worlds.FORK}))
    noticed_s = 0.2
    is_disturbed = has_children = True

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Let environments hang until they are killed."""
        os.environ["FAULTS_HANG_S"] = str(worlds.LONG_S)
        yield

    async def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool; environments of a process run one after the other, or in threads."""
        threads = self.ledger.random.choice([1, n])
        backend = ProcessBackend(
            getattr(worlds, world), n, workers=WORKERS, threads_per_worker=threads
        )
        return EnvPool(backend=backend, n=n, timeout_s=LIMIT_S)

    async def disturb(self, player: Player) -> Disturbance:
        """Kill a process."""
        return kill_process(player)


def kill_process(player: Player) -> Disturbance:
    """Return the end of one process by SIGKILL."""
    victim = player.ledger.random.randrange(player.pool.n)

    async def kill() -> None:
        os.kill(player.processes[victim], signal.SIGKILL)
        await asyncio.sleep(player.noticed_s)  # a reset that is sent before that fails, too

    return Disturbance("process killed", player.sharing({victim}), kill)


class Ray(Processes):
    """Environments in actors of Ray, which are killed, as are their nodes."""

    has_children = False
    noticed_s = 10.0  # on a busy machine

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        import ray

        raylet = Path(ray.__file__).parent / "core/src/ray/raylet/raylet"
        # Ray keeps its connections to actors; a node that is lost is replaced.
        ledger.ignored = ("descriptor socket:", f"process {raylet}")

    @classmethod
    @contextlib.contextmanager
    def surroundings(cls) -> Iterator[None]:
        """Start a cluster of three nodes."""
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "FAULTS_HANG_S": str(worlds.LONG_S),
        }
        import ray
        from ray.cluster_utils import Cluster

        cls.node = {"object_store_memory": 100 * 2**20, "num_cpus": WORKERS}
        cls.cluster = Cluster(initialize_head=True, head_node_args=cls.node | {"num_cpus": 0})
        try:
            cls.nodes = [cls.cluster.add_node(**cls.node) for _ in range(2)]
            cls.cluster.wait_for_nodes()
            ray.init(cls.cluster.address, logging_level="ERROR", log_to_driver=False)
            yield
        finally:
            ray.shutdown()
            cls.cluster.shutdown()

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Count the actors that are left."""
        yield
        deadline = time.monotonic() + SETTLE_S
        while (left := self._actors()) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self.ledger.left += [f"actor {process}" for process in left]

    def _actors(self) -> list[int]:
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.nodes]
        return [
            process
            for process in map(int, filter(str.isdigit, os.listdir("/proc")))
            if parent(process) in raylets and "EnvActor" in command(process)
        ]

    async def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool."""
        from guerdon.envs import RayBackend

        threads = self.ledger.random.choice([1, n])
        backend = RayBackend(getattr(worlds, world), n, workers=WORKERS, threads_per_worker=threads)
        return EnvPool(backend=backend, n=n, timeout_s=LIMIT_S)

    async def disturb(self, player: Player) -> Disturbance:
        """Kill an actor, or a node with all of its actors."""
        if self.ledger.random.random() < 0.7:
            return await super().disturb(player)
        node = self.ledger.random.choice(self.nodes)
        raylet = node.all_processes["raylet"][0].process.pid
        slots = {slot for slot, each in enumerate(player.processes) if parent(each) == raylet}

        async def remove() -> None:
            await asyncio.to_thread(self.cluster.remove_node, node, allow_graceful=False)
            await asyncio.sleep(player.noticed_s)

        async def add() -> None:
            added = self.cluster.add_node(**self.node)  # in this thread, as it handles signals
            self.nodes[self.nodes.index(node)] = added
            self.cluster.wait_for_nodes()

        return Disturbance("node removed", slots, remove, add)


BACKENDS: dict[str, type[Backend]] = {
    "threads": Backend,
    "processes": Processes,
    "remote": Remote,
    "servers": Servers,
    "server processes": ServerProcesses,
    "ray": Ray,
}
