"""The reward of a program: it compiles, passes at least half of the tests, and has good style."""

from __future__ import annotations

from examples.coding_env.models import CodeAction, CodeObservation
from examples.coding_env.style import faults
from guerdon import Gate, Rubric, Sequential, WeightedSum
from guerdon.errors import MissingInputError
from guerdon.sandbox import Verdict

__all__ = ["Compiles", "PassesTests", "Style", "reward"]


def verdict_of(observation: CodeObservation) -> Verdict:
    """Return the environment's verdict on the program, which all rubrics share.

    Args:
        observation: The observation of a step, in the process of its environment.

    Raises:
        SandboxError: The program couldn't be run, for a reason outside the program.
        MissingInputError: The observation has no verdict.
    """
    if observation._failure is not None:
        raise observation._failure
    if observation._verdict is None:
        raise MissingInputError(
            "the observation has no verdict; CodingEnvironment.step adds it, "
            "and it isn't sent over the wire"
        )
    return observation._verdict


class Compiles(Rubric):
    """The program compiles."""

    score_range = (0.0, 1.0)

    def forward(self, action: CodeAction, observation: CodeObservation) -> float:
        """Return whether the program compiled."""
        verdict = verdict_of(observation)
        if verdict.compile_error is not None:
            self.explain("%s", verdict.compile_error)
        return 1.0 if verdict.compiled else 0.0


class PassesTests(Rubric):
    """The share of hidden tests that the program passes."""

    score_range = (0.0, 1.0)

    def forward(self, action: CodeAction, observation: CodeObservation) -> float:
        """Return the share of passed tests."""
        verdict = verdict_of(observation)
        self.explain("%d of %d tests passed", verdict.passed, verdict.total)
        if verdict.feedback is not None:  # the agent may read it
            self.explain("%s", verdict.feedback)
        return verdict.fraction


class Style(Rubric):
    """The share of simple style checks that the program passes."""

    score_range = (0.0, 1.0)

    def forward(self, action: CodeAction, observation: CodeObservation) -> float:
        """Check the program's text and syntax tree."""
        found = faults(action.program, observation.entry_point)
        broken = [fault for fault in found.values() if fault]
        self.explain("%s", "; ".join(broken) or "no faults")
        return 1.0 - len(broken) / len(found)


def reward() -> Sequential:
    """Return a new reward.

    Example:
        >>> from examples.coding_env.rubrics import reward
        >>> len(reward())
        3
    """
    return Sequential(
        Gate(Compiles()),
        Gate(PassesTests(), threshold=0.5),
        WeightedSum([PassesTests(), Style()], [0.7, 0.3]),
    )
