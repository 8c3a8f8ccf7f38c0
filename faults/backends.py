"""The backends of a pool, what their environments may do, and what may happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncIterator

from faults import worlds
from faults.counts import Ledger
from faults.player import LIMIT_S, Disturbance, Player
from faults.server import Proxy, Server
from guerdon import EnvPool
from guerdon.envs import ProcessBackend

WORKERS = 3
NOTICED_S = 0.1  # in which the pool has noticed that a process was killed
REMOTE_HANG_S = 3.0  # for which an environment on a server hangs, which nobody can end


class Backend:
    """Environments in threads of this process.

    Args:
        ledger: The ledger.

    Attributes:
        alone: Rare faults that only their own slots may notice.
        shared: Rare faults that all slots of the same process may notice.
        harmless: What environments may do without a failure.
        rare: Rare faults, in the order in which they are injected.
        is_disturbed: Whether something may happen to it from outside.
        has_children: Whether its processes are children of this one.
    """

    alone: tuple[str, ...] = (worlds.HANG, worlds.HELD)
    shared: tuple[str, ...] = ()
    harmless: tuple[str, ...] = (*worlds.HARMLESS, worlds.LARGE)
    is_disturbed = False
    has_children = False

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rare = deque([*self.alone, *self.shared])
        ledger.random.shuffle(self.rare)

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Run what pools of a world need."""
        yield

    def pool(self, world: str, n: int) -> EnvPool:
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

    def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool that reaches the servers directly, or through the proxies."""
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


class Processes(Backend):
    """Environments in processes of this machine, which are killed."""

    alone = ()
    shared = (*worlds.HANGS, *worlds.LETHAL)
    harmless = (*Backend.harmless, *worlds.LEAKS)
    is_disturbed = has_children = True

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Let environments hang until they are killed."""
        os.environ["FAULTS_HANG_S"] = str(worlds.LONG_S)
        yield

    def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool; environments of a process run one after the other, or in threads."""
        threads = self.ledger.random.choice([1, n])
        backend = ProcessBackend(
            getattr(worlds, world), n, workers=WORKERS, threads_per_worker=threads
        )
        return EnvPool(backend=backend, n=n, timeout_s=LIMIT_S)

    async def disturb(self, player: Player) -> Disturbance:
        """Kill a process."""
        victim = self.ledger.random.randrange(player.pool.n)

        async def kill() -> None:
            os.kill(player.processes[victim], signal.SIGKILL)
            await asyncio.sleep(NOTICED_S)  # a reset that is sent before that fails, too

        return Disturbance("process killed", player.sharing({victim}), kill)


BACKENDS: dict[str, type[Backend]] = {
    "threads": Backend,
    "processes": Processes,
    "remote": Remote,
    "servers": Servers,
}
