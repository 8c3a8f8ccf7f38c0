"""The tables of docs/which-trainer.md, which ``make trainers`` writes into the page.

``python -m trainers.matrix`` writes those that need no trainer.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import NamedTuple

from trainers import homes
from trainers.agreement import HEADER, table
from trainers.every_trainer import agreements

PAGE = Path(__file__).parents[1] / "docs" / "which-trainer.md"
MARKERS = "<!-- {} of {}: python -m trainers.matrix -->"


class Takes(NamedTuple):
    """What a trainer takes; names in backticks before a colon are of `module`."""

    page: str
    module: str
    rewards: str
    components: str
    step_credit: str
    failures: str
    environments: str


MATRIX = {
    "TRL": Takes(
        "train-with-trl.md",
        "trl",
        "`reward_func`, `reward_funcs`",
        "the completions table and the metrics of a step",
        "`StepCreditGRPOTrainer`, `StepCredit`",
        "None: no advantage, and no part in the statistics of the group",
        "`environment_factory`, `rollout_func`",
    ),
    "OpenRLHF": Takes(
        "train-with-openrlhf.md",
        "openrlhf",
        "`reward_func`",
        "`extra_logs`",
        "no place for it",
        "an exception, which stops it, or the number of `on_invalid`",
        "`agent`",
    ),
    "verifiers": Takes(
        "train-with-verifiers.md",
        "verifiers",
        "`reward`",
        "`trace.metrics`",
        "`step_advantages`",
        "an exception: `trace.ok` is False",
        "`environment`, `taskset`",
    ),
    "verl": Takes(
        "train-with-verl.md",
        "verl",
        "`compute_score`",
        "the keys of the result",
        "`StepCredit`, `step_advantages`, and `register` for estimators without steps",
        "an exception, with which verl leaves out the rollout or replaces its group, or the number "
        "of `on_invalid`",
        "`agent_loop`",
    ),
    "SkyRL": Takes(
        "train-with-skyrl.md",
        "skyrl",
        "`reward_environment`",
        "`environment/…` in its metrics",
        "the rewards of steps, for its estimators of tokens",
        "an exception, which stops it, NaN for the estimators of `register`, or the number of "
        "`on_invalid`",
        "`environment`",
    ),
    "NeMo Gym": Takes(
        "train-with-nemo-gym.md",
        "nemo_gym",
        "`resources_server`",
        "fields of the rollout, and for a sum `reward_components`",
        "no place for it",
        "an error of the server, or the number of `on_invalid` in a sample that is masked",
        "–",
    ),
    "Gymnasium, RLlib": Takes(
        "train-with-gymnasium.md",
        "gymnasium",
        "that of the environment",
        '`info["reward_components"]`',
        "the trainer's own",
        "an exception, or the number of `on_invalid` and a truncated episode",
        "`GymnasiumEnv`, `GymnasiumVectorEnv`",
    ),
    "PettingZoo": Takes(
        "train-with-gymnasium.md",
        "pettingzoo",
        "those of each agent in the environment",
        '`infos[agent]["reward_components"]`',
        "the trainer's own",
        "an exception, or the number of `on_invalid` and a truncated episode for all agents",
        "`PettingZooAECEnv`, `PettingZooParallelEnv`",
    ),
}


def tables() -> dict[str, str]:
    """Return the tables of the page by name."""
    header = ["", "rewards", "components", "step credit", "a failed reward is", "environments"]
    matrix = [[f"[{name}]({takes.page})", *takes[2:]] for name, takes in MATRIX.items()]
    return {
        "matrix": table(header, *matrix),
        "agreement": table(HEADER, *(each.cells() for each in agreements())),
    }


def with_tables(page: str) -> str:
    """Return the text of the page with its tables between their markers."""
    for name, text in tables().items():
        page = with_table(page, name, text)
    return page


def with_table(page: str, name: str, text: str) -> str:
    """Return the text of the page with one table between its markers."""
    start, end = (MARKERS.format(which, name) for which in ("start", "end"))
    before, rest = page.split(f"{start}\n", 1)
    after = rest.split(end, 1)[1]
    return f"{before}{start}\n{text}\n{end}{after}"


def write() -> None:
    """Write the tables into the page; with ``--packages``, also what the trainers' tests found."""
    logging.disable()  # the failures are in the table
    page = with_tables(PAGE.read_text(encoding="utf-8"))
    if "--packages" in sys.argv:
        lines = sorted(homes.AGREEMENTS.read_text(encoding="utf-8").splitlines())
        page = with_table(page, "packages", "\n".join([table(HEADER), *lines]))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
