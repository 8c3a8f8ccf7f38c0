"""Small environments and rubrics of which these tests make theirs."""

import asyncio
import functools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from guerdon import Action, Environment, Observation, Rubric, Sequential, State

SOON = 20  # seconds after which what should happen is taken not to happen


def unsigned(metadata):
    """The metadata of an observation, without the fingerprint of the reward that scored it."""
    return {name: value for name, value in metadata.items() if name != "reward_fingerprint"}


class Move(Action):
    value: float = 1.0


class Board(Observation):
    value: float = 0.0


class Value(Rubric):
    """The action's value."""

    def forward(self, action, observation):
        return action.value


class Half(Rubric):
    def forward(self, action, observation):
        return 0.5


class AsyncHalf(Rubric):
    async def forward(self, action, observation):
        await asyncio.sleep(0)
        return 0.5


class Down(Rubric):
    def forward(self, action, observation):
        raise OSError("the judge is down")


class AsyncDown(Rubric):
    async def forward(self, action, observation):
        await asyncio.sleep(0)
        raise OSError("the judge is down")


class World(Environment[Move, Board, State]):
    """The least that an environment can be; its steps are scored by `score`."""

    rubric_of = Value

    def __init__(self, rubric=None):
        super().__init__(rubric=self.rubric_of() if rubric is None else rubric)
        self.episode = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._reset_rubric()
        self.episode = State(episode_id=episode_id)
        return Board(metadata={"seed": seed, **kwargs})

    def step(self, action, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        return self.score(action, Board(value=action.value))

    @property
    def state(self):
        return self.episode


class Blocks(World):
    """Blocks in every step whose action's value is negative; made by the fixture `blocking`.

    Attributes:
        gate: Lets the blocked go on.
        notes: What has happened to all environments of the class, in order.
        begun: Released whenever a step begins to block.
        closes: Released whenever one was closed.
    """

    def __init__(self):
        super().__init__()
        self.notes.append("made")

    def step(self, action, timeout_s=None, **kwargs):
        if action.value < 0:
            self.notes.append("blocks")
            self.begun.release()
            assert self.gate.wait(SOON)
            self.notes.append("goes on")
        return super().step(action)

    def close(self):
        self.notes.append("closed")
        self.closes.release()


class Deed(Action):
    do: str = "nothing"
    value: float = 1.0


class Served(Environment[Deed, Board, State]):
    """Does what its action names, also to itself; `world_server` serves it.

    Attributes:
        gate: Ends the steps that hang.
    """

    gate = threading.Event()

    def __init__(self):
        super().__init__(rubric=Sequential(Value(), Half()))
        self.episode = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        if kwargs.get("task") == "fail":
            raise OSError("no such task")
        self.episode = State(episode_id=episode_id)
        return Board(metadata={"seed": seed, "process": os.getpid(), **kwargs})

    def step(self, action, timeout_s=None, **kwargs):
        self.episode.step_count += 1
        if action.do == "raise":
            raise OSError("the game is down")
        if action.do == "exit":
            raise SystemExit(3)
        if action.do == "die":
            os._exit(3)
        if action.do == "hang":
            self.gate.wait()
        if action.do == "fail":
            self.rubric = Sequential(Value(), Down())
        if action.do == "cheat":
            return Board.model_construct(value="no number", reward=None, metadata={}, done=False)
        board = Board(value=self.episode.step_count, done=action.do == "end")
        return self.score(action, board)

    @property
    def state(self):
        return self.episode


SERVER = """
import sys
from guerdon import create_app, serve
from guerdon.envs import ServerLimits
from tests.envs.worlds import Served
port, sessions, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None
app = create_app(Served, limits=ServerLimits(max_sessions=sessions), token=token)
serve(app, port=port, grace_s=0.1, ready=lambda url: print(url, flush=True))
"""


class Server:
    """A process that serves `Served`; to be used with ``with``."""

    def __init__(self, *, port=0, sessions=100, token=""):
        self._token = token
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port), str(sessions), token],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the server didn't start"
        self.port = int(self.url.rpartition(":")[2])

    def kill(self):
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait(SOON)
        self._process.stdout.close()

    def wait_until_empty(self):
        """Wait until it has closed every session; a client does not wait for that."""
        headers = {"Authorization": f"Bearer {self._token}"}
        ends_at = time.monotonic() + SOON
        while (
            "guerdon_sessions 0.0\n" not in httpx.get(f"{self.url}/metrics", headers=headers).text
        ):
            assert time.monotonic() < ends_at, "the server has sessions left"
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill()


@functools.cache
def lock_count():
    """A number that takes this machine 0.4 s to count to."""
    count = 10**6
    while True:
        began = time.thread_time()
        sum(range(count))
        if time.thread_time() - began > 0.4:
            return count
        count *= 2


def hold_the_lock():
    """Hold the interpreter lock for 0.4 s or more, as a bad regular expression does."""
    sum(range(lock_count()))


async def taken(semaphore):
    """Wait for what another thread releases, without blocking the loop."""
    assert await asyncio.to_thread(semaphore.acquire, timeout=SOON)
