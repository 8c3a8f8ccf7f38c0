"""A process with many faulty clients; `Contestant` controls it.

``python -m benchmarks.faulty_clients guerdon URL`` writes HTTP and WebSocket bytes to raw sockets,
so that it can stop at any byte (`benchmarks.client_faults`). The clients use many loopback
addresses, because one address has too few ports.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from benchmarks.client_faults import (
    FAST,
    HANDSHAKE,
    SLOW,
    WITHOUT_SESSION,
    Connection,
    Fault,
    half_a_request,
    never_reads,
    silent,
)
from benchmarks.open_files import raise_file_limit

ADDRESSES = 200
# The number of sessions at the same time, and of additional slow ones.
AT_ONCE = 128
SLOW_AT_ONCE = 256
BIND_ADDRESS_NO_PORT = 24  # Linux: the port is chosen when connecting


class _Clients:
    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._server = (address.hostname or "", address.port or 80)
        self._next = 0
        self._open: list[socket.socket] = []
        self._random = random.Random(7)
        self._used: Counter[str] = Counter()
        self._unexpected: Counter[str] = Counter()

    async def drop(self, number: int) -> dict[str, Any]:
        """Open sessions, and drop each with one of the faults."""
        self._used.clear()
        self._unexpected.clear()
        thousand = [fault for fault, count in (FAST | SLOW).items() for _ in range(count)]
        self._random.shuffle(thousand)
        faults = [thousand[place % 1000] for place in range(number)]
        for fault, count in WITHOUT_SESSION.items():
            faults += [fault] * (number * count // 1000)
        self._random.shuffle(faults)
        fast_slots = asyncio.Semaphore(AT_ONCE)
        slow_slots = asyncio.Semaphore(SLOW_AT_ONCE)
        slow = {*SLOW, silent, half_a_request}
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                slots = slow_slots if fault in slow else fast_slots
                await slots.acquire()
                group.create_task(self._drop_one(fault, slots))
        return {"used": dict(self._used), "unexpected": dict(self._unexpected)}

    async def open(self, number: int) -> dict[str, Any]:
        """Open connections that send nothing or half a request."""
        loop = asyncio.get_running_loop()
        for place in range(number):
            opened = await self._connect()
            self._open.append(opened)
            if place % 2:
                await loop.sock_sendall(opened, HANDSHAKE[:90])
        return {"open": len(self._open)}

    async def close(self, number: int) -> dict[str, Any]:
        """Close these connections."""
        for each in self._open:
            each.close()
        self._open.clear()
        return {}

    async def _drop_one(self, fault: Fault, slots: asyncio.Semaphore) -> None:
        name = fault.__name__
        opened: socket.socket | None = None
        try:
            opened = await self._connect(small=fault is never_reads)
            connection = Connection(opened)
            if fault not in WITHOUT_SESSION:
                await connection.send(HANDSHAKE)
                answer = await connection.read()
                if not answer.startswith(b"HTTP/1.1 101"):
                    self._unexpected[f"{name}: {answer[:40]!r}"] += 1
                    return
                if b"CAPACITY" in answer:
                    self._unexpected[f"{name}: no capacity"] += 1
            self._used[name] += 1
            await fault(connection)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server closed first
        except (OSError, TimeoutError) as error:
            self._unexpected[f"{name}: {error!r:.60}"] += 1
        finally:
            slots.release()
            if opened is not None:
                opened.close()

    async def _connect(self, *, small: bool = False) -> socket.socket:
        opened = socket.socket()
        opened.setblocking(False)
        if small:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        self._next += 1
        opened.bind((f"127.0.1.{1 + self._next % ADDRESSES}", 0))
        try:
            await asyncio.get_running_loop().sock_connect(opened, self._server)
        except BaseException:
            opened.close()
            raise
        return opened


def main() -> None:
    _, _, url = sys.argv
    raise_file_limit()
    clients = _Clients(url)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            order = json.loads(line)
            answer = runner.run(getattr(clients, order["task"])(order["number"]))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
