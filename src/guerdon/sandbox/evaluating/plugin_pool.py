"""Calls of a reward function in any `Sandbox`, as one that a package offers."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace

from guerdon.errors import SandboxError
from guerdon.sandbox.evaluating.pools import Answer
from guerdon.sandbox.evaluating.wire import MAX_REPLY
from guerdon.sandbox.execution import Execution
from guerdon.sandbox.limits import Limits
from guerdon.sandbox.protocol import Sandbox

__all__ = ["PluginPool"]

# What runs in the sandbox, where guerdon must be installed. The marker tells the answer from what
# the function prints; it protects from accidents, as what may forge an answer may do so anyway.
WRAPPER = """\
import base64, json, sys
given = json.load(sys.stdin)
sys.path.extend(given["path"])
from guerdon.sandbox.evaluating.calling import load
callee = load(base64.b64decode(given["config"]))
job = given["job"]
said = callee.described if job is None else callee.answer(base64.b64decode(job))
sys.__stdout__.flush()
sys.__stdout__.buffer.write(b"\\n" + given["marker"].encode() + base64.b64encode(said) + b"\\n")
sys.__stdout__.flush()
"""


class PluginPool:
    """Calls of one function, each a program of its own in a sandbox.

    Each loads the function anew: a sandbox that only runs programs has no warm workers.

    Args:
        sandbox: The sandbox, with guerdon installed in it; it is closed with the pool.
        config: A `Handover` as JSON.
        limits: What each call may use.
        path: Where modules are found, beside what the sandbox itself has.

    Raises:
        SandboxError: The function's side ended before it told of the function.
    """

    def __init__(
        self, sandbox: Sandbox, config: bytes, *, limits: Limits, path: Sequence[str] = ()
    ) -> None:
        self._sandbox = sandbox
        self._given = {"path": list(path), "config": base64.b64encode(config).decode()}
        self._limits = limits
        # An answer travels with what is printed, in base64.
        self._wider = replace(limits, output_bytes=limits.output_bytes + MAX_REPLY * 4 // 3 + 200)
        self.name = sandbox.name
        self.promise = sandbox.promise
        try:
            self.described = self._describe()
        except BaseException:
            self.close()
            raise

    def call(self, job: bytes) -> Answer:
        """Run a call."""
        marker, stdin = self._job(job)
        try:
            execution = self._sandbox.run(WRAPPER, stdin=stdin, limits=self._wider)
        except SandboxError as error:
            return _failed(error)
        return self._read(execution, marker)

    async def call_async(self, job: bytes) -> Answer:
        """The same; cancelled, it ends the call."""
        marker, stdin = self._job(job)
        try:
            execution = await self._sandbox.run_async(WRAPPER, stdin=stdin, limits=self._wider)
        except SandboxError as error:
            return _failed(error)
        return self._read(execution, marker)

    def close(self) -> None:
        """End all that runs."""
        self._sandbox.close()

    def _describe(self) -> bytes:
        marker, stdin = self._job(None)
        answer = self._read(self._sandbox.run(WRAPPER, stdin=stdin, limits=self._wider), marker)
        if answer.result is None:
            last = answer.execution.stderr.strip().rpartition("\n")[2]
            raise SandboxError(
                f"{self.name}: the function could not be loaded; is guerdon installed in that "
                f"sandbox? {last}".rstrip(),
                execution=answer.execution,
            )
        return answer.result

    def _job(self, job: bytes | None) -> tuple[str, bytes]:
        marker = secrets.token_hex(16)
        coded = None if job is None else base64.b64encode(job).decode()
        return marker, json.dumps({**self._given, "marker": marker, "job": coded}).encode()

    def _read(self, execution: Execution, marker: str) -> Answer:
        """The answer, taken out of what was printed."""
        before, found, after = execution.stdout.rpartition(f"\n{marker}")
        execution = replace(execution, stdout=before if found else execution.stdout)
        if len(execution.stdout) + len(execution.stderr) > self._limits.output_bytes:
            return Answer(None, replace(execution, ending="output_limit"))
        if not found:
            return Answer(None, execution)
        try:
            return Answer(base64.b64decode(after.strip(), validate=True), execution)
        except ValueError:
            return Answer(b"", execution)


def _failed(error: SandboxError) -> Answer:
    told = error.execution or Execution("sandbox_error", detail=str(error))
    return Answer(None, told)
