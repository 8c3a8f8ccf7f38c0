"""A process full of clients with bad manners; `Contestant` drives it.

``python -m benchmarks.ugly_clients guerdon URL`` speaks HTTP and WebSocket by hand over raw
sockets, so that it can stop at any byte (`benchmarks.ugly_ways`). Its clients come from many
addresses of the loopback: the ports of one would run out.
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

from benchmarks.open_files import raise_file_limit
from benchmarks.ugly_ways import (
    FAST,
    HANDSHAKE,
    SLOW,
    STRANGERS,
    Line,
    Way,
    half_a_request,
    never_reads,
    silent,
)

ADDRESSES = 200
# How many sessions are open at the same time; those that take their time come on top.
AT_ONCE = 128
SLOW_AT_ONCE = 256
BIND_ADDRESS_NO_PORT = 24  # Linux: ports are chosen when connecting, one for each address


class _Crowd:
    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._server = (address.hostname or "", address.port or 80)
        self._next = 0
        self._held: list[socket.socket] = []
        self._random = random.Random(7)
        self._came: Counter[str] = Counter()
        self._odd: Counter[str] = Counter()

    async def drop(self, number: int) -> dict[str, Any]:
        """Open so many sessions, and drop each in one of the ways."""
        self._came.clear()
        self._odd.clear()
        thousand = [way for way, count in (FAST | SLOW).items() for _ in range(count)]
        self._random.shuffle(thousand)
        ways = [thousand[place % 1000] for place in range(number)]
        for stranger, count in STRANGERS.items():
            ways += [stranger] * (number * count // 1000)
        self._random.shuffle(ways)
        free = asyncio.Semaphore(AT_ONCE)
        patient = asyncio.Semaphore(SLOW_AT_ONCE)
        slow = {*SLOW, silent, half_a_request}
        async with asyncio.TaskGroup() as group:
            for way in ways:
                places = patient if way in slow else free
                await places.acquire()
                group.create_task(self._one(way, places))
        return {"came": dict(self._came), "odd": dict(self._odd)}

    async def hold(self, number: int) -> dict[str, Any]:
        """Opens connections that send nothing, or half a request, and keeps them."""
        loop = asyncio.get_running_loop()
        for place in range(number):
            opened = await self._connect()
            self._held.append(opened)
            if place % 2:
                await loop.sock_sendall(opened, HANDSHAKE[:90])
        return {"held": len(self._held)}

    async def let_go(self, number: int) -> dict[str, Any]:
        """Close them."""
        for each in self._held:
            each.close()
        self._held.clear()
        return {}

    async def _one(self, way: Way, places: asyncio.Semaphore) -> None:
        name = way.__name__
        opened: socket.socket | None = None
        try:
            opened = await self._connect(small=way is never_reads)
            line = Line(opened)
            if way not in STRANGERS:
                await line.send(HANDSHAKE)
                answer = await line.read()
                if not answer.startswith(b"HTTP/1.1 101"):
                    self._odd[f"{name}: {answer[:40]!r}"] += 1
                    return
                if b"CAPACITY" in answer:
                    self._odd[f"{name}: no place"] += 1
            self._came[name] += 1
            await way(line)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server was faster
        except (OSError, TimeoutError) as error:
            self._odd[f"{name}: {error!r:.60}"] += 1
        finally:
            places.release()
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
    crowd = _Crowd(url)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            order = json.loads(line)
            answer = runner.run(getattr(crowd, order["task"])(order["number"]))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
