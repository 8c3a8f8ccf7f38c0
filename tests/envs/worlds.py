"""Small environments and rubrics of which these tests make theirs."""

import asyncio
import threading

from guerdon import Action, Environment, Observation, Rubric, State

SOON = 5  # seconds after which what should happen is taken not to happen


class Move(Action):
    value: float = 1.0


class Board(Observation):
    value: float = 0.0


class Value(Rubric):
    """What the action holds."""

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


class Counted(World):
    """Counts what is made and closed; each test has a class of its own, from the fixture."""

    made = 0
    closed = 0
    lock = threading.Lock()

    def __init__(self, rubric=None):
        super().__init__(rubric)
        with self.lock:
            type(self).made += 1

    def close(self):
        with self.lock:
            type(self).closed += 1
