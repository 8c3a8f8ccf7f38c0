"""Run the experiments and print their results.

python -m examples.shaping --only a b --plots docs
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from time import perf_counter

from examples.shaping import failures, gate, live_config, normalize, schedule
from examples.shaping.curves import plot, table

EXPERIMENTS = {
    "a": schedule.run,
    "b": gate.run,
    "c": failures.run,
    "d": live_config.run,
    "e": normalize.run,
}


def main() -> None:
    """Run the experiments on the command line."""
    parser = argparse.ArgumentParser(description="Rewards shape learning: five experiments.")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--plots", type=Path, help="a folder for one SVG file per experiment")
    chosen = parser.parse_args()
    # The failures that an experiment turns into 0 are logged as warnings.
    logging.getLogger("guerdon.rubrics").setLevel(logging.ERROR)
    for letter in chosen.only:
        began = perf_counter()
        experiment = EXPERIMENTS[letter]()
        print(f"({letter}) ", end="")
        print(*table(experiment), sep="\n")
        if chosen.plots is not None:
            chosen.plots.mkdir(parents=True, exist_ok=True)
            print(plot(experiment, chosen.plots))
        print(f"{perf_counter() - began:.1f} s\n")


if __name__ == "__main__":
    main()
