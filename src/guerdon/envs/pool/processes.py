"""`ProcessBackend`: a pool's environments in processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import IO, Any

from guerdon.envs.pool.codec import PROTOCOL, Call, Codec, Result
from guerdon.envs.pool.worker import EnvWorker
from guerdon.envs.pool.workers import Running, WorkerBackend, WorkerLink, usable_cores
from guerdon.errors import (
    GuerdonError,
    InvalidArgumentError,
    WorkerError,
)
from guerdon.sandbox.locking.syscalls import PR_SET_PDEATHSIG, prctl

__all__ = ["ProcessBackend"]

# Seconds that starting a worker may take.
START_S = 60.0
# Seconds that a process may take to end once its connection is closed, or it is killed.
END_S = 0.2

# The shared memory of a worker: two halves that are filled in turn, each once all its results were
# read. Positions count on from half to half. The records of a half begin at FIRST. Before those of
# the first are the words SLOT and SINCE, the call that the worker is in, and ENDS and the next: the
# position after the last complete record of each half. The system allocates memory when it is used.
HALF = 32 << 20
SLOT, SINCE, ENDS = range(3)
FIRST = 64
# A half is left once so much of it is used.
LEAVE = 256 << 10
# A record begins with a word, its slot times SIZES plus its length, and the next one at a word.
SIZES = 1 << 32

# Seconds between two looks of the parent at results that were not announced, as more are about to
# follow. An announcement takes the parent 0.1 ms of a core, which workers lack if there are as many
# as cores; a look takes a tenth of that. It takes what the look before has seen: by then, all that
# the worker wrote before has arrived in memory, also on processors that reorder writes.
LOOK_S = 0.004

# A message over the socket: the length of its content, and its kind. Those with calls or results
# begin with the position up to which results were read or written.
HEAD = struct.Struct("<QB")
POSITION = struct.Struct("<Q")
LOAD, CALLS, RESULTS, RECORD, LOADED, CLOSE = range(6)

# A new interpreter, so that no lock, thread or connection of this process is copied into it. Unlike
# multiprocessing's spawn it doesn't import the main module, whose classes cloudpickle sends.
PROGRAM = (
    "import json, signal, sys; signal.signal(signal.SIGINT, lambda *_: None); "
    "options = json.loads(sys.argv[1]); sys.path[:] = options.pop('path'); "
    "sys.argv[:] = options.pop('argv'); "
    "from guerdon.envs.pool.processes import main; main(**options)"
)


class ProcessBackend(WorkerBackend):
    """A pool's environments in processes of this machine, several in each.

    Example:
        >>> from guerdon import EnvPool
        >>> from guerdon.envs import ProcessBackend
        >>> def make_environment(): ...  # returns an Environment
        >>> backend = ProcessBackend(make_environment, 64, workers=4)
        >>> len(EnvPool(backend=backend, n=64))
        64

    Args:
        env: A factory, or what `guerdon serve` accepts: a folder, ``file.py:name``,
            ``module:name``, a registered name. A factory that can't be imported, such as a lambda
            or a class of a script, requires ``cloudpickle``.
        n: The number of slots.
        workers: The number of processes, at most one for each slot; by default one for each core
            that this process may use.
        threads_per_worker: How many sync environments of a process run at the same time; with 1
            they run one after the other, in its main thread. More are for environments that wait.
        cpu_affinity: Whether each process is bound to one core (on Linux).
        close_timeout_s: Seconds that closing the environments may take.

    Raises:
        InvalidArgumentError: An argument is invalid.
        LoadError: There is no such environment.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        n: int,
        *,
        workers: int | None = None,
        threads_per_worker: int = 1,
        cpu_affinity: bool = False,
        close_timeout_s: float = 10.0,
    ) -> None:
        super().__init__(
            env,
            n,
            usable_cores() if workers is None else workers,
            threads_per_worker=threads_per_worker,
            close_timeout_s=close_timeout_s,
        )
        self._at_once = 2 * usable_cores()
        if cpu_affinity and not hasattr(os, "sched_setaffinity"):
            raise InvalidArgumentError("`cpu_affinity` requires Linux")
        self._cores = sorted(os.sched_getaffinity(0)) if cpu_affinity else []

    def new_link(self, index: int) -> WorkerLink:
        """Return the connection to a new process."""
        core = self._cores[index % len(self._cores)] if self._cores else None
        return ProcessLink(self._factory, self._options, core=core)


# In the parent ---------------------------------------------------------------------------------


class ProcessLink(WorkerLink, asyncio.Protocol):
    """The connection to one worker process.

    Requests and announcements go over a pair of sockets; results through memory that both
    processes map, which survives the worker.

    Args:
        factory: Makes an environment.
        options: The arguments of `EnvWorker`.
        core: The core to which the process is bound; None for all.
    """

    def __init__(self, factory: Any, options: dict[str, Any], *, core: int | None = None) -> None:
        self._factory = factory
        self._options = options
        self._core = core
        self._codec = Codec()
        self._creator = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._transport: Any = None
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._buffer = bytearray()
        self._position = FIRST  # up to which results were read
        self._seen: list[int] = []  # the ends of the results at the last look
        self._outstanding = 0  # calls without a result
        self._look: asyncio.TimerHandle | None = None
        self._last: Running | None = None
        self._is_over = False

    async def start(self) -> None:
        """Start the process, and wait until it has loaded the factory."""
        try:
            program = self._codec.encode((self._factory, self._options))
        except GuerdonError:
            raise
        except Exception as error:
            raise InvalidArgumentError(
                f"the environment can't be sent to other processes: {error}; use a class or a "
                "function that can be imported"
            ) from error
        try:
            await self._connect()
        except OSError as error:
            raise WorkerError(
                f"a worker process can't be started: {error}; are the limits of this process too "
                "low (`ulimit -a`)?"
            ) from error
        self._write(LOAD, program)
        try:
            async with asyncio.timeout(START_S):
                await self._ready
        except TimeoutError:
            raise WorkerError(f"a worker process wasn't ready after {START_S:g} s") from None

    async def _connect(self) -> None:
        """Start the process: in this thread, as the worker ends with the thread that started it."""
        with _memory_file() as file:
            file.truncate(2 * HALF)
            memory = file.fileno()
            self._outbox = mmap.mmap(memory, 2 * HALF, access=mmap.ACCESS_READ)
            self._view = memoryview(self._outbox)
            self._words = self._view.cast("Q")
            here, there = socket.socketpair()
            with there:
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: self, sock=here)
                options = {
                    "path": [each for each in sys.path if isinstance(each, str)],
                    "argv": sys.argv,
                    "channel": there.fileno(),
                    "memory": memory,
                    "parent": os.getpid(),
                    "core": self._core,
                }
                self._process = subprocess.Popen(
                    # -P: the standard library is not searched for in the working directory.
                    [sys.executable, "-P", "-c", PROGRAM, json.dumps(options)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(there.fileno(), memory),
                    process_group=0,  # which the processes that environments start belong to
                )
        # If this process ends by SIGKILL, it ends the worker's processes. It is not the worker's
        # child, for which an environment could wait.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", "read _; kill -9 0"],
            stdin=subprocess.PIPE,
            process_group=self._process.pid,
        )

    def send(self, calls: Sequence[Call]) -> None:
        """Send calls in one message."""
        content, failed = self._codec.encode_calls(calls)
        self._write(CALLS, POSITION.pack(self._position) + content)
        self._outstanding += len(calls) - len(failed)
        self._look_soon()
        self.received(failed)

    def _write(self, kind: int, content: bytes = b"") -> None:
        self._transport.write(HEAD.pack(len(content), kind) + content)

    @property
    def running(self) -> Running | None:
        """The call that the process is in, or was in."""
        if self._is_over or self._process is None:
            return self._last
        slot, since = self._words[SLOT], self._words[SINCE]
        return Running(slot - 1, since / 1e9) if slot else None

    # What the process sends

    def connection_made(self, transport: Any) -> None:
        """Keep the connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived."""
        for kind, content in _messages(self._buffer, data):
            self._handle(kind, content)

    def _handle(self, kind: int, content: bytes) -> None:
        if kind == RESULTS:
            self.received(self._results(*POSITION.unpack(content)))
        elif kind == RECORD:
            slot, data = pickle.loads(content)
            self._outstanding -= 1
            self.received([self._codec.read_result(slot, data)])
        elif not self._ready.done():
            if content:
                error = self._codec.unpack_error(*self._codec.decode(content))
                self._ready.set_exception(error)
            else:
                self._ready.set_result(None)

    def _results(self, end: int) -> Iterator[Result]:
        """Read the results up to a position."""
        read, view, words = self._codec.read_result, self._view, self._words
        self._position = max(self._position, end // HALF * HALF + FIRST)
        while self._position < end:
            start = self._position % (2 * HALF)
            slot, size = divmod(words[start >> 3], SIZES)
            self._position += (size + 15) & ~7
            self._outstanding -= 1
            yield read(slot, view[start + 8 : start + 8 + size])

    def _look_soon(self) -> None:
        if self._look is None and self._outstanding:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_results)

    def _look_at_results(self) -> None:
        """Take the results of which the last look has seen the end."""
        self._look = None
        seen, self._seen = self._seen, self._ends()
        self._take(seen)
        if not self._is_over:
            self._look_soon()

    def _ends(self) -> list[int]:
        return sorted(self._words[ENDS : ENDS + 2])

    def _take(self, ends: list[int]) -> None:
        for end in ends:
            if end > self._position:
                self.received(self._results(end))

    # The end

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the process, unless it was expected."""
        self._lost.set_result(None)
        if self._is_over:
            return
        how = f"the worker process {_how_ended(self._process)}"
        is_ready = self._ready.done()
        self._end()
        if is_ready:
            self.ended(how)
        else:
            self._ready.set_exception(WorkerError(f"{how} before it was ready"))

    def kill(self) -> None:
        """End the process at once."""
        if self._is_mine:
            self._end()

    @property
    def _is_mine(self) -> bool:
        """Whether the process runs, and this one is not a fork of the one that started it."""
        return not self._is_over and self._creator == os.getpid()

    def _end(self) -> None:
        """Kill the process, take the results that it hasn't announced, and release everything."""
        self._last, self._is_over = self.running, True
        if self._look is not None:
            self._look.cancel()
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                self._transport.abort()
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._guard is not None:
            with self._guard:  # closes its input, and waits
                pass
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:  # it has much memory to release
            threading.Thread(target=self._process.wait, daemon=True).start()
        self._take(self._ends())
        for release in (self._words.release, self._view.release, self._outbox.close):
            with contextlib.suppress(BufferError):  # the traceback of an error still uses it
                release()

    async def close(self, timeout_s: float) -> None:
        """Close the process's environments, and end it."""
        try:
            if self._is_mine:
                self._write(CLOSE)
                await asyncio.wait([self._lost], timeout=timeout_s + 1.0)
        finally:  # also if it is cancelled
            self.kill()


def _how_ended(process: subprocess.Popen[bytes] | None) -> str:
    """How a process ended whose connection is closed."""
    try:
        code = process.wait(END_S) if process is not None else 0
    except subprocess.TimeoutExpired:
        return "closed its connection"
    if code >= 0:
        return f"exited with code {code}"
    name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _memory_file() -> IO[bytes]:
    """Return a file in memory, where the system has any, without a name."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("guerdon-results"), "w+b")
    return tempfile.TemporaryFile()


# In both ---------------------------------------------------------------------------------------


def _messages(buffer: bytearray, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Add what has arrived to a buffer, and take the complete messages from it."""
    buffer += data
    while len(buffer) >= HEAD.size:
        size, kind = HEAD.unpack_from(buffer)
        end = HEAD.size + size
        if len(buffer) < end:
            return
        content = bytes(buffer[HEAD.size : end])
        del buffer[:end]
        yield kind, content


# In the worker ---------------------------------------------------------------------------------


def main(channel: int, memory: int, parent: int, core: int | None) -> None:
    """Run a worker process, until its parent closes it or ends.

    Args:
        channel: The descriptor of the connection.
        memory: The descriptor of the shared memory.
        parent: The process that started it.
        core: The core to which it is bound; None for all.
    """
    if sys.platform == "linux":  # even if the parent's other processes keep the guard waiting
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    connection = socket.socket(fileno=channel)
    # A process that an environment forks must not keep the connection open after this one's end.
    os.register_at_fork(after_in_child=connection.close)  # no effect in forks of that process
    if core is not None:
        os.sched_setaffinity(0, {core})
    asyncio.run(_Process(connection, memory).run())


class _Process:
    """A worker process: reads calls from the connection, and writes results to the memory."""

    def __init__(self, channel: socket.socket, memory: int) -> None:
        self._channel = channel
        self._codec = Codec()
        self._words = memoryview(mmap.mmap(memory, 2 * HALF)).cast("Q")
        # Without the last word: a record that ended with it would be one of the next half.
        self._halves = [mmap.mmap(memory, HALF - 8, offset=each) for each in (0, HALF)]
        self._picklers = [self._codec.pickler(half) for half in self._halves]
        os.close(memory)
        self._position = self._announced = FIRST
        self._buffer = bytearray()

    async def run(self) -> None:
        """Run the worker until it is closed."""
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._worker: EnvWorker | None = None
        self._loop.add_reader(self._channel, self._read)
        await self._closed
        if self._worker is not None:
            await self._worker.close()
            self._announce()
        self._channel.shutdown(socket.SHUT_WR)  # even if an environment's thread goes on

    def _read(self) -> None:
        data = self._channel.recv(1 << 16)
        if not data:
            os._exit(1)  # the parent has ended
        for kind, content in _messages(self._buffer, data):
            if kind == LOAD:
                self._load(content)
            elif kind == CALLS:
                self._call(content)
            else:
                self._closed.set_result(None)

    def _load(self, program: bytes) -> None:
        self._worker, failed = EnvWorker.load(self._codec, program, self._emit, self._begin)
        self._send(LOADED, failed or b"")
        if failed is not None:
            self._closed.set_result(None)

    def _call(self, content: bytes) -> None:
        assert self._worker is not None
        (read,) = POSITION.unpack_from(content)
        # The parent reads this half, so that it has read all of the other.
        if read // HALF == self._position // HALF and self._position % HALF > LEAVE:
            self._announce()
            self._position = self._announced = (read // HALF + 1) * HALF + FIRST
        self._worker.start_encoded(self._codec, memoryview(content)[POSITION.size :])
        self._announce()

    def _begin(self, slot: int | None) -> None:
        self._words[SINCE] = monotonic_ns()
        self._words[SLOT] = 0 if slot is None else slot + 1

    def _emit(
        self, slot: int, value: Any, error: BaseException | None = None, means: Any = None
    ) -> Exception | None:
        """Write a result, which is complete once its end is committed."""
        number, start = divmod(self._position, HALF)
        half = self._halves[number % 2]
        try:
            half.seek(start + 8)
            packed = self._codec.pack_result(value, error, means)
            self._codec.write(self._picklers[number % 2], packed)
            size = half.tell() - start - 8
        except Exception:  # there is no room for it, or it can't be pickled there
            self._announce()
            data, failure = self._codec.encode_result(value, error, means)
            self._send(RECORD, pickle.dumps((slot, data), PROTOCOL))
            return failure
        is_first = self._position == self._announced
        self._words[self._position % (2 * HALF) >> 3] = slot * SIZES + size
        self._position += (size + 15) & ~7
        self._words[ENDS + number % 2] = self._position
        if is_first:
            self._loop.call_soon(self._announce)
        return None

    def _announce(self) -> None:
        """Send the position after the new results, if there are any."""
        if self._position > self._announced:
            self._announced = self._position
            self._send(RESULTS, POSITION.pack(self._position))

    def _send(self, kind: int, content: bytes = b"") -> None:
        self._channel.sendall(HEAD.pack(len(content), kind) + content)
