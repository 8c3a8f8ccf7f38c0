"""The number of Python calls in guerdon's server for a step over ``/ws`` and a ``POST /config``.

``python -m benchmarks.call_counts [--list]`` runs the ASGI application in this process, without a
socket. With `sys.setprofile` it counts every call of a Python function of guerdon, in the event
loop and in worker threads, between the received message and the response. Resuming a coroutine
counts as a call.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import guerdon
from guerdon import (
    Action,
    Environment,
    Observation,
    Rubric,
    RubricComposer,
    State,
    create_app,
)

SOURCE = str(Path(guerdon.__file__).parent) + os.sep
WARM_UP = 5


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed: str


class Length(Rubric):
    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        return min(len(action.message) / 100, 1.0)


class Polite(Rubric):
    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        return float("please" in action.message)


class Echo(Environment[EchoAction, EchoObservation, State]):
    """Repeats the message."""

    state = State()

    def __init__(self) -> None:
        super().__init__(
            rubric=RubricComposer(
                {"length": Length(), "polite": Polite()},
                {"length": 0.5, "polite": 0.5},
            )
        )

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **more: Any
    ) -> EchoObservation:
        self._reset_rubric()
        return EchoObservation(echoed="ready")

    def step(
        self, action: EchoAction, timeout_s: float | None = None, **more: Any
    ) -> EchoObservation:
        return self.score(action, EchoObservation(echoed=action.message))


class Calls:
    """Counts calls of guerdon's functions while `is_on` is true."""

    def __init__(self) -> None:
        self.order: list[tuple[str, str]] = []
        self.is_on = False

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if self.is_on and event == "call" and code.co_filename.startswith(SOURCE):
            self.order.append((code.co_filename.removeprefix(SOURCE), code.co_qualname))

    def __enter__(self) -> Calls:
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def report(self, title: str, *, listing: bool) -> None:
        files = [file for file, _ in self.order]
        changes = sum(one != other for one, other in itertools.pairwise(files))
        print(f"{title}: {len(files)} calls, {len(set(files))} files, {changes} file changes")
        if listing:
            for (file, name), count in Counter(self.order).items():
                print(f"  {count:4} {file}:{name}")


Message = dict[str, Any]


async def count_step(app: Callable[..., Awaitable[None]]) -> Calls:
    """Count the calls of one step over a WebSocket."""
    calls = Calls()
    sent: list[Message] = []
    texts = [json.dumps({"type": "reset", "data": {"seed": 1}})]
    texts += [json.dumps({"type": "step", "data": {"message": "please"}})] * (WARM_UP + 1)
    remaining = iter([None, *texts])
    turns = asyncio.Semaphore(1)  # each message waits for the response to the previous one

    async def receive() -> Message:
        await turns.acquire()
        text = next(remaining, "")
        if not text:
            kind = "disconnect" if text == "" else "connect"
            return {"type": f"websocket.{kind}", "code": 1000}
        calls.order.clear()
        calls.is_on = True
        return {"type": "websocket.receive", "text": text}

    async def send(message: Message) -> None:
        calls.is_on = False
        sent.append(message)
        turns.release()

    scope = {
        "type": "websocket", "path": "/ws", "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "query_string": b"",
        "extensions": {"guerdon.bounded": {}},
    }  # fmt: skip
    with calls:
        await app(scope, receive, send)
    answers = [json.loads(each["text"]) for each in sent if each["type"] == "websocket.send"]
    assert answers[-1]["data"]["metadata"]["reward_components"]["polite"] == 1.0, answers[-1]
    return calls


async def count_config(app: Callable[..., Awaitable[None]]) -> Calls:
    """Count the calls of one ``POST /config`` that changes one weight."""
    calls = Calls()
    status = 0
    for weight in (0.5, 0.25, 0.75):
        body = json.dumps({"weights": {"polite": weight}}).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive(messages: Any = messages) -> Message:
            message = next(messages, None)
            if message is None:
                await asyncio.Event().wait()
            calls.order.clear()
            calls.is_on = True
            return message

        async def send(message: Message) -> None:
            nonlocal status
            calls.is_on = False
            status = message.get("status", status)

        scope = {
            "type": "http", "method": "POST", "path": "/config", "raw_path": b"/config",
            "http_version": "1.1", "scheme": "http", "root_path": "", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }  # fmt: skip
        with calls:
            await app(scope, receive, send)
        assert status == 200, status
    return calls


async def main(*, listing: bool) -> None:
    """Count the calls of both, and print the results."""
    (await count_step(create_app(Echo))).report("a step over /ws", listing=listing)
    (await count_config(create_app(Echo))).report("POST /config of one weight", listing=listing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.call_counts", description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="list every function with its number of calls"
    )
    asyncio.run(main(listing=parser.parse_args().list))
