"""`RemoteBackend`: a pool's environments on a server, a session each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from guerdon.envs.client.wire import Wire, websocket_url
from guerdon.envs.invalid import say_invalid
from guerdon.envs.pool.calls import Backend, Call
from guerdon.errors import ConnectionLostError, InvalidObservationError
from guerdon.models.observation import Observation

__all__ = ["RemoteBackend"]

# The server's own limits and the pool's clock bound an answer; the wire need not.
LONG_S = 1e6


class RemoteBackend(Backend):
    """A pool's environments on a server, a session each.

    Args:
        url: The server's address.
        n: How many slots there are.
        observation_type: What to make of observations.
        token: The server's token.
        connect_timeout_s: Seconds that connecting may take.
    """

    def __init__(
        self,
        url: str,
        n: int,
        *,
        observation_type: type[Observation],
        token: str | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._new_wire = partial(
            Wire, websocket_url(url), token=token, connect_timeout_s=connect_timeout_s
        )
        self._n = n
        self._observation_type = observation_type
        self._wires: list[Wire] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Connect every slot."""
        self._wires = [self._new_wire() for _ in range(self._n)]
        try:
            async with asyncio.TaskGroup() as group:
                for wire in self._wires:
                    group.create_task(wire.open())
        except ExceptionGroup as failed:
            await self.close()
            raise failed.exceptions[0] from None

    def submit(self, calls: Sequence[Call]) -> None:
        """Begin calls, each in its session."""
        for call in calls:
            self._begin(call, self._play(call))

    async def _play(self, call: Call) -> None:
        wire = self._wires[call.slot]
        try:
            if call.is_reset:
                if not wire.is_open or wire.is_behind:
                    await wire.open(patient=True)
                data: Any = dict(call.extra or {})
                if call.seed is not None:
                    data["seed"] = call.seed
                message = to_json({"type": "reset", "data": data})
            else:
                message = to_json({"type": "step", "data": _fields(call.action)})
            payload = await wire.ask(message, LONG_S)
            call.finish(self._observation(payload))
        except Exception as error:
            call.finish(None, error)

    def _observation(self, payload: Mapping[str, Any]) -> Observation:
        try:
            fields = dict(payload["observation"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionLostError(f"the answer has no observation: {payload!r:.80}") from error
        fields["metadata"] = payload.get("metadata") or fields.get("metadata") or {}
        fields["reward"] = payload.get("reward")
        fields["done"] = bool(payload.get("done", False))
        kind = self._observation_type
        try:
            return kind.model_validate(fields)
        except ValidationError as error:
            raise InvalidObservationError(
                f"the server sent an observation that is no {kind.__name__}: {say_invalid(error)}"
            ) from error

    def give_up(self, call: Call) -> None:
        """Drop the session; the server closes its environment, and the next reset opens another."""
        call.running.cancel()
        wire = self._wires[call.slot]
        self._wires[call.slot] = self._new_wire()
        self._begin(None, wire.drop())

    async def close(self) -> None:
        """End every session."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        wires, self._wires = self._wires, []
        await asyncio.gather(*(wire.close() for wire in wires), return_exceptions=True)

    def _begin(self, call: Call | None, playing: Any) -> None:
        task = asyncio.ensure_future(playing)
        if call is not None:
            call.running = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fields(action: Any) -> Any:
    return action.model_dump(mode="json") if isinstance(action, BaseModel) else action
