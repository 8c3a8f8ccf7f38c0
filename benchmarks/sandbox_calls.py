"""Reward functions in `EvalSandbox` at the level ``strict``, on conversations of 20 messages.

A call in a new fork is compared with a new interpreter that imports pydantic and calls the same
function and, two at a time, with two servers that only fork and reply. The bars of throughput are
stated as times: 0.55 times as many calls per second are 1.82 times as long. With `reuse`, a call is
compared with a call of a ``multiprocessing`` pool with the same messages. A batch is compared with
the same function in this process; its time is printed below the table.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.sandbox_baselines import ForkServer, NewInterpreter, job_of
from benchmarks.sandbox_reward import brief, conversation, wordy
from benchmarks.timing import Findings, Measured, seconds, take_turns
from guerdon import EvalSandbox, Message
from guerdon.types import read_messages

FILE = Path(__file__).with_name("sandbox_reward.py")
WORKERS = 2
CONVERSATIONS = 64

ROUNDS = 15
CALLS = 20
CALLS_BY_TWO = 100
CALLS_REUSED = 200
INTERPRETERS = 2

Caller = Callable[[int], float]


def run() -> Findings:
    """Run the benchmark."""
    jobs = [conversation(number) for number in range(CONVERSATIONS)]
    given = [(read_messages(messages, "messages"), truth) for messages, truth in jobs]
    plain = [job_of(messages, truth) for messages, truth in jobs]
    found = Findings()
    for measure in (_one_by_one, _by_two):
        found.lines.append(measure(given, plain, found))
    found.lines.append(_reused(given))
    found.lines.append(_batch(given, found))
    return found


def _one_by_one(given: Sequence[Any], plain: Sequence[bytes], found: Findings) -> Measured:
    line = Measured("call, strict, a fork per call", "a new python, pydantic", 0.04, unit="call")
    interpreter = NewInterpreter()
    with _sandbox("brief") as sandbox:
        ours, theirs = _ours(sandbox, given), lambda place: interpreter.call(plain[place])
        _check(ours, theirs, given, found)
        line.pairs = take_turns(
            lambda: _each(ours, CALLS), lambda: _each(theirs, INTERPRETERS), ROUNDS
        )
    return line


def _by_two(given: Sequence[Any], plain: Sequence[bytes], found: Findings) -> Measured:
    line = _compare("serve-guerdon", given, plain, found)
    bare = _compare("serve", given, plain, found)
    for each, imports in ((line, "the same imports"), (bare, "only pydantic imported")):
        assert each.ours is not None
        assert each.theirs is not None
        found.notes.append(
            f"calls per second, two at a time: {1 / each.ours:,.0f} in strict, "
            f"{1 / each.theirs:,.0f} with servers that fork and reply, with {imports}: "
            f"{each.theirs / each.ours:.2f} ×"
        )
    return line


def _compare(mode: str, given: Sequence[Any], plain: Sequence[bytes], found: Findings) -> Measured:
    line = Measured("the same, two at a time", "fork and reply, two servers", 1 / 0.55, unit="call")
    with ExitStack() as stack:
        sandbox = stack.enter_context(_sandbox("brief", workers=WORKERS))
        servers = [stack.enter_context(ForkServer(mode)) for _ in range(WORKERS)]
        threads = stack.enter_context(ThreadPoolExecutor(WORKERS))
        ours = [_ours(sandbox, given)] * WORKERS
        theirs = [_theirs(server, plain) for server in servers]
        _check(ours[0], theirs[0], given, found)
        line.pairs = take_turns(
            lambda: _at_once(threads, ours), lambda: _at_once(threads, theirs), ROUNDS
        )
    return line


def _reused(given: Sequence[tuple[list[Message], str]]) -> Measured:
    line = Measured("call, strict, reuse=True", "a call of multiprocessing.Pool", 2, unit="call")
    start = multiprocessing.get_context("spawn")  # this process has threads
    with start.Pool(1) as pool, _sandbox("brief", reuse=True) as sandbox:
        ours, theirs = _ours(sandbox, given), lambda place: pool.apply(brief, given[place])
        line.pairs = take_turns(
            lambda: _each(ours, CALLS_REUSED), lambda: _each(theirs, CALLS_REUSED), ROUNDS
        )
    return line


def _batch(given: Sequence[tuple[list[Message], str]], found: Findings) -> Measured:
    line = Measured(f"batch of {len(given)}, strict", "in process", 1.5, plus=0.010)
    rollouts, truths = [messages for messages, _ in given], [truth for _, truth in given]
    with _sandbox("wordy") as sandbox:
        results = sandbox.evaluate_batch(rollouts, truths)
        if [result.score for result in results] != wordy(rollouts, truths):
            found.notes.append("the sandbox and the bare function gave different scores")
        line.pairs = take_turns(
            lambda: _timed(lambda: sandbox.evaluate_batch(rollouts, truths)),
            lambda: _timed(lambda: wordy(rollouts, truths)),
            3 * ROUNDS,
        )
    if line.theirs is not None:
        one = min(_timed(lambda: brief(*given[0])) for _ in range(100))
        found.notes.append(
            f"the function in process: {seconds(line.theirs / len(given))} per rollout in "
            f"the batch, {seconds(one)} in a single call"
        )
    return line


def _sandbox(name: str, **options: Any) -> EvalSandbox:
    return EvalSandbox(f"{FILE}:{name}", level="strict", **options)


def _ours(sandbox: EvalSandbox, given: Sequence[tuple[list[Message], str]]) -> Caller:
    def call(place: int) -> float:
        score = sandbox.evaluate(*given[place]).score
        assert score is not None
        return score

    return call


def _theirs(server: ForkServer, plain: Sequence[bytes]) -> Caller:
    return lambda place: server.call(plain[place])


def _check(ours: Caller, theirs: Caller, given: Sequence[Any], found: Findings) -> None:
    if not ours(0) == theirs(0) == brief(*given[0]):
        found.notes.append("the sandbox and the baseline gave different scores")


def _each(call: Caller, count: int) -> float:
    """Return the seconds per call of sequential calls."""
    return _timed(lambda: [call(number % CONVERSATIONS) for number in range(count)]) / count


def _at_once(threads: ThreadPoolExecutor, callers: Sequence[Caller]) -> float:
    """Return the seconds per call of concurrent callers, with a thread for each."""
    work = lambda call: _each(call, CALLS_BY_TWO)  # noqa: E731
    return _timed(lambda: list(threads.map(work, callers))) / CALLS_BY_TWO / len(callers)


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start
