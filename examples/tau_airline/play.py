"""Plays a model on tau-bench's airline tasks, with a second model as the user; prints pass^k.

Run it; a second run with the same file plays only what is missing::

    python -m examples.tau_airline.play --endpoint URL --model M --trials 4 --out rollouts.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import fmean
from urllib.parse import urlsplit

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples.tau_airline.data import Record, load_data
from examples.tau_airline.environment import TauAirlineEnvironment
from examples.tau_airline.reward import KINDS
from examples.tau_airline.users import SERVICE
from guerdon import MCPClient, OpenAIPolicy, RLRolloutWorker
from guerdon._validation import check_integer
from guerdon.errors import GuerdonError, InvalidArgumentError

__all__ = ["main", "pass_hat_k", "reward_of"]

STEP_S = 300.0  # seconds that the user may take for an answer


# Results ------------------------------------------------------------------------------------------


def pass_hat_k(rewards: Iterable[Sequence[float]], k: int) -> float | None:
    """Estimate the chance that `k` trials of a task all succeed, without bias.

    With n trials of a task, of which c succeeded, it is the mean over tasks of C(c, k) / C(n, k):
    pass^k of the paper on tau-bench (arXiv:2406.12045).

    Example:
        >>> from examples.tau_airline.play import pass_hat_k
        >>> [pass_hat_k([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]], k) for k in (1, 3, 5)]
        [0.75, 0.5, None]

    Args:
        rewards: The rewards of the trials of each task; 1 is a success.
        k: The number of trials, at least 1. Tasks with fewer are left out.

    Returns:
        The estimate; None if no task has as many trials.
    """
    check_integer("k", k, low=1)
    counts = [(sum(each == 1.0 for each in trials), len(trials)) for trials in rewards]
    found = [comb(passed, k) / comb(n, k) for passed, n in counts if n >= k]
    return fmean(found) if found else None


def reward_of(row: Record) -> float | None:
    """Return the reward of an episode's row; None if the episode wasn't scored.

    Example:
        >>> from examples.tau_airline.play import reward_of
        >>> reward_of({"ended": "done", "env_rewards": [0.0, 1.0]})
        1.0
        >>> reward_of({"ended": "error", "env_rewards": [0.0, None]}) is None
        True
    """
    rewards = row["env_rewards"]
    return sum(rewards) if row["ended"] == "done" and None not in rewards else None


def _table(tasks: Mapping[int, Sequence[Record]]) -> Table:
    """Return a row for each task: the rewards of its trials, and what was found in them."""
    out = Table("task", "trials", box=SIMPLE_HEAD, pad_edge=False)
    for kind in KINDS:
        out.add_column(kind.replace("_", " "), justify="right")
    for task, rows in tasks.items():
        shown = ("–" if each is None else f"{each:g}" for each in map(reward_of, rows))
        found = Counter[str]()
        for row in rows:
            found.update(row["components"])
        out.add_row(str(task), " ".join(shown), *(f"{found[kind]:g}" for kind in KINDS))
    return out


def _summary(tasks: Mapping[int, Sequence[Record]], trials: int) -> Iterator[str]:
    scored = {
        task: [reward for reward in map(reward_of, rows) if reward is not None]
        for task, rows in tasks.items()
    }
    for k in range(1, trials + 1):
        value = pass_hat_k(scored.values(), k)
        few = ", ".join(str(task) for task, rewards in scored.items() if len(rewards) < k)
        without = f" without tasks {few}, which have fewer scored episodes" if few else ""
        yield f"pass^{k}: {'unknown' if value is None else f'{value:.3f}'}{without}"
    total, count = (sum(map(len, each.values())) for each in (tasks, scored))
    yield f"episodes: {total}, unscored: {total - count}"


# The file -----------------------------------------------------------------------------------------


def _place(row: Record) -> tuple[int, int]:
    return row["task"], row["trial"]


def _read(path: Path, models: Record) -> list[Record]:
    """Return the scored episodes of an earlier run; the others are played again.

    Raises:
        InvalidArgumentError: The file has something else.
    """
    # As bytes, since texts of models may contain other characters that end lines, such as U+2028.
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):  # the earlier run ended while it was written
            break
        try:
            row = json.loads(line)
            is_ours = all(row[name] == model for name, model in models.items())
            is_scored, _ = reward_of(row) is not None, _place(row)
        except (ValueError, TypeError, KeyError):
            is_ours = False
        if not is_ours:
            shown = line.decode(errors="replace")
            raise InvalidArgumentError(
                f"{path}, line {number}: it must be an episode of {models}, got {shown!r:.80}"
            )
        rows += [row] if is_scored else []
    return rows


def _write(path: Path, rows: Iterable[Record]) -> None:
    """Write the rows by task, as `guerdon score --credit` needs them."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in sorted(rows, key=_place))
    new = path.with_name(f"{path.name}.new")
    new.write_text("".join(lines), encoding="utf-8")
    os.replace(new, path)


# Playing ------------------------------------------------------------------------------------------


async def _play(options: argparse.Namespace, rows: list[Record], models: Record) -> None:
    """Play the episodes that are missing; add each to the rows and the file when it ends."""
    done = set(map(_place, rows))
    wanted = [(task, trial) for trial in range(options.trials) for task in options.tasks]
    missing = iter([each for each in wanted if each not in done])
    key = options.user_key_env if os.environ.get(options.user_key_env) else None
    user = {"type": "openai_llm", "endpoint": options.user_endpoint, "model": options.user_model}
    services = MCPClient({SERVICE: {**user, "api_key_env": key, "temperature": None}})
    policy = OpenAIPolicy(
        options.model,
        base_url=options.endpoint,
        api_key=os.environ.get(options.key_env),
        temperature=options.temperature,
    )
    async with services, policy:
        worker = RLRolloutWorker(
            lambda: TauAirlineEnvironment(mcp=services, max_turns=options.max_turns),
            policy,
            max_steps=options.max_turns,
            step_timeout=STEP_S,
        )
        with options.out.open("a", encoding="utf-8") as file:

            async def work() -> None:
                for task, trial in missing:
                    rows.append(await _episode(worker, task, trial=trial, columns=models))
                    file.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
                    file.flush()
                    reward, error = reward_of(rows[-1]), rows[-1]["error"]
                    shown = f"unscored: {error}" if reward is None else f"{reward:g}"
                    print(f"{rows[-1]['id']}: {shown}", file=sys.stderr)

            await asyncio.gather(*(work() for _ in range(options.concurrency)))


async def _episode(worker: RLRolloutWorker, task: int, *, trial: int, columns: Record) -> Record:
    truth = load_data().tasks[task]
    own = {"task": task, "trial": trial, **columns, "ground_truth": truth}
    record = await worker.run(
        {"id": task, "reset": {"task": task}, **own}, rollout_id=f"{task}-{trial}"
    )
    found = Counter[str]()
    record.columns["outcome"] = None
    for step in record.steps:
        metadata = step.step_info.get("env_metadata", {})
        found.update(metadata.get("reward_components", {}))
        record.columns["outcome"] = metadata.get("ended")
    record.columns["components"] = dict(found)
    return record.to_row()


# The command --------------------------------------------------------------------------------------


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.tau_airline.play")
    add = parser.add_argument
    add("--endpoint", required=True, type=_url, help="the address of the agent's model")
    add("--model", required=True, help="its name")
    add("--key-env", default="OPENAI_API_KEY", help="the environment variable with its key")
    add("--user-endpoint", type=_url, help="that of the user's model; by default the same")
    add("--user-model", help="its name; by default the same")
    add("--user-key-env", default="OPENAI_API_KEY", help="the variable with its key")
    add("--temperature", type=float, default=0.0, help="of the agent's model (0)")
    add("--trials", type=_count, default=4, help="episodes of each task (4)")
    add("--tasks", type=_numbers, help="such as 0-4,7; by default all")
    add("--max-turns", type=_count, default=30, help="turns of the agent in an episode (30)")
    add("--concurrency", type=_count, default=8, help="episodes at the same time (8)")
    add("--out", required=True, type=Path, help="the file of the rollouts")
    options = parser.parse_args(arguments)
    options.user_endpoint = options.user_endpoint or options.endpoint
    options.user_model = options.user_model or options.model
    return options


def _url(text: str) -> str:
    return text if urlsplit(text).path.strip("/") else f"{text.rstrip('/')}/v1"


def _count(text: str) -> int:
    return check_integer("the number", int(text), low=1)


def _numbers(text: str) -> list[int]:
    parts = [part.partition("-") for part in text.split(",")]
    ranges = [range(int(low), int(high or low) + 1) for low, _, high in parts]
    return sorted({number for each in ranges for number in each})


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what is missing, and print the results of all.

    Returns:
        0; 1 if an episode wasn't scored; 2 if nothing could be played; 130 after Ctrl-C.
    """
    options = _options(arguments)
    models = {"model": options.model, "user_model": options.user_model}
    try:
        count = len(load_data().tasks)
        options.tasks = list(range(count)) if options.tasks is None else options.tasks
        if not count or options.tasks[-1] >= count:
            raise InvalidArgumentError(f"--tasks: the data has {count} tasks")
        rows = _read(options.out, models)
        _write(options.out, rows)
        asyncio.run(_play(options, rows, models))
        _write(options.out, rows)
    except (GuerdonError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command plays the rest", file=sys.stderr)
        return 130
    tasks: dict[int, list[Record]] = {task: [] for task in options.tasks}
    for row in sorted(rows, key=_place):
        if row["task"] in tasks and row["trial"] < options.trials:
            tasks[row["task"]].append(row)
    Console(width=None if sys.stdout.isatty() else 130).print(_table(tasks))
    print("\n".join(_summary(tasks, options.trials)))
    return int(any(reward_of(row) is None for each in tasks.values() for row in each))


if __name__ == "__main__":
    sys.exit(main())
