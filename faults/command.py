"""``guerdon score`` over invalid rows, with rewards that fail, and killed at random moments."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from faults.counts import Ledger, choose
from guerdon import open_sandbox
from guerdon.errors import SandboxUnavailableError

# Rows of a file that is scored in this process, and in a sandbox.
ROWS, SANDBOXED = 20_000, 1_500
KILLS = 6  # of a run, before it may end
ROW_BYTES = 200  # of a row of results, about
RUN_S = 300.0

REWARD = '''
"""A reward that fails as each rollout demands."""
import json, os, time

from guerdon import Rubric

WEIRD = {"nan": float("nan"), "inf": float("inf"), "None": None, "text": "1", "huge": 10**400}

class Does(Rubric):
    def forward(self, action, observation):
        asked = json.loads(action.content)
        fault = f"fault #{asked['ticket']}"
        match do := asked["do"].removeprefix("reward "):
            case "raises": raise ValueError(fault)
            case "exits": raise SystemExit(fault)
            case "recurses": return self.forward(action, observation)
            case "loops":
                while True: pass
            case "sleeps": time.sleep(60)
            case "ends its process": os._exit(0)
            case "crashes": os.abort()
            case "takes all memory": all = [bytes(2**20) for _ in range(2**20)]
            case "prints too much": print("x" * 10**7)
            case "prints 1":
                print('{"score": 1.0, "is_score_valid": true}')
                raise ValueError(fault)
        return WEIRD.get(do, float(asked["ticket"]))

does = Does()

def function(messages):
    return does(type("A", (), {"content": messages[-1].text}), None)
'''
PLAIN = [f"reward {name}" for name in ("raises", "nan", "inf", "None", "text", "huge", "recurses")]
ISOLATED = [
    "reward loops", "reward sleeps", "reward ends its process", "reward crashes",
    "reward takes all memory", "reward prints too much",
]  # fmt: skip
BAD_ROWS: dict[str, str] = {
    "row isn't JSON": '{"id": ID, "messages": [{"role": "assist',
    "row is text": "hello",
    "row is a number": "7",
    "row is null": "null",
    "row has no messages": '{"id": ID}',
    "row's messages are null": '{"id": ID, "messages": null}',
    "row has no assistant turn": '{"id": ID, "messages": [{"role": "user", "content": "hi"}]}',
    "row has an invalid role": '{"id": ID, "messages": [{"role": "x", "content": "hi"}]}',
    "row has a content of nan": '{"id": ID, "messages": [{"role": "assistant", "content": NaN}]}',
    "row has a zero byte": '{"id": ID, "messages": \0}',
    "row is deep": '{"id": ID, "messages": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "row is invalid UTF-8": '{"id": ID, "messages": "\udcff\udcfe"}',
    "row has an error": '{"id": ID, "messages": [{"role": "assistant", "content": "{}"}], '
    '"ended": "error", "error": "the episode failed"}',
}


def run(ledger: Ledger, size: float) -> None:
    """Score files in each way."""
    (ledger.folder / "reward.py").write_text(REWARD)
    plain, isolated = [*PLAIN, *BAD_ROWS], [*PLAIN, "reward exits", "reward prints 1", *BAD_ROWS]
    rows, sandboxed = int(ROWS * size), int(SANDBOXED * size)
    kills = max(1, round(KILLS * size))
    score(ledger, plain, rows, kills=kills)
    score(ledger, plain, rows, "--workers=2", kills=kills - 1)
    score(ledger, plain, rows, reward="function")
    for level in ("process", "strict"):
        if not works(level):
            ledger.injected[f"level {level} doesn't work here"] += 1
            break
        options = [f"--sandbox={level}", "--workers=2", "--limit=seconds=2"]
        score(ledger, ISOLATED, max(12, sandboxed // 25), *options, share=0.5)
    else:
        score(ledger, isolated, sandboxed, *options, kills=kills)
        score(ledger, isolated, sandboxed, *options, "--reuse", kills=kills - 1)


def works(level: str) -> bool:
    """Whether a level of isolation works on this machine."""
    try:
        open_sandbox(level).close()
    except SandboxUnavailableError:
        return False
    return True


def score(
    ledger: Ledger,
    faults: list[str],
    count: int,
    *options: str,
    kills: int = 0,
    reward: str = "does",
    share: float = 0.1,
) -> None:
    """Score a file that is still written, kill the command, resume it, and read the results.

    Args:
        ledger: The ledger.
        faults: The faults of its rows.
        count: The number of rows.
        options: Further options of the command.
        kills: How often the command is killed.
        reward: The name of the reward.
        share: The share of rows with a fault.
    """
    folder = ledger.folder / f"run-{len(list(ledger.folder.iterdir()))}"
    folder.mkdir()
    weights = {"": 1 - share} | dict.fromkeys(faults, share / len(faults))
    rows = [row(ledger, folder.name, choose(ledger, weights)) for _ in range(count)]
    lines, tickets = zip(*rows, strict=True)
    path, out = folder / "rollouts.jsonl", folder / "scored.jsonl"
    whole = b"".join(lines)
    path.write_bytes(whole[: -len(lines[-1]) // 2] if kills else whole)
    ledger.injected["file ends in the middle of a line"] += bool(kills)
    command = [
        "guerdon", "score", str(path), f"--reward={ledger.folder}/reward.py:{reward}",
        f"--out={out}", "--resume", *options,
    ]  # fmt: skip
    for _ in range(kills):
        done = out.stat().st_size if out.exists() else 0
        run_command(command, out, ledger.random.randrange(done, max(done, ROW_BYTES * count) + 1))
        ledger.injected["command killed"] += 1
    if kills:
        run_command(command)
    path.write_bytes(whole)
    run_command(command)
    ledger.take(tickets)
    read_results(ledger, out, tickets)


def row(ledger: Ledger, run: str, fault: str) -> tuple[bytes, int]:
    """Return a line of the rollouts, and its ticket."""
    ticket = ledger.issue((run, len(ledger.tickets)), fault)
    if fault in BAD_ROWS:
        text = BAD_ROWS[fault].replace("ID", str(ticket))
        return text.encode("utf-8", "surrogateescape") + b"\n", ticket
    content = json.dumps({"ticket": ticket, "do": fault})
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]
    return json.dumps({"id": ticket, "messages": messages}).encode() + b"\n", ticket


def run_command(command: list[str], out: Path | None = None, kill_at: int = 0) -> None:
    """Run the command to its end, or kill it when its results have a size in bytes.

    If it can't run or continue, the error is printed, and the missing rows are lost.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if out is not None:
        while process.poll() is None and (not out.exists() or out.stat().st_size < kill_at):
            time.sleep(0.005)
        process.kill()
    _, errors = process.communicate(timeout=RUN_S)
    if process.returncode not in (0, 1, -signal.SIGKILL):
        print(f"{command} ended with {process.returncode}: {errors.decode()[-800:]}")


def read_results(ledger: Ledger, out: Path, tickets: tuple[int, ...]) -> None:
    """Record the rows of the results: the n-th belongs to the n-th rollout."""
    for number, line in enumerate(out.read_text().splitlines()):
        result = json.loads(line)
        ticket = tickets[min(number, len(tickets) - 1)]  # further rows belong to the last
        place = ledger.tickets[ticket].place
        with suppress(TypeError, ValueError, KeyError):  # a line that isn't JSON has no id
            place = ledger.tickets[int(result["id"])].place
        score = result["score"]
        if not result["is_score_valid"] and not result["error"]:  # a failure without a reason
            score = -1.0
        ledger.answer(ticket, score, place=place, error=result["error"])
