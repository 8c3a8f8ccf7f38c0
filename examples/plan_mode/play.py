"""Plays an episode with a scripted policy, and prints the reward of each step.

Run it, optionally with a seed::

    python -m examples.plan_mode.play 7
"""

from __future__ import annotations

import random
import sys

from rich.console import Console
from rich.table import Table

from examples.plan_mode.environment import PlanModeEnvironment
from examples.plan_mode.models import PlanModeAction, PlanModeObservation
from examples.plan_mode.tasks import SOLUTIONS

__all__ = ["act", "main", "play"]

COMPONENTS = ("refused", "unplanned", "execution")


def act(observation: PlanModeObservation, rng: random.Random) -> PlanModeAction:
    """Choose an action, from the observation alone; the plan may forget a file.

    Example:
        >>> import random
        >>> from examples.plan_mode.environment import PlanModeEnvironment
        >>> from examples.plan_mode.play import act
        >>> act(PlanModeEnvironment().reset(task="shop"), random.Random(1)).plan
        {'prices.py': 'Do what is asked.'}

    Args:
        observation: An observation of an episode that isn't over.
        rng: The random generator of what is forgotten.
    """
    wrong = [path for path, text in observation.files.items() if text != SOLUTIONS[path]]
    if observation.phase == "plan":
        remembered = [path for path in wrong if rng.random() < 0.7] or wrong[:1]
        return PlanModeAction(kind="plan", plan=dict.fromkeys(remembered, "Do what is asked."))
    planned = [path for path in wrong if path in observation.plan]
    if not planned and observation.passed is None:
        return PlanModeAction(kind="test")
    # The tests have shown what the plan forgot; the policy doesn't always look.
    edits = planned or (wrong if rng.random() < 0.5 else [])
    if edits:
        return PlanModeAction(kind="edit", path=edits[0], content=SOLUTIONS[edits[0]])
    return PlanModeAction(kind="finish")


def play(environment: PlanModeEnvironment, *, seed: int) -> list[PlanModeObservation]:
    """Play one episode.

    Example:
        >>> from examples.plan_mode.environment import PlanModeEnvironment
        >>> from examples.plan_mode.play import play
        >>> with PlanModeEnvironment(sandbox="process") as environment:
        ...     play(environment, seed=4)[-1].done
        True

    Args:
        environment: The environment.
        seed: The seed of the task and of the policy.

    Returns:
        The observations of all steps.
    """
    rng = random.Random(f"policy {seed}")
    observation = environment.reset(seed=seed)
    observations = []
    while not observation.done:
        observation = environment.step(act(observation, rng))
        observations.append(observation)
    return observations


def main() -> int:
    """Play an episode; print a table of its steps."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    console = Console(highlight=False, width=100)
    with PlanModeEnvironment() as environment:
        observations = play(environment, seed=seed)
    last = observations[-1]
    console.print(f"Task {last.task_id!r}: {last.instructions}\n", markup=False)
    table = Table("step", "feedback", *COMPONENTS, "reward", "step reward")
    for step, observation in enumerate(observations):
        components = observation.metadata["reward_components"]
        table.add_row(
            str(step),
            observation.feedback.partition("\n")[0],
            *(f"{components[name]:.2f}" if name in components else "–" for name in COMPONENTS),
            f"{observation.reward:+.3f}",
            f"{last.metadata['step_rewards'][step]:+.3f}",
        )
    console.print(table)
    console.print(f"{last.passed} of {last.total} tests passed, seed {seed}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
