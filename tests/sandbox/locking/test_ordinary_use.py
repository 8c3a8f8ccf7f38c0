"""What a locked process still does: what programs and reward functions do every day."""

from __future__ import annotations

from typing import Any

import pytest

ORDINARY = {
    "fork": """
child = os.fork()
if not child:
    os._exit(7)
result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
    "signal-child": """
child = os.fork()
if not child:
    time.sleep(10)
    os._exit(0)
os.kill(child, 15)
result = os.WTERMSIG(os.waitpid(child, 0)[1]) == 15
""",
    "abort": """
child = os.fork()
if not child:
    os.abort()
result = os.WTERMSIG(os.waitpid(child, 0)[1]) == 6
""",
    "multiprocessing": """
import multiprocessing
context = multiprocessing.get_context("fork")
here, there = context.Pipe()
worker = context.Process(target=there.send, args=(42,))
worker.start()
result = here.recv() == 42
worker.join()
""",
    "subprocess": """
import subprocess
try:
    subprocess.run(["/bin/true"])
except PermissionError:
    result = True
""",
    "posix-spawn": """
try:
    os.posix_spawn("/bin/true", ["true"], {})
except PermissionError:
    result = True
""",
}
BOTH = {
    "threads": """
found = []
threads = [threading.Thread(target=found.append, args=(at,)) for at in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
result = sorted(found) == [0, 1, 2, 3]
""",
    "executor": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    result = list(pool.map(abs, [-1, -2])) == [1, 2]
""",
    "asyncio": """
import asyncio
async def main():
    await asyncio.sleep(0.001)
    return await asyncio.to_thread(abs, -3)
result = asyncio.run(main()) == 3
""",
    "time": "time.sleep(0.001); result = time.time() > 0 and bool(time.ctime())",
    "random": "import random, secrets; result = len(secrets.token_bytes(8)) == 8",
    "decimal": "import decimal; result = str(decimal.Decimal(1) / 7)[:4] == '0.14'",
    "sqlite": """
import sqlite3
result = sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
""",
    "numpy": """
import numpy
result = (numpy.ones((64, 64)) @ numpy.ones(64)).tolist() == [64.0] * 64
""",
    "pydantic": """
import pydantic
result = pydantic.TypeAdapter(list[int]).validate_json("[1, 2]") == [1, 2]
""",
    "alarm": """
signal.signal(signal.SIGALRM, lambda *_: globals().update(result=True))
signal.setitimer(signal.ITIMER_REAL, 0.001)
signal.pause()
""",
    "zone": "import zoneinfo; result = True",
    "null": "open(os.devnull, 'w').write('x'); result = open(os.devnull).read() == ''",
    "compile": "import re, ast, json, dataclasses, typing; result = True",
    "ssl-free-imports": "import hashlib, zlib, bz2, csv, statistics, fractions; result = True",
    "name-and-limits": """
import resource
result = bool(os.getpid() and os.uname() and resource.getrlimit(resource.RLIMIT_NOFILE))
""",
    "processors": "result = os.cpu_count() > 0 and len(os.sched_getaffinity(0)) > 0",
    "faulthandler": "import faulthandler; result = True",
}
FILES = {
    "temporary": """
with tempfile.TemporaryDirectory(dir=folder) as inner, open(inner + "/a", "w") as file:
    result = file.write("a") == 1
""",
    "copy": """
open("a", "w").write("text")
shutil.copy("a", "b")
shutil.copy2("a", "c")
shutil.copytree(".", "tree", ignore=lambda *_: ["tree"])
result = open("tree/c").read() == "text"
""",
    "move": """
os.mkdir("d")
open("a", "w").write("text")
os.rename("a", "d/b")
os.truncate("d/b", 2)
result = open("d/b").read() == "te"
""",
    "database": """
import sqlite3
with sqlite3.connect("db") as base:
    base.execute("create table t (n)")
    base.execute("insert into t values (42)")
result = base.execute("select n from t").fetchone() == (42,)
""",
    "lock": """
import fcntl
with open("a", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
result = True
""",
}


@pytest.mark.parametrize("use", [*ORDINARY, *BOTH])
def test_lock_program_allows_ordinary_use(supervisor: Any, use: str) -> None:
    if supervisor.who == "old" and use in ("signal-child", "abort"):
        pytest.skip("signals to its children are refused where Landlock doesn't keep them inside")
    outcome = supervisor.tries({**ORDINARY, **BOTH}[use])
    assert outcome.result is True, outcome


@pytest.mark.parametrize("use", BOTH)
def test_lock_function_call_allows_ordinary_use(supervisor: Any, use: str) -> None:
    outcome = supervisor.tries(BOTH[use], profile="function_call")
    assert outcome.result is True, outcome


@pytest.mark.parametrize("use", FILES)
def test_lock_program_allows_writing_in_its_folder(supervisor: Any, use: str) -> None:
    if supervisor.who == "old" and use == "move":
        pytest.skip("the first Landlock moves nothing between folders")
    outcome = supervisor.tries(FILES[use], folder=True)
    assert outcome.result is True, outcome
