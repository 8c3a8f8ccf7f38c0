"""A lock with two dials, and judges that fail, for the tests of trainers."""

import asyncio

from guerdon import Action, Environment, NumericAnswer, Observation, Rubric, Sequential, State


class Turn(Action):
    """Turns the dial to a digit."""

    digit: int


class Dials(Observation):
    """The sound of the dial."""

    text: str


class Right(Rubric):
    """The dial is at its digit; a digit above 8 breaks the scale."""

    def forward(self, action, observation):
        """Score a turn of the dial."""
        if action.digit > 8:
            raise OSError("the scale is broken")
        return float(observation.metadata["right"])


class Lock(Environment[Turn, Dials, State]):
    """Two dials, whose digits are those of the seed."""

    def __init__(self):
        super().__init__(rubric=Sequential(Right()))
        self.is_closed = False

    def reset(self, seed=0, **kwargs):
        """Lock it."""
        self._reset_rubric()
        self.digits = [seed // 10, seed % 10]
        return Dials(text="first dial")

    def step(self, action, **kwargs):
        """Turn the dial."""
        right = action.digit == self.digits[0]
        if right:
            self.digits.pop(0)
        answer = Dials(text="click" if right else "nothing", done=not self.digits)
        answer.metadata["right"] = right
        return self.score(action, answer)

    @property
    def state(self):
        """The state, which is empty."""
        return State()

    def close(self):
        """Remember that it was closed."""
        self.is_closed = True


class Judge(Rubric):
    """Scores 1; it is down for an answer that contains this word."""

    def forward(self, action, observation):
        """Score an answer."""
        if "down" in action.content:
            raise OSError("the judge is down")
        return 1.0


class AsyncJudge(Rubric):
    """Like `Judge`, async."""

    async def forward(self, action, observation):
        """Score an answer."""
        await asyncio.sleep(0)
        return Judge.forward(self, action, observation)


def tree(judge=Judge):
    """Return a tree with a judge."""
    return Sequential(judge(), NumericAnswer())
