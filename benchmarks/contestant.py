"""`Contestant`: a process that runs benchmarks of one library; ``main`` runs in the process.

Each library is timed in a separate process with the same code, so that the rounds can alternate.
The process reads lines of JSON (``{"task": …, "number": …}``) and answers each with a line. Its
interpreter needs only the standard library and the library itself.

No task waits, so CPU time is measured, which depends less on other load.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any, Self

from benchmarks.checks import CHECKS, WEIGHTS, right, rows, varied, works_it_out

ROOT = Path(__file__).resolve().parent.parent


class Contestant:
    """A running process that times one library.

    Args:
        python: An interpreter with the library.
        library: ``guerdon`` or ``openenv``.
        module: The module that the process runs, with the same protocol as this one.
        *arguments: Further arguments of the module.
    """

    def __init__(
        self, python: str, library: str, module: str = "benchmarks.contestant", *arguments: str
    ) -> None:
        self._process = subprocess.Popen(
            [python, "-m", module, library, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the process exits at the end of its input

    def ask(self, task: str, number: int) -> dict[str, Any]:
        """Run a task once.

        Args:
            task: The name of a function of `_Tasks`.
            number: The number of units of work.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"task": task, "number": number}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process exited during {task!r}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def seconds(self, task: str, number: int) -> Callable[[], float]:
        """Return a function that runs the task and returns its seconds."""
        return lambda: float(self.ask(task, number)["seconds"])


# In the process --------------------------------------------------------------------------------


@dataclass(slots=True)
class Action:
    """An action, for libraries without a class for it."""

    content: str


@dataclass(slots=True)
class Observation:
    """An observation, for libraries without a class for it."""

    metadata: dict[str, Any]


class _Tasks:
    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def _first_rows(self, count: int) -> list[dict[str, Any]]:
        if len(self._rows) != count:
            self._rows = list(rows(count))
        return self._rows

    def _time_calls(self, rubric: Any, number: int) -> dict[str, Any]:
        names = {"rubric": rubric, "action": "an action", "observation": None}
        return {
            "seconds": timeit.timeit("rubric(action, observation)", globals=names, number=number)
        }

    def leaf(self, number: int) -> dict[str, Any]:
        return self._time_calls(self.constant(1.0), number)

    def weighted_sum(self, number: int) -> dict[str, Any]:
        children = [self.constant(value) for value in (1.0, 0.5, 0.25)]
        return self._time_calls(self.WeightedSum(children, WEIGHTS), number)

    def sequential(self, number: int) -> dict[str, Any]:
        children = [self.constant(value) for value in (1.0, 0.5, 0.25)]
        return self._time_calls(self.Sequential(*children), number)

    def _make_rubrics(self, rubric: type, weighted_sum: Any, sequential: Any) -> None:
        class Constant(rubric):
            def __init__(self, value: float) -> None:
                super().__init__()
                self.value = value

            def forward(self, action: Any, observation: Any) -> float:
                return self.value

        self.constant, self.WeightedSum, self.Sequential = Constant, weighted_sum, sequential


class _Guerdon(_Tasks):
    def __init__(self) -> None:
        super().__init__()
        from guerdon import Rubric, Sequential, WeightedSum

        self._rollouts: list[Any] = []
        self._make_rubrics(Rubric, WeightedSum, Sequential)

    def _recorded(self, count: int) -> list[Any]:
        from guerdon import Rollout

        if len(self._rollouts) != count:
            self._rollouts = [Rollout.from_row(row) for row in self._first_rows(count)]
        return self._rollouts

    def rollouts(self, number: int) -> dict[str, Any]:
        from guerdon import score_rollouts

        recorded, rubric = self._recorded(number), self.WeightedSum(CHECKS, WEIGHTS)
        _settle()
        start = process_time()
        out = list(score_rollouts(rubric, recorded))
        seconds = process_time() - start
        return {"seconds": seconds, "digest": _digest(out)}

    def plain_loop(self, number: int) -> dict[str, Any]:
        recorded = self._recorded(number)
        first, second, third = WEIGHTS
        _settle()
        start = process_time()
        out = []
        for rollout in recorded:
            action, observation = rollout.steps[0]
            a = right(action, observation)
            b = works_it_out(action, observation)
            c = varied(action, observation)
            score = a * first + b * second + c * third
            out.append(
                {
                    "id": rollout.id,
                    "group": rollout.group,
                    "score": score,
                    "is_score_valid": True,
                    "components": {"rubric_0": a, "rubric_1": b, "rubric_2": c},
                    "step_rewards": [score],
                    "error": None,
                    "fingerprint": "0123456789abcdef",
                }
            )
        seconds = process_time() - start
        return {"seconds": seconds, "digest": _digest(out)}

    def checks(self, number: int) -> dict[str, Any]:
        """Return the seconds per call of each check and of an empty function."""
        pairs = [rollout.steps[0] for rollout in self._recorded(number)]

        def nothing(action: Any, observation: Any) -> float:
            return 0.0

        found = {}
        for check in (*CHECKS, nothing):
            start = process_time()
            for action, observation in pairs:
                check(action, observation)
            found[check.__name__] = (process_time() - start) / number
        return found


class _OpenEnv(_Tasks):
    def __init__(self) -> None:
        super().__init__()
        from openenv.core.rubrics import Rubric, Sequential, WeightedSum

        self.Rubric = Rubric
        self._pairs: list[tuple[dict[str, Any], Action, Observation]] = []
        self._make_rubrics(Rubric, WeightedSum, Sequential)

    def _recorded(self, count: int) -> list[tuple[dict[str, Any], Action, Observation]]:
        if len(self._pairs) != count:
            self._pairs = [
                (row, Action(row["messages"][-1]["content"]), Observation({**row, "messages": []}))
                for row in self._first_rows(count)
            ]
        return self._pairs

    def rollouts(self, number: int) -> dict[str, Any]:
        recorded = self._recorded(number)
        # Static methods, so that a call has no overhead.
        children = [
            type(check.__name__, (self.Rubric,), {"forward": staticmethod(check)})()
            for check in CHECKS
        ]
        rubric = self.WeightedSum(children, WEIGHTS)
        components: dict[str, float] = {}

        def collect(name: str) -> Callable[..., None]:
            def hook(rubric: Any, action: Any, observation: Any, result: float) -> None:
                components[name] = result

            return hook

        for name, child in rubric.named_rubrics():
            child.register_forward_hook(collect(name))
        _settle()
        start = process_time()
        out = []
        for row, action, observation in recorded:
            components = {}
            score = rubric(action, observation)
            out.append(
                {
                    "id": row["id"],
                    "group": row["group"],
                    "score": score,
                    "is_score_valid": True,
                    "components": components,
                    "step_rewards": [score],
                    "error": None,
                    "fingerprint": "0123456789abcdef",
                }
            )
        seconds = process_time() - start
        return {"seconds": seconds, "digest": _digest(out)}


def _settle() -> None:
    """Exclude existing objects from garbage collection: their number differs by library."""
    gc.collect()
    gc.freeze()


def _digest(out: list[dict[str, Any]]) -> str:
    """Return a digest of the results, for comparison."""
    import hashlib

    kept = [{**row, "fingerprint": None} for row in out]
    return hashlib.blake2b(json.dumps(kept).encode(), digest_size=8).hexdigest()


def main() -> None:
    tasks: _Tasks = {"guerdon": _Guerdon, "openenv": _OpenEnv}[sys.argv[1]]()
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(tasks, order["task"])(order["number"])), flush=True)


if __name__ == "__main__":
    main()
