"""An environment whose episodes are the rollouts that trainers are compared with."""

from __future__ import annotations

from typing import Any

from guerdon import Action, Environment, Observation, State
from trainers.agreement import ROLLOUTS
from trainers.rollouts import make_reward, texts


class Answer(Action):
    """A completion."""

    content: str


class Question(Observation):
    """A prompt."""

    text: str


class Questions(Environment[Answer, Question, State]):
    """Each episode is a rollout: the prompt, then the completion."""

    state = State()

    def __init__(self) -> None:
        super().__init__(rubric=make_reward())

    def reset(self, seed: int | None = None, **kwargs: Any) -> Question:
        """Ask the question of the rollout of this number."""
        self._reset_rubric()
        self.row = ROLLOUTS[seed or 0]
        return Question(text=texts(self.row)[0])

    def step(self, action: Answer, timeout_s: float | None = None, **kwargs: Any) -> Question:
        """Score the completion."""
        observation = Question(text="", done=True)
        observation.metadata["ground_truth"] = self.row["ground_truth"]
        return self.score(action, observation)
