"""The baselines of the sandbox for reward functions; none of them isolates anything.

``python -m benchmarks.sandbox_baselines once`` is a new interpreter for one call: it imports
pydantic, reads a job, calls the function, and writes the score. ``… serve`` has imported pydantic,
and forks for each job: the copy calls the function, replies over a pipe and ends, and does nothing
else. ``… serve-guerdon`` does the same with the imports of a reward function of guerdon, and with
its messages and results: the rest is the cost of isolating a call.
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
    """A message, as far as the function needs it."""

    role: str
    content: str

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.content


class Job(BaseModel):
    """What the function is called with."""

    messages: list[Turn]
    ground_truth: str


def job_of(messages: list[dict[str, str]], ground_truth: str) -> bytes:
    """A job as bytes."""
    return json.dumps({"messages": messages, "ground_truth": ground_truth}).encode()


def answer(data: bytes) -> bytes:
    """What the function answers to a job."""
    job = Job.model_validate_json(data)
    return json.dumps(brief(job.messages, job.ground_truth)).encode()


class NewInterpreter:
    """An interpreter for each call."""

    def call(self, job: bytes) -> float:
        """Have a job answered."""
        return float(_run("once", stdin=job))


class ForkServer:
    """A process that forks for each call, and does nothing else.

    Used by one thread at a time.

    Args:
        what: ``serve`` or ``serve-guerdon``.
    """

    def __init__(self, what: str = "serve") -> None:
        self._process = subprocess.Popen(
            _command(what), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def call(self, job: bytes) -> float:
        """Have a job answered."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(_LENGTH.pack(len(job)) + job)
        return float(stdout.read(100))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


def _command(what: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.sandbox_baselines", what]


def _run(what: str, *, stdin: bytes) -> bytes:
    done = subprocess.run(_command(what), input=stdin, stdout=subprocess.PIPE, check=True)
    return done.stdout


def _serve(stdin: IO[bytes], answer: Callable[[bytes], bytes]) -> None:
    while head := stdin.read(_LENGTH.size):
        job = stdin.read(_LENGTH.unpack(head)[0])
        pid = os.fork()
        if pid == 0:
            os.write(1, answer(job))
            os._exit(0)
        os.waitpid(pid, 0)


def _guerdons() -> Callable[[bytes], bytes]:
    """What answers with guerdon's own messages and results, and gives the score."""
    from guerdon import EvaluateResult, Message, RewardFunction

    function, messages = RewardFunction(brief), TypeAdapter(list[Message])

    def score(data: bytes) -> bytes:
        job = json.loads(data)
        given = messages.validate_python(job["messages"])
        result: EvaluateResult = function(given, job["ground_truth"])
        text = result.model_dump_json()
        return json.dumps(EvaluateResult.model_validate_json(text).score).encode()

    return score


def main(what: str) -> Any:
    """Be one of them."""
    stdin = sys.stdin.buffer
    if what == "serve":
        return _serve(stdin, answer)
    if what == "serve-guerdon":
        return _serve(stdin, _guerdons())
    return os.write(1, answer(stdin.read()))


if __name__ == "__main__":
    main(*sys.argv[1:])
