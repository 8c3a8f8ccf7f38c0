"""An environment for the tests of Gymnasium's interfaces: guess a number."""

import random
from typing import Literal

from pydantic import Field

from guerdon import Action, Environment, Observation, Rubric, State
from guerdon.errors import InvalidArgumentError

MOST = 6  # guesses of an episode


class Guess(Action):
    number: int = Field(ge=0, le=15)


class Hint(Observation):
    hint: Literal["none", "lower", "higher", "found"]
    left: int = Field(ge=0, le=MOST)
    share: float = Field(ge=0, le=1)
    guesses: list[int] = Field(min_length=2, max_length=2)
    text: str = Field(default="", max_length=20)


class Nearness(Rubric):
    """1 for the number, less the farther away; it fails for 13."""

    def __init__(self):
        super().__init__()
        self.found = Found()

    def forward(self, action, observation):
        if action.number == 13:
            raise ArithmeticError("thirteen")
        return self.found(action, observation) - 0.25


class Found(Rubric):
    """The number was found."""

    def forward(self, action, observation):
        return float(observation.hint == "found")


class Guessing(Environment[Guess, Hint, State]):
    """Guess a number from 0 to 15; 14 raises, and the reward of 13 fails."""

    state = State()

    def __init__(self):
        super().__init__(rubric=Nearness())
        self.closed = 0

    def reset(self, seed=None, secret=None, **kwargs):
        if secret == -1:
            raise ArithmeticError("no such secret")
        self._reset_rubric()
        self.secret = random.Random(seed).randrange(16) if secret is None else secret
        self.guesses = []
        return self.observe("none")

    def step(self, action):
        number = action.number
        if number == 14:
            raise InvalidArgumentError("nobody guesses 14")
        self.guesses.append(number)
        hint = "lower" if number > self.secret else "higher"
        return self.score(action, self.observe("found" if number == self.secret else hint))

    def observe(self, hint):
        left = MOST - len(self.guesses)
        return Hint(
            hint=hint,
            left=left,
            share=left / MOST,
            guesses=[0, *self.guesses][-2:] if self.guesses else [0, 0],
            text=f"{hint}, {left} left",
            done=hint == "found" or not left,
            truncated=hint != "found" and not left,
        )

    def close(self):
        self.closed += 1


class Fair(Guessing):
    """The same without failures, for random actions."""

    def step(self, action):
        return super().step(Guess(number=min(action.number, 12)))


class AsyncGuessing(Fair):
    """The same with async methods."""

    async def reset_async(self, seed=None, **kwargs):
        return Fair.reset(self, seed, **kwargs)

    async def step_async(self, action):
        return Fair.step(self, action)
