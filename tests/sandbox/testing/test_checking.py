import asyncio
import random

import pytest

from guerdon.sandbox.protocol import Limits
from guerdon.sandbox.testing.checking import Verdict, check_program, check_program_async

GOOD = "def add(a, b): return a + b\n"
TESTS = ["assert add(1, 2) == 3", "assert add(0, 0) == 1"]


def test_check_program_in_a_sandbox_without_preloaded_modules(bare):
    program = "import os\nassert os.listdir() == []\n" + GOOD
    verdict = check_program(bare, program, TESTS, entry_point="add")
    assert verdict.tests == (True, False)
    limits = Limits(files=0)
    verdict = check_program(bare, GOOD, TESTS, entry_point="add", limits=limits)
    assert verdict.tests == (True, False)


def test_check_program_async_runs_concurrently(sandbox):
    async def both():
        programs = [GOOD, "def (", GOOD]
        checks = [check_program_async(sandbox, p, TESTS, entry_point="add") for p in programs]
        return [verdict.passed for verdict in await asyncio.gather(*checks)]

    assert asyncio.run(both()) == [1, 0, 1]


def test_verdict_fraction_without_passed_tests():
    assert Verdict(compiled=False, passed=0, total=3).fraction == 0.0
    assert Verdict(compiled=False, passed=0, total=0).fraction == 0.0


def test_check_program_reports_many_tests_despite_a_low_output_limit(sandbox):
    tests = [f"assert add({n}, 1) == {n + 1 + n % 2}" for n in range(3000)]
    limits = Limits(output_bytes=10)
    verdict = check_program(sandbox, GOOD, tests, entry_point="add", limits=limits)
    assert (verdict.passed, verdict.ended) == (1500, "ok")
    assert verdict.failure == "test 2 of 3000: AssertionError"
    loud = check_program(
        sandbox, "print('x' * 11)\n" + GOOD, tests, entry_point="add", limits=limits
    )
    assert (loud.passed, loud.ended, loud.output) == (0, "output_limit", "x" * 10)


def test_check_program_is_reproducible(sandbox):
    program = "def add(a, b): raise ValueError(object(), {'a', 'b', 'c'})"
    once, again = (check_program(sandbox, program, TESTS, entry_point="add") for _ in range(2))
    assert once.failure == again.failure
    assert "0x…" in once.failure


@pytest.mark.parametrize(
    ("program", "test", "message"),
    [
        # Eight of these exceed the memory of the tests' process.
        ("def f(): return 'x' * (30 << 20)", "kept = [f() for _ in range(20)]", "256 MiB"),
        ("def f(): return 'x' * (30 << 20)", "print(f())", "it printed more than"),
        ("def f(n): return [f(n)] if n else []", "f(1)", "RecursionError"),
        ("t = []\nfor _ in range(99): t = [t, t]\ndef f(): return t", "repr(f())", ""),
        ("def f(g): return g(g)", "f(lambda g: f(g))", "RecursionError"),
        ("import itertools\ndef f(): return itertools.count()", "list(f())", "within 1 s"),
        ("def f(): return 1 << 10**7", "str(f())", "within 1 s"),
        (
            "t = []\nt.append(t)\ndef f(): return t",
            "x = []\nx.append(x)\nassert f() == x",
            "RecursionError",
        ),
    ],
    ids=["memory", "prints", "recursion", "bomb", "mutual", "endless", "digits", "cycle"],
)
def test_check_program_fails_tests_with_hostile_results(sandbox, program, test, message):
    limits = Limits(seconds=1.0 if message == "within 1 s" or not message else 20.0)
    verdict = check_program(sandbox, program, [test], entry_point="f", limits=limits)
    assert verdict.passed == 0
    assert message in verdict.failure


SEND = """
import json, os, random
def send(message):
    body = json.dumps(message).encode()
    os.write(3, len(body).to_bytes(4, "big") + body)
send(dict(kinds=[["function", ["__call__"]]], nodes=[["mine", 0, 0]], entry=[0], loaded=True))
chance = random.Random({seed})
def anything(depth=0):
    kinds = [None, 0, 1, -1, 2**70, 1.5, "list", "mine", "yours", "x", [0], [-1], [1], True]
    if depth > 3 or chance.random() < 0.4:
        return chance.choice(kinds)
    if chance.random() < 0.7:
        return [anything(depth + 1) for _ in range(chance.randrange(4))]
    keys = "ask re ok no nodes kinds back what on name args named classes text line".split()
    return {{key: anything(depth + 1) for key in chance.sample(keys, 4)}}
size = int.from_bytes(os.read(3, 4), "big")
asked = json.loads(os.read(3, size))
answer = {{"re": asked["ask"], "ok": 9, "nodes": [], "kinds": [], "back": []}}
question = {{"ask": "1", "what": "call", "on": 0, "name": "", "args": [], "named": {{}}}}
whole = dict(chance.choice([answer, question | {{"nodes": [], "kinds": []}}]))
for key in chance.sample(sorted(whole), 2):
    if key != "re":
        whole[key] = anything()
if chance.random() < 0.3:
    whole["no"] = {{key: anything() for key in ("classes", "text", "line", "args")}}
send(whole)
"""


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_check_program_passes_no_test_with_random_messages(sandbox, start):
    seeds = random.Random(start).sample(range(10**6), 25)
    for seed in seeds:
        program = SEND.format(seed=seed)
        verdict = check_program(sandbox, program, ["assert f(len) == 'it'"], entry_point="f")
        assert (verdict.passed, verdict.compiled) == (0, True), seed
        assert verdict.failure, seed


def test_check_program_names_the_limit_of_files(sandbox):
    program = "def f():\n    for n in range(50): open(str(n), 'w').close()\n    while True: pass"
    limits = Limits(files=10, seconds=5)
    verdict = check_program(sandbox, program, ["f()"], entry_point="f", limits=limits)
    assert (verdict.passed, verdict.ended) == (0, "output_limit")
    assert verdict.failure == "it made more than 10 files"


LONG = "1" + "0" * 9999


@pytest.mark.parametrize(
    ("program", "test", "passes"),
    [
        ("def f(): return 10**9999", f"assert f() == {LONG}", True),
        ("def f(): return 10**9999 + 1", f"assert f() == {LONG}", False),
        (f"def f(): return {LONG}", "assert f() == 10**9999", True),
        ("def f(): return str(10**9999)", f"assert f() == '{LONG}' and int(f()) == {LONG}", True),
        ("def f(): return [{'a': 10**9999}]", f"assert f() == [{{'a': {LONG}}}]", True),
        (
            "import os\ndef f(): return os.path.dirname(__file__)",
            "import os\nassert f() == os.getcwd() == os.path.dirname(os.path.abspath(__file__))",
            True,
        ),
        (
            "import inspect\ndef f(): return inspect.getsource(f)",
            "assert 'return inspect' in f()",
            True,
        ),
        (
            "import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (-1, -1))\n"
            "sys.setrecursionlimit(10**6)\ndef f(n=10**5): return n and 1 + f(n - 1)",
            "assert f() == 10**5",
            True,
        ),
    ],
)
def test_check_program_long_integers_and_the_script(sandbox, program, test, passes):
    verdict = check_program(sandbox, program, [test], entry_point="f")
    assert (verdict.passed == 1) == passes


@pytest.mark.parametrize("test", ["assert False, f()", "raise ValueError(f())"])
def test_check_program_shows_the_beginning_of_a_long_integer(sandbox, test):
    verdict = check_program(sandbox, "def f(): return 10**9999", [test], entry_point="f")
    assert "Error: 1000000" in verdict.failure
    assert len(verdict.failure) < 500
