"""A stand-in for a sandbox: two plain processes joined by a socket, which isolate nothing."""

import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from guerdon.sandbox.execution import Execution
from guerdon.sandbox.limits import Limits

STUB = "import os, sys; os.dup2({fd}, 3); sys.path.insert(0, os.getcwd()); exec(compile({source!r}, '<program>', 'exec'))"


class Plain:
    """Runs pairs, for programs that are known to be harmless."""

    name = "plain"
    promise = "nothing"

    def run_pair(self, program, checker, *, limits=None):
        limits = limits or Limits()
        began = time.monotonic()
        deadline = began + limits.seconds
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            ends = socket.socketpair()
            with ends[0], ends[1]:
                both = [
                    self._start(each, folder, end, limits)
                    for each, folder, end in zip((program, checker), (one, two), ends)
                ]
            timed_out = self._wait(both[1], deadline)
            alive = both[0].poll() is None and not timed_out
            if alive:
                time.sleep(0.01)
            for each in both:
                each.kill()
            return tuple(
                self._execution(each, limits, timed_out, time.monotonic() - began) for each in both
            )

    def _start(self, program, folder, end, limits):
        for name, content in program.files.items():
            Path(folder, name).write_bytes(content)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", STUB.format(fd=end.fileno(), source=program.source)],
            cwd=folder,
            env={"PYTHONHASHSEED": "0", "HOME": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(end.fileno(),),
        )
        process.read = {}
        process.threads = [
            threading.Thread(target=self._read, args=(process, name), daemon=True)
            for name in ("stdout", "stderr")
        ]
        for thread in process.threads:
            thread.start()
        process.stdin.write(program.stdin)
        process.stdin.close()
        return process

    def _read(self, process, name):
        process.read[name] = getattr(process, name).read()

    def _wait(self, process, deadline):
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return True
        return False

    def _execution(self, process, limits, timed_out, seconds):
        code = process.wait()
        for thread in process.threads:
            thread.join(1)
        for stream in (process.stdout, process.stderr):
            stream.close()
        said = [process.read.get(name, b"") for name in ("stdout", "stderr")]
        ending = "ok" if code == 0 else "nonzero" if code > 0 else "signal"
        ending = "output_limit" if sum(map(len, said)) > limits.output_bytes else ending
        ending = "timeout" if timed_out else ending
        texts = [each[: limits.output_bytes].decode("utf-8", "replace") for each in said]
        return Execution(ending, code, *texts, seconds=seconds)

    async def run_pair_async(self, program, checker, *, limits=None):
        return self.run_pair(program, checker, limits=limits)


@pytest.fixture(scope="session")
def sandbox():
    return Plain()
