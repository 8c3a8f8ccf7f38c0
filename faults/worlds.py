"""Environments that fail as their action demands, and record each step that they take."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import threading
import time
from types import SimpleNamespace
from typing import Any

from guerdon import (
    Action,
    Environment,
    Gate,
    LLMJudge,
    Observation,
    Rubric,
    Sequential,
    State,
    TrajectoryRubric,
)

SLOW_S = 0.005
# The number of an episode's steps in `Episodes`.
STEPS = 3

taken: list[int] = []
# What hangs waits for this, and at most so many seconds.
released = threading.Event()
HANG_S = 10.0

# What a rubric may return that is not a score.
RETURNED: dict[str, Any] = {
    "rubric returns nan": math.nan,
    "rubric returns inf": math.inf,
    "rubric returns None": None,
    "rubric returns a text": "1.0",
    "rubric returns 10**400": 10**400,
    "rubric returns a list": [1.0],
}
RAISED: dict[str, type[BaseException]] = {
    "environment raises": ValueError,
    "environment raises SystemExit": SystemExit,
    "environment raises KeyboardInterrupt": KeyboardInterrupt,
    "environment raises StopIteration": StopIteration,
    "environment raises StopAsyncIteration": StopAsyncIteration,
    "environment raises GeneratorExit": GeneratorExit,
    "environment raises CancelledError": asyncio.CancelledError,
    "environment raises MemoryError": MemoryError,
    "environment raises TimeoutError": TimeoutError,
}
OBSERVED: dict[str, Any] = {
    "environment returns None": None,
    "environment returns a number": 1.0,
    "environment returns a dict": {"reward": 1.0},
}
REPLIES = {
    "judge answers nonsense": "I can't tell.",
    "judge answers nan": '{"mark": "MARK", "reasoning": "", "score": NaN}',
    "judge answers None": '{"mark": "MARK", "reasoning": "", "score": null}',
    "judge answers half": '{"mark": "MARK", "reasoning": "", "sco',
    "judge answers out of range": '{"mark": "MARK", "reasoning": "", "score": -1}',
}
# Faults that end the episode, faults of the reward alone, and what only looks like a fault.
ENVIRONMENT = [
    *RAISED, *OBSERVED, "environment returns reward nan", "environment returns reward inf",
]  # fmt: skip
REWARD = [*RETURNED, "rubric raises", "gate raises", "gate returns nan"]
JUDGE = [*REPLIES, "judge raises"]
HANG = "environment hangs"
HARMLESS = ["slow", "gate closes"]


class Say(Action):
    """An action with the fault that it causes."""

    ticket: int
    fault: str = ""
    text: str = ""


class Seen(Observation):
    """Where a step was taken: slot, episode and step."""

    place: tuple[int, int, int] = (-1, -1, -1)


def fail(action: Say) -> None:
    """Raise an error that names the action's ticket."""
    raise RAISED.get(action.fault, ConnectionError)(f"fault #{action.ticket}")


class Check(Rubric):
    """The action has no fault at the gate."""

    def forward(self, action: Say, observation: Seen) -> float:
        """Return 1.0, or fail."""
        if action.fault == "gate raises":
            fail(action)
        return {"gate closes": 0.0, "gate returns nan": math.nan}.get(action.fault, 1.0)


class Value(Rubric):
    """The ticket's number."""

    def forward(self, action: Say, observation: Seen) -> Any:
        """Return it, or something that is not a score."""
        if action.fault == "rubric raises":
            fail(action)
        return RETURNED.get(action.fault, float(action.ticket))


class Model:
    """A chat model whose answer is the ticket, or the fault that the prompt demands."""

    name, temperature = "model", None

    async def complete(self, messages: Any, *, schema: Any = None, temperature: Any = None) -> Any:
        """Answer a judge's question."""
        mark = re.search(r"The mark is (\w+)", messages[0]["content"])
        values = re.findall(r"<action\.\w+ \w+>\n(.*)\n<", messages[-1]["content"])
        ticket, fault = values
        await asyncio.sleep(0)
        if fault == "judge raises":
            raise ConnectionError(f"fault #{ticket}")
        good = json.dumps({"mark": "MARK", "reasoning": "", "score": int(ticket)})
        text = REPLIES.get(fault, good).replace("MARK", mark[1] if mark else "")
        return SimpleNamespace(text=text, finish_reason="stop")

    def fingerprint(self) -> str:
        """Return a constant."""
        return "model"


class World(Environment[Say, Seen, State]):
    """Returns where a step was taken, and the ticket as its reward."""

    state = State()

    def __init__(self) -> None:
        super().__init__(rubric=Sequential(Gate(Check()), self.last_rubric()))
        self.slot = self.episode = self.steps = -1

    def last_rubric(self) -> Rubric:
        """Return the rubric behind the gate."""
        return Value()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, *, slot: int = -1,
        episode: int = -1,
    ) -> Seen:  # fmt: skip
        """Begin an episode."""
        self._reset_rubric()
        self.slot, self.episode, self.steps = slot, episode, 0
        return Seen(place=(slot, episode, 0))

    def step(self, action: Say, timeout_s: float | None = None) -> Seen:
        """Take a step."""
        observation = self.take(action)
        if action.fault == HANG:
            released.wait(HANG_S)
        if action.fault == "slow":
            time.sleep(SLOW_S)
        return observation if self.is_final(action) else self.score(action, observation)

    def is_final(self, action: Say) -> bool:
        """Whether the fault is in the observation, which then isn't scored."""
        return action.fault in OBSERVED or action.fault.startswith("environment returns")

    def take(self, action: Say) -> Any:
        """Record a step, and return its observation or raise its fault."""
        taken.append(action.ticket)
        self.steps += 1
        if action.fault in RAISED:
            fail(action)
        if action.fault in OBSERVED:
            return OBSERVED[action.fault]
        place = (self.slot, self.episode, self.steps)
        if self.is_final(action):
            reward = float(action.fault.rpartition(" ")[2])
            return Seen.model_construct(place=place, reward=reward, metadata={}, done=False)
        return Seen(place=place)


class AsyncWorld(World):
    """The same with an async step, whose reward is a judge's."""

    def last_rubric(self) -> Rubric:
        """Return a judge."""
        prompt = "What is {action.ticket}? Do you {action.fault}?"
        return LLMJudge(prompt, Model(), score_range=(0.0, 1e9))

    async def step_async(self, action: Say, timeout_s: float | None = None) -> Seen:
        """Take a step."""
        await asyncio.sleep(0)
        observation = await asyncio.create_task(self._task(action))
        if action.fault == HANG:
            await asyncio.sleep(60)
        if action.fault == "slow":
            await asyncio.sleep(SLOW_S)
        return observation if self.is_final(action) else await self.score_async(action, observation)

    async def _task(self, action: Say) -> Any:
        return self.take(action)


class Outcome(TrajectoryRubric):
    """The ticket of the last step."""

    def score_trajectory(self, trajectory: Any) -> float:
        """Return it."""
        return float(trajectory[-1][0].ticket)

    def compute_step_rewards(self) -> list[float]:
        """Return the tickets of all steps."""
        return [float(action.ticket) for action, _ in self.trajectory]


class Episodes(World):
    """Episodes of a few steps with a delayed reward."""

    def last_rubric(self) -> Rubric:
        """Return a trajectory rubric."""
        return Outcome()

    def take(self, action: Say) -> Any:
        """Take a step; the last ends the episode."""
        observation = super().take(action)
        observation.done = self.steps == STEPS
        return observation


class _Reported(list[int]):
    """Tickets that are written to a file, for another process."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def append(self, ticket: int) -> None:
        os.write(self._file, b"%d\n" % ticket)


if "FAULTS_TAKEN" in os.environ:  # of a server
    taken = _Reported(os.environ["FAULTS_TAKEN"])
