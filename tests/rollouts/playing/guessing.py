"""A guessing game, in which these tests play; and what they play it with."""

import asyncio
import threading

from guerdon import (
    Action,
    Environment,
    Observation,
    Rubric,
    State,
)
from guerdon.rollouts.playing.policies import ScriptedPolicy
from guerdon.rollouts.playing.worker import RLRolloutWorker
from tests.envs.client.servers import SOON


class Guess(Action):
    number: int


class Hint(Observation):
    text: str
    secret: int = 0


class Close(Rubric):
    def forward(self, action, observation):
        return 1 / (1 + abs(action.number - observation.secret))


class Guessing(Environment[Guess, Hint, State]):
    """Guess the number, which the seed decides."""

    def __init__(self):
        super().__init__(rubric=Close())
        self.episode = State()
        self.secret = 0
        self.closed = 0

    def reset(self, seed=None, episode_id=None, more=0, **kwargs):
        self.secret = (seed or 7) + more
        return Hint(text="Which number?", metadata={"episode": episode_id, "lock": object()})

    def step(self, action, timeout_s=None, **kwargs):
        if action.number == 13:
            raise OSError("the game is down")
        right = action.number == self.secret
        text = "yes" if right else "no"
        return self.score(action, Hint(text=text, secret=self.secret, done=right))

    @property
    def state(self):
        return self.episode

    def close(self):
        self.closed += 1


class AsyncGuessing(Guessing):
    async def reset_async(self, seed=None, **kwargs):
        await asyncio.sleep(0)
        return Guessing.reset(self, seed, **kwargs)

    async def step_async(self, action, **kwargs):
        await asyncio.sleep(0)
        return Guessing.step(self, action)


def guesses(*numbers):
    return ScriptedPolicy([{"number": number} for number in numbers])


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


def play(env, policy, task=None, *, max_steps=10, seed=None, rollout_id=None, **options):
    worker = RLRolloutWorker(env, policy, max_steps=max_steps, **options)
    return run(worker.run(task, seed=seed, rollout_id=rollout_id))


def texts(record):
    return [(message.role, message.text) for message in record.messages]


class Hangs(Guessing):
    """Blocks in a step on 1, until the test lets it go."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.freed = threading.Event()

    def step(self, action, **kwargs):
        if action.number == 1:
            self.begun.set()
            assert self.gate.wait(SOON)
        return super().step(action)

    def close(self):
        super().close()
        self.freed.set()


class Makes:
    """A factory that keeps what it makes."""

    def __init__(self, kind):
        self.kind = kind
        self.made = []

    def __call__(self):
        made = self.kind()  # not the last of the list: another thread may have added one since
        self.made.append(made)
        return made


def sayings(*words):
    return ScriptedPolicy([{"message": word} for word in words])


async def begun(event):
    assert await asyncio.to_thread(event.wait, SOON)
