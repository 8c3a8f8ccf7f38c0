"""`SharedConfig`: servers that fail at any point have one configuration once they are joined."""

import asyncio
import contextlib
import random

import pytest

from guerdon.envs.client import shared_config
from guerdon.envs.client.shared_config import SharedConfig
from guerdon.errors import (
    ClientTimeoutError,
    ConfigConflictError,
    ConnectionLostError,
    GuerdonError,
    RewardConfigError,
    ServerError,
)

FAULTS = ["unreachable", "unanswered", "answer lost", "late", "refused", "failed", "restarted"]


class Server:
    """Has a weight, and the faults that the test sets."""

    def __init__(self, url, **options):
        self.base_url = url
        self.fault, self.is_permanent = "", False
        self.restart()

    def restart(self):
        self.weight, self.changes = 1.0, []

    @property
    def config(self):
        entries = [{"name": "a", "weight": self.weight}]
        version = f"{len(self.changes)}-{hash(tuple(self.changes))}"
        return {"version": version, "per_turn": entries, "episode_end": [], "progress": {}}

    async def get_config(self):
        await asyncio.sleep(0)
        if self.fault == "unreachable":
            raise ConnectionLostError("unreachable")
        return self.config

    def apply(self, change):
        if change["version"] != self.config["version"]:
            raise ConfigConflictError("changed")
        weight = change["weights"]["a"] if "weights" in change else change["per_turn"][0]["weight"]
        if weight != self.weight:
            self.changes.append((self.weight, weight))
            self.weight = weight
        return {"status": "ok", "config": self.config}

    async def update_config(self, change):
        await asyncio.sleep(0)
        fault = self.fault
        if not self.is_permanent:
            self.fault = ""
        if fault == "answer lost":
            self.apply(change)
        if fault == "late":
            asyncio.get_running_loop().create_task(self.apply_late(change))
        if fault == "restarted":
            self.restart()
            self.lose()
        if fault == "refused" and "weights" in change:
            raise RewardConfigError("too heavy")
        if fault == "failed":
            raise ServerError("failed", code="500")
        if fault not in ("", "refused"):
            raise ClientTimeoutError(fault, seconds=1.0)
        return self.apply(change)

    async def apply_late(self, change):
        for _ in range(random.randrange(9)):
            await asyncio.sleep(0)
        with contextlib.suppress(ConfigConflictError):
            self.apply(change)

    async def close(self):
        pass


async def settle():
    for _ in range(12):
        await asyncio.sleep(0)


async def play(count):
    lost = set()
    shared = SharedConfig([f"http://{place}" for place in range(count)], lost=lost.add)
    servers = shared._servers
    for place, server in enumerate(servers):
        server.lose = lambda place=place: lost.add(place)
        await shared.join(place)
    present = {1.0}  # the weights that may be those of all servers
    for _ in range(20):
        for server in servers:
            server.fault = random.choice([*FAULTS, *[""] * 5])
            server.is_permanent = server.fault != "restarted" and random.random() < 0.5
        weight = float(random.randrange(2, 9))
        updating = asyncio.ensure_future(shared.update({"weights": {"a": weight}}))
        if random.random() < 0.2:
            await asyncio.sleep(0)
            updating.cancel()
        with contextlib.suppress(GuerdonError, asyncio.CancelledError):
            await updating
            present = {weight}
        if updating.cancelled():
            present |= {weight}
            while shared._updates:
                await asyncio.sleep(0)
        for place in list(lost):
            with contextlib.suppress(GuerdonError):
                await shared.join(place)
                lost.discard(place)
        await settle()
        connected = {each.weight for place, each in enumerate(servers) if place not in lost}
        assert len(connected) < 2
        assert connected <= present
        present = connected or present
    for server in servers:
        server.fault = ""
    await shared.update({"weights": {"a": 9.0}})
    assert [each.weight for each in servers] == [9.0] * count


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shared_config_gives_connected_servers_one_configuration_despite_any_faults(
    count, monkeypatch
):
    monkeypatch.setattr(shared_config, "HTTPEnvClient", Server)
    for seed in range(60):
        random.seed(seed)
        asyncio.run(play(count))
