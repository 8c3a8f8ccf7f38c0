"""The baselines of the sandbox for reward functions, without any isolation.

``python -m benchmarks.sandbox_baselines once`` is a new interpreter for one call: it imports
pydantic, reads a job, calls the function, and writes the score. ``… serve`` imports pydantic once
and forks for each job; the child calls the function, replies over a pipe and exits. The mode
``serve-guerdon`` does the same with the imports, messages and results of a reward function of
guerdon; the remaining difference is the cost of isolating a call.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, Self

from pydantic import BaseModel, TypeAdapter

from benchmarks.sandbox_reward import brief

_LENGTH = struct.Struct("!I")


class Turn(BaseModel):
    """The part of a message that the function reads."""

    role: str
    content: str

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.content


class Job(BaseModel):
    """The arguments of a call."""

    messages: list[Turn]
    ground_truth: str


def job_of(messages: list[dict[str, str]], ground_truth: str) -> bytes:
    """Return a job as bytes."""
    return json.dumps({"messages": messages, "ground_truth": ground_truth}).encode()


def answer(data: bytes) -> bytes:
    """Return the function's score of a job."""
    job = Job.model_validate_json(data)
    return json.dumps(brief(job.messages, job.ground_truth)).encode()


class NewInterpreter:
    """Starts a new interpreter for each call."""

    def call(self, job: bytes) -> float:
        """Return the score of a job."""
        return float(_run("once", stdin=job))


class ForkServer:
    """A process that forks for each call. Not thread-safe.

    Args:
        mode: ``serve`` or ``serve-guerdon``.
    """

    def __init__(self, mode: str = "serve") -> None:
        self._process = subprocess.Popen(
            _command(mode), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def call(self, job: bytes) -> float:
        """Return the score of a job."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(_LENGTH.pack(len(job)) + job)
        return float(stdout.read(100))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


def _command(mode: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.sandbox_baselines", mode]


def _run(mode: str, *, stdin: bytes) -> bytes:
    done = subprocess.run(_command(mode), input=stdin, stdout=subprocess.PIPE, check=True)
    return done.stdout


def _serve(stdin: IO[bytes], answer: Callable[[bytes], bytes]) -> None:
    while head := stdin.read(_LENGTH.size):
        job = stdin.read(_LENGTH.unpack(head)[0])
        pid = os.fork()
        if pid == 0:
            os.write(1, answer(job))
            os._exit(0)
        os.waitpid(pid, 0)


def _guerdon_answer() -> Callable[[bytes], bytes]:
    """Return a function that answers with guerdon's messages and results."""
    from guerdon import EvaluateResult, Message, RewardFunction

    function, messages = RewardFunction(brief), TypeAdapter(list[Message])

    def score(data: bytes) -> bytes:
        job = json.loads(data)
        read = messages.validate_python(job["messages"])
        result: EvaluateResult = function(read, job["ground_truth"])
        text = result.model_dump_json()
        return json.dumps(EvaluateResult.model_validate_json(text).score).encode()

    return score


def main(mode: str) -> Any:
    """Run one of the baselines."""
    stdin = sys.stdin.buffer
    if mode == "serve":
        return _serve(stdin, answer)
    if mode == "serve-guerdon":
        return _serve(stdin, _guerdon_answer())
    return os.write(1, answer(stdin.read()))


if __name__ == "__main__":
    main(*sys.argv[1:])
