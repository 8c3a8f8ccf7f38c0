"""`run_arena`: every method in every world, tuned and evaluated; interrupted runs go on."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np

from guerdon._validation import check_integer
from guerdon.arena.analysis import frozen_policy, quality
from guerdon.arena.exact import exact_values, optimal_value, uniform_policy
from guerdon.arena.methods import METHODS, Method
from guerdon.arena.model import Floats, Model
from guerdon.arena.protocol import Protocol
from guerdon.arena.training import Training, train
from guerdon.arena.worlds import available_worlds, find_world
from guerdon.errors import InvalidArgumentError
from guerdon.tracking.log import lock_output

__all__ = ["MethodFailure", "MethodResult", "evaluate_method", "read_results", "run_arena"]

Results: TypeAlias = "list[MethodResult | MethodFailure]"

# The first seeds of the sweep, the evaluation and the frozen policies.
SWEEP_SEED, EVALUATION_SEED, FROZEN_SEED = 0, 1_000_000, 2_000_000
# Points of a curve that are written, closer together at the beginning; fewer in a short run.
POINTS = 120


@dataclass(frozen=True, slots=True)
class MethodResult:
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
    """

    world: str
    method: str
    uniform: float
    optimum: float
    learning_rate: float
    sweep: dict[str, float]
    area: list[float]
    final: list[float]
    updates: list[int | None]
    steps: list[int | None]
    curve: list[list[float]]
    coverage: float
    seconds: float
    frozen: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class MethodFailure:
    """A method that has no results in a world.

    Attributes:
        world: The name of the world.
        method: The name of the method.
        error: What it raised.
    """

    world: str
    method: str
    error: str


def evaluate_method(world: str, name: str, protocol: Protocol) -> MethodResult | MethodFailure:
    """Tune a method in a world on the sweep's seeds, and evaluate it on others.

    Args:
        world: As for `find_world`.
        name: As for `Method.named`.
        protocol: The rules.

    Returns:
        The results; those of an estimator that raised are its error.
    """
    model, method = Model.of(find_world(world)), Method.named(name)
    try:
        return _evaluated(world, model, method, protocol)
    except Exception as error:
        return MethodFailure(world, name, f"{type(error).__name__}: {error}")


def _evaluated(world: str, model: Model, method: Method, protocol: Protocol) -> MethodResult:
    uniform = float(exact_values(model, uniform_policy(model)).value)
    optimum = optimal_value(model)

    def learn(seeds: Sequence[int], rates: Sequence[float]) -> tuple[Training, Floats]:
        training = train(
            model, method, seeds=seeds, learning_rate=rates, updates=protocol.updates,
            loop=protocol.loop,
        )  # fmt: skip
        return training, (training.returns - uniform) / (optimum - uniform)

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
    return MethodResult(
        world=world,
        method=method.name,
        uniform=uniform,
        optimum=optimum,
        learning_rate=rates[best],
        sweep={str(rate): float(area) for rate, area in zip(rates, areas, strict=True)},
        area=curves.mean(-1).tolist(),
        final=curves[:, -1].tolist(),
        updates=updates,
        steps=[
            None if update is None else int(taken[number, update])
            for number, update in enumerate(updates)
        ],
        curve=np.vstack([points, quartiles]).T.round(6).tolist(),
        coverage=float(training.coverage.mean()),
        seconds=training.seconds,
        frozen=_on_frozen_policies(model, method, protocol),
    )


def _on_frozen_policies(
    model: Model, method: Method, protocol: Protocol
) -> dict[str, dict[str, float]]:
    return {
        str(share): asdict(
            quality(
                model, method, frozen_policy(model, share), batches=protocol.batches,
                seed=FROZEN_SEED, loop=protocol.loop,
            )
        )
        for share in protocol.frozen
    }  # fmt: skip


def _first(reached: Any) -> int | None:
    return int(np.argmax(reached)) if reached.any() else None


def run_arena(
    out: str | os.PathLike[str],
    *,
    worlds: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    protocol: Protocol | None = None,
    processes: int | None = None,
    progress: Callable[[MethodResult | MethodFailure, int, int], None] | None = None,
) -> Results:
    """Run all methods in all worlds, and write a line of JSON for each pair.

    A file that exists is continued: the pairs that it has are not run again.

    Args:
        out: The file, such as ``arena.jsonl``.
        worlds: As for `find_world`; by default those of `available_worlds`.
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
    worlds = available_worlds() if worlds is None else worlds
    methods = list(METHODS) if methods is None else methods
    pairs = [(world, method) for world in worlds for method in methods]
    for world, method in pairs:  # before anything is written
        find_world(world)
        Method.named(method)
    workers = os.cpu_count() or 1 if processes is None else processes
    check_integer("processes", workers, low=1)
    with _results_file(Path(out), protocol) as (file, found):
        results: dict[tuple[str, str], MethodResult | MethodFailure] = {
            (each.world, each.method): each for each in found if isinstance(each, MethodResult)
        }
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
) -> Iterator[MethodResult | MethodFailure]:
    """Yield results as they come; ctrl-C ends the processes."""
    if workers == 1 or len(pairs) < 2:
        yield from (evaluate_method(*pair, protocol) for pair in pairs)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    # Ctrl-C reaches the processes too: this one ends them.
    ignoring = signal.signal, (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(workers, context, *ignoring) as pool:
        running = {pool.submit(evaluate_method, *pair, protocol) for pair in pairs}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if running:
                for process in set(multiprocessing.active_children()) - others:
                    process.terminate()


# The file ----------------------------------------------------------------------------------------


@contextmanager
def _results_file(path: Path, protocol: Protocol) -> Iterator[tuple[TextIO, Results]]:
    """Open a file of results for this process alone, with the results that it has."""
    with path.open("a+", encoding="utf-8") as file:
        lock_output(file.fileno(), path)
        file.seek(0)
        text = file.read()
        complete = text[: text.rfind("\n") + 1]
        if len(complete) < len(text):  # the line that was written when a run was interrupted
            file.truncate(len(complete.encode()))
        found: Results = []
        if complete:
            _, found = read_results(path, protocol)
        else:
            header = {"arena": protocol.fingerprint(), "protocol": protocol.model_dump(mode="json")}
            file.write(json.dumps(header) + "\n")
            file.flush()
        yield file, found


def read_results(
    path: str | os.PathLike[str], protocol: Protocol | None = None
) -> tuple[Protocol, Results]:
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
        results = list(map(_from_json, lines))
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


def _from_json(line: dict[str, Any]) -> MethodResult | MethodFailure:
    """Return a line as an object, with NaN in place of a missing quality."""
    if "error" in line:
        return MethodFailure(**line)
    for of_policy in line["frozen"].values():
        for name, value in of_policy.items():
            of_policy[name] = math.nan if value is None else value
    return MethodResult(**line)
