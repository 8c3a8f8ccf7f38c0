"""The template: locked, then it imports a reward function once; each call is a copy of it."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import sys
import traceback
from typing import TYPE_CHECKING, Any

from guerdon.sandbox.server.descriptors import take_over
from guerdon.sandbox.server.started import say_started
from guerdon.sandbox.server.streams import open_streams

if TYPE_CHECKING:
    from guerdon.sandbox.evaluating.calling import Callee
    from guerdon.sandbox.server.locks import Lock

__all__ = ["ENDED", "READY", "serve"]

# The descriptors of a template: the standard ones, the keeper's channel, the description of the
# function, where what it is goes, and, where it answers calls itself, their stream.
KEEPER, CONFIG, DESCRIBED, JOBS = 3, 4, 5, 6

# Those of a call: the standard ones, where the answer goes, the job, and last where it says that
# it has started.
ANSWER, JOB = 3, 4

# What it says to the keeper: that it is ready, and of each call its exit code, the seconds of
# processor time, and the bytes of memory at most. No more is done between two forks than must be:
# each page of memory that is touched here is copied.
READY, ENDED = b"ready", struct.Struct("!idQ")
MOST_FDS = 16

_LENGTH = struct.Struct("!Q")


def serve(config: dict[str, Any], channel: socket.socket, fds: list[int], lock: Lock) -> None:
    """Be the template, until the keeper closes its end.

    Args:
        config: Where modules are found, and what it may use.
        channel: The stream to the keeper.
        fds: What the function is, standard output and error, where it is described, and the
            stream of jobs where calls are answered here.
        lock: What it is locked with, before anything of the person's is imported.
    """
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(config["folder"])
    sys.path[:] = config["path"] + sys.path
    # Heavy: only here, and before the lock.
    from guerdon.sandbox.evaluating.calling import load

    lock.lock_template(config["opening"])  # needs descriptors that are closed next
    nothing = os.open(os.devnull, os.O_RDONLY)
    given = [nothing, *fds[1:3], channel.detach(), fds[0], *fds[3:]]
    kept = lock.descriptors
    last = take_over([*given, *kept])
    lock.descriptors = list(range(last + 1 - len(kept), last + 1))
    keeper = socket.socket(fileno=KEEPER)
    open_streams()
    callee = load(_whole(CONFIG))
    with open(DESCRIBED, "wb") as file:
        file.write(callee.described)
    if config["reuse"]:
        lock.lock_standing(config["limits"])
        keeper.send(READY)
        _answer_here(callee)
    else:
        lock.limit_calls(config["limits"])
        callee.warm_up()
        gc.disable()  # a call is over before there is much to collect
        gc.collect()
        gc.freeze()  # nothing of it is looked at, and so copied, in the calls
        keeper.send(READY)
        while fds := socket.recv_fds(keeper, 1, MOST_FDS)[1]:
            _fork(callee, keeper, fds, lock)
    os._exit(0)


def _fork(callee: Callee, keeper: socket.socket, fds: list[int], lock: Lock) -> None:
    """Fork a call, wait for it, and tell how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            _call(callee, fds, lock)
        finally:
            os._exit(70)
    _, status, used = os.wait4(pid, 0)  # first: what is touched before it has ended is copied
    for fd in fds:
        os.close(fd)
    code = os.waitstatus_to_exitcode(status)
    keeper.send(ENDED.pack(code, used.ru_utime + used.ru_stime, used.ru_maxrss << 10))


def _call(callee: Callee, fds: list[int], lock: Lock) -> None:
    """In a copy of the template: answer one job, and leave."""
    told = fds[-1]
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        lock.lock_function_call()
        told = take_over([nothing, *fds])
        task = _whole(JOB)
    except MemoryError:  # the job itself is larger than it may be
        say_started(told)
        os.write(2, b"MemoryError\n")
        os._exit(1)
    except BaseException as error:
        say_started(told, error)
        os._exit(70)
    say_started(told)
    try:
        answer = callee.answer(task)
        _write(ANSWER, answer)
    except BaseException:  # it answers whatever the function does, so that this is not its doing
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _answer_here(callee: Callee) -> None:
    """Answer one job after the other, without a process of its own for each."""
    with open(JOBS, "r+b", buffering=0) as stream:
        while head := _exactly(stream, _LENGTH.size):
            answer = callee.answer(_exactly(stream, _LENGTH.unpack(head)[0]))
            _write(JOBS, _LENGTH.pack(len(answer)) + answer)


def _exactly(stream: Any, length: int) -> bytes:
    """So many bytes; none where the stream has ended."""
    data = bytearray(length)
    view, got = memoryview(data), 0
    while got < length:
        count = stream.readinto(view[got:])
        if not count:
            return b""
        got += count
    return bytes(data)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _whole(fd: int) -> bytes:
    """All that stands in a file; the descriptor is closed."""
    size = os.lseek(fd, 0, os.SEEK_END)
    data = b""
    while len(data) < size:  # mostly once: the kernel reads up to 2 GB
        data += os.pread(fd, size - len(data), len(data))
    os.close(fd)
    return data
