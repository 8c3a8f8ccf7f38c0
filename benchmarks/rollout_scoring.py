"""Scoring 10,000 single-turn rollouts in process, with components: `score_rollouts`.

It is compared with a plain loop that calls the same three checks and builds the same dict, and with
openenv's `WeightedSum`, whose children have forward hooks that collect the components. The rows of
all three are checked to be equal. The checks take about 2 µs each; the exact times are printed
below the table.
"""

from __future__ import annotations

import sys

from benchmarks.contestant import Contestant
from benchmarks.openenv_home import VERSION
from benchmarks.timing import Findings, Measured, Pairs, take_turns

ROLLOUTS = 10_000
ROUNDS = 60


def run(openenv: str, missing: str) -> Findings:
    """Run the benchmark. For the arguments see `benchmarks.rubric_calls`."""
    name = f"{ROLLOUTS:,} rollouts"
    against_loop = Measured(name, "plain loop", 1.8, per=ROLLOUTS, unit="rollout")
    against_hooks = Measured(
        name, f"openenv {VERSION} with hooks", 0.7, per=ROLLOUTS, unit="rollout", missing=missing
    )
    found = Findings([against_loop, against_hooks])
    with Contestant(sys.executable, "guerdon") as ours:
        found.notes.append(_cost_of_checks(ours))
        against_loop.pairs = _pairs(ours, ours, "plain_loop", found)
        if missing:
            against_hooks.pairs = [(seconds, 0.0) for seconds, _ in against_loop.pairs]
        else:
            with Contestant(openenv, "openenv") as theirs:
                against_hooks.pairs = _pairs(ours, theirs, "rollouts", found)
    return found


def _pairs(ours: Contestant, theirs: Contestant, task: str, found: Findings) -> Pairs:
    if ours.ask("rollouts", ROLLOUTS)["digest"] != theirs.ask(task, ROLLOUTS)["digest"]:
        found.notes.append(f"10,000 rollouts: {task!r} and score_rollouts gave different rows")
    return take_turns(ours.seconds("rollouts", ROLLOUTS), theirs.seconds(task, ROLLOUTS), ROUNDS)


def _cost_of_checks(contestant: Contestant) -> str:
    rounds = [contestant.ask("checks", ROLLOUTS) for _ in range(7)]
    best = {name: min(each[name] for each in rounds) for name in rounds[0]}
    nothing = best.pop("nothing")
    costs = ", ".join(f"{name} {cost * 1e6:.2f} µs" for name, cost in best.items())
    return f"time per check: {costs}; an empty function {nothing * 1e6:.2f} µs"
