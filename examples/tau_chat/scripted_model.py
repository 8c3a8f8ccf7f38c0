"""`ScriptedModel`: a server with OpenAI's protocol whose answers are scripted.

It replaces a chat model in tests and examples that need known answers, delays and failures, and is
a real server on a real port.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

__all__ = ["Broken", "Dropped", "Failed", "Replied", "Script", "ScriptedModel"]

SOON_S = 60.0


@dataclass(frozen=True)
class Replied:
    """A reply of the model.

    Attributes:
        text: The text.
        delay_s: Seconds before the reply.
        is_held: Whether the server waits for `ScriptedModel.release` before it replies.
        finish_reason: ``"length"`` for a reply that was cut off.
        choice: Further fields of the choice, such as ``{"message": {"refusal": "…"}}``.
    """

    text: str = ""
    delay_s: float = 0.0
    is_held: bool = False
    finish_reason: str = "stop"
    choice: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """A response with a status such as 429, and optionally ``Retry-After`` or ``Location``."""

    status: int = 500
    retry_after: str | None = None
    text: str = "it failed"
    location: str | None = None


@dataclass(frozen=True)
class Broken:
    """A response with status 200 whose body is not a completion."""

    body: str = '{"choices": [{"mess'


@dataclass(frozen=True)
class Dropped:
    """The server closes the connection before or within its response."""

    within: bool = False


Answer: TypeAlias = "str | Replied | Failed | Broken | Dropped"
# Answers in order, or a function from the body of a request to its answer.
Script: TypeAlias = "Iterable[Answer] | Callable[[dict[str, Any]], Answer]"


class ScriptedModel:
    """A server on a free port of this machine, as a context manager.

    After the end of the script it answers 400, which no client retries.

    Example:
        >>> with ScriptedModel(["Hello.", Failed(429, retry_after="1"), "Hello again."]) as model:
        ...     model.endpoint.startswith("http://127.0.0.1:")
        True

    Args:
        script: The answers, or the answers of each model by its name.
        takes_schema: Whether it accepts requests for structured output.

    Attributes:
        asked: The bodies of the requests, in order.
        headers: Their headers, with names in lower case.
        connections: How many connections were opened.
        open: How many connections are open.
        at_once: The most requests at the same time.
    """

    def __init__(self, script: Script | Mapping[str, Script], *, takes_schema: bool = True) -> None:
        scripts = script if isinstance(script, Mapping) else {"": script}
        self._next = {name: _next_of(each) for name, each in scripts.items()}
        self._takes_schema = takes_schema
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = self.open = self.at_once = 0
        self.endpoint = ""
        self._under_way = 0
        self._changed = threading.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def wait_for(self, is_so: Callable[[Self], bool]) -> None:
        """Wait until a condition is true, such as ``lambda model: len(model.asked) == 2``."""
        with self._changed:
            if not self._changed.wait_for(lambda: is_so(self), SOON_S):
                raise TimeoutError(f"the condition was false for {SOON_S:g} s")

    def release(self) -> None:
        """Send the replies that wait; later ones don't wait."""
        self._loop.call_soon_threadsafe(self._released.set)

    # The server ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        started: Future[str] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="scripted-model"
        )
        self._thread.start()
        self.endpoint = started.result(SOON_S)
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _serve(self, started: Future[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped, self._released = asyncio.Event(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await self._stopped.wait()
        for _ in range(3):  # until the connections that were accepted have their tasks
            await asyncio.sleep(0)
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not in the task: one that is cancelled before it starts runs nothing.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(connections=1, open=1)
        try:
            while (request := await _read(reader)) is not None:
                self._count(request=request)
                try:
                    kept = await self._answer(request[1], reader, writer)
                finally:
                    self._count(under_way=-1)
                if not kept:
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client disconnected, or the test ended
        finally:
            self._count(open=-1)

    def _count(
        self,
        *,
        connections: int = 0,
        open: int = 0,
        under_way: int = 0,
        request: tuple[dict[str, str], dict[str, Any]] | None = None,
    ) -> None:
        with self._changed:
            self.connections += connections
            self.open += open
            if request is not None:
                self.headers.append(request[0])
                self.asked.append(request[1])
                under_way = 1
            self._under_way += under_way
            self.at_once = max(self.at_once, self._under_way)
            self._changed.notify_all()

    async def _answer(
        self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request; return whether the connection stays open."""
        if "response_format" in body and not self._takes_schema:
            answer: Answer = Failed(400, text="response_format is not supported")
        else:
            name = body.get("model", "") if "" not in self._next else ""
            answer = self._next.get(name, _unknown_model)(body)
        if isinstance(answer, str):
            answer = Replied(answer)
        if isinstance(answer, Dropped):
            if answer.within:
                writer.write(_http(200, "x" * 100)[:-50])
                await writer.drain()
            return False
        if isinstance(answer, Replied) and not await self._think(answer, reader):
            return False
        writer.write(_bytes_of(answer, body))
        await writer.drain()
        return True

    async def _think(self, answer: Replied, reader: asyncio.StreamReader) -> bool:
        """Wait until a reply is due; return whether the client is still connected."""
        if not answer.is_held and not answer.delay_s:
            return True
        waiting = asyncio.ensure_future(
            self._released.wait() if answer.is_held else asyncio.sleep(answer.delay_s)
        )
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
            return not leaving.done()
        finally:
            waiting.cancel()
            leaving.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)


def _next_of(script: Script) -> Callable[[dict[str, Any]], Answer]:
    if callable(script):
        return script
    answers = itertools.chain(script, itertools.repeat(Failed(400, text="the script has ended")))
    return lambda body: next(answers)


def _unknown_model(body: dict[str, Any]) -> Answer:
    return Failed(404, text=f"unknown model {body.get('model')!r}")


async def _read(
    reader: asyncio.StreamReader,
) -> tuple[dict[str, str], dict[str, Any]] | None:
    """Return the headers and the body of the next request; None if the client has disconnected."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return headers, json.loads(body)


def _bytes_of(answer: Replied | Failed | Broken, body: dict[str, Any]) -> bytes:
    if isinstance(answer, Broken):
        return _http(200, answer.body)
    if isinstance(answer, Failed):
        body_text = json.dumps({"error": {"message": answer.text}})
        fields = {"retry-after": answer.retry_after, "location": answer.location}
        extra = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        return _http(answer.status, body_text, extra)
    message = {"role": "assistant", "content": answer.text, **answer.choice.get("message", {})}
    choice = {"index": 0, "finish_reason": answer.finish_reason, **answer.choice}
    prompt = sum(len(str(each.get("content")).split()) for each in body.get("messages", ()))
    count = len(answer.text.split())
    usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
    completion = {
        "id": "scripted", "object": "chat.completion", "created": 0, "model": body.get("model"),
        "choices": [{**choice, "message": message}], "usage": usage,
    }  # fmt: skip
    return _http(200, json.dumps(completion))


def _http(status: int, body: str, extra: str = "") -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n{extra}"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data
