"""Environments that fail as their action demands, and record each step that they take."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np

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
from guerdon.types import ArrayField

SLOW_S = 0.005
LEAKED_BYTES = 2**20
FRAME = (256, 256)
# The number of an episode's steps in `Episodes`.
STEPS = 3

taken: list[int] = []
# What hangs waits for this, and at most so many seconds.
released = threading.Event()
HANG_S = float(os.environ.get("FAULTS_HANG_S", 10.0))
HELD_S = float(os.environ.get("FAULTS_HANG_S", 1.5))  # for which the interpreter lock is held
LONG_S = 10_000.0

# What a rubric may return that is not a score.
RETURNED: dict[str, Any] = {
    "rubric returns nan": math.nan,
    "rubric returns inf": math.inf,
    "rubric returns None": None,
    "rubric returns a text": "1.0",
    "rubric returns 10**400": 10**400,
    "rubric returns a list": [1.0],
}


class Unpicklable(Exception):
    """An error whose pickle can't be read."""

    def __init__(self, fault: str, *, code: int) -> None:
        super().__init__(fault)


class Textless(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")


RAISED: dict[str, Callable[[str], BaseException]] = {
    "environment raises": ValueError,
    "environment raises SystemExit": SystemExit,
    "environment raises KeyboardInterrupt": KeyboardInterrupt,
    "environment raises StopIteration": StopIteration,
    "environment raises StopAsyncIteration": StopAsyncIteration,
    "environment raises GeneratorExit": GeneratorExit,
    "environment raises CancelledError": asyncio.CancelledError,
    "environment raises MemoryError": MemoryError,
    "environment raises TimeoutError": TimeoutError,
    "environment raises what can't be pickled": lambda fault: Unpicklable(fault, code=1),
    "environment raises what has no text": Textless,
    "environment raises a long text": lambda fault: ValueError(fault + "x" * 2**20),
}


def _endless() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    return endless


# Observations that aren't; and those that can't leave a process.
OBSERVED: dict[str, Any] = {
    "environment returns None": None,
    "environment returns a number": 1.0,
    "environment returns a dict": {"reward": 1.0},
}
UNSENDABLE: dict[str, Any] = {
    "environment returns a function": {"function": lambda: None},
    "environment returns a thread": {"thread": threading.current_thread()},
    "environment returns what contains itself": _endless(),
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
    *RAISED, *OBSERVED, *UNSENDABLE, "environment returns reward nan",
    "environment returns reward inf",
]  # fmt: skip
REWARD = [*RETURNED, "rubric raises", "gate raises", "gate returns nan"]
JUDGE = [*REPLIES, "judge raises"]
HANG, HELD = "environment hangs", "environment holds the interpreter lock"
HANGS: dict[str, Callable[[], object]] = {
    HANG: lambda: released.wait(HANG_S),
    HELD: lambda: ctypes.PyDLL(None).usleep(int(1e6 * HELD_S)),
}


def _leave_fork() -> None:
    if not os.fork():
        try:
            time.sleep(LONG_S)
        finally:  # whatever a signal raises
            os._exit(0)


def _end_after_fork() -> None:
    _leave_fork()
    os._exit(1)


STOPS = "environment stops its process"
CLOSES = "environment closes all descriptors"
# Faults that end or stop the environment's process.
LETHAL: dict[str, Callable[[], object]] = {
    "environment calls os._exit": lambda: os._exit(0),
    "environment crashes": lambda: ctypes.string_at(0),
    "environment aborts": os.abort,
    "environment is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    STOPS: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    CLOSES: lambda: os.closerange(1, 256),
    "environment forks and ends": _end_after_fork,
}
# Faults of a process that may still answer the step: in time, or in shared memory.
ANSWERED = {HELD, CLOSES}
# What an environment leaves in its process, and never ends. A fork is for moments in which no other
# thread starts a process: it would inherit the pipe by which that thread learns of the start.
PROCESS, FORK = "environment leaves a process", "environment leaves a fork"
LEAKS: dict[str, Callable[[], object]] = {
    "environment leaves a thread": lambda: threading.Thread(
        target=time.sleep, args=[LONG_S]
    ).start(),
    PROCESS: lambda: subprocess.Popen(["sleep", f"{LONG_S}"]),
    FORK: _leave_fork,
    "environment leaves a descriptor": lambda: os.open("/dev/null", os.O_RDONLY),
}
# What it keeps, and frees when it is closed.
KEPT: dict[str, Callable[[], object]] = {
    "environment keeps memory": lambda: bytearray(LEAKED_BYTES),
    "environment keeps a file": lambda: open("/dev/null"),  # noqa: SIM115
}
LARGE = "large"
CLOSING = "environment raises in close"
HARMLESS = ["slow", "gate closes", CLOSING, *KEPT]
NOT_FAILURES = {*HARMLESS, *LEAKS, LARGE}


class Say(Action):
    """An action with the fault that it causes."""

    ticket: int
    fault: str = ""
    text: str = ""


class Seen(Observation):
    """Where a step was taken: slot, episode and step, and the process; an array of the ticket."""

    place: tuple[int, int, int] = (-1, -1, -1)
    process: int = 0
    frame: Annotated[np.ndarray[Any, Any], ArrayField("uint8", FRAME)] | None = None


def fail(fault: str, ticket: int) -> None:
    """Raise an error that names the ticket."""
    raise RAISED.get(fault, ConnectionError)(f"fault #{ticket}")


class Check(Rubric):
    """The action has no fault at the gate."""

    def forward(self, action: Say, observation: Seen) -> float:
        """Return 1.0, or fail."""
        if action.fault == "gate raises":
            fail(action.fault, action.ticket)
        return {"gate closes": 0.0, "gate returns nan": math.nan}.get(action.fault, 1.0)


class Value(Rubric):
    """The ticket's number."""

    def forward(self, action: Say, observation: Seen) -> Any:
        """Return it, or something that is not a score."""
        if action.fault == "rubric raises":
            fail(action.fault, action.ticket)
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
        self.kept: list[object] = []
        self.closing = ""

    def last_rubric(self) -> Rubric:
        """Return the rubric behind the gate."""
        return Value()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, *, slot: int = -1,
        episode: int = -1, fault: str = "", ticket: int = 0,
    ) -> Seen:  # fmt: skip
        """Begin an episode."""
        self._reset_rubric()
        self.slot, self.episode, self.steps = slot, episode, 0
        if fault:
            fail(fault, ticket)
        return self.seen()

    def seen(self, **values: Any) -> Seen:
        """Return an observation of the current step."""
        place = (self.slot, self.episode, self.steps)
        return Seen.model_construct(
            **{"place": place, "process": os.getpid(), "metadata": {}} | values
        )

    def close(self) -> None:
        """Close what is kept, and raise if a step demanded it."""
        for each in self.kept:
            if hasattr(each, "close"):
                each.close()
        self.kept.clear()
        if self.closing:
            raise ConnectionError(self.closing)

    def step(self, action: Say, timeout_s: float | None = None) -> Seen:
        """Take a step."""
        observation = self.take(action)
        if action.fault in HANGS:
            HANGS[action.fault]()
        if action.fault == "slow":
            time.sleep(SLOW_S)
        return observation if self.is_final(action) else self.score(action, observation)

    def is_final(self, action: Say) -> bool:
        """Whether the fault is in the observation, which then isn't scored."""
        return action.fault.startswith("environment returns")

    def take(self, action: Say) -> Any:
        """Record a step, and return its observation or raise its fault."""
        taken.append(action.ticket)
        self.steps += 1
        if action.fault in RAISED:
            fail(action.fault, action.ticket)
        if action.fault in OBSERVED:
            return OBSERVED[action.fault]
        if action.fault in UNSENDABLE:
            return self.seen(metadata=UNSENDABLE[action.fault])
        if self.is_final(action):
            return self.seen(reward=float(action.fault.rpartition(" ")[2]))
        if action.fault in LETHAL:
            LETHAL[action.fault]()
        if action.fault in LEAKS:
            LEAKS[action.fault]()
        if action.fault in KEPT:
            self.kept.append(KEPT[action.fault]())
        if action.fault == CLOSING:
            self.closing = f"fault #{action.ticket}"
        frame = np.full(FRAME, action.ticket % 251, np.uint8) if action.fault == LARGE else None
        return self.seen(frame=frame)


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
            await asyncio.sleep(HANG_S)
        if action.fault == HELD:
            HANGS[HELD]()
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


if "FAULTS_TAKEN" in os.environ:  # of a server or a worker
    taken = _Reported(os.environ["FAULTS_TAKEN"])
    logging.getLogger("guerdon").setLevel(logging.CRITICAL + 1)  # failures are expected
