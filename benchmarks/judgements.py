"""Judgements over MCP, 64 at a time, by a judge that takes 100 ms; and cached judgements.

The judge is an object in this process, or a server in another process over streamable HTTP. 1,000
judgements, 64 at a time, take at least 1,000 / 64 × 100 ms.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import checks, judge_mcp
from benchmarks.server_process import ServerProcess
from benchmarks.timing import Findings, Measured
from guerdon import LLMJudge, MCPClient

JUDGEMENTS = 1000
AT_ONCE = 64
ROUNDS = 5
CACHED_ROUNDS = 10
BEST = JUDGEMENTS / AT_ONCE * judge_mcp.SECONDS

TEMPLATE = "Rate from 0 to 1 how well the question is answered.\n{observation}\n{action}"


def run() -> Findings:
    """Run the benchmark."""
    lines = [_measured("in memory", 1.25, judge_mcp.make())]
    with ServerProcess(sys.executable, "benchmarks.judge_mcp") as server:
        lines.append(_measured("streamable HTTP", 2.5, f"{server.url}/mcp"))
    return Findings([*lines, _cached()])


def _measured(transport: str, bar: float, service: Any) -> Measured:
    line = Measured(
        f"{JUDGEMENTS:,} judgements, {AT_ONCE} at a time, {transport}",
        f"{JUDGEMENTS:,} / {AT_ONCE} × 100 ms",
        bar,
        per=JUDGEMENTS,
        unit="judgement",
    )
    with MCPClient({"judge": service}) as client:
        judge = LLMJudge(TEMPLATE, "judge", mcp_client=client)
        line.pairs = [(_seconds(judge.evaluate), BEST) for _ in range(ROUNDS)]
    return line


def _cached() -> Measured:
    line = Measured("a cached judgement", "–", 1 / 5000, per=JUDGEMENTS, absolute=True)
    with MCPClient({"judge": judge_mcp.make()}) as client:
        judge = LLMJudge(TEMPLATE, "judge", mcp_client=client, cache="memory")
        _seconds(judge.evaluate)
        line.pairs = [(_seconds(judge.evaluate), 0.0) for _ in range(CACHED_ROUNDS)]
    return line


def _seconds(evaluate: Callable[[Any, Any], Awaitable[Any]]) -> float:
    """Judge distinct pairs concurrently; return the seconds."""
    rows = enumerate(checks.rows(JUDGEMENTS))

    async def worker() -> None:
        for number, row in rows:
            question, answer = (message["content"] for message in row["messages"])
            assert await evaluate(answer, f"{number}. {question}") == 0.5

    async def workers() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        return time.perf_counter() - start

    return asyncio.run(workers())
