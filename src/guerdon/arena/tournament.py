"""`run_arena`: every method in every world, tuned and evaluated; interrupted runs go on."""

from __future__ import annotations

import fcntl
import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from guerdon._validation import check_integer
from guerdon.arena.analysis import frozen_policy, quality
from guerdon.arena.exact import exact_values, optimal_value, uniform_policy
from guerdon.arena.methods import METHODS, Method
from guerdon.arena.model import Floats, Model
from guerdon.arena.protocol import Protocol
from guerdon.arena.training import Training, train
from guerdon.arena.worlds import WORLDS, find_world
from guerdon.errors import InvalidArgumentError, ScoringError

__all__ = ["Contest", "run_arena"]

# The first seeds of the sweep, the evaluation and the frozen policies.
SWEEP_SEED, EVALUATION_SEED, FROZEN_SEED = 0, 1_000_000, 2_000_000
# Points of a curve that are written, closer together at the beginning; fewer in a short run.
POINTS = 120


@dataclass(frozen=True, slots=True)
class Contest:
    """The results of one method in one world; lists have one entry for each evaluation seed.

    Attributes:
        world: The name of the world.
        method: The name of the method.
        uniform: The return of the uniform policy.
        optimum: The highest return.
        learning_rate: The rate that the sweep chose.
        sweep: The median area under the curve, by learning rate.
        area: The mean of the normalized return over the updates.
        final: The normalized return at the end.
        updates: The number of updates to the target; None if it was not reached.
        steps: The number of environment steps to the target; None if it was not reached.
        curve: The quartiles of the normalized return at some updates, as (update, low, median,
            high).
        coverage: The share of steps with an advantage other than 0, over the whole training.
        seconds: The time of an update.
        frozen: The quality of the estimator on the frozen policies, by their share of the optimum.
        error: Why there are no results, if the estimator failed.
    """

    world: str
    method: str
    uniform: float
    optimum: float
    learning_rate: float | None = None
    sweep: dict[str, float] | None = None
    area: list[float] | None = None
    final: list[float] | None = None
    updates: list[int | None] | None = None
    steps: list[int | None] | None = None
    curve: list[list[float]] | None = None
    coverage: float | None = None
    seconds: float | None = None
    frozen: dict[str, dict[str, float]] | None = None
    error: str | None = None


def contest(world: str, method: Method, protocol: Protocol) -> Contest:
    """Tune a method in a world on the sweep's seeds, and evaluate it on others.

    An estimator that raises has results with its error.
    """
    model = Model.of(find_world(world))
    low, high = exact_values(model, uniform_policy(model)).value, optimal_value(model)
    begun = Contest(world, method.name, float(low), high)
    try:
        return _evaluated(begun, model, method, protocol)
    except Exception as error:
        return Contest(**asdict(begun) | {"error": f"{type(error).__name__}: {error}"})


def _evaluated(begun: Contest, model: Model, method: Method, protocol: Protocol) -> Contest:
    def learn(seeds: Sequence[int], rates: Sequence[float]) -> tuple[Training, Floats]:
        training = train(
            model, method, seeds=seeds, learning_rate=rates, updates=protocol.updates,
            loop=protocol.loop,
        )  # fmt: skip
        span = begun.optimum - begun.uniform
        return training, (training.returns - begun.uniform) / span

    rates, tries = protocol.learning_rates, protocol.sweep_seeds
    seeds = [SWEEP_SEED + number for number in range(tries)]
    _, curves = learn(seeds * len(rates), np.repeat(rates, tries).tolist())
    areas = np.median(curves.mean(-1).reshape(len(rates), tries), -1)
    best = int(np.argmax(areas))  # of equal ones the first, which is the lowest
    seeds = [EVALUATION_SEED + number for number in range(protocol.evaluation_seeds)]
    training, curves = learn(seeds, [rates[best]] * len(seeds))
    updates = [_first(curve >= protocol.target) for curve in curves]
    taken = np.append(np.zeros((len(seeds), 1), np.int64), training.steps, 1)
    points = np.unique(np.geomspace(1, protocol.updates + 1, POINTS).astype(int)) - 1
    quartiles = np.quantile(curves[:, points], [0.25, 0.5, 0.75], axis=0)
    return Contest(
        **asdict(begun) | {
            "learning_rate": rates[best],
            "sweep": {str(rate): float(area) for rate, area in zip(rates, areas, strict=True)},
            "area": curves.mean(-1).tolist(),
            "final": curves[:, -1].tolist(),
            "updates": updates,
            "steps": [
                None if update is None else int(taken[number, update])
                for number, update in enumerate(updates)
            ],
            "curve": np.vstack([points, quartiles]).T.round(6).tolist(),
            "coverage": float(training.coverage.mean()),
            "seconds": training.seconds,
            "frozen": {
                str(share): asdict(
                    quality(
                        model, method, frozen_policy(model, share), batches=protocol.batches,
                        seed=FROZEN_SEED, loop=protocol.loop,
                    )
                )
                for share in protocol.frozen
            },
        }
    )  # fmt: skip


def _first(reached: Any) -> int | None:
    return int(np.argmax(reached)) if reached.any() else None


def run_arena(
    out: str | os.PathLike[str],
    *,
    worlds: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    protocol: Protocol | None = None,
    processes: int | None = None,
    progress: Callable[[Contest, int, int], None] | None = None,
) -> list[Contest]:
    """Run all methods in all worlds, and write a line of JSON for each pair.

    A file that exists is continued: the pairs that it has are not run again.

    Args:
        out: The file, such as ``arena.jsonl``.
        worlds: As for `find_world`; by default all of `WORLDS`.
        methods: As for `Method.named`; by default all of `METHODS`.
        protocol: The rules; by default those of the package.
        processes: How many pairs run at once; by default one for each CPU.
        progress: Called with each new result, how many there are, and how many there will be.

    Returns:
        The results of the requested pairs, world by world.

    Raises:
        InvalidArgumentError: There is no such world or method, or the file has the results of
            another protocol.
        ScoringError: Another process writes to the file.
    """
    protocol = protocol or Protocol.read()
    pairs = [
        (world, method)
        for world in (WORLDS.names() if worlds is None else worlds)
        for method in (list(METHODS) if methods is None else methods)
    ]
    for world, method in pairs:
        find_world(world), Method.named(method)
    workers = check_integer("processes", processes or os.cpu_count() or 1, low=1)
    with _results_file(Path(out), protocol) as (file, found):
        results = {(each.world, each.method): each for each in found if each.error is None}
        waiting = [pair for pair in pairs if pair not in results]
        for each in _in_processes(waiting, protocol, workers):
            results[each.world, each.method] = each
            file.write(json.dumps(_to_json(asdict(each))) + "\n")
            file.flush()
            if progress is not None:
                progress(each, sum(pair in results for pair in pairs), len(pairs))
    return [results[pair] for pair in pairs]


def _in_processes(
    pairs: Sequence[tuple[str, str]], protocol: Protocol, workers: int
) -> Iterator[Contest]:
    """Yield results as they come; ctrl-C ends the processes."""
    if workers == 1 or len(pairs) < 2:
        yield from (contest(world, Method.named(name), protocol) for world, name in pairs)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        running: set[Future[Contest]] = {
            pool.submit(_contest, world, name, protocol) for world, name in pairs
        }
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _contest(world: str, method: str, protocol: Protocol) -> Contest:
    return contest(world, Method.named(method), protocol)


# The file ----------------------------------------------------------------------------------------


@contextmanager
def _results_file(path: Path, protocol: Protocol) -> Iterator[tuple[TextIO, list[Contest]]]:
    """Open a file of results for this process alone, with the results that it has."""
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ScoringError(f"{path}: another run of the arena writes to this file") from error
        file.seek(0)
        text = file.read()
        complete = text[: text.rfind("\n") + 1]
        if len(complete) < len(text):  # the line that was written when a run was interrupted
            file.truncate(len(complete.encode()))
        found: list[Contest] = []
        if complete:
            _, found = read_results(path, protocol)
        else:
            header = {"arena": protocol.fingerprint(), "protocol": protocol.model_dump(mode="json")}
            file.write(json.dumps(header) + "\n")
            file.flush()
        yield file, found


def read_results(
    path: str | os.PathLike[str], protocol: Protocol | None = None
) -> tuple[Protocol, list[Contest]]:
    """Read a file of results.

    Args:
        path: The file.
        protocol: The protocol that it must have; by default any.

    Raises:
        InvalidArgumentError: It is not a file of the arena, or has another protocol.
    """
    try:
        header, *lines = map(json.loads, Path(path).read_text(encoding="utf-8").splitlines())
        found = Protocol.model_validate(header["protocol"])
        results = [Contest(**_from_json(line)) for line in lines]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidArgumentError(f"{path}: not a file of the arena: {error}") from error
    if protocol is not None and found.fingerprint() != protocol.fingerprint():
        raise InvalidArgumentError(
            f"{path} has the results of another protocol; write to another file, or remove it"
        )
    return found, results


def _to_json(value: Any) -> Any:
    """Return a value with None in place of numbers that JSON doesn't have."""
    if isinstance(value, dict):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _from_json(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line with NaN in place of a missing quality."""
    for of_policy in (line.get("frozen") or {}).values():
        for name, value in of_policy.items():
            of_policy[name] = math.nan if value is None else value
    return line
