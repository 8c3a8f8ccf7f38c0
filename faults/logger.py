"""`RewardLogger` with trackers that fail, full disks, and processes that are killed."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from faults.counts import Ledger
from guerdon import RewardLogger
from guerdon.errors import TrackerError

RECORDS = 20_000
THREADS, LOGGERS = 4, 5
KILLS = 12
HANG_S = 1.0
LAST_S = 1.0  # SIGKILL may lose what was logged in the last second
DISK_BYTES = 200_000
INVALID = {"reward is None": None, "reward is nan": float("nan"), "reward is inf": float("inf")}
Seen = tuple[str, str, int, float | None]  # the record's id, environment, step and reward


def run(ledger: Ledger, size: float) -> None:
    """Log in each way."""
    with_trackers(ledger, int(RECORDS * size))
    on_a_full_disk(ledger, int(RECORDS * size))
    killed(ledger, max(2, round(KILLS * size)))


def score_of(step: int) -> float:
    """Return the reward of a step."""
    return step + 0.5


class Arrivals:
    """What has to arrive at one destination: the log, or a tracker.

    Args:
        ledger: The ledger.
        name: The destination.
    """

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger, self.name = ledger, name
        self.tickets: dict[int, int] = {}

    def expect(self, env: str, step: int, fault: str = "", outcomes: str = "") -> None:
        """Expect a record."""
        place, score = (self.name, env, step), score_of(step)
        self.tickets[step] = self.ledger.issue(place, fault, outcomes, score=score)

    def read(self, records: Iterable[Seen]) -> set[int]:
        """Record what has arrived, and return the steps."""
        steps = set()
        for _, env, step, reward in records:
            self.ledger.take([self.tickets[step]] if step not in steps else [])
            self.ledger.answer(self.tickets[step], reward, place=(self.name, env, step))
            steps.add(step)
        return steps


def read_log(path: Path) -> list[Seen]:
    """Return the records of a log."""
    rows = map(json.loads, path.read_bytes().splitlines())
    return [(row["id"], row["env_id"], row["step"], row["reward"]) for row in rows]


# Trackers that fail ------------------------------------------------------------------------------


class Tracker:
    """A tracker that fails before it accepts records.

    Args:
        name: Its name.
        ledger: Chooses when it fails.
        raises: The share of calls that raise.
        hangs: Whether it hangs once.
    """

    def __init__(
        self, name: str, ledger: Ledger, *, raises: float = 0.0, hangs: bool = False
    ) -> None:
        self.name, self.ledger, self.raises, self.hangs = name, ledger, raises, hangs
        self.random = random.Random(name)
        self.accepted: list[Seen] = []
        self.refused: set[int] = set()

    def _fail(self, method: str) -> None:
        if self.random.random() < self.raises:
            self.ledger.injected[f"tracker raises in {method}"] += 1
            raise self.random.choice((ConnectionError, SystemExit, KeyboardInterrupt))

    def open(self, run: Any) -> None:
        """Connect."""
        self._fail("open")

    def write(self, records: Sequence[Any]) -> None:
        """Accept records, or none of them."""
        if self.hangs:
            self.hangs = False
            self.ledger.injected["tracker hangs"] += 1
            time.sleep(HANG_S)
        self._fail("write")
        if any(record.step in self.refused for record in records):
            raise TrackerError("a record will never be accepted")
        self.accepted += [(each.id, each.env_id, each.step, each.reward) for each in records]

    def close(self) -> None:
        """Disconnect."""
        self._fail("close")


def with_trackers(ledger: Ledger, count: int) -> None:
    """Log in several threads, to trackers that raise, hang, refuse records and work."""
    refusing = Tracker("refuses", ledger)
    trackers = [
        Tracker("works", ledger), Tracker("raises", ledger, raises=0.5),
        Tracker("hangs", ledger, hangs=True), refusing,
    ]  # fmt: skip
    names = ("log", *(each.name for each in trackers))
    arrivals = {name: Arrivals(ledger, name) for name in names}
    faults = [*INVALID, *[""] * 20]
    choice = ledger.random

    def log(thread: int, first: int) -> None:
        for step in range(first, first + count // THREADS // LOGGERS):
            fault, env = choice.choice(faults), f"env-{thread}"
            for each in arrivals.values():
                each.expect(env, step, fault)
            if choice.random() < 0.001:
                ledger.injected["tracker refuses a record"] += 1
                refusing.refused.add(step)
            logger.log_step(step, 0, INVALID.get(fault, score_of(step)), {}, env)

    folder = ledger.folder / "logs" / "trackers"
    for number in range(LOGGERS):
        with RewardLogger(
            trackers, path=folder.parent, run_name=folder.name, retry_s=0.01
        ) as logger:
            threads = [
                threading.Thread(target=log, args=(thread, (THREADS * number + thread) * count))
                for thread in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            deadline = time.monotonic() + 60
            while not logger.flush(10) and time.monotonic() < deadline:
                pass  # a tracker raised; it is retried
    arrivals["log"].read(read_log(folder / "rewards.jsonl"))
    kept = folder / "trackers" / "refuses.refused.jsonl"
    refusing.accepted += read_log(kept) if kept.exists() else []
    for each in trackers:
        arrivals[each.name].read(each.accepted)


# Disks that are full, processes that are killed --------------------------------------------------


def child(*arguments: object) -> subprocess.Popen[str]:
    """Start a function of this module in another process."""
    command = [sys.executable, "-m", "faults.logger", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def on_a_full_disk(ledger: Ledger, count: int) -> None:
    """Log while the disk can't be written: what isn't in the log is reported as lost."""
    ledger.injected["disk is full"] += 1
    arrivals = Arrivals(ledger, "full disk")
    for step in range(count):
        arrivals.expect("", step, outcomes="number or failure")
    for step in range(count, count + 100):  # there is room again
        arrivals.expect("", step)
    process = child("fill_disk", ledger.folder / "logs", count)
    output, _ = process.communicate(timeout=120)
    lost = json.loads(output)
    steps = arrivals.read(read_log(ledger.folder / "logs" / "full" / "rewards.jsonl"))
    missing = [ticket for step, ticket in arrivals.tickets.items() if step not in steps]
    for ticket in [*missing, *[arrivals.tickets[0]] * lost][:lost]:
        ledger.answer(ticket, None)


def fill_disk(path: str, count: str) -> None:
    """Log records while files may not grow, and more when they may; print how many were lost."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with RewardLogger("jsonl", path=path, run_name="full", queue_size=500) as logger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, hard))
        for step in range(int(count)):
            logger.log_step(step, 0, score_of(step), {}, "")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        logger.flush(30)
        for step in range(int(count), int(count) + 100):
            logger.log_step(step, 0, score_of(step), {}, "")
    print(logger.status()["jsonl"].lost)


def killed(ledger: Ledger, kills: int) -> None:
    """Kill a process while it logs, several times, then let the next send the rest."""
    log, tracker = Arrivals(ledger, "killed, log"), Arrivals(ledger, "killed, tracker")
    folder = ledger.folder / "logs"
    for number in range(kills):
        process = child("log_until_killed", folder, number)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        timer = threading.Timer(LAST_S * (0.2 + 2 * ledger.random.random()), process.kill)
        timer.start()
        lines += process.stdout
        end = time.monotonic()
        process.communicate()
        timer.join()
        assert process.returncode == -signal.SIGKILL
        ledger.injected["process killed while it logs"] += 1
        for line in lines:
            step, logged = line.split() if line.endswith("\n") else (line.split()[0], end)
            late = float(logged) > end - LAST_S
            log.expect("", int(step), outcomes="number or nothing" if late else "number")
    child("send", folder).communicate(timeout=60)
    records = read_log(folder / "killed" / "rewards.jsonl")
    arrived = log.read(records)
    for _, env, step, _ in records:
        tracker.expect(env, step)
    sent = [json.loads(line) for line in (folder / "sent").read_text().splitlines()]
    # What was being sent when a process was killed may arrive twice, with the same id.
    tracker.read({each[0]: tuple(each) for each in sent if each[2] in arrived}.values())


class FileTracker:
    """Appends records to a file."""

    name = "file"

    def __init__(self, path: str) -> None:
        self._path = Path(path) / "sent"

    def open(self, run: Any) -> None:
        """Open the file."""
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, records: Sequence[Any]) -> None:
        """Append records."""
        rows = [(each.id, each.env_id, each.step, each.reward) for each in records]
        os.write(self._file, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def log_until_killed(path: str, number: str) -> None:
    """Log records, and print each with the time."""
    logger = RewardLogger(FileTracker(path), path=path, run_name="killed")
    for step in range(int(number) * 1_000_000, 10**9):
        os.write(1, b"%d " % step)
        logger.log_step(step, 0, score_of(step), {}, "")
        os.write(1, b"%f\n" % time.monotonic())
        time.sleep(0.0002)


def send(path: str) -> None:
    """Send what the killed processes left."""
    with RewardLogger(FileTracker(path), path=path, run_name="killed") as logger:
        logger.flush(30)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
