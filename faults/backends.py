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
    """

    alone: tuple[str, ...] = (worlds.HANG, worlds.HELD)
    shared: tuple[str, ...] = ()
    harmless: tuple[str, ...] = (*worlds.HARMLESS, worlds.LARGE)
    is_disturbed = False

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
    """Environments on a server, which is killed, and whose connections are cut."""

    alone = (worlds.HANG,)
    shared = (worlds.HELD,)
    is_disturbed = True
    options = ""

    @contextlib.asynccontextmanager
    async def running(self, world: str) -> AsyncIterator[None]:
        """Start the server, and what cuts connections."""
        self.server = Server(self.ledger, world, self.options, hang_s=REMOTE_HANG_S)
        try:
            await self.server.start()
            async with Proxy(self.ledger, self.server.port) as self.proxy:
                yield
            await self.server.settle()
            await self.server.stop()
        finally:
            self.server.kill()

    def pool(self, world: str, n: int) -> EnvPool:
        """Return a pool that reaches the server directly, or through the proxy."""
        self.is_cut = self.ledger.random.random() < 0.5
        url = self.proxy.url if self.is_cut else self.server.url
        return EnvPool(url, n=n, timeout_s=LIMIT_S)

    async def disturb(self, player: Player) -> Disturbance:
        """Kill the server, or cut connections in the middle of a frame."""
        everyone = range(player.pool.n)

        async def cut() -> None:
            self.proxy.cut()

        async def restart() -> None:
            await self.server.stop(kills=True)
            self.server.kill()
            await self.server.start()

        if self.is_cut and self.ledger.random.random() < 0.8:
            return Disturbance("connections cut", everyone, cut, self.proxy.drop)
        return Disturbance("server killed", everyone, restart)


class Processes(Backend):
    """Environments in processes of this machine, which are killed."""

    alone = ()
    shared = (*worlds.HANGS, *worlds.LETHAL)
    harmless = (*Backend.harmless, *worlds.LEAKS)
    is_disturbed = True

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
}
