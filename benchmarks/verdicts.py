"""The verdicts of `check_program` beside those of plain Python, on programs whose truth is known.

``python -m benchmarks.verdicts --corpora FOLDER`` runs every program twice in the same sandbox: in
plain Python, where the starter, the program and its tests share one process, and with
`check_program`. It counts, for each source, the right programs that `check_program` fails, the
wrong ones that it passes, and those without a verdict. Each program is also run cut: its functions
end after half of their statements, and most are then wrong. A program that plain Python passes in
one run and fails in another counts nowhere.

The development programs (``programs/programs.jsonl`` in ``$GUERDON_DATA``) state what they are:
honest, a cheat or wrong. HumanEval is read from the same folder. Other sources are the files of the
folder of corpora, which is not part of this repository; each line of a file is a program, with
``name``, ``program``, ``tests``, ``entry_point`` and ``starter``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.coding_env.humaneval import problems_path, read_problems
from guerdon import Limits, Sandbox, check_program, open_sandbox
from guerdon.errors import GuerdonError, SandboxUnavailableError

WORKERS = 2
LIMITS = Limits(
    seconds=10, memory_bytes=512 << 20, files=1000, file_bytes=16 << 20, output_bytes=1 << 20
)
PLAIN_RUNS = 2
CALLS = 5000
ROUNDS = 5
KINDS = ("honest", "cheat", "wrong")
# Runs a job in one process; exits with 0 if all tests pass. The tests' own `unittest.main()` does
# nothing, because the classes run after the text that defines them.
PLAIN = """
import sys, unittest
unittest.main = unittest.TestProgram = lambda *arguments, **named: None
def _run(starter, program, tests, entry_point):
    names = sys.modules["__main__"].__dict__
    for source in (starter, program):
        exec(compile(source, "<program>", "exec"), names)
    for test in tests:
        before = dict(names)
        exec(compile(test, "<test>", "exec"), names)
        new = {name: each for name, each in names.items() if before.get(name) is not each}
        suite = unittest.TestSuite(
            unittest.defaultTestLoader.loadTestsFromTestCase(each)
            for each in new.values()
            if isinstance(each, type) and issubclass(each, unittest.TestCase)
        )
        if not unittest.TextTestRunner(sys.stderr).run(suite).wasSuccessful():
            sys.exit(1)
        for name, each in new.items():
            if name.startswith("test_") and callable(each):
                each()
        if "check" in new and "check(" + entry_point not in test:
            new["check"](names[entry_point])
"""


@dataclass
class Judged:
    """A program with both verdicts; None is no verdict, or several."""

    source: str
    kind: str
    name: str
    job: dict[str, Any]
    plain: bool | None = None
    ours: bool | None = None
    failure: str = ""

    @property
    def disagrees(self) -> bool:
        right = self.kind == "honest" if self.source == "programs" else self.plain
        return right is not None and self.ours is not right


def judge(each: Judged, sandbox: Sandbox, truth: dict[str, bool | None]) -> Judged:
    """Run a program in plain Python, unless the truth is known, and with `check_program`."""
    job = each.job
    key = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:24]
    if key not in truth:
        source = f"{PLAIN}\n_run(**{job!r})\n"
        runs = {sandbox.run(source, limits=LIMITS).ending == "ok" for _ in range(PLAIN_RUNS)}
        truth[key] = runs.pop() if len(runs) == 1 else None
    each.plain = truth[key]
    try:
        verdict = check_program(sandbox, **job, limits=LIMITS)
    except GuerdonError as error:
        each.failure = f"{type(error).__name__}: {error}"
        return each
    each.ours = verdict.passed == verdict.total
    each.failure = verdict.failure or verdict.compile_error or ""
    return each


def cut(program: str) -> str:
    """Return a program whose functions end after half of their statements.

    Example:
        >>> from benchmarks.verdicts import cut
        >>> print(cut("def double(n):\n    m = n + n\n    return m"))
        def double(n):
            m = n + n
    """
    tree = ast.parse(program)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[: len(node.body) // 2] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree))


def jobs(source: str, rows: Iterator[dict[str, Any]], limit: int | None) -> Iterator[Judged]:
    """Yield the programs of a source, and each cut unless its source has wrong ones of its own."""
    for row in list(rows)[:limit]:
        job = {name: row[name] for name in ("program", "tests", "entry_point", "starter")}
        yield Judged(source, row.get("kind", "whole"), row["name"], job)
        if "kind" not in row:
            yield Judged(source, "cut", row["name"], job | {"program": cut(row["program"])})


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the programs of a file."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def humaneval(path: Path) -> Iterator[dict[str, Any]]:
    """Yield HumanEval's canonical solutions."""
    for task in read_problems(path):
        names = {"name": task.id, "program": task.solution, "tests": list(task.tests)}
        yield names | {"entry_point": task.entry_point, "starter": task.starter}


def sources(corpora: Path | None) -> dict[str, Iterator[dict[str, Any]]]:
    """Return the programs of each source that is there; print what is missing."""
    problems = problems_path()
    found: dict[str, Iterator[dict[str, Any]]] = {}
    if problems is None:
        print("programs, humaneval: missing; set $GUERDON_DATA to their folder")
    else:
        found["programs"] = rows_of(problems.parents[1] / "programs" / "programs.jsonl")
        found["humaneval"] = humaneval(problems)
    files = sorted(corpora.glob("*.jsonl")) if corpora else []
    if not files:
        print("corpora: missing; set --corpora or $GUERDON_CORPORA to their folder")
    return found | {file.stem: rows_of(file) for file in files}


def seconds_of_calls(sandbox: Sandbox) -> float:
    """Return how long `CALLS` calls of a cheap function take, in the fastest round."""
    test = f"for n in range({CALLS}):\n    assert add(n, 1) == n + 1"
    program = "def add(a, b): return a + b"
    return min(
        check_program(sandbox, program, [test], entry_point="add", limits=LIMITS).seconds
        for _ in range(ROUNDS)
    )


def table(judged: list[Judged]) -> str:
    """Return the counts of each source as Markdown."""
    lines = [
        "| source | programs | right in plain Python | wrongly failed | % | wrong, but passed "
        "| without a verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for source in dict.fromkeys(each.source for each in judged if each.source != "programs"):
        for kind in ("whole", "cut"):
            part = [each for each in judged if (each.source, each.kind) == (source, kind)]
            right = [each for each in part if each.plain]
            failed = sum(each.ours is False for each in right)
            passed = sum(bool(each.ours) for each in part if each.plain is False)
            without = sum(each.ours is None for each in part)
            name = source if kind == "whole" else f"{source}, cut"
            share = f"{100 * failed / len(right):.1f}" if right else "–"
            cells = (name, len(part), len(right), failed, share, passed, without)
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    for kind in KINDS:
        part = [each for each in judged if (each.source, each.kind) == ("programs", kind)]
        if part:
            passed = sum(bool(each.ours) for each in part)
            without = sum(each.ours is None for each in part)
            lines.append(
                f"\ndevelopment programs, {kind}: {passed} of {len(part)} pass, "
                f"{without} without a verdict"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--corpora", type=Path, default=os.environ.get("GUERDON_CORPORA"))
    parser.add_argument("--truth", type=Path, help="file that keeps plain Python's verdicts")
    parser.add_argument("--only", action="append", metavar="SOURCE", help="only this source")
    parser.add_argument("--grep", default="", metavar="NAME", help="only names with this text")
    parser.add_argument("--limit", type=int, help="number of programs of each source")
    parser.add_argument("--list", action="store_true", help="print the disagreements")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all verdicts")
    given = parser.parse_args()
    corpora = Path(given.corpora) if given.corpora else None
    found = sources(corpora)
    if unknown := set(given.only or ()) - set(found):
        parser.error(f"--only must be among {', '.join(found)}, got {', '.join(unknown)}")
    work = [
        each
        for source, rows in found.items()
        if not given.only or source in given.only
        for each in jobs(source, rows, given.limit)
        if given.grep in each.name
    ]
    path = given.truth or (corpora / "truth.json" if corpora else None)
    truth = json.loads(path.read_text()) if path and path.exists() else {}
    try:
        sandbox = open_sandbox("strict", workers=WORKERS, limits=LIMITS)
    except SandboxUnavailableError as error:
        print(f"strict sandbox: {error}; measuring with `process`")
        sandbox = open_sandbox("process", workers=WORKERS, limits=LIMITS)
    with sandbox, ThreadPoolExecutor(WORKERS) as threads:
        try:
            judged = list(threads.map(lambda each: judge(each, sandbox, truth), work))
        finally:  # a run that is interrupted continues where it was
            if path:
                path.write_text(json.dumps(truth))
        seconds = seconds_of_calls(sandbox)
    if given.list:
        for each in filter(lambda each: each.disagrees, judged):
            print(f"{each.source} {each.kind} {each.name}: plain {each.plain}, ours {each.ours}")
            print(f"    {each.failure}")
    print(table(judged))
    print(f"\n{CALLS:,} calls of a cheap function: {seconds:.2f} s")
    if given.json:
        given.json.write_text(json.dumps([asdict(each) for each in judged], indent=1))


if __name__ == "__main__":
    main()
