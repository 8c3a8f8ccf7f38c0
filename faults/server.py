"""A server, and clients that are killed, cut off, slow and malicious."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from benchmarks.client_faults import (
    FAST,
    HANDSHAKE,
    WITHOUT_SESSION,
    Connection,
    half_a_request,
    never_reads,
    silent,
)
from faults import worlds
from faults.counts import EITHER, Ledger, choose, tasks_left
from guerdon import GenericEnvClient, HTTPEnvClient, create_app
from guerdon.envs import ASGITransport
from guerdon.errors import ClientTimeoutError, EnvError, GuerdonError

ROOT = Path(__file__).resolve().parent.parent
# Rounds, each with a server of its own, and the steps of one of its clients.
ROUNDS = 6
STEPS = 120
STEP_S, IDLE_S, STOP_S, CLIENT_S = 4.0, 8.0, 20.0, 60.0
LATE_S = 4.0  # by which a busy machine may notice a silent session late
LIMITS = f"--step-timeout {STEP_S} --max-message-mb 0.25 --grace 10"
# Not for pools: slots are silent while a process of others starts, which takes long under load.
IDLE = f"--idle-timeout {IDLE_S}"
WORLDS = {
    "World": [*worlds.ENVIRONMENT, *worlds.REWARD],
    "AsyncWorld": [*worlds.ENVIRONMENT, "gate raises", *worlds.JUDGE],
}
IMPATIENT_S = 0.02  # the timeout of a client that doesn't wait


def run(ledger: Ledger, size: float) -> None:
    """Serve each kind of environment."""
    worlds.taken.clear()
    asyncio.run(_run(ledger, max(2, round(ROUNDS * size))))
    ledger.take(worlds.taken)
    ledger.take(map(int, (ledger.folder / "taken").read_text().split()))


async def _run(ledger: Ledger, rounds: int) -> None:
    for number in range(0, rounds, len(WORLDS)):
        async with asyncio.TaskGroup() as group:
            for place, world in enumerate(WORLDS):
                group.create_task(_play_round(ledger, number + place, world))
    ledger.left += tasks_left()


async def _play_round(ledger: Ledger, number: int, world: str) -> None:
    players = Players(ledger, number, WORLDS[world])
    server = Server(ledger, world, IDLE)
    await server.start()
    try:
        await players.play_all(server)
        await server.settle()
        await players.restart(server, kills=number % 4 in (1, 2))
        await server.stop()
    finally:
        server.kill()
    await players.in_process(getattr(worlds, world))


class Server:
    """``guerdon serve`` in a process.

    Args:
        ledger: Its folder has the file in which the environments record their steps.
        world: The environment's class.
        options: Further options of the command.
        hang_s: Seconds for which an environment hangs.
    """

    def __init__(
        self, ledger: Ledger, world: str, options: str = "", *, hang_s: float = 10.0
    ) -> None:
        self._ledger, self._spec = ledger, f"faults/worlds.py:{world}"
        self._options, self._hang_s = f"{LIMITS} {options}".split(), hang_s
        self._process: subprocess.Popen[str] | None = None
        self._descriptors = 0
        self.url, self.port = "", 0

    async def start(self) -> None:
        """Start it, after the first time at the same port."""
        command = ["guerdon", "serve", self._spec, "--port", str(self.port), *self._options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={
                **os.environ,
                "FAULTS_TAKEN": str(self._ledger.folder / "taken"),
                "FAULTS_HANG_S": str(self._hang_s),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        self.url = line.split()[-1]
        self.port = int(self.url.rpartition(":")[2])
        async with HTTPEnvClient(self.url) as http:
            await http.step({"ticket": 0})  # opens what the process keeps, such as event loops
        self._descriptors = self._count()

    @property
    def process(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def _count(self) -> int:
        return len(os.listdir(f"/proc/{self.process}/fd"))

    async def settle(self) -> None:
        """Wait until sessions, hanging environments and descriptors are those of the start."""
        async with HTTPEnvClient(self.url) as http:
            for _ in range(int(STOP_S / 0.1)):
                metrics = await http.get("/metrics")
                names = r"^(guerdon_(?:sessions|hanging_environments) .*[1-9].*)$"
                left = re.findall(names, metrics, re.MULTILINE)
                more = self._count() - self._descriptors - 1  # without that of `http`
                if not left and more <= 0:
                    return
                await asyncio.sleep(0.1)
        self._ledger.left += [f"server: {each}" for each in left]
        self._ledger.left += [f"server: {more} descriptors"] * (more > 0)

    async def stop(self, *, kills: bool = False) -> None:
        """End it by SIGTERM or SIGKILL; it has to exit with 0 after SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL if kills else signal.SIGTERM)
        code = await asyncio.to_thread(self._process.wait, STOP_S)
        if code != (-signal.SIGKILL if kills else 0):
            self._ledger.left.append(f"server: ended with exit code {code}")

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.stdout is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class Players:
    """The clients of one server.

    Args:
        ledger: The ledger.
        round: The number of the server, part of each client's name.
        faults: The faults of its environments.
    """

    def __init__(self, ledger: Ledger, round: int, faults: list[str]) -> None:
        self.ledger, self.round = ledger, round
        self.faults = {"": 60.0} | dict.fromkeys(faults, 30 / len(faults))
        self.faults |= dict.fromkeys(worlds.HARMLESS, 4.0)
        self.clients = 0

    def name(self) -> int:
        """Return the number of a new client, unique in all rounds."""
        self.clients += 1
        return 1_000_000 * (self.round + 1) + 1000 * self.clients

    def client(self, url: str, *, timeout_s: float = CLIENT_S) -> GenericEnvClient:
        """Return a client that waits long enough for a busy machine."""
        return GenericEnvClient(url, connect_timeout_s=CLIENT_S, message_timeout_s=timeout_s)

    async def play_all(self, server: Server) -> None:
        """Run all kinds of clients at the same time."""
        proxy = Proxy(self.ledger, server.port, most_bytes=20_000)
        async with asyncio.TaskGroup() as group, proxy:
            for _ in range(6):
                group.create_task(self.play(server.url))
            proxied = [group.create_task(self.play(proxy.url, outcomes=EITHER)) for _ in range(4)]
            group.create_task(self.play(server.url, outcomes=EITHER, timeout_s=IMPATIENT_S))
            group.create_task(self.over_http(server.url))
            group.create_task(self.idle(server.url))
            for _ in range(3):
                group.create_task(self.hanging(server.url))
            group.create_task(self.oversize(server.url))
            group.create_task(self.raw(server.port))
            for _ in range(2):
                group.create_task(self.killed(server.url))
            await asyncio.wait(proxied)

    async def play(self, url: str, *, outcomes: str = "", timeout_s: float = CLIENT_S) -> None:
        """Play episodes; with `outcomes`, any answer may be missing."""
        client = self.client(url, timeout_s=timeout_s)
        try:  # it connects at its first reset, which may be cut off
            await self.steps(client, self.name(), outcomes=outcomes)
        finally:
            await client.close()

    async def steps(
        self, client: GenericEnvClient, name: int, *, outcomes: str = "", steps: int = STEPS
    ) -> None:
        """Take steps, and begin an episode after each failure."""
        episode, step = 0, 0
        for _ in range(steps):
            if not step:
                episode += 1
                if not await self.reset(client, (name, episode, 0), outcomes):
                    continue
            step += 1
            fault = choose(self.ledger, self.faults)
            is_done = await self.step(client, (name, episode, step), fault, outcomes=outcomes)
            step = 0 if is_done else step

    async def reset(self, client: GenericEnvClient, place: Any, outcomes: str) -> bool:
        """Begin an episode; returns whether it was possible."""
        ticket = self.ledger.issue(place, outcomes=outcomes, score=0.0)
        self.ledger.take([ticket])
        try:
            result = await client.reset(slot=place[0], episode=place[1])
        except GuerdonError as error:
            self.ledger.answer(ticket, None, error=error)
            return False
        self.ledger.answer(ticket, 0.0, place=tuple(result.observation["place"]))
        return True

    async def step(
        self, client: Any, place: Any, fault: str, *, outcomes: str = "", **more: Any
    ) -> bool:
        """Take a step, and record its answer; returns whether the episode is over."""
        closes = fault == "gate closes"
        outcomes = outcomes or ("number" if fault in worlds.HARMLESS else "")
        ticket = self.ledger.issue(place, fault, outcomes, score=0.0 if closes else None)
        try:
            result = await client.step({"ticket": ticket, "fault": fault, **more})
        except ClientTimeoutError as error:
            self.ledger.injected["client stops waiting"] += 1
            self.ledger.answer(ticket, None, error=error)
            # If it was sent, it is taken, and the episode goes on.
            return not error.sent
        except GuerdonError as error:
            self.ledger.answer(ticket, None, error=error)
            return True
        seen = tuple(result.observation["place"])
        if seen[0] == -1:  # of an environment that was never reset
            seen = place
        self.ledger.answer(
            ticket, result.reward, place=seen, error=result.metadata.get("reward_error", "")
        )
        return result.done

    async def over_http(self, url: str) -> None:
        """Take steps over HTTP, each in a fresh environment."""
        name = self.name()
        async with HTTPEnvClient(url, timeout_s=CLIENT_S) as client:
            for number in range(STEPS):
                await self.step(client, (name, number, 1), choose(self.ledger, self.faults))

    async def hanging(self, url: str) -> None:
        """Take a step that hangs, and go on in a new environment."""
        async with self.client(url) as client:
            name = self.name()
            for episode, fault in enumerate((worlds.HANG, "")):
                await self.reset(client, (name, episode, 0), "")
                await self.step(client, (name, episode, 1), fault)

    async def idle(self, url: str) -> None:
        """Be silent for longer than the server accepts, then step."""
        async with self.client(url) as client:
            name = self.name()
            await self.reset(client, (name, 1, 0), "")
            await asyncio.sleep(IDLE_S + LATE_S)
            await self.step(client, (name, 1, 1), "session was silent too long", outcomes="failure")
            await self.reset(client, (name, 2, 0), "")
            await self.step(client, (name, 2, 1), "")

    async def oversize(self, url: str) -> None:
        """Send a message that is too large."""
        async with self.client(url) as client:
            name = self.name()
            for episode in range(3):
                await self.reset(client, (name, episode, 0), "")
                await self.step(
                    client, (name, episode, 1), "message is too large", text="x" * 2**19
                )
        async with HTTPEnvClient(url) as http:
            await self.step(http, (name, 9, 1), "body is too large", text="x" * 2**19)

    async def raw(self, port: int) -> None:
        """Send malformed bytes, stop in the middle of a message, never read."""
        kinds = {*FAST, *WITHOUT_SESSION, never_reads} - {silent, half_a_request}  # 10 s each
        for fault in sorted(kinds, key=lambda kind: kind.__name__):
            self.ledger.injected[f"client: {fault.__name__}"] += 1
            raw = Connection(await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port)))
            raw.socket.setblocking(False)
            with contextlib.suppress(OSError, TimeoutError):
                if fault not in WITHOUT_SESSION:
                    await raw.send(HANDSHAKE)
                    await raw.read()
                await fault(raw)
            raw.socket.close()

    async def killed(self, url: str) -> None:
        """Kill the process of a client while it steps."""
        name = self.name()
        tickets = [
            self.ledger.issue((name, 1, step), outcomes=f"{EITHER} or nothing")
            for step in range(1, 500)
        ]
        command = [sys.executable, "-m", "faults.server", url, str(tickets[0]), str(tickets[-1])]
        client = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
        assert client.stdout is not None
        try:
            await client.stdout.readline()
            await asyncio.sleep(0.5 * self.ledger.random.random())
        finally:
            client.kill()
            await client.wait()
        self.ledger.injected["client killed"] += 1

    async def restart(self, server: Server, *, kills: bool) -> None:
        """Stop or kill the server while clients step, and start it again: they continue."""
        self.ledger.injected["server killed" if kills else "server stopped"] += 1
        async with contextlib.AsyncExitStack() as stack:
            clients = {self.name(): self.client(server.url) for _ in range(6)}
            for client in clients.values():
                await stack.enter_async_context(client)
            playing = [
                asyncio.create_task(self.steps(client, name, outcomes=EITHER, steps=60))
                for name, client in clients.items()
            ]
            await asyncio.sleep(0.1 * self.ledger.random.random())
            await server.stop(kills=kills)
            server.kill()
            await server.start()
            await asyncio.wait(playing)
            for name, client in clients.items():
                await self.reset(client, (name, 1000, 0), "")
                await self.step(client, (name, 1000, 1), "")

    async def in_process(self, world: Any) -> None:
        """Play on a server in this process."""
        app = create_app(world)
        client = GenericEnvClient(transport=ASGITransport(app))
        async with app.router.lifespan_context(app), client:
            await self.steps(client, self.name())


class Proxy:
    """Forwards connections to a server, in pieces and with delays, and cuts them in mid-frame.

    Args:
        ledger: The ledger.
        port: The server's port.
        most_bytes: Each connection is cut after a random number of bytes below this.
    """

    def __init__(self, ledger: Ledger, port: int, *, most_bytes: int | None = None) -> None:
        self.ledger, self.port, self.url = ledger, port, ""
        self._most_bytes = most_bytes
        self._left: dict[asyncio.Task[Any], float] = {}  # bytes of each connection

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self.drop()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut each connection after some more bytes."""
        for task in self._left:
            self._left[task] = self.ledger.random.randrange(2_000)

    async def drop(self) -> None:
        """Cut each connection now."""
        tasks = list(self._left)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, connection: Any, reader: Any, writer: Any) -> None:
        random = self.ledger.random
        while data := await reader.read(random.choice((7, 100, 65536))):
            self._left[connection] -= len(data)
            if self._left[connection] < 0:
                writer.write(data[: int(self._left[connection])])
                self.ledger.injected["connection cut"] += 1
                return
            if random.random() < 0.02:
                await asyncio.sleep(0.02)
            writer.write(data)

    async def _serve(self, reader: Any, writer: Any) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        most, writers, pumps = self._most_bytes, [writer], []
        self._left[connection] = self.ledger.random.randrange(most) if most else math.inf
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
            writers.append(far_writer)
            ends = ((reader, far_writer), (far_reader, writer))
            pumps = [asyncio.ensure_future(self._pump(connection, *each)) for each in ends]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            del self._left[connection]
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in writers:
                each.transport.abort()


async def _step_until_killed(url: str, first: int, last: int) -> None:
    async with GenericEnvClient(url) as client:
        await client.reset()
        print("ready", flush=True)
        for ticket in range(first, last + 1):
            await client.step({"ticket": ticket})
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(EnvError):
        asyncio.run(_step_until_killed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
