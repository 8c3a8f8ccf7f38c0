"""The coding environment with a composed reward: tests, style, and efficiency at the end.

The reward is in ``coding_reward.yaml``; `composer` is the same reward in Python. Run it to serve
the environment with that file, and to play a task over the network::

    python -m examples.reward_pipelines.coding
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from examples.coding_env.candidates import candidates
from examples.coding_env.models import CodeAction, CodeObservation
from examples.coding_env.rubrics import PassesTests, Style, verdict_of
from examples.coding_env.tasks import load_tasks
from guerdon import GenericEnvClient, RewardConfig, Rubric, RubricComposer, StepResult
from guerdon.envs import SyncEnvClient
from guerdon.errors import InvalidArgumentError

__all__ = ["Efficiency", "EfficiencyConfig", "REWARD", "composer", "main", "play"]

HERE = Path(__file__).parent
REWARD = HERE / "coding_reward.yaml"


class EfficiencyConfig(BaseModel):
    """The configuration of `Efficiency`.

    Example:
        >>> from examples.reward_pipelines.coding import EfficiencyConfig
        >>> EfficiencyConfig(submissions=3).submissions
        3

    Attributes:
        submissions: The number of submissions in an episode, at least 2.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    submissions: int = Field(default=5, ge=2)


class Efficiency(Rubric):
    """How early a submission solves the task: 1 for the first one, 0 for the last one or none.

    Example:
        >>> from examples.reward_pipelines.coding import Efficiency, EfficiencyConfig
        >>> Efficiency(EfficiencyConfig(submissions=3)).submissions
        3

    Args:
        config: The configuration.
    """

    score_range = (0.0, 1.0)

    def __init__(self, config: EfficiencyConfig) -> None:
        super().__init__()
        self.submissions = config.submissions

    def forward(self, action: CodeAction, observation: CodeObservation) -> float:
        """Count the submissions."""
        verdict = verdict_of(observation)
        used = self.submissions - observation.submissions_left
        if used < 1:
            raise InvalidArgumentError(
                f"`submissions` must be the environment's `max_submissions`, got "
                f"{self.submissions} with {observation.submissions_left} left after a submission"
            )
        if verdict.passed < verdict.total:
            self.explain("unsolved after %d", used)
            return 0.0
        self.explain("solved after %d", used)
        return 1.0 - (used - 1) / (self.submissions - 1)


def composer() -> RubricComposer:
    """Return the reward of ``coding_reward.yaml``, built in Python.

    Example:
        >>> from examples.reward_pipelines.coding import composer
        >>> composer().weights
        {'test_pass': 1.0, 'code_style': 0.3, 'efficiency': 0.2}
    """
    return RubricComposer(
        {
            "test_pass": PassesTests(),
            "code_style": Style(),
            "efficiency": Efficiency(EfficiencyConfig()),
        },
        weights={"test_pass": 1.0, "code_style": 0.3, "efficiency": 0.2},
        episode_end=["efficiency"],
    )


def play(
    client: SyncEnvClient[Any, Any, Any], programs: Iterable[str], *, task: int = 0
) -> list[StepResult[Any]]:
    """Submit programs in turn, in one episode.

    Args:
        client: A client of the server.
        programs: The programs.
        task: The task's number.
    """
    client.reset(task=task)
    return [client.step({"program": program}) for program in programs]


def main() -> int:
    """Serve the environment with the file's reward, play a task, and print its rewards."""
    config = RewardConfig.from_file(REWARD)
    programs = candidates(load_tasks()[0])
    served = GenericEnvClient.from_module(str(HERE.parent / "coding_env"), config=config)
    with served.sync() as client:
        results = play(client, [programs["broken"], programs["half"], programs["right"]])
    for result in results:
        print(f"{result.reward:.3f}  {result.metadata['reward_components']}")
        print(f"       {result.observation['feedback']}")
    return 0 if results[-1].done else 1


if __name__ == "__main__":
    sys.exit(main())
